"""Which steps of a plan may run at the same time.

Steps between two that need Python (a segment) form a graph of tasks: one waits for another when both touch the same
bytes and at least one writes them. Whatever the order in which such a graph runs, every byte has the same
history, so the results are the same bits.

Memory that is used again orders steps that have nothing to do with each other. So that independent branches
stay independent, tensors that are to be alive together in a run on threads get memory apart: lifetimes
are drawn out over all steps with which those that touch a tensor may run (`spread`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from graph_driver.importing.limits import human

if TYPE_CHECKING:
    from graph_driver.planning.plan import Plan, Step

WINDOWS = (12, 4, 1)
"""Steps farther apart than this are not kept independent: what a branch needs would live through the whole plan.
A smaller number is tried when the arena becomes too large."""

Region = tuple[str, int, int, int]  # kind of memory, which one, begin, end (bytes)
Uses = tuple[frozenset[Region], frozenset[Region]]  # read, written


def segments_of(steps: Sequence[Step]) -> list[int]:
    """For each step the number of its segment; -1 for one that needs Python."""
    found, segment = [], 0
    for step in steps:
        if step.kind in ("host", "control"):
            segment += 1
        found.append(-1 if step.kind in ("host", "control") else segment)
    return found


def ordered(uses: Sequence[Uses], segments: Sequence[int]) -> list[int]:
    """For each step a bit mask of the earlier ones of its segment that must be done before it."""
    before: list[int] = []
    for k, (reads, writes) in enumerate(uses):
        mask = 0
        for j in range(k):
            if segments[j] != segments[k] or segments[k] < 0:
                continue
            if _meet(uses[j][1], reads) or _meet(uses[j][1], writes) or _meet(uses[j][0], writes):
                mask |= before[j] | 1 << j
        before.append(mask)
    return before


def _meet(a: frozenset[Region], b: frozenset[Region]) -> bool:
    return any(x[:2] == y[:2] and x[2] < y[3] and y[2] < x[3] for x in a for y in b)


def spread(before: Sequence[int], segments: Sequence[int], window: int) -> list[tuple[int, int]]:
    """For each step the first and the last of those, up to `window` steps away, that it may run together with."""
    span = []
    for k in range(len(before)):
        near = range(max(0, k - window), min(len(before), k + window + 1))
        free = [
            j for j in near
            if segments[j] == segments[k] >= 0 and not before[k] >> j & 1 and not before[j] >> k & 1
        ]  # fmt: skip
        span.append((min(free, default=k), max(free, default=k)))
    return span


def dependences(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """For each step those before it that it waits for directly; what follows from others is left out."""
    uses = [uses_of(plan, s) for s in plan.steps]
    before = ordered(uses, segments_of(plan.steps))
    found = []
    for mask in before:
        direct, left = [], mask
        while left:
            j = left.bit_length() - 1
            direct.append(j)
            left &= ~(before[j] | 1 << j)
        found.append(tuple(reversed(direct)))
    return tuple(found)


def uses_of(plan: Plan, step: Step) -> Uses:
    """The memory that a step reads and writes; weights are never written and left out."""
    written = {*step.results, *step.scratch}

    def regions(names: Sequence[str]) -> frozenset[Region]:
        return frozenset(r for n in names if (r := _region(plan, n)) is not None)

    return regions([a for a in step.args if a not in written]), regions(sorted(written))


def _region(plan: Plan, name: str) -> Region | None:
    slot = plan.slots.get(name)
    if slot is None or slot.place.kind not in ("arena", "input", "output") or not slot.nbytes:
        return None
    return slot.place.kind, slot.place.index, slot.place.offset, slot.place.offset + slot.nbytes


def with_tasks(plan: Plan, make: Callable[[int], Plan], limit: int | None, notes: list[str]) -> Plan:
    """The plan that `make` gives for tasks in place of `plan`, where independent steps are in it.

    `make` gets the number of steps within which they stay independent, the largest of `WINDOWS` first; the arena
    must not become larger than `limit` (bytes).
    """
    for window in WINDOWS:
        parallel = make(window)
        if width(parallel.after) < 2:
            return plan
        if limit is None or parallel.peak <= limit:
            return parallel
    notes.append(
        f"steps run in order: as tasks on several threads the arena would be {human(parallel.peak)}, "
        f"not {human(plan.peak)}"
    )
    return plan


def width(after: Sequence[Sequence[int]]) -> int:
    """The most tasks of one distance from the start: 1 says that there is only one order."""
    level: list[int] = []
    for earlier in after:
        level.append(max((level[e] + 1 for e in earlier), default=0))
    return max((level.count(v) for v in set(level)), default=0)


def times(
    steps: Sequence[Step], inside: Mapping[str, tuple[str, int]], nbytes: Mapping[str, int], window: int
) -> list[tuple[int, int]]:
    """For each step the first and last, up to `window` steps away, beside which it may run as far as the tensors say.

    `inside` has the tensor whose memory each tensor uses, and where in it; scratch is a step's own.
    """
    segments = segments_of(steps)
    return spread(ordered(_uses_of_tensors(steps, inside, nbytes), segments), segments, window)


def _uses_of_tensors(
    steps: Sequence[Step], inside: Mapping[str, tuple[str, int]], nbytes: Mapping[str, int]
) -> list[Uses]:
    """As `uses_of`, where memories have no place yet."""

    def regions(names: Sequence[str]) -> frozenset[Region]:
        found = {(*inside[n], nbytes[n]) for n in names if n in inside and nbytes.get(n)}
        return frozenset((root, 0, at, at + size) for root, at, size in found)

    out = []
    for step in steps:
        written = {*step.results, *step.scratch}
        out.append((regions([a for a in step.args if a not in written]), regions(sorted(written))))
    return out
