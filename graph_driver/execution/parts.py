"""A plan cut into parts for a `mixed` run: chosen steps run one at a time, what lies between them natively.

    steps    0  1  2  3  4  5  6        3 is chosen, 5 needs Python
    order    [0  1  2] 3 [4] 5 [6]      each [...] is one native call

A run in parts does what a run in one piece does, on the same bytes in the same order: its results are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from polyc.graph_driver.execution import entry
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Step
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

Native = Callable[[int], None]


@dataclass(frozen=True)
class Parts:
    """`alone`: the steps that run one at a time, and are watched. `segments`: the steps of each native part.
    `order`: what to do in turn, `k >= 0` is part k, `~k` is step k. `native`: the code of the parts on a CPU."""

    alone: frozenset[int]
    segments: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    native: tuple[Native, ...] = ()


def cut(plan: Plan, alone: frozenset[int]) -> Parts:
    """The parts of a plan around the steps `alone`; steps that need Python are cut out as always."""
    segments = entry.segments(plan, alone)
    starts = {steps[0]: number for number, steps in enumerate(segments)}
    inside = {k for steps in segments for k in steps}
    order = [starts[k] if k in starts else ~k for k in range(len(plan.steps)) if k in starts or k not in inside]
    return Parts(alone, tuple(map(tuple, segments)), tuple(order))


def chosen_steps(plan: Plan, patterns: Sequence[str]) -> frozenset[int]:
    """The steps that any of the patterns names.

    A pattern is the number of a step, or a name in which `*`, `?` and `[...]` stand for other characters as in file
    names: of one of the step's nodes, of an operator (`Conv`; one of `Conv+Relu`), of the whole label, or of a tensor
    that the step makes.

    Raises:
        ArgumentError: there is no pattern, or one names no step.
    """
    if not patterns:
        raise ArgumentError("mixed mode needs to know which steps run one at a time: give nodes, operators or tensors")
    found: set[int] = set()
    for pattern in patterns:
        named = [k for k, step in enumerate(plan.steps) if pattern == str(k) or _names(step, pattern)]
        if not named:
            raise ArgumentError(
                f"no step is, and no step makes, '{pattern}' (polyc inspect MODEL --stage plan lists the steps)"
            )
        found.update(named)
    return frozenset(found)


def _names(step: Step, pattern: str) -> bool:
    names = {step.label, *step.label.split("+"), *step.nodes, *step.results}
    return pattern in names or any(fnmatchcase(name, pattern) for name in names)
