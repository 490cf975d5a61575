"""Revolve: the order in which a chain of steps is reversed with few snapshots of its state.

    steps 0 1 2 3 4 5 6 7 8 9, three snapshots:
    store 0, advance to 4, store 4, advance to 7, store 7, advance to 9, reverse 9, restore 7, advance to 8, ...

The schedule is binomial (Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26, 2000): no order of that many
snapshots, the one of the initial state among them, runs fewer steps forwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from typing import Literal

from polyc.poly.records import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """`store`: keep the state before `step`. `restore`: go back to it. `advance`: run the steps from `step` on, until
    the state before `until` is there. `reverse`: run the adjoint of `step`, whose state is there. `drop`: the snapshot
    is not needed any more."""

    kind: Literal["store", "restore", "advance", "reverse", "drop"]
    step: int
    until: int = 0


def revolve(steps: int, snapshots: int) -> Iterator[Action]:
    """The actions that reverse `steps` steps, from the state before the first one, with at most `snapshots` kept at
    once. Raises `ValueError`: there is no step, or no snapshot."""
    _check(steps, snapshots)
    free, at = snapshots - 1, 0
    segments = [(0, steps)]  # from a snapshot to where the reversal has come
    yield Action("store", 0)
    while segments:
        begin, end = segments.pop()
        while end - begin > 1 and free:
            if at != begin:
                yield Action("restore", begin)
            at = begin + _first_part(end - begin, free + 1)
            yield Action("advance", begin, at)
            yield Action("store", at)
            segments.append((begin, at))
            begin, free = at, free - 1
        for step in range(end - 1, begin - 1, -1):
            if at != begin:
                yield Action("restore", begin)
            if step > begin:
                yield Action("advance", begin, step)
            at = step
            yield Action("reverse", step)
        yield Action("drop", begin)
        free += 1


def forward_steps(steps: int, snapshots: int) -> int:
    """How many steps `revolve` runs forwards: r steps - beta(snapshots + 1, r - 1), where r is the smallest number with
    beta(snapshots, r) >= steps and beta(s, r) = binomial(s + r, s). Raises `ValueError` as `revolve`."""
    _check(steps, snapshots)
    r = _repetitions(steps, snapshots)
    return r * steps - _reach(snapshots + 1, r - 1)


def _check(steps: int, snapshots: int) -> None:
    if steps < 1 or snapshots < 1:
        raise ValueError(f"{steps} steps cannot be reversed with {snapshots} snapshots: it takes at least one of each")


def _reach(snapshots: int, repetitions: int) -> int:
    """The longest chain of which no step runs more often than that."""
    return comb(snapshots + repetitions, snapshots) if repetitions >= 0 else 0


def _repetitions(steps: int, snapshots: int) -> int:
    """How often a step runs at most."""
    r = 0
    while _reach(snapshots, r) < steps:
        r += 1
    return r


def _first_part(steps: int, snapshots: int) -> int:
    """Where the next snapshot is best taken (of several such places the first)."""
    r = _repetitions(steps, snapshots)
    return max(1, _reach(snapshots, r - 2), steps - _reach(snapshots - 1, r))
