"""A model whose sizes cannot stay symbolic: it is compiled for the shapes of each call, and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.running.for_shapes import ModelForShapes
from polyc.graph_driver.running.model import Model, Shapes, Specialisation
from polyc.graph_driver.running.specialising import Specialiser
from polyc.poly.errors import ArgumentError, BuildError

if TYPE_CHECKING:
    from polyc.graph_driver.execution.execute import Executor


class PerCallModel(ModelForShapes):
    """A model that is compiled at the first call with new shapes; `why` says what keeps its sizes from staying open.

    `plan`, `graph`, `weights`, ... are those of the model that was used last; there are none before the first call.
    """

    def __init__(self, specialiser: Specialiser, report: Report, why: str) -> None:
        self.name, self.why = specialiser.said.name, why
        self._specialiser, self._report = specialiser, report
        report.sizes = [f"{', '.join(specialiser.said.free)}: numbers of each call ({why})"]

    def __reduce__(self) -> tuple[Any, ...]:
        """As what it is compiled from: code for the shapes of calls is made anew, most of it from the cache."""
        return self._specialiser.compiling, self._specialiser.origin()

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_") or attribute not in ("plan", "graph", "groups", "hosts", "weights", "code"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{attribute}'")
        return getattr(self._latest(f"there is no {attribute} yet"), attribute)

    def _latest(self, what: str) -> Model:
        made = self._specialiser.all()
        if not made:
            raise BuildError(f"{what}: {self.name} is compiled for the shapes of each call ({self.why})")
        return made[-1].model

    def model_for(self, inputs: Mapping[str, Any]) -> Model:
        """The model for inputs of these shapes, compiled now if need be. Raises `ArgumentError`."""
        key = self._key(inputs)
        found = self._specialiser.kept(key)
        if found is not None:
            return found
        if not self._specialiser.allows(key):
            given = dict(zip(self._specialiser.said.shapes, key, strict=True))
            raise ArgumentError(f"{self._contradiction(given)}, the model is for {self.shapes_text()}")
        return self._specialiser.get(key, self.why)

    def _key(self, inputs: Mapping[str, Any]) -> Shapes:
        said = self._specialiser.said
        if not isinstance(inputs, Mapping):
            raise ArgumentError(f"inputs are a dict of arrays by name ({', '.join(said.shapes)}), not {inputs!r:.40}")
        missing = [n for n in said.shapes if n not in inputs]
        if missing:
            raise ArgumentError(f"input '{missing[0]}' is missing; the model has {', '.join(said.shapes)}")
        return tuple([_shape(inputs[n]) if n in said.tensors else () for n in said.shapes])

    def _contradiction(self, given: Mapping[str, tuple[int, ...]]) -> str:
        options, said = self._specialiser.options, self._specialiser.said
        name = next(n for n in given if not said.allows({n: given[n]}, options.dims, options.shapes))
        return f"input '{name}' has shape {list(given[name])}"

    def __call__(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None, **device: Any
    ) -> dict[str, Any]:  # fmt: skip
        """Run in `graph` mode, from any thread; the first call with new shapes compiles.

        `device`: what a model for a GPU takes beside these (`stream`).

        Raises:
            ArgumentError: inputs do not fit the model.
        """
        return self.model_for(inputs)(inputs, out, **device)

    def executor(self) -> Executor:
        """The loaded program of the model that was used last."""
        return self._latest("there is no program yet").executor()

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The loaded program for inputs of these shapes."""
        return self.model_for(inputs).for_inputs(inputs)

    def specialisations(self) -> tuple[Specialisation, ...]:
        """The models that are kept, the one used last at the end."""
        return self._specialiser.all()

    def save(self, folder: str | Path) -> None:
        """Raises `BuildError`: a compiled directory holds one model; save one of `specialisations()`."""
        raise BuildError(
            f"{self.name} is compiled for the shapes of each call ({self.why}): give the sizes "
            f"({', '.join(self._specialiser.said.free)}) with dims=, or save the model of one of its specialisations()"
        )

    def inputs_for(
        self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """As `Model.inputs_for`, of the model that was used last."""
        return self._latest("the inputs have no sizes yet").inputs_for(given, sizes)

    def shapes_text(self) -> str:
        """The inputs with the sizes that the file gives them."""
        said = self._specialiser.said
        return ", ".join(
            f"{n}[{', '.join(map(str, s))}]" if s is not None else f"{n} of any rank" for n, s in said.shapes.items()
        )

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """dtype and shape by input name, of the model that was used last."""
        return self._latest("the inputs have no sizes yet").inputs


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array, also of one that is on a device."""
    shape = getattr(value, "shape", None)
    return np.shape(value) if shape is None else tuple(shape)
