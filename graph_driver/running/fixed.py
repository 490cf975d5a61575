"""A model for one shape of its inputs has one executor, whatever runs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.backends.protocol import Code
from polyc.graph_driver.execution.parts import Parts
from polyc.graph_driver.running.model import Built, Running

if TYPE_CHECKING:
    from polyc.graph_driver.execution.executor import Executor


class FixedSizes(Running):
    """One executor for all calls, made at first use; what runs had to do beside the plan is added to `notes`."""

    def __init__(self, built: Built, code: Code, notes: list[str]) -> None:
        self._built, self._code, self._notes = built, code, notes
        self._linking = threading.Lock()

    @property
    def built(self) -> Built:
        """What was compiled."""
        return self._built

    def compiled_by(self, anew: Callable[[], Built]) -> None:
        """Where graph and groups come from when somebody wants them."""
        self._built = replace(self._built, anew=anew)

    @property
    def code(self) -> Code:
        """That of the plan."""
        return self._code

    def executor(self) -> Executor:
        """The loaded program. Raises `BuildError`."""
        with self._linking:
            if self.only is None:
                made = self._built
                self.only = self._code.start(made.plan, made.weights, made.hosts, self._notes)
            return self.only

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The loaded program. Raises `BuildError`."""
        return self.executor()

    def parts(self, alone: frozenset[int]) -> Parts:
        """The plan cut around the steps `alone`, with the code of its parts."""
        return self._code.parts(self._built.plan, alone)
