"""What the steps of a run made, seen while it ran: values, their range, and the first that is not finite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.poly.records import dataclass

if TYPE_CHECKING:
    from polyc.graph_driver.execution.executor import Look
    from polyc.graph_driver.planning.slots import Step


@dataclass(frozen=True)
class Seen:
    """One result of one step. `low`, `high`, `mean`: of its finite elements (None: it has none, or no numbers);
    `nans` and `infinities` count the others."""

    step: int
    label: str
    nodes: tuple[str, ...]
    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    nans: int = 0
    infinities: int = 0

    @property
    def finite(self) -> bool:
        """Whether all elements are."""
        return not self.nans and not self.infinities

    def data(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "nodes": list(self.nodes), "shape": list(self.shape)}

    def __str__(self) -> str:
        numbers = "" if self.low is None else f" min {self.low:.6g}, max {self.high:.6g}, mean {self.mean:.6g}"
        bad = "" if self.finite else f" NOT FINITE: {self.nans} NaN, {self.infinities} infinite"
        return f"step {self.step} {self.label} -> {self.name}: {self.dtype}{list(self.shape)}{numbers}{bad}"


@dataclass
class Watch:
    """An observer of runs step by step or mixed (`Model.run(..., observer=Watch())`) that keeps what it sees.

    `seen` has a line for each result in the order of the steps, `values` copies of the results by name (none with
    `keep=False`).
    """

    keep: bool = True
    seen: list[Seen] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def __call__(self, number: int, step: Step[int], look: Look) -> None:
        """Take down the results of a step that has just run."""
        for name in step.results:
            value = look(name)
            self.seen.append(_seen(number, step, name, value))
            if self.keep:
                self.values[name] = value

    @property
    def first_not_finite(self) -> Seen | None:
        """The first result with a NaN or an infinity: what made it is the step where it came from, if the steps
        before it were watched, too."""
        return next((s for s in self.seen if not s.finite), None)


def _seen(number: int, step: Step[int], name: str, value: Any) -> Seen:
    array = np.asarray(value)
    about: Mapping[str, Any] = {
        "step": number, "label": step.label, "nodes": step.nodes, "name": name, "dtype": str(array.dtype),
        "shape": array.shape,
    }  # fmt: skip
    if array.dtype.kind in "OSU":
        return Seen(**about)
    x = array.astype(np.float64)  # also from bfloat16, which NumPy's own functions do not know
    nans, infinities = int(np.isnan(x).sum()), int(np.isinf(x).sum())
    x = x[np.isfinite(x)] if nans or infinities else x
    if not x.size:
        return Seen(**about, nans=nans, infinities=infinities)
    low, high, mean = float(x.min()), float(x.max()), float(x.mean())
    return Seen(**about, low=low, high=high, mean=mean, nans=nans, infinities=infinities)
