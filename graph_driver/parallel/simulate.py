"""Plans on networks that are not here: times of the same plans for other numbers of ranks and other links.

The parts that one rank has stay as they are (weak scaling): so does its work, and what it sends follows from the kind
of each message. Machines have several ranks, which share the link to the others. Latency and bandwidth of real links
come from messages between two ranks (`calibrated`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from polyc.graph_driver.communication.running import run
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.parallelise import Parallel
from polyc.poly.records import dataclass

SWAPS = 30
"""Messages of each size: the quickest counts."""
SIZES = (8, 1 << 19)
"""Bytes: a message that is all latency, and one that is mostly bandwidth, of the size that messages of layers have.
(Above it, where arrays leave the cache of a core, a byte may take several times as long: measured, 150 us for 512 KiB
and 890 us for 1 MiB.)"""
ROW = 2048
"""Bytes in one piece: a part of a row of 1,024 f32 on two ranks."""


@dataclass(frozen=True)
class Machines:
    """`network` joins machines of `per_machine` ranks each, which share its bandwidth; `inside` joins those of one."""

    network: Network
    per_machine: int = 1
    inside: Network | None = None

    def time(self, kind: str, nbytes: float, messages: int, ranks: int) -> float:
        """Seconds of a message of all ranks in which each sends `nbytes` in so many pieces: to all others alike, or,
        of an `Exchange` of up to two pieces, to its neighbours."""
        if ranks <= self.per_machine and self.inside is not None:
            return self.inside.time(messages, nbytes)
        near = kind == "Exchange" and messages <= 2
        outside = 1 / self.per_machine if near else (ranks - self.per_machine) / max(1, ranks - 1)
        leaving = nbytes * min(1.0, max(0.0, outside)) * self.per_machine
        there = self.network.time(messages, leaving)
        if self.inside is None:
            return there
        return max(there, self.inside.time(messages, nbytes * (1 - outside)))


@dataclass(frozen=True)
class Simulated:
    """A call on `ranks` ranks: seconds of work and of messages, and bytes that one rank sends."""

    ranks: int
    work: float
    messages: float
    sent: float

    @property
    def seconds(self) -> float:
        """Of the call, messages not hidden."""
        return self.work + self.messages


def simulate(plan: Parallel, machines: Machines, ranks: int | None = None, work: float | None = None) -> Simulated:
    """A call of a plan on other machines.

    Args:
        plan: what `polyc.parallelise` gives.
        machines: where it shall run.
        ranks: how many, each with a part as large as in the plan (None: as many as the plan has).
        work: seconds of a rank's kernels where they were measured; None: as the plan's costs say.
    """
    p, n = ranks or plan.ranks, plan.ranks
    grouped = {s for g in plan.groups for s in g.members}
    moves = [s.move for some in plan.sendings for s in some if s not in grouped] + [g.move for g in plan.groups]
    seconds = sent = 0.0
    for m in moves:
        if m.kind in ("", "Slice") or p == 1:
            continue
        most = max(m.sent)
        if m.kind == "AllReduce":
            nbytes, pieces = most * n / (n - 1) * (p - 1) / p, 2 * (p - 1)
        elif m.kind == "ReduceScatter":
            nbytes, pieces = most * (p - 1) / (n - 1), p - 1
        elif m.kind == "AllGather":
            nbytes, pieces = most * (p - 1) / (n - 1), p - 1
        elif m.messages <= 2 < n or m.messages < n - 1:
            nbytes, pieces = float(most), m.messages  # neighbours: the same for any number
        else:
            nbytes, pieces = most * n / (n - 1) * (p - 1) / p, p - 1
        seconds += machines.time(m.kind, nbytes, pieces, p)
        if m.kind in ("AllReduce", "ReduceScatter"):  # of an AllReduce half of the bytes are results
            seconds += nbytes / (2 if m.kind == "AllReduce" else 1) / machines.network.sums
        sent += nbytes
    if work is None:
        work = sum(plan.costs.of_way(k, w) for k, w in enumerate(plan.choice.ways))
    return Simulated(p, work, seconds, sent)


@dataclass(frozen=True)
class Overlap:
    """Messages of groups of sums behind what the program does meanwhile: seconds of all of them, and of the rest that
    the program waits for at its end."""

    messages: float
    waited: float

    @property
    def hidden(self) -> float:
        """The share of the messages that costs no time."""
        return 1 - self.waited / self.messages if self.messages else 1.0


def overlap(plan: Parallel, network: Network, work: float | None = None) -> Overlap:
    """How much of a plan's grouped messages is hidden: each begins when its last sum is made and the one before has
    ended, and all have to end before the program does.

    Args:
        plan: what `polyc.parallelise` gives.
        network: of the ranks.
        work: seconds of a rank's kernels where they were measured; None: as the plan's costs say.
    """
    times = [plan.costs.of_way(k, w) for k, w in enumerate(plan.choice.ways)]
    scale = 1.0 if work is None else work / sum(times)
    now = free = messages = 0.0
    for number, seconds in enumerate(times):
        now += seconds * scale
        for group in (g for g in plan.groups if g.after == number):
            took = group.move.time(network)
            free = max(free, now) + took
            messages += took
    return Overlap(messages, max(0.0, free - now))


def pipeline_seconds(stages: Sequence[float], send: float, micro_batches: int) -> float:
    """Seconds of a pipeline: each micro-batch takes `stages[s]` in stage s, and `send` between two. A stage works on
    one at a time, in their order."""
    ready = [0.0] * micro_batches
    for seconds in stages:
        free = 0.0
        for k, when in enumerate(ready):
            free = max(free, when) + seconds
            ready[k] = free + send
    return ready[-1] - send


def calibrated(network: Network | None = None) -> Network:
    """A network with the latency and the bandwidth of the first two ranks' link, measured both ways at once, and the
    speed of their sums; all ranks call it and get the same. The rest is that of `network`."""
    from polyc.graph_driver.communication.ranks import world

    ranks = world()
    found = np.zeros(3)
    if ranks.rank < 2 <= ranks.size:
        times = [_swap(n) for n in SIZES]
        bandwidth = (SIZES[1] - SIZES[0]) / max(times[1] - times[0], 1e-9)
        found[:] = times[0], bandwidth, SIZES[1] / max(_sum(SIZES[1], ranks.rank) - times[1], 1e-9)
    if ranks.size > 1:
        everyone = list(range(ranks.size))
        ranks.do(lambda: ranks.broadcast(everyone, found, 0, "calibration"), "calibration")
    base = network or Network()
    if ranks.size == 1:
        return base
    latency, bandwidth, sums = map(float, found)
    return replace(base, latency=latency, bandwidth=bandwidth, sums=sums)


def _swap(nbytes: int) -> float:
    """Seconds in which two ranks give each other so many bytes, as messages of plans do: both at once, by the thread
    of messages, and rows of an array that do not lie one behind the other, as parts along an inner axis lie."""
    from polyc.graph_driver.communication.ranks import world

    ranks, row, best = world(), min(nbytes, ROW), float("inf")
    x, y = (np.zeros((nbytes // row, 2, row), np.uint8) for _ in "xy")
    parts = [[(0, nbytes // row), (k, k + 1), (0, row)] for k in (0, 1)]
    for _ in range(SWAPS):
        begin = time.perf_counter()
        ranks.do(lambda: ranks.exchange((0, 1), x, parts, y, parts, "calibration"), "calibration")
        best = min(best, time.perf_counter() - begin)
    return best


def _sum(nbytes: int, rank: int) -> float:
    """Seconds of a sum of which two ranks keep so many bytes of f32 each: the same messages, and what is added up."""
    x = np.zeros((nbytes // ROW, 2 * ROW // 4), np.float32)
    y, best = np.empty((nbytes // ROW, ROW // 4), np.float32), float("inf")
    attrs = {"ranks": (0, 1), "reduce": "sum", "axis": 1, "rank": rank}
    for _ in range(SWAPS):
        begin = time.perf_counter()
        run("ReduceScatter", "calibration", attrs, [x], [y])
        best = min(best, time.perf_counter() - begin)
    return best
