"""This process as one of several ranks: MPI's communicator, a thread that waits for messages, and who is alive.

Messages are sent one at a time, in the order in which they were asked for: that of collective calls must be the same on
all ranks. One that is begun goes through a thread of its own, so that kernels run meanwhile; one that the program waits
for needs no other thread, if none is under way (waking one takes as long as a message of a few KiB). What waits asks
again and again whether it has arrived (never a blocking call), so that a rank that died is an error and no hang.
"""

from __future__ import annotations

import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from polyc.graph_driver.communication.liveness import Liveness
from polyc.graph_driver.communication.shared_memory import MESSAGES, SHARED, SharedMemory, carrier
from polyc.poly.errors import BuildError, PolycError
from polyc.poly.records import dataclass

Box = Sequence[tuple[int, int]]
SPIN = 200e-6
"""Seconds in which a message is asked for without a pause where ranks have no core each, or kernels run beside it on
another: a few times the latency of shared memory."""
PATIENCE = 20e-3
"""The same where the program waits for it, and ranks have a core each: more than one rank is late by. (MPI moves a
large message on only when it is asked: a pause between two questions delays the rank at the other end, too.)"""
PAUSE = 100e-6
"""Seconds between later questions: below what a waiting caller notices, above what keeps a core busy."""


class RankError(PolycError):
    """Ranks do not fit together, or one is gone."""

    code = "P412"


@dataclass(frozen=True)
class Moment:
    """What a rank did from `begin` to `end` (seconds of `time.perf_counter`): `sent` bytes to others in it, by
    `carrier`. The program came to it at `asked`, and went on if it was `begun` (a `Start`)."""

    what: str
    asked: float
    begin: float
    end: float
    sent: int
    carrier: str = MESSAGES
    begun: bool = False


@dataclass(frozen=True)
class Link:
    """An emulated link: no operation ends before `latency` seconds and `sent / bandwidth` (bytes a second) are over."""

    latency: float
    bandwidth: float

    @staticmethod
    def of_environment() -> Link | None:
        """`POLYC_LINK=LATENCY,BANDWIDTH` in seconds and bytes a second. Raises `RankError` for anything else."""
        text = os.environ.get("POLYC_LINK", "")
        if not text:
            return None
        try:
            latency, bandwidth = (float(part) for part in text.split(","))
        except ValueError:
            raise RankError(f"POLYC_LINK={text}: write seconds,bytes-per-second, as 1e-4,1e9") from None
        return Link(latency, bandwidth)


class Pending:
    """An operation under way."""

    def __init__(self, work: Callable[[], int], what: str, begun: bool = False) -> None:
        self.work, self.what, self.begun, self.asked = work, what, begun, time.perf_counter()
        self.awaited = not begun  # the program does nothing else meanwhile
        self.over = threading.Event()
        self.error: BaseException | None = None

    def wait(self) -> None:
        """Return when it is done. Raises `RankError`."""
        self.awaited = True
        while not self.over.wait(0.2):  # wakes up so that signals are seen
            pass
        if self.error is not None:
            raise self.error


