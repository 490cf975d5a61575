"""The process that has the compiler imported, and forks the processes that compile: imports are paid once.

It runs nothing but imports, so that a fork of it is safe whatever threads and locks the program has that compiles.
Over the socket on stdin come lines `fork K` (with the socket of the process to be, as a file descriptor) and `kill K`;
back go `ready SECONDS` (of a processor, for importing), `forked K PID` and `ended K CODE`, or, where the compiler
cannot be imported, `broken WHY` alone. When the socket closes, all that were forked are killed.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
import time
from importlib import import_module

from polyc.graph_driver.worker.jobs import fingerprint, serve
from polyc.poly.records import dataclass

COMPILER = (
    "polyc.poly.json_io", "polyc.scheduler.strategies.auto", "polyc.emit.compile", "polyc.emit.llvm.jit",
    "polyc.graph_driver.worker.compile_operator", "polyc.graph_driver.worker.tuned",
    "polyc.scheduler.strategies.columns", "polyc.scheduler.strategies.strips", "polyc.scheduler.strategies.waste",
    "polyc.poly.rewriting.coalesced_loops", "polyc.poly.rewriting.flat_arrays", "polyc.poly.rewriting.held_elements",
    "polyc.poly.rewriting.loop_bounds", "polyc.scheduler.strategies.words",
    "polyc.scheduler.strategies.loop_form", "polyc.scheduler.strategies.outer_order",
    "polyc.scheduler.strategies.privatising", "polyc.scheduler.strategies.short_loops",
    "polyc.scheduler.strategies.wraps", "polyc.scheduler.transformations.elements",
    "polyc.scheduler.strategies.product_blocks", "polyc.scheduler.strategies.tables",
    "polyc.scheduler.strategies.reading_order",
    "polyc.scheduler.cost.reading_orders", "polyc.poly.rewriting.relayout",
    "polyc.scheduler.transformations.recomputing",
    "polyc.scheduler.transformations.coalescing", "polyc.poly.rewriting.waste", "polyc.emit.passes.matrices",
    "polyc.emit.passes.last_tiles",
    "polyc.emit.loop_ir.overlap",
)  # fmt: skip
"""What compiling a kernel imports."""


def run(control: socket.socket) -> None:
    """Serve the socket until it closes; `preload` was called before."""
    _Forking(control).run()


def preload() -> None:
    """Everything that a forked process then has: modules, and the fingerprint of the sources."""
    for name in COMPILER:
        import_module(name)
    fingerprint()
    gc.freeze()  # a collection in a forked process would write into pages that all share


@dataclass(frozen=True)
class _Forked:
    """A process that compiles: its pid, and the end of a pipe that closes when it ends."""

    pid: int
    ended: int


class _Forking:
    """The forked processes by number."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._forked: dict[int, _Forked] = {}
        self._sockets: list[int] = []  # those that lines to come speak of
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serve until the socket closes; then end all."""
        try:
            self._say(f"ready {time.process_time()}")
            while True:
                for key, _ in self._selector.select():
                    if key.data is not None:
                        self._collect(key.data)
                    elif not self._read():
                        return
        except OSError:
            return  # who asked is gone
        finally:
            for number in list(self._forked):
                self._kill(number)
            for forked in self._forked.values():
                os.waitpid(forked.pid, 0)

    def _say(self, line: str) -> None:
        self._control.sendall(line.encode() + b"\n")

    def _read(self) -> bool:
        """Do what the next lines say; false: there will be none."""
        data, sockets, _, _ = socket.recv_fds(self._control, 4096, 64)
        self._sockets += sockets
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            verb, number = line.decode().split()
            if verb == "kill":
                self._kill(int(number))
            else:
                self._fork(int(number), self._sockets.pop(0))
        return bool(data)

    def _fork(self, number: int, end: int) -> None:
        ended, alive = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._compile(end)  # `alive` closes when it ends, and not before
        os.close(alive)
        os.close(end)
        self._forked[number] = _Forked(pid, ended)
        self._selector.register(ended, selectors.EVENT_READ, number)
        self._say(f"forked {number} {pid}")

    def _compile(self, end: int) -> None:
        """What the forked process does: jobs from its socket until that closes. Never returns."""
        code = 1
        try:
            self._selector.close()
            self._control.close()
            for forked in self._forked.values():
                os.close(forked.ended)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which ends its workers itself
            with socket.socket(fileno=end) as jobs:
                serve(jobs)
            code = 0
        except BaseException as error:
            sys.stderr.write(f"polyc: a compiler process ends: {type(error).__name__}: {error}\n")
        finally:
            os._exit(code)

    def _kill(self, number: int) -> None:
        if number in self._forked:
            os.kill(self._forked[number].pid, signal.SIGKILL)  # not waited for yet: the pid is still its own

    def _collect(self, number: int) -> None:
        """A process has ended: say so."""
        forked = self._forked.pop(number)
        self._selector.unregister(forked.ended)
        os.close(forked.ended)
        _, status = os.waitpid(forked.pid, 0)
        self._say(f"ended {number} {os.waitstatus_to_exitcode(status)}")
