"""Running one communication node on arrays, in place: operands are read and results written where they lie."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from polyc.graph_driver.communication import shared_memory
from polyc.graph_driver.communication.operators import box_of, counts_of
from polyc.graph_driver.communication.ranks import Box, Pending, RankError, World, world

_COMBINE: dict[str, Callable[..., Any]] = {"sum": np.add, "max": np.maximum, "min": np.minimum}
_begun: dict[int, Pending] = {}  # by the address of the result of the `Start`


def run(kind: str, name: str, attrs: Mapping[str, Any], values: Sequence[np.ndarray], results: Sequence[Any]) -> None:
    """Run a node. `values` are its operands, `results` arrays for its results, in order.

    Raises:
        RankError: a rank is gone, or this one is not of the group.
        BuildError: there is no MPI here.
    """
    ranks = world()
    what = f"{kind} '{name}'"
    if kind == "Wait":
        pending = _begun.pop(_address(values[0]), None)
        if pending is None:
            raise RankError(f"{what}: nothing was begun")
        begin = time.perf_counter()
        pending.wait()
        end = time.perf_counter()
        ranks.waited += end - begin
        if ranks.tracing:
            ranks.waits.append((pending.what, begin, end))
        np.copyto(results[0], values[0])
        return
    real = attrs["kind"] if kind == "Start" else kind
    if ranks.rank not in attrs.get("ranks", (ranks.rank,)):
        raise RankError(f"{what}: rank {ranks.rank} of {ranks.size} is not of its group {list(attrs['ranks'])}")
    work = _WORK[real]
    x = values[0] if real != "Recv" else np.zeros(1, np.int32)
    y = results[0]

    def message() -> int:
        return work(ranks, attrs, _solid(x), y, what)

    stand_in = ranks.stand_in
    doing = message if stand_in is None else partial(stand_in, kind, y, message)
    if kind == "Start":
        _begun[_address(y)] = ranks.begin(doing, what, begun=True)
    else:
        ranks.do(doing, what)


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _solid(x: np.ndarray) -> np.ndarray:
    """With an axis, in one piece (the memory of kernels is; values of observers need not be)."""
    return np.ascontiguousarray(x)


def pieces(elements: int, parts: int) -> list[tuple[int, int]]:
    """Begin and end of nearly equal parts of a row of elements."""
    return [(k * elements // parts, (k + 1) * elements // parts) for k in range(parts)]


def _all_reduce(ranks: World, attrs: Mapping[str, Any], x: np.ndarray, y: np.ndarray, what: str) -> int:
    """Each rank combines one part of all elements, in the order of the ranks (equal bits, whatever the network does),
    and hands it to the others: 2 (p - 1) / p of the elements are sent, the least that is possible (Patarasuk and Yuan,
    Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009)."""
    group, flat, out = attrs["ranks"], x.reshape(-1), y.reshape(-1)
    parts: list[Box] = [[p] for p in pieces(flat.size, len(group))]
    me = list(group).index(ranks.rank)
    if common := ranks.shared("AllReduce", group, x.nbytes, what):
        combine = _COMBINE[attrs.get("reduce") or "sum"]
        return shared_memory.all_reduce(common[1], common[0], combine, flat, out, [p[0] for p in parts], what)
    own = ranks.scratch(
        "own", (parts[me][0][1] - parts[me][0][0],), x.dtype
    )  # MPI takes equal addresses for "in place"
    sent = _reduced(ranks, attrs, flat, parts, own, what)
    whole: list[Box | None] = [[(0, own.size)]] * len(group)
    return sent + ranks.exchange(group, own, whole, out, list(parts), what)


def _reduced(
    ranks: World, attrs: Mapping[str, Any], x: np.ndarray, parts: Sequence[Box], out: np.ndarray, what: str
) -> int:
    """The combination of what all ranks have of this one's part; the bytes sent."""
    group = attrs["ranks"]
    me = list(group).index(ranks.rank)
    own = [b - a for a, b in parts[me]]
    came = ranks.scratch("came", (len(group), *own), x.dtype)
    into: list[Box | None] = [[(k, k + 1), *((0, n) for n in own)] for k in range(len(group))]
    sent = ranks.exchange(group, x, list(parts), came, into, what)
    combine = _COMBINE[attrs.get("reduce") or "sum"]
    if len(group) == 1:
        np.copyto(out, came[0].reshape(out.shape))
        return sent
    half = x.dtype == np.float16  # added up as f32
    total = np.empty(own, np.float32) if half else out.reshape(own)
    combine(came[0], came[1], out=total, dtype=total.dtype)
    for k in range(2, len(group)):
        combine(total, came[k], out=total)
    if half:
        np.copyto(out, total.reshape(out.shape), casting="unsafe")
    return sent


def _along(shape: Sequence[int], axis: int, counts: Sequence[int]) -> list[Box]:
    boxes: list[Box] = []
    at = 0
    for n in counts:
        boxes.append([(at, at + n) if d == axis else (0, extent) for d, extent in enumerate(shape)])
        at += n
    return boxes


