"""What models have in common whose code depends on the shapes of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.running.model import Model

if TYPE_CHECKING:
    from polyc.graph_driver.execution.execute import Observer


class ModelForShapes(Model):
    """A model that has another one run a call where `model_for` says so."""

    def eager(self, inputs: Mapping[str, Any], observer: Observer | None = None) -> dict[str, Any]:
        """As `Model.eager`, by the model for the shapes of these inputs."""
        model = self.model_for(inputs)
        return super().eager(inputs, observer) if model is self else model.eager(inputs, observer)

    def run(
        self, inputs: Mapping[str, Any], mode: str = "graph", eager: Sequence[str] = (),
        observer: Observer | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """As `Model.run`, by the model for the shapes of these inputs."""
        model = self.model_for(inputs)
        if model is self:
            return super().run(inputs, mode, eager, observer)
        return model.run(inputs, mode, eager, observer)

    def in_parts(
        self, inputs: Mapping[str, Any], alone: frozenset[int], observer: Observer | None = None,
        before: Observer | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """As `Model.in_parts`, by the model for the shapes of these inputs."""
        model = self.model_for(inputs)
        if model is self:
            return super().in_parts(inputs, alone, observer, before)
        return model.in_parts(inputs, alone, observer, before)

    def inspect(self, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
        """As `Model.inspect`, by the model for the shapes of these inputs."""
        model = self.model_for(inputs)
        return super().inspect(inputs, names) if model is self else model.inspect(inputs, names)
