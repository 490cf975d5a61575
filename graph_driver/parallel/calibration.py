"""What messages take on the machines at hand: each kind by what really carries it, at several sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.graph_driver.communication.ranks import usable_cores, world
from polyc.graph_driver.communication.running import run
from polyc.graph_driver.communication.shared_memory import MESSAGES, SHARED
from polyc.graph_driver.parallel.machines import Inside, Machines, curve
from polyc.graph_driver.parallel.network import Network
from polyc.poly.records import dataclass

ROUNDS = 20
"""Messages of each kind and size where nobody asks for more."""
SIZES = (1 << 10, 1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22)
"""Bytes of an operand: latency, the border between carriers, sizes of layers inside and outside of a core's cache."""
PAIR_SIZES = (8, 1 << 19)
"""Bytes: a message between two ranks that is all latency, and one that is mostly bandwidth."""
ROW = 2048
"""Bytes in one piece: a part of a row of 1,024 f32 on two ranks."""
SWEPT = 1 << 21
"""Bytes that are written between two messages, as kernels do: as much as a core's own cache has. (Of a call of 2 ms
85 % were predicted from messages right behind each other, 92 % so.)"""
KINDS = ("AllReduce", "AllGather", "ReduceScatter", "Exchange")
"""What plans consist of."""

Summary = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class _Case:
    kind: str
    attrs: dict[str, Any]
    x: np.ndarray
    y: np.ndarray


class Calibration:
    """Measurements of messages between all ranks: `measure` makes some, `machines` says what follows. All ranks call
    them in the same order."""

    def __init__(self) -> None:
        self.ranks = world()
        names = self.ranks.gathered(_host(self.ranks.mpi.Get_processor_name()), "the names of machines")
        self.here = [r for r in range(self.ranks.size) if (names[r] == names[0]).all()]
        others = [r for r in range(self.ranks.size) if r not in self.here]
        self.pair = (0, others[0] if others else min(1, self.ranks.size - 1))
        self._cases = [_case(k, n, self.here, self.ranks.rank) for k in KINDS for n in SIZES]
        self._measures = len(self.here) > 1 and self.ranks.rank in self.here
        self._seconds: list[list[float]] = [[] for _ in self._cases]
        self._facts = np.zeros((len(self._cases), 2), np.int64)  # bytes sent, and whether shared memory carried them
        self._swept = np.zeros(SWEPT, np.uint8)
        self._swaps = [_Swap(n, self.pair) for n in PAIR_SIZES]
        self._pairs: list[list[float]] = [[] for _ in range(len(PAIR_SIZES) + 1)]
        self.rounds = 0
        self.measure()
        self.forget()  # pages were touched for the first time

    def forget(self) -> None:
        """Forget what was measured."""
        self.rounds = 0
        for some in (*self._seconds, *self._pairs):
            some.clear()

    def measure(self) -> None:
        """A message of each kind and size. Raises `RankError`: a rank is gone."""
        ranks, before = self.ranks, (self.ranks.tracing, self.ranks.moments)
        self.rounds += 1
        for number, case in enumerate(self._cases if self._measures else []):
            self._swept += 1
            case.x.fill(self.rounds)  # what kernels have just written
            ranks.tracing, ranks.moments = True, []
            run(case.kind, "calibration", case.attrs, [case.x], [case.y])
            (moment,) = ranks.moments
            self._facts[number] = moment.sent, moment.carrier == SHARED
            self._seconds[number].append(moment.end - moment.asked)
            ranks.tracing, ranks.moments = before
        if ranks.size > 1 and ranks.rank in self.pair:
            for some, swap in zip(self._pairs, self._swaps, strict=False):
                some.append(swap.seconds())
            self._pairs[-1].append(self._swaps[-1].seconds_of_sum())

    def machines(self, summary: Summary = min, network: Network | None = None, threads: int = 1) -> Machines:
        """The machines of these ranks, with what messages take: the quickest or another `summary` of the measurements.
        Flops and memory are those of `network`; kernels have `threads` threads. Raises `RankError`."""
        base, ranks = network or Network(), self.ranks
        if ranks.size == 1:
            return Machines(base)
        link = np.zeros(3)
        if ranks.rank == self.pair[0]:
            small, large, added = map(summary, self._pairs)
            step = PAIR_SIZES[1] - PAIR_SIZES[0]
            link[:] = small, step / max(large - small, 1e-9), PAIR_SIZES[1] / max(added - large, 1e-9)
        latency, bandwidth, sums = map(float, ranks.gathered(link, "calibration")[self.pair[0]])
        measured = replace(base, latency=latency, bandwidth=bandwidth, sums=sums)
        if len(self.here) == 1:
            return Machines(measured)
        own = np.array(self._seconds) if self._measures else np.full((len(self._cases), self.rounds), np.inf)
        # the last that comes waits for nobody: a message takes what it has measured
        seconds, facts = ranks.gathered(own, "calibration").min(axis=0), ranks.gathered(self._facts, "calibration")[0]
        points: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for case, (sent, shared), times in zip(self._cases, facts.tolist(), seconds.tolist(), strict=True):
            points.setdefault((case.kind, SHARED if shared else MESSAGES), []).append((sent, summary(times)))
        curves = {key: curve(*zip(*some, strict=True)) for key, some in points.items()}
        spare = len(usable_cores()) >= len(self.here) * (threads + 1)
        return Machines(measured, len(self.here), Inside(curves, measured, spare))


