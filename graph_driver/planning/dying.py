"""Tensors that die, element by element, in the step that makes others: which pairs may overlap, and how far apart.

A kernel's own gaps (`polyc.emit.loop_ir.overlap`) are of its arguments. Of two memories of the plan they speak when the
step is the last that touches the one and the first that touches the other: all that the step accesses in both must keep
apart as its gaps say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from polyc.graph_driver import memory
from polyc.graph_driver.planning.plan import Gap, is_record
from polyc.graph_driver.planning.slots import Step

Touch = tuple[int, int, int]
"""Number of an argument, first byte in its memory, and the byte after the last."""


def allowed(
    steps: Sequence[Step], inside: Mapping[str, tuple[str, int]], sizes: Mapping[str, int],
    shapes: Sequence[memory.Shape], gaps: Mapping[str, Sequence[Gap]],
) -> memory.Overlaps:  # fmt: skip
    """Pairs of runs of `shapes` that may have bytes in common, with the distances at which they must not lie.

    `inside`: the memory in which each tensor lies, and where; `gaps` by symbol. The first of a pair dies in the step in
    which the second begins.
    """
    by_name = {s.name: s for s in shapes}
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for number, step in enumerate(steps):
        if step.kind != "kernel" or not gaps.get(step.symbol):
            continue
        known = {(a, b): (low, high) for a, b, low, high in gaps[step.symbol]}
        touched = _touched(step, inside, sizes, by_name)
        results = {inside[n][0] for n in step.results if n in inside}
        for a, b in permutations(touched, 2):
            if a in results:
                continue
            for at_a, dying in by_name[a].runs:
                for at_b, made in by_name[b].runs if dying.last == number else ():
                    if made.first != number or not dying.size or not made.size:
                        continue
                    gap = _between((at_a, dying), (at_b, made), touched[a], touched[b], known)
                    if gap is not None:
                        found[dying.name, made.name] = gap
    return found


def _touched(
    step: Step, inside: Mapping[str, tuple[str, int]], sizes: Mapping[str, int], shapes: Mapping[str, memory.Shape]
) -> dict[str, list[Touch]]:
    """The arguments of a step by the memory of the arena in which they lie."""
    touched: dict[str, list[Touch]] = {}
    for k, name in enumerate(step.args):
        root, at = inside.get(name, (name, 0))
        if root in shapes and not is_record(name):
            touched.setdefault(root, []).append((k, at, at + sizes[name]))
    return touched


def _between(
    a: tuple[int, memory.Lifetime], b: tuple[int, memory.Lifetime], of_a: Sequence[Touch], of_b: Sequence[Touch],
    gaps: Mapping[tuple[int, int], tuple[int, int]],
) -> tuple[int, int] | None:  # fmt: skip
    """The distances of two runs, begin to begin, at which some argument in the first and some in the second would be
    too close; None where that is as if they were unrelated."""
    (at_a, dying), (at_b, made) = a, b
    close: list[tuple[int, int]] = []
    for k, begin, end in of_a:
        for j, start, stop in of_b:
            if end <= at_a or at_a + dying.size <= begin or stop <= at_b or at_b + made.size <= start:
                continue
            if (k, j) not in gaps:
                return None
            moved = (start - at_b) - (begin - at_a)
            low, high = gaps[k, j]
            if low + 1 < high:
                close.append((low - moved, high - moved))
    if not close:
        return (0, 0)
    low, high = max(min(low for low, _ in close), -made.size), min(max(high for _, high in close), dying.size)
    return None if (low, high) == (-made.size, dying.size) else (low, high)
