"""Compiler processes, and the jobs that wait for them.

A process that has the compiler imported forks the others (`forking`). One thread here gives them jobs, the largest
first, and takes their answers, so kernels are compiled while the program goes on; one core is left to it until it
waits. Which process does a job, and when, changes nothing in its result.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.worker.child import module_command
from polyc.graph_driver.worker.jobs import Job, encode, from_head
from polyc.poly.budgets import time_limit_seconds
from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass
from polyc.poly.spans import Span, keep

Result = Compiled | str
Progress = Callable[[int, int], None]

STARTS = 3  # in succession that bring no process ready to compile: then there will be none
ENDING = 10.0  # seconds that the processes have for ending by themselves


@dataclass
class _Compiler:
    """A forked process: our end of its socket, what it does until when, whether it was told to end, and the part of its
    answer that is here."""

    end: socket.socket
    pid: int = 0  # 0: not forked yet
    job: Job | None = None
    deadline: float = float("inf")
    late: bool = False
    ending: bool = False
    answer: bytearray = field(default_factory=bytearray)


class Pool:
    """Up to `most` processes, all of them once somebody waits for results, before that one less.

    Nothing is started before there is `start` or a job. Used by one thread at a time, and closed in the end.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = most - 1
        self._limit = time_limit_seconds()
        self._lock = threading.Condition()
        self._waiting: list[tuple[int, str, Job]] = []
        self._results: dict[str, Result] = {}
        self._asked: set[str] = set()
        self._broken: BaseException | None = None
        self._stopped = False
        self._resting = False
        self._forking: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = False
        self._failed_starts = 0
        self._opened = 0.0
        self._spans: list[Span] = []
        self._compilers: dict[int, _Compiler] = {}
        self._rest = b""
        self._thread: threading.Thread | None = None
        self._selector = selectors.DefaultSelector()
        self._bell, self._button = socket.socketpair()
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self.forked = 0

    def start(self) -> None:
        """Start the process that forks, if a core is left for it."""
        if self._thread is None and self._allowed:
            self._begin()

    def add(self, jobs: Iterable[Job]) -> None:
        """Have these done, if they are not asked for already."""
        with self._lock:
            for job in jobs:
                if job.symbol not in self._asked:
                    self._asked.add(job.symbol)
                    # Large Scops first: the last ones to finish are then small.
                    heapq.heappush(self._waiting, (-len(job.text), job.symbol, job))
        self._ring()

    def asked(self, job: Job) -> bool:
        """Whether the job has been added."""
        return job.symbol in self._asked

    def results(self, jobs: Sequence[Job], progress: Progress | None = None) -> dict[str, Result]:
        """Wait for the results of jobs that were added, by symbol; `progress` is called with how many there are.

        Then processes without a job end: what comes next needs their memory, and others are forked soon.

        Raises:
            BuildError: no compiler process starts.
        """
        self._allowed, self._resting = self._most, False
        if self._thread is None:
            self._begin()
        self._ring()
        try:
            wanted, seen = {j.symbol for j in jobs}, -1
            while True:
                with self._lock:
                    if self._broken is not None:
                        raise self._broken
                    done = len(wanted & self._results.keys())
                    if done == seen:
                        self._lock.wait()
                        continue
                seen = done
                if progress is not None:
                    progress(done, len(wanted))
                if done == len(wanted):
                    self._keep_spans()
                    return {symbol: self._results[symbol] for symbol in sorted(wanted)}
        finally:
            self._allowed, self._resting = self._most - 1, True
            self._ring()

    def _keep_spans(self) -> None:
        """Hand on what was measured here, once."""
        measured, self._spans = self._spans, []
        keep(*measured)

    def close(self, at_once: bool = False) -> None:
        """End all processes, `at_once` also in the middle of a job."""
        self._stopped = True
        self._ring()
        if self._thread is not None:
            self._thread.join()
        if self._control is not None:
            self._control.close()
        if self._forking is not None:
            self._end(self._forking, at_once or not self._ready)
        for compiler in self._compilers.values():
            compiler.end.close()
        self._selector.close()
        self._bell.close()
        self._button.close()

    def _end(self, forking: subprocess.Popen[bytes], at_once: bool) -> None:
        if not at_once:  # it ends the others, waits for them, and so knows what they have used
            with contextlib.suppress(subprocess.TimeoutExpired):
                forking.wait(ENDING)
                return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(forking.pid, signal.SIGKILL)
        forking.wait()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self._button.send(b"!")

    def _begin(self) -> None:
        self._open()
        self._thread = threading.Thread(target=self._run, daemon=True, name="polyc compilers")
        self._thread.start()

    def _open(self) -> None:
        """Start the process that forks."""
        command, environment = module_command("polyc.graph_driver.worker")
        # One BLAS thread each: the workers themselves are the parallelism.
        environment.setdefault("OMP_NUM_THREADS", "1")
        self._control, theirs = socket.socketpair()
        with theirs:
            self._forking = subprocess.Popen(
                command, stdin=theirs.fileno(), env=environment,
                start_new_session=True,  # Ctrl-C is for the parent, which ends its workers itself
            )  # fmt: skip
        self._ready, self._rest, self._opened = False, b"", time.monotonic()
        self._selector.register(self._control, selectors.EVENT_READ, self._hear)

    # Below here: the thread that gives jobs and takes answers.

    def _run(self) -> None:
        try:
            while not self._stopped:
                if self._resting:
                    self._end_idle()
                self._give()
                for key, _ in self._selector.select(self._next_deadline()):
                    if key.data is None:
                        self._bell.recv(4096)
                    else:
                        key.data()
                self._kill_late()
        except BaseException as error:
            with self._lock:
                self._broken = error
                self._lock.notify_all()

    def _give(self) -> None:
        """Jobs to processes that have none, and more processes where that is not enough."""
        if self._control is None and self._waiting:
            self._open()
        if not self._ready:
            return
        busy = sum(c.job is not None for c in self._compilers.values())
        here = [c for c in self._compilers.values() if not c.ending]
        for compiler in here:
            if compiler.pid and compiler.job is None and busy < self._allowed and self._waiting:
                busy += 1
                self._send(compiler)
        coming = sum(not c.pid for c in here)
        if not coming and len(here) < self._allowed and self._waiting:
            self._fork()

    def _end_idle(self) -> None:
        for number, compiler in self._compilers.items():
            if compiler.pid and compiler.job is None and not compiler.ending and not self._waiting:
                compiler.ending = True
                self._kill(number)

    def _fork(self) -> None:
        assert self._control is not None
        ours, theirs = socket.socketpair()
        number = self.forked
        self.forked += 1
        with theirs:
            try:
                socket.send_fds(self._control, [f"fork {number}\n".encode()], [theirs.fileno()])
            except OSError:
                ours.close()
                return  # it has died: `_hear` will know
        compiler = self._compilers[number] = _Compiler(ours)
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._take(compiler))

    def _send(self, compiler: _Compiler) -> None:
        with self._lock:
            _, _, compiler.job = heapq.heappop(self._waiting)
        compiler.deadline = time.monotonic() + self._limit
        with contextlib.suppress(OSError):  # it has died: `_hear` will know
            compiler.end.sendall(encode(compiler.job))

    def _take(self, compiler: _Compiler) -> None:
        """The next part of an answer."""
        if compiler.end.fileno() < 0:
            return  # buried by what was heard at the same time
        try:
            data = compiler.end.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(compiler.end)
            return
        compiler.answer += data
        head, line, body = compiler.answer.partition(b"\n")
        if not line or compiler.job is None:
            return
        said = json.loads(head)
        if len(body) < said["size"]:
            return
        job, compiler.job = compiler.job, None
        compiler.deadline, compiler.answer = float("inf"), bytearray()
        self._keep(job, result_of(said, bytes(body)))

    def _keep(self, job: Job, result: Result) -> None:
        self._failed_starts = 0
        with self._lock:
            self._results[job.symbol] = result
            self._lock.notify_all()

    def _hear(self) -> None:
        """What the process that forks says; it may have died."""
        assert self._control is not None
        try:
            data = self._control.recv(4096)
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            verb, *numbers = line.decode(errors="replace").split()
            if verb == "broken":
                raise BuildError(f"the processes that compile cannot import polyc: {' '.join(numbers)}")
            if verb == "ready":
                self._ready = True
                self._imported(float(numbers[0]))
            elif verb == "forked":
                self._compilers[int(numbers[0])].pid = int(numbers[1])
            else:
                self._bury(int(numbers[0]), int(numbers[1]))
        if not data:
            self._begin_again()

    def _imported(self, processor: float) -> None:
        assert self._forking is not None
        here = time.monotonic()
        self._spans.append(Span("start of compilers", self._opened, here, processor, self._forking.pid))

    def _bury(self, number: int, code: int) -> None:
        """A process has died; so has its job. One without a job that was not told to end has not really started."""
        compiler = self._compilers.pop(number)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(compiler.end)
        compiler.end.close()
        if compiler.job is not None:
            late = f"compiling it took more than {self._limit:g} s (POLYC_TIME_LIMIT=SECONDS allows more)"
            self._keep(compiler.job, late if compiler.late else f"the compiler process died (exit code {code})")
        elif not compiler.ending:
            self._not_started(code)

    def _begin_again(self) -> None:
        """The process that forks has died, and all others with it: a new one does what there is to do. Each time a job
        is given up or a failed start counted, so that this ends."""
        assert self._control is not None and self._forking is not None
        self._selector.unregister(self._control)
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._forking.pid, signal.SIGKILL)
        code = self._forking.wait()
        self._control, self._forking, self._ready = None, None, False
        if all(c.job is None for c in self._compilers.values()):
            self._not_started(code)
        for number, compiler in list(self._compilers.items()):
            compiler.ending = True
            self._bury(number, code)

    def _not_started(self, code: int) -> None:
        """Raises `BuildError` where that was the last try."""
        self._failed_starts += 1
        if self._failed_starts == STARTS:
            raise BuildError(f"no process that compiles has started in {STARTS} tries (exit code {code})")

    def _next_deadline(self) -> float | None:
        """Seconds until a job is late; None: there is none."""
        first = min((c.deadline for c in self._compilers.values() if not c.late), default=float("inf"))
        return None if first == float("inf") else max(0.0, first - time.monotonic())

    def _kill_late(self) -> None:
        now = time.monotonic()
        for number, compiler in self._compilers.items():
            if compiler.deadline <= now and not compiler.late:
                compiler.late = True
                self._kill(number)

    def _kill(self, number: int) -> None:
        assert self._control is not None
        with contextlib.suppress(OSError):  # it has died: `_hear` will know
            self._control.sendall(f"kill {number}\n".encode())


def result_of(head: dict[str, Any], body: bytes) -> Result:
    """What a worker's answer says."""
    if "error" in head:
        return str(head["error"])
    return from_head(head, body, head["seconds"], False)