def _all_gather(ranks: World, attrs: Mapping[str, Any], x: np.ndarray, y: np.ndarray, what: str) -> int:
    counts = counts_of("AllGather", x.shape, attrs)
    parts = _along(y.shape, attrs["axis"], counts)
    whole: Box = [(0, n) for n in x.shape]
    return ranks.exchange(attrs["ranks"], x, [whole] * len(counts), y, list(parts), what)


def _reduce_scatter(ranks: World, attrs: Mapping[str, Any], x: np.ndarray, y: np.ndarray, what: str) -> int:
    parts = _along(x.shape, attrs["axis"], counts_of("ReduceScatter", x.shape, attrs))
    return _reduced(ranks, attrs, x, parts, y, what)


def _all_to_all(ranks: World, attrs: Mapping[str, Any], x: np.ndarray, y: np.ndarray, what: str) -> int:
    n, split, concat = len(attrs["ranks"]), attrs["split_axis"], attrs["concat_axis"]
    out = _along(x.shape, split, [x.shape[split] // n] * n)
    return ranks.exchange(
        attrs["ranks"], x, list(out), y, list(_along(y.shape, concat, [y.shape[concat] // n] * n)), what
    )


def _broadcast(ranks: World, attrs: Mapping[str, Any], x: np.ndarray, y: np.ndarray, what: str) -> int:
    if ranks.rank == attrs["root"]:
        np.copyto(y, x)
    if common := ranks.shared("Broadcast", attrs["ranks"], y.nbytes, what):
        return shared_memory.broadcast(common[1], common[0], y, list(attrs["ranks"]).index(attrs["root"]), what)
    return ranks.broadcast(attrs["ranks"], y, attrs["root"], what)


def _send(ranks: World, attrs: Mapping[str, Any], x: np.ndarray, y: np.ndarray, what: str) -> int:
    return ranks.send(x, attrs["to"], attrs.get("tag", 0), what)


def _receive(ranks: World, attrs: Mapping[str, Any], x: np.ndarray, y: np.ndarray, what: str) -> int:
    return ranks.receive(y, attrs["source"], attrs.get("tag", 0), what)


def transfers(have: Sequence[Box], need: Sequence[Box]) -> list[list[list[Box]]]:
    """`[k][j]`: the boxes that member k sends to member j. Each missing element comes from one member: the boxes of
    `have` must be disjoint, or nested along one axis, where the first member that has an element sends it."""
    made: list[list[list[Box]]] = [[[] for _ in need] for _ in have]
    for j, wanted in enumerate(need):
        left = _less(wanted, have[j])
        for k, source in enumerate(have):
            if k == j:
                continue
            rest: list[Box] = []
            for box in left:
                part = _meet(box, source)
                if part is None:
                    rest.append(box)
                    continue
                made[k][j].append(part)
                rest += _less(box, source)
            left = rest
        if left:
            raise ValueError(f"no member has {left[0]}")
    return made


def _meet(a: Box, b: Box) -> Box | None:
    both = [(max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b, strict=True)]
    return both if all(lo < hi for lo, hi in both) else None


def _less(box: Box, other: Box) -> list[Box]:
    """The box without another, as disjoint boxes."""
    part = _meet(box, other)
    if part is None:
        return [box] if all(a < b for a, b in box) else []
    rest: list[Box] = []
    core = list(box)
    for d, ((a, b), (lo, hi)) in enumerate(zip(box, part, strict=True)):
        rest += [[*core[:d], (x, y), *core[d + 1 :]] for x, y in ((a, lo), (hi, b)) if x < y]
        core[d] = (lo, hi)
    return rest


def _exchange(ranks: World, attrs: Mapping[str, Any], x: np.ndarray, y: np.ndarray, what: str) -> int:
    group, rank = attrs["ranks"], x.ndim
    me = list(group).index(ranks.rank)
    have = [box_of(attrs["have"], rank, k) for k in range(len(group))]
    need = [box_of(attrs["need"], rank, k) for k in range(len(group))]
    plan = transfers(have, need)
    own = _meet(have[me], need[me])
    if own is not None:
        y[_at(own, need[me])] = x[_at(own, have[me])]
    sent = 0
    for turn in range(max((len(b) for row in plan for b in row), default=0)):  # nearly always one
        out = [_moved(b[turn], have[me]) if turn < len(b := plan[me][j]) else None for j in range(len(group))]
        into = [_moved(b[turn], need[me]) if turn < len(b := plan[k][me]) else None for k in range(len(group))]
        sent += ranks.exchange(group, x, out, y, into, what)
    return sent


def _moved(box: Box, origin: Box) -> Box:
    return [(a - o, b - o) for (a, b), (o, _) in zip(box, origin, strict=True)]


def _at(box: Box, origin: Box) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in _moved(box, origin))


_WORK: dict[str, Callable[[World, Mapping[str, Any], np.ndarray, np.ndarray, str], int]] = {
    "AllReduce": _all_reduce, "AllGather": _all_gather, "ReduceScatter": _reduce_scatter, "AllToAll": _all_to_all,
    "Broadcast": _broadcast, "Send": _send, "Recv": _receive, "Exchange": _exchange,
}  # fmt: skip
