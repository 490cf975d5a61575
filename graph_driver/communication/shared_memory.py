"""Large messages between ranks of one machine through memory that they have in common (MPI's shared windows).

Each rank has a slot that all others read. A sum is made where its operands lie: every element is copied in once, added
up once by one rank and copied out once, where messages would copy it into and out of MPI's own buffers for each other
rank. Slots are double: whoever begins the message after the next one knows that all have left this one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

LEAST = 1 << 12
"""Bytes from which on a message goes through shared memory. (Measured on 2 ranks up to 16 MiB: AllReduce is 1.1 to 2.5
times as quick, Broadcast alike below 64 KiB and up to 2.2 times as quick above; AllGather, one copy in MPI, is not.)
"""
LINE = 4096  # bytes: slots begin at pages
SHARED, MESSAGES = "shared memory", "messages"
"""What carries a message between ranks of one machine."""
KINDS = ("AllReduce", "Broadcast")


def carrier(kind: str, nbytes: int) -> str:
    """What carries a message with an operand of so many bytes, where ranks have memory in common."""
    return SHARED if kind in KINDS and nbytes >= LEAST else MESSAGES


class Waiting(Protocol):
    """What is needed of the ranks (`ranks.World`)."""

    @property
    def mpi(self) -> Any:
        """The module `mpi4py.MPI`."""

    def finish(self, request: Any, what: str) -> None:
        """Wait for a message that was begun; a rank that is gone is an error."""


class SharedMemory:
    """The slots of a group of ranks. `reason`: why there is none ("": there is)."""

    def __init__(self, world: Waiting, ranks: Sequence[int], comm: Any) -> None:
        self.world, self.comm, self.ranks = world, comm, tuple(ranks)
        self.reason = self._refused()
        self._window: Any = None
        self._capacity, self._turn = 0, 0
        self._slots: list[np.ndarray] = []

    def _refused(self) -> str:
        if not self._all(os.environ.get("POLYC_SHARED_MEMORY", "1") != "0"):
            return "POLYC_SHARED_MEMORY=0"
        here = self.comm.Split_type(self.world.mpi.COMM_TYPE_SHARED)
        together = bool(here.size == self.comm.size)
        here.Free()
        return "" if self._all(together) else "they are on several machines"

    def _all(self, true: bool) -> bool:
        """Whether it is true on every rank."""
        mine, everyone = np.array([true], np.uint8), np.zeros(self.comm.size, np.uint8)
        self.world.finish(self.comm.Iallgather(mine, everyone), "shared memory")
        return bool(everyone.all())

    def meet(self, what: str) -> None:
        """Return when all ranks have come here: what they have written is seen. Raises `RankError`: one is gone."""
        self._window.Sync()
        self.world.finish(self.comm.Ibarrier(), what)
        self._window.Sync()

    def slots(self, nbytes: int, what: str) -> list[np.ndarray]:
        """The slot of each rank for the next message, of at least so many bytes; empty: there is no such memory. All
        ranks ask for as many. Raises `RankError`: one is gone."""
        if not self.reason and nbytes > self._capacity:
            self._grow(nbytes, what)
        if self.reason:
            return []
        self._turn = 1 - self._turn
        begin = self._turn * self._capacity
        return [s[begin : begin + nbytes] for s in self._slots]

    def _grow(self, nbytes: int, what: str) -> None:
        self.world.finish(self.comm.Ibarrier(), what)  # nobody is gone, and nobody reads the old slots any more
        if self._window is not None:
            self._window.Unlock_all()
            self._window.Free()
            self._window, self._slots = None, []
        self._capacity = -(-nbytes // LINE) * LINE
        why = ""
        try:
            window = self.world.mpi.Win.Allocate_shared(2 * self._capacity, 1, comm=self.comm)
        except Exception as error:  # MPI's own
            window, why = None, str(error).splitlines()[0]
        if not self._all(window is not None):
            self.reason = f"MPI gives no shared memory of {2 * self._capacity} bytes ({why or 'on another rank'})"
            return
        window.Lock_all()
        self._window = window
        self._slots = [np.frombuffer(window.Shared_query(r)[0], np.uint8) for r in range(self.comm.size)]


def all_reduce(
    slots: Sequence[np.ndarray], memory: SharedMemory, combine: Any, x: np.ndarray, y: np.ndarray,
    parts: Sequence[tuple[int, int]], what: str,
) -> int:  # fmt: skip
    """Rows of elements `x` of all ranks combined into `y`: each rank combines one of the `parts`, in the order of the
    ranks, in f32 where the elements are f16. The bytes that others take from this rank, as of messages."""
    me, rows = memory.comm.rank, [s.view(x.dtype) for s in slots]
    np.copyto(rows[me], x)
    memory.meet(what)
    begin, end = parts[me]
    own = [row[begin:end] for row in rows]
    total = np.empty(end - begin, np.float32) if x.dtype == np.float16 else y[begin:end]
    combine(own[0], own[1], out=total, dtype=total.dtype)
    for other in own[2:]:
        combine(total, other, out=total)
    np.copyto(own[me], total, casting="unsafe")
    memory.meet(what)
    for k, (row, (a, b)) in enumerate(zip(rows, parts, strict=True)):
        if k != me or total.dtype != y.dtype:
            np.copyto(y[a:b], row[a:b])
    return int(x.itemsize * (x.size - (end - begin) + (len(slots) - 1) * (end - begin)))


def broadcast(
    slots: Sequence[np.ndarray], memory: SharedMemory, y: np.ndarray, root: int, what: str
) -> int:  # fmt: skip
    """The array `y` of the member `root` on all ranks. The bytes that others take from this rank."""
    me, row = memory.comm.rank, slots[root][: y.nbytes].view(y.dtype)
    if me == root:
        row[:] = y.reshape(-1)
    memory.meet(what)
    if me != root:
        y[...] = row.reshape(y.shape)
    return int(y.nbytes) * (len(slots) - 1) if me == root else 0