def calibrated(network: Network | None = None, rounds: int = ROUNDS) -> Machines:
    """The machines of these ranks: what messages take between all of one machine, and between two of the first two
    machines; all ranks call it. Flops and memory are those of `network`.

    Raises:
        RankError: a rank is gone.
    """
    calibration = Calibration()
    for _ in range(rounds):
        calibration.measure()
    return calibration.machines(network=network)


def _host(name: str) -> np.ndarray:
    row = np.zeros(256, np.uint8)
    text = np.frombuffer(name.encode()[: row.size], np.uint8)
    row[: text.size] = text
    return row


def _case(kind: str, nbytes: int, group: Sequence[int], rank: int) -> _Case:
    """A message of f32 whose parts are parts of rows, one for each rank."""
    p = len(group)
    part = min(ROW // 4, max(1, nbytes // 4 // p))
    rows = max(1, nbytes // 4 // (p * part))
    whole, own = (rows, p * part), (rows, part)
    attrs: dict[str, Any] = {"ranks": list(group), "rank": rank}
    if kind == "AllReduce":
        return _Case(kind, attrs | {"reduce": "sum"}, np.zeros(whole, "f"), np.zeros(whole, "f"))
    if kind == "ReduceScatter":
        return _Case(kind, attrs | {"reduce": "sum", "axis": 1}, np.zeros(whole, "f"), np.zeros(own, "f"))
    if kind == "AllGather":
        return _Case(kind, attrs | {"axis": 1}, np.zeros(whole, "f"), np.zeros((rows, p * p * part), "f"))
    rows = p * max(1, rows)
    have = [v for k in range(p) for v in (0, rows, k * part, (k + 1) * part)]
    cut = rows // p
    need = [v for k in range(p) for v in (k * cut, (k + 1) * cut, 0, p * part)]
    return _Case(
        kind, attrs | {"have": have, "need": need}, np.zeros((rows, part), "f"), np.zeros((cut, p * part), "f")
    )


class _Swap:
    """Two ranks give each other so many bytes by messages: both at once, and rows of an array that do not lie one
    behind the other, as parts along an inner axis lie."""

    def __init__(self, nbytes: int, pair: tuple[int, int]) -> None:
        row = min(nbytes, ROW)
        self.pair, self.rows = pair, (nbytes // row, 2, row)
        self.x, self.y = (np.zeros(self.rows, np.uint8) for _ in "xy")
        self.total = np.zeros(nbytes // 4, np.float32)

    def seconds(self) -> float:
        """Of both messages."""
        ranks, (count, _, row) = world(), self.rows
        parts = [[(0, count), (k, k + 1), (0, row)] for k in (0, 1)]
        begin = time.perf_counter()
        ranks.do(lambda: ranks.exchange(self.pair, self.x, parts, self.y, parts, "calibration"), "calibration")
        return time.perf_counter() - begin

    def seconds_of_sum(self) -> float:
        """Of both messages, and of what came added to what was there."""
        begin = time.perf_counter()
        self.seconds()
        np.add(self.y[:, 0].view(np.float32), self.y[:, 1].view(np.float32), out=self.total.reshape(self.rows[0], -1))
        return time.perf_counter() - begin
