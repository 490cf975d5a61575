"""Processes that fork compilers, for the tests of one pytest process: forked from one that has the compiler imported.

Every compilation of a model starts a process that imports the compiler and then forks others (`worker.forking`). Its
imports cost about a second, in each of a thousand tests. Here that process is forked, too: by a process that imports
the compiler once, for each test process, and then only forks. What a forked one is told, what it runs and how it ends
are the same; its environment is that of the test. A test that changes what Python imports (PYTHONPATH) gets the process
that users get, and so do all commands, which run in processes of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.prepared_commands import run_words

if TYPE_CHECKING:
    from polyc.graph_driver.worker.pool import Pool

IMPORTS = "PYTHONPATH"


class Started:
    """A process that forks compilers, as `subprocess.Popen` shows it; another process is its parent."""

    def __init__(self, pid: int, ended: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._ended.settimeout(None if timeout is None else max(timeout, 1e-3))
            try:
                self.returncode = int(self._ended.recv(64) or b"-9")  # nobody tells: the parent is gone, too
            except TimeoutError:
                raise subprocess.TimeoutExpired("compilers", timeout or 0.0) from None
            self._ended.close()
        return self.returncode


class Prepared:
    """The process that has the compiler imported; it starts with the first test that needs it."""

    def __init__(self) -> None:
        self.imports = os.environ.get(IMPORTS)
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: socket.socket | None = None
        self._one_at_a_time = threading.Lock()

    def fork(
        self, control: int, environment: dict[str, str], errors: int = 2, folder: str = "", words: Sequence[str] = ()
    ) -> Started:
        """A process that serves the socket `control` in `environment`; with `words`, one that runs this command, whose
        output goes to `control`. Raises `RuntimeError`: the prepared one has died."""
        ours, theirs = socket.socketpair()
        with theirs, self._one_at_a_time:
            if self._process is None:
                self._start()
            assert self._asked is not None
            request = json.dumps([folder or os.getcwd(), environment, list(words)]).encode()
            files = [control, theirs.fileno(), errors]
            socket.send_fds(self._asked, [len(request).to_bytes(8, "little")], files)
            self._asked.sendall(request)
        pid = ours.recv(8, socket.MSG_WAITALL)
        if len(pid) < 8:
            raise RuntimeError("the process that compilers of tests are forked from has died")
        return Started(int.from_bytes(pid, "little"), ours)

    def _start(self) -> None:
        from polyc.graph_driver.worker.child import module_command

        command, environment = module_command("tests.prepared_compilers")
        environment["OMP_NUM_THREADS"] = "1"
        self._asked, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), env=environment, start_new_session=True, stdout=subprocess.DEVNULL
            )


PREPARED = Prepared()


def use_prepared_compilers() -> None:
    """From here on this process' compilers come from a prepared one."""
    from polyc.graph_driver.worker import pool
    from polyc.graph_driver.worker.child import module_command

    as_users_have_it = pool.Pool._open

    def opened(self: Pool) -> None:
        if os.environ.get(IMPORTS) != PREPARED.imports:
            as_users_have_it(self)
            return
        environment = module_command("polyc.graph_driver.worker")[1]
        environment.setdefault("OMP_NUM_THREADS", "1")
        self._control, theirs = socket.socketpair()
        with theirs:
            started: Any = PREPARED.fork(theirs.fileno(), environment)
        self._forking = started
        self._ready, self._rest, self._opened = False, b"", time.monotonic()
        self._selector.register(self._control, selectors.EVENT_READ, self._hear)

    pool.Pool._open = opened  # type: ignore[method-assign]


class _Forked(NamedTuple):
    """A process that was forked: its pid, and where its exit code is said."""

    pid: int
    end: socket.socket


def main() -> None:
    """Fork processes as the socket on stdin asks, until it closes; say how each ends."""
    from polyc.graph_driver.worker.child import socket_on_stdin
    from polyc.graph_driver.worker.forking import preload

    asked, running = socket_on_stdin(), dict[int, _Forked]()
    preload()
    selector = selectors.DefaultSelector()
    selector.register(asked, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                selector.unregister(key.data)
                _say_how_it_ended(key.data, running.pop(key.data))
            else:
                found = _forked(asked, running)
                if found is None:
                    return
                selector.register(found, selectors.EVENT_READ, found)


def _say_how_it_ended(descriptor: int, forked: _Forked) -> None:
    os.close(descriptor)
    _, status = os.waitpid(forked.pid, 0)
    with forked.end, contextlib.suppress(OSError):
        forked.end.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _forked(asked: socket.socket, running: dict[int, _Forked]) -> int | None:
    """Fork what the next request says; a descriptor that is ready when it ends. None: there are no more requests."""
    size, files, _, _ = socket.recv_fds(asked, 8, 3)
    if not size:
        return None
    request = b""
    while len(request) < int.from_bytes(size, "little"):
        request += asked.recv(1 << 16)
    folder, environment, words = json.loads(request)
    control, said, errors = files
    pid = os.fork()
    if pid == 0:
        for other, forked in running.items():
            os.close(other)
            forked.end.close()
        asked.close()
        os.close(said)
        _serve(control, errors, folder, environment, words)
    os.close(control)
    os.close(errors)
    end = socket.socket(fileno=said)
    end.sendall(pid.to_bytes(8, "little"))
    ended = os.pidfd_open(pid)
    running[ended] = _Forked(pid, end)
    return ended


def _serve(control: int, errors: int, folder: str, environment: dict[str, str], words: list[str]) -> None:
    """What the forked process does. Never returns."""
    from polyc.graph_driver.worker.forking import run

    code = 1
    try:
        os.setsid()
        os.dup2(errors, 2)
        os.dup2(control if words else errors, 1)
        os.close(errors)
        os.environ.clear()
        os.environ.update(environment)
        with contextlib.suppress(OSError):
            os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if words:
            code = run_words(words)
        else:
            run(socket.socket(fileno=control))
            code = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
