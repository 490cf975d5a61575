"""Which steps of a plan may run at the same time.

Steps between two that need Python (a segment) form a graph of tasks: one waits for another when both touch the same
bytes and at least one writes them. Whatever the order in which such a graph runs, every byte has the same
history, so the results are the same bits.

Memory that is used again orders steps that have nothing to do with each other. So that independent branches
stay independent, tensors that are to be alive together in a run on threads get memory apart: lifetimes
are drawn out over all steps with which those that touch a tensor may run (`spread`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from polyc.graph_driver.graph.wording import human

if TYPE_CHECKING:
    from polyc.graph_driver.planning.arena import Arena
    from polyc.graph_driver.planning.plan import Plan
    from polyc.graph_driver.planning.slots import Step

WINDOWS = (12, 4, 1)
"""Steps farther apart than this are not kept independent: what a branch needs would live through the whole plan.
A smaller number is tried when the arena becomes too large."""

Region = tuple[str, int, int, int]  # kind of memory, which one, begin, end (bytes)
Uses = tuple[frozenset[Region], frozenset[Region]]  # read, written
After = tuple[tuple[int, ...], ...]
Where = TypeVar("Where", bound=Hashable)


def segments_of(steps: Sequence[Step]) -> list[int]:
    """For each step the number of its segment; -1 for one that needs Python."""
    found, segment = [], 0
    for step in steps:
        if step.kind in ("host", "control"):
            segment += 1
        found.append(-1 if step.kind in ("host", "control") else segment)
    return found


def _meet(a: Region, b: Region) -> bool:
    return a[:2] == b[:2] and a[2] < b[3] and b[2] < a[3]


def ordered(
    uses: Sequence[tuple[frozenset[Where], frozenset[Where]]], segments: Sequence[int],
    meet: Callable[[Where, Where], bool],
) -> list[int]:  # fmt: skip
    """For each step a bit mask of the earlier ones of its segment that must be done before it.

    `uses`: the memory that each step reads and writes; `meet`: whether two memories may share bytes.
    """

    def clash(a: frozenset[Where], b: frozenset[Where]) -> bool:
        return any(meet(x, y) for x in a for y in b)

    before: list[int] = []
    for k, (reads, writes) in enumerate(uses):
        mask = 0
        for j in range(k):
            if segments[j] != segments[k] or segments[k] < 0:
                continue
            if clash(uses[j][1], reads) or clash(uses[j][1], writes) or clash(uses[j][0], writes):
                mask |= before[j] | 1 << j
        before.append(mask)
    return before


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


def dependences(plan: Plan) -> After:
    """For each step those before it that it waits for directly; what follows from others is left out."""
    return direct(before(plan))


def before(plan: Plan) -> list[int]:
    """For each step a bit mask of the earlier ones of its segment that must be done before it, at any sizes."""
    meet = _meet if plan.arena is None else _may_meet(plan.arena)
    return ordered([uses_of(plan, s) for s in plan.steps], segments_of(plan.steps), meet)


def _may_meet(arena: Arena) -> Callable[[Region, Region], bool]:
    """Whether two memories may share bytes at some sizes: in the arena only two that are alive together are apart at
    all of them, because one is stacked on the other."""
    steps = [arena.steps[name] for name in arena.order]

    def meet(a: Region, b: Region) -> bool:
        if a[:2] == b[:2] or a[0] != "arena" or b[0] != "arena":
            return a[:2] == b[:2]
        (first, last), (begin, end) = steps[a[1]], steps[b[1]]
        return last < begin or end < first

    return meet


def direct(before: Sequence[int]) -> After:
    """The same from bit masks of all that must be done before each step."""
    found = []
    for mask in before:
        waits, left = [], mask
        while left:
            j = left.bit_length() - 1
            waits.append(j)
            left &= ~(before[j] | 1 << j)
        found.append(tuple(reversed(waits)))
    return tuple(found)


def uses_of(plan: Plan, step: Step) -> Uses:
    """The memory that a step reads and writes; weights and the table are never written and left out."""
    written = {*step.results, *step.scratch}

    def regions(names: Sequence[str]) -> frozenset[Region]:
        return frozenset(r for n in names if (r := _region(plan, n)) is not None)

    return regions([a for a in step.args if a not in written]), regions(sorted(written))


def _region(plan: Plan, name: str) -> Region | None:
    slot = plan.slots.get(name)
    if slot is None or slot.place.kind not in ("arena", "input", "output"):
        return None
    if plan.arena is not None:
        return slot.place.kind, slot.place.index, 0, 0  # all of the memory
    if not slot.nbytes:
        return None
    return slot.place.kind, slot.place.index, slot.place.offset, slot.place.offset + slot.nbytes


def with_tasks(
    in_order: Plan, make: Callable[[int], Plan], peak: Callable[[Plan], int], limit: int | None, notes: list[str]
) -> Plan:
    """The plan that `make` gives for tasks in place of `in_order`, where independent steps are in it.

    `make` gets the number of steps within which they stay independent, the largest of `WINDOWS` first; the arena,
    whose bytes are `peak` of a plan, must not become larger than `limit`.
    """
    for window in WINDOWS:
        parallel = make(window)
        if width(parallel.after) < 2:
            return in_order
        if limit is None or peak(parallel) <= limit:
            return parallel
    notes.append(
        f"steps run in order: as tasks on several threads the arena would be {human(peak(parallel))}, "
        f"not {human(peak(in_order))}"
    )
    return in_order


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
    return spread(ordered(_uses_of_tensors(steps, inside, nbytes), segments, _meet), segments, window)


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
