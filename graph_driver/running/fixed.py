"""A model for one shape of its inputs runs in one native program."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.backends.cpu_code import Code, native_parts
from polyc.graph_driver.execution import entry
from polyc.graph_driver.execution.execute import NativeExecutor
from polyc.graph_driver.execution.parts import Parts, cut
from polyc.graph_driver.running.model import Built, Running

if TYPE_CHECKING:
    from polyc.graph_driver.execution.executor import Executor


class FixedSizes(Running):
    """One program for all calls, linked at first use; what runs had to do beside the plan is added to `notes`."""

    def __init__(self, built: Built, code: Code, notes: list[str]) -> None:
        self._built, self._code, self._notes = built, code, notes
        self._linking = threading.Lock()

    @property
    def built(self) -> Built:
        """What was compiled."""
        return self._built

    @property
    def code(self) -> Code:
        """Machine code for a CPU."""
        return self._code

    def executor(self) -> Executor:
        """The loaded program. Raises `BuildError`."""
        with self._linking:
            if self.only is None:
                made = self._built
                self.only = NativeExecutor(made.plan, made.weights, made.hosts, *self._code.linked(), notes=self._notes)
            return self.only

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The loaded program. Raises `BuildError`."""
        return self.executor()

    def parts(self, alone: frozenset[int]) -> Parts:
        """The plan cut around the steps `alone`, with the code of its parts."""
        plan, target = self._built.plan, self._code.target
        parts, text = cut(plan, alone), entry.entry_text(plan, target.triple, alone)
        return replace(parts, native=native_parts(text, target, len(parts.segments), self._code.linked()[0]))
