"""What runs a plan whose sizes are numbers: `Executor`, on whatever machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Step

if TYPE_CHECKING:
    from polyc.graph_driver.execution.parts import Parts

Look = Callable[[str], np.ndarray]
Observer = Callable[[int, Step, Look], None]


class Executor(Protocol):
    """A plan with its memory and code, ready to run from any number of threads."""

    @property
    def plan(self) -> Plan[int]:
        """What it runs."""

    @property
    def arena(self) -> Any:
        """The memory of the next run, to poison: `arena[begin:end] = byte`."""

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None, stream: Any = None
    ) -> dict[str, Any]:
        """Outputs by name; those named in `out` are written there. `stream`: of a device.

        Raises:
            ArgumentError: inputs or arrays of `out` do not fit, or there are no streams.
            BoundsError: an index is outside of what it chooses from.
        """

    def bind(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None
    ) -> Callable[[], dict[str, Any]]:
        """A run with these arrays as they are when it is called, again and again. Raises as `run`."""

    def run_eager(
        self, inputs: Mapping[str, Any], observer: Observer | None = None, before: Observer | None = None
    ) -> dict[str, Any]:
        """The same, step by step; `observer(number, step, look)` is called after each step, `before` before it.

        `look(name)` gives a copy of any tensor that is in memory at that point.
        """

    def run_in_parts(
        self, inputs: Mapping[str, Any], parts: Parts, observer: Observer | None = None,
        before: Observer | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The same, where only the steps that run alone are observed, and what lies between them runs at once."""