class World:
    """The ranks of this program. `sent` counts the bytes of arrays that this rank has given to others, `messages` the
    operations; `moments` is what its messages did when, and `waits` when the program came to each `Wait`, for which
    of them, and when it went on, if `tracing`. `stand_in(kind, y, work)` does a node's
    message in place of `work()`, the message into the array `y`."""

    def __init__(self) -> None:
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # of Open MPI 5.0: it complains about itself at every window
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise RankError("this MPI cannot be used from a thread")
        self.mpi, self.comm = MPI, MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.sent = self.messages = 0
        self.waited = 0.0  # seconds in `Wait` nodes: what messages begun before were not hidden behind
        self.tracing, self.moments, self.waits = False, list[Moment](), list[tuple[str, float, float]]()
        self.stand_in: Callable[[str, np.ndarray, Callable[[], int]], int] | None = None
        self._carrier = MESSAGES
        self.liveness = Liveness(self.comm) if self.size > 1 else None
        self.gone: Callable[[], str] = self.liveness.reason if self.liveness is not None else lambda: ""
        self.link = Link.of_environment()
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(self.size)): self.comm}
        self._scratch: dict[str, np.ndarray] = {}
        self._shared: dict[tuple[int, ...], SharedMemory] = {}
        self.notes: list[str] = []  # why groups do without shared memory
        self._posted: list[tuple[Any, np.ndarray]] = []  # requests, and the arrays that they read
        self._queue: queue.Queue[Pending] = queue.Queue()
        self._turn = threading.Lock()  # of the message under way
        self._task: Pending | None = None  # that has it
        self._cores = self._cores_each()
        threading.Thread(target=self._serve, name="polyc messages", daemon=True).start()

    def begin(self, work: Callable[[], int], what: str, begun: bool = False) -> Pending:
        """Do it in the thread of messages, after all that was asked for before. `begun`: the program goes on."""
        made = Pending(work, what, begun)
        self._queue.put(made)
        return made

    def do(self, work: Callable[[], int], what: str) -> None:
        """The same, and wait for it. Raises `RankError`."""
        if self._queue.unfinished_tasks or not self._turn.acquire(blocking=False):
            self.begin(work, what).wait()
            return
        task = Pending(work, what)
        try:
            self._work(task)
        finally:
            self._turn.release()
        if task.error is not None:
            raise task.error

    def _serve(self) -> None:
        while True:
            task = self._queue.get()
            with self._turn:
                self._work(task)
            self._queue.task_done()
            task.over.set()

    def _work(self, task: Pending) -> None:
        begin, self._carrier = time.perf_counter(), MESSAGES
        self._task = task
        try:
            sent = task.work()
            if self.link is not None:
                left = begin + self.link.latency + sent / self.link.bandwidth - time.perf_counter()
                time.sleep(max(0.0, left))
            self.sent += sent
            self.messages += 1
            if self.tracing:
                end = time.perf_counter()
                self.moments.append(Moment(task.what, task.asked, begin, end, sent, self._carrier, task.begun))
        except PolycError as error:
            task.error = error
        except Exception as error:  # MPI's own: one line, on the thread that waits
            task.error = RankError(f"rank {self.rank}, {task.what}: {str(error).splitlines()[0]}")

    def _cores_each(self) -> float:
        """The cores that this machine has for each of its ranks."""
        here = self.comm.Split_type(self.mpi.COMM_TYPE_SHARED)
        cores = set().union(*here.allgather(usable_cores()))
        each = len(cores) / here.size
        here.Free()
        return each

    def _spin(self) -> float:
        """Seconds in which a message may keep a core busy with waiting: kernels that run meanwhile have none to spare,
        unless there are two cores for each rank."""
        if self._task is None or self._task.awaited:
            return PATIENCE if self._cores >= 1 else SPIN
        return SPIN if self._cores >= 2 else 0.0

    def agree(self, facts: Mapping[str, str]) -> None:
        """Raise `RankError`, on every rank, where ranks have other values of one of these facts."""
        texts = list(facts.items())
        mine = np.frombuffer(b"".join(hashlib.sha256(v.encode()).digest() for _, v in texts), np.uint8)
        everyone = self.gathered(mine, "the agreement on the program")
        for k, (what, value) in enumerate(texts):
            part = everyone[:, 32 * k : 32 * (k + 1)]
            others = [r for r in range(self.size) if (part[r] != part[0]).any()]
            if others:
                raise RankError(
                    f"rank {self.rank}: {what} differs between rank 0 and rank {others[0]}: here it is {value:.120}"
                )

    def gathered(self, mine: np.ndarray, what: str) -> np.ndarray:
        """The arrays of all ranks, `[rank, ...]`; they are no messages of the program. Raises `RankError`."""
        own = np.ascontiguousarray(mine)
        everyone = np.zeros((self.size, *own.shape), own.dtype)

        def gather() -> int:
            byte = self.mpi.BYTE
            self.finish(self.comm.Iallgather([own, own.nbytes, byte], [everyone, own.nbytes, byte]), what)
            return 0

        self.do(gather, what)
        self.messages -= 1
        return everyone

    # ---- within a message ----

    def scratch(self, what: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Memory for a purpose, until it is asked for again: of a new array every page would be touched first."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if what not in self._scratch or self._scratch[what].size < nbytes:
            self._scratch[what] = np.empty(nbytes, np.uint8)
        return self._scratch[what][:nbytes].view(dtype).reshape(tuple(shape))

    def finish(self, request: Any, what: str) -> None:
        """Wait for a request of MPI. Raises `RankError`: a rank is gone."""
        begin = time.perf_counter()
        while not request.Test():
            if time.perf_counter() - begin < self._spin():
                os.sched_yield()
                continue
            if reason := self.gone():
                with suppress(Exception):
                    request.Cancel()
                raise RankError(f"rank {self.rank}, {what}: {reason}")
            time.sleep(PAUSE)

    def group(self, ranks: Sequence[int]) -> Any:
        """The communicator of some ranks; all of them ask for it at the same place. Raises `RankError`: there are no
        such ranks."""
        key = tuple(ranks)
        if key not in self._groups:
            if not set(key) <= set(range(self.size)):
                raise RankError(f"the program is for ranks {list(key)}, but there are {self.size}")
            self._groups[key] = self.comm.Create_group(self.comm.group.Incl(list(key)))
        return self._groups[key]

    def shared(
        self, kind: str, ranks: Sequence[int], nbytes: int, what: str
    ) -> tuple[SharedMemory, list[np.ndarray]] | None:
        """The memory that a group has in common and a slot of each rank in it, for a message of so many bytes; None: it
        is small, or there is none (`notes` says why). All of the group ask for as many. Raises `RankError`."""
        key = tuple(ranks)
        if carrier(kind, nbytes) != SHARED or len(key) < 2:
            return None
        if key not in self._shared:
            self._shared[key] = SharedMemory(self, key, self.group(key))
        memory = self._shared[key]
        slots = memory.slots(nbytes, what)
        note = f"no shared memory for ranks {list(key)}: {memory.reason}"
        if not slots and note not in self.notes:
            self.notes.append(note)
        if not slots:
            return None
        self._carrier = SHARED
        return memory, slots

    def exchange(
        self, ranks: Sequence[int], x: np.ndarray, out: Sequence[Box | None], y: np.ndarray,
        into: Sequence[Box | None], what: str,
    ) -> int:  # fmt: skip
        """Send the box `out[k]` of `x` to each other member k of the group, and receive the box `into[k]` of `y`; its
        own part is copied. The bytes sent."""
        comm = self.group(ranks)
        me = comm.rank
        if out[me] is not None and into[me] is not None:
            y[_slices(into[me])] = x[_slices(out[me])].reshape(y[_slices(into[me])].shape)
        sends = [None if k == me else b for k, b in enumerate(out)]
        takes = [None if k == me else b for k, b in enumerate(into)]
        types: list[Any] = []
        try:
            a, b = self._types(x, sends, types), self._types(y, takes, types)
            self.finish(comm.Ialltoallw([x, *a], [y, *b]), what)
        finally:
            for t in types:
                t.Free()
        return sum(x.itemsize * _elements(b) for b in sends if b is not None)

    def _types(self, array: np.ndarray, boxes: Sequence[Box | None], made: list[Any]) -> list[Any]:
        """Counts, displacements and types of the boxes as bytes: no copy of what does not lie in one piece."""
        byte, types, counts = self.mpi.BYTE, [], []
        sizes = [*array.shape, array.itemsize]
        for box in boxes:
            if box is None or not _elements(box):
                types.append(byte)
                counts.append(0)
                continue
            extents = [*(b - a for a, b in box), array.itemsize]
            types.append(byte.Create_subarray(sizes, extents, [*(a for a, _ in box), 0]).Commit())
            made.append(types[-1])
            counts.append(1)
        return [(counts, [0] * len(boxes)), types]

    def send(self, x: np.ndarray, to: int, tag: int, what: str) -> int:
        """To one rank. The bytes sent."""
        self.finish(self.comm.Isend([x, x.nbytes, self.mpi.BYTE], dest=to, tag=tag), what)
        return int(x.nbytes)

    def post(self, x: np.ndarray, to: int, tag: int, what: str) -> None:
        """Send to one rank, and do not wait until it has taken it: `x` is kept until `settle`."""

        def work() -> int:
            self._posted.append((self.comm.Isend([x, x.nbytes, self.mpi.BYTE], dest=to, tag=tag), x))
            return int(x.nbytes)

        self.begin(work, what, begun=True)

    def settle(self, what: str) -> None:
        """Wait until all that was posted has been taken. Raises `RankError`: a rank is gone."""

        def work() -> int:
            while self._posted:
                self.finish(self._posted[0][0], what)
                del self._posted[0]
            return 0

        self.do(work, what)

    def receive(self, y: np.ndarray, source: int, tag: int, what: str) -> int:
        """From one rank. 0, the bytes sent."""
        self.finish(self.comm.Irecv([y, y.nbytes, self.mpi.BYTE], source=source, tag=tag), what)
        return 0

    def broadcast(self, ranks: Sequence[int], y: np.ndarray, root: int, what: str) -> int:
        """The array of the member with rank `root` to all others. The bytes that the root must send."""
        comm = self.group(ranks)
        at = list(ranks).index(root)
        self.finish(comm.Ibcast([y, y.nbytes, self.mpi.BYTE], root=at), what)
        return int(y.nbytes) * (len(ranks) - 1) if comm.rank == at else 0


def _slices(box: Box | None) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in box or ())


def _elements(box: Box) -> int:
    total = 1
    for a, b in box:
        total *= max(0, b - a)
    return total


def usable_cores() -> set[int]:
    """The cores that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


@cache
def world() -> World:
    """The ranks that `mpiexec` has started; one rank without it.

    Raises:
        BuildError: mpi4py, or an MPI library for it, is not installed.
    """
    try:
        return World()
    except (ImportError, RuntimeError) as error:
        if isinstance(error, RankError):
            raise
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BuildError(f"several ranks need mpi4py and an MPI library: pip install 'polyc[mpi]' ({why})") from None
