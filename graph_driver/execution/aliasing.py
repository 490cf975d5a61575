"""Arrays of the caller that share memory: what a run may write over, and what it copies or refuses.

A run writes to the arrays of `out=` and to nothing else of the caller's. Two of them that overlap are refused. An
input that one of them overlaps is used where it lies when every step that reads it is done before the first that
writes the output: then no byte is read after it has changed. Else the run reads a copy. Inside one step nothing can
be promised: kernels compute the elements at the end of a row twice, or a tile at a time. (Results that lie over
their operand *inside* a model have kernels of their own, proved by `polyc.poly.inplace`.) A step that copies an input
to an output is no work where both are the same bytes: so a cache gets its new rows where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.tasks import uses_of
from polyc.poly.errors import ArgumentError
from polyc.poly.host_arrays import as_array, lends

(DEAD, SAME, APART) = ("dead", "same", "apart")
Dead = Mapping[tuple[int, int], str]


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have a byte in common; of arrays that are not contiguous, whether their extents do."""
    return a.size > 0 and b.size > 0 and bool(np.may_share_memory(a, b))


class Extents:
    """Where contiguous arrays begin and end, asked of NumPy once for each during a run.

    That takes a microsecond, and a model with many caches has each of them as input and as output.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        self._alive: list[np.ndarray] = []  # lest another array get the `id` of one that is gone

    def of(self, array: np.ndarray) -> tuple[int, int]:
        """The first address and that behind the last byte."""
        known = self._known.get(id(array))
        if known is None:
            start = array.__array_interface__["data"][0]
            known = self._known[id(array)] = start, start + array.nbytes
            self._alive.append(array)
        return known


def _all_apart(extents: Iterable[tuple[int, int]]) -> bool:
    """Whether surely no two have a byte in common: none begins before the last one ends."""
    return all(before[1] <= behind[0] for before, behind in pairwise(sorted(extents)))


def check_apart(given: Mapping[str, np.ndarray], weights: np.ndarray, extents: Extents) -> None:
    """Raise `ArgumentError` where two arrays for outputs overlap, or one lies in the weights of the model.

    All are contiguous.
    """
    if not given or _all_apart([extents.of(a) for a in (*given.values(), weights)]):
        return
    names = list(given)
    for k, name in enumerate(names):
        for other in names[k + 1 :]:
            if overlap(given[name], given[other]):
                raise ArgumentError(
                    f"the arrays for outputs '{name}' and '{other}' share memory, and both are written: give two apart"
                )
        if overlap(given[name], weights):
            raise ArgumentError(
                f"the array for output '{name}' lies in the model's weights, which later runs read: give another"
            )


def dead_before(plan: Plan[int]) -> dict[tuple[int, int], str]:
    """For each input and output, by number, when they may have memory in common: `DEAD` (all that reads the input is
    done before the output is written), `SAME` (but for a copy of the one to the other) or `APART`."""
    reads: dict[int, int] = {}  # masks of steps
    writes: dict[int, int] = {}
    copies: dict[tuple[int, int], int] = {}
    earlier: list[int] = []  # what is surely done before each step
    for k, step in enumerate(plan.steps):
        mask = (1 << k) - 1
        if plan.after:
            mask = 0
            for e in plan.after[k]:
                mask |= earlier[e] | 1 << e
        earlier.append(mask)
        read, written = uses_of(plan, step)
        sources = {index for kind, index, _, _ in read if kind == "input"}
        targets = {index for kind, index, _, _ in written if kind == "output"}
        for i in sources:
            reads[i] = reads.get(i, 0) | 1 << k
        for o in targets:
            writes[o] = writes.get(o, 0) | 1 << k
        if step.kind == "copy":
            copies |= {(i, o): copies.get((i, o), 0) | 1 << k for i in sources for o in targets}

    def done(i: int, o: int, left_out: int) -> bool:
        needed = reads.get(i, 0) & ~left_out
        return all(not needed & ~earlier[k] for k in range(len(earlier)) if writes.get(o, 0) >> k & 1)

    return {
        (i, o): DEAD if done(i, o, 0) else SAME if done(i, o, copies.get((i, o), 0)) else APART
        for i in range(len(plan.inputs))
        for o in range(len(plan.outputs))
    }


def kept(dead: str, array: np.ndarray, target: np.ndarray) -> bool:
    """Whether an input is read where it lies although the array of an output may lie there, too."""
    return dead == DEAD or (dead == SAME and _same(array, target)) or not overlap(array, target)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two contiguous arrays are the same bytes."""
    return a is b or (a.ctypes.data, a.nbytes) == (b.ctypes.data, b.nbytes)


def separated(
    plan: Plan[int], arrays: Sequence[Any], given: Mapping[str, np.ndarray], dead: Dead, notes: list[str],
    extents: Extents,
) -> list[Any]:  # fmt: skip
    """The inputs, those copied that an array of `out=` would change while they are needed; a note for each pair.

    All are contiguous.
    """
    out = list(arrays)
    places = [extents.of(a) for a in arrays]
    for name, target in given.items():
        start, end = extents.of(target)
        near = [i for i, (first, last) in enumerate(places) if first < end and start < last]
        o = plan.outputs.index(name)
        for i in near:
            array = arrays[i]
            if kept(dead[i, o], array, target):
                continue
            if out[i] is array:
                out[i] = array.copy()
            note = f"input '{plan.inputs[i]}' is copied in runs that write output '{name}' over it"
            if note not in notes:
                notes.append(note)
    return out


def check_bound(
    plan: Plan, arrays: Sequence[np.ndarray], inputs: Mapping[str, Any], given: Mapping[str, np.ndarray], dead: Dead
) -> None:
    """Raise `ArgumentError` where a bound run could not read an input in its place, as it is at each call."""
    for i, (name, array) in enumerate(zip(plan.inputs, arrays, strict=True)):
        value = inputs[name]
        if array is not value and not (lends(value) and overlap(array, as_array(value, f"input '{name}'"))):
            raise ArgumentError(f"input '{name}' is no contiguous array, so a bound run cannot read it where it lies")
        for target in (t for t in given if not kept(dead[i, plan.outputs.index(t)], array, given[t])):
            raise ArgumentError(
                f"output '{target}' would be written over input '{name}' while it is needed: give another array"
            )


def owned(value: Any, shared: Iterable[np.ndarray]) -> Any:
    """A value of the host with memory of its own: operators of the host hand out views of their operands, and what
    lies in the arena, or belongs to the caller, changes."""
    memories = [m for m in shared if m.size]

    def own(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            return part.copy() if any(overlap(part, m) for m in memories) else part
        if isinstance(part, (list, tuple)):
            return type(part)([own(p) for p in part])
        if isinstance(part, dict):
            return {k: own(v) for k, v in part.items()}
        return part

    return own(value)


def arrays_in(value: Any) -> Iterable[np.ndarray]:
    """The arrays of a value of the host: itself, or those of a sequence."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from arrays_in(part)
