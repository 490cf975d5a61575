"""Work in a process of its own that may be killed at any time: a line in, an answer out, a limit, cores to run on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from polyc.graph_driver.worker.child import module_command

AFTERWARDS = 1.0  # seconds: the parent is to be first


def run_module(module: str, line: bytes, limit: float, cores: Sequence[int] = ()) -> tuple[bytes, int | None]:
    """What `python -m module` writes when it gets `line`, and its exit code; None: it took longer than `limit` seconds
    and was killed. The module begins with `begin()`. `cores`: it runs on these alone (none: wherever it is put)."""
    command, environment = module_command(module)
    theirs, ours = os.pipe()  # nothing is written: it closes when this process dies, however that happens
    try:
        process = subprocess.Popen(
            [*command, str(theirs), f"{limit:g}", *map(str, cores)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            pass_fds=(theirs,), start_new_session=True,  # Ctrl-C is for the parent
        )  # fmt: skip
        try:
            answer, _ = process.communicate(line + b"\n", timeout=limit)
        except subprocess.TimeoutExpired:
            return b"", None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    finally:
        os.close(theirs)
        os.close(ours)
    return answer, None if process.returncode == -signal.SIGALRM else process.returncode


def begin() -> tuple[str, int]:
    """In the process itself: the line that it gets, and a file descriptor for its answer; what is printed goes where
    errors go. It ends when its parent does, and soon after its limit: nobody may be left to kill it."""
    parent, limit, *cores = sys.argv[1:]

    def watch() -> None:
        os.read(int(parent), 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    signal.setitimer(signal.ITIMER_REAL, float(limit) + AFTERWARDS)  # the kernel's: it rings in any code
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(map(int, cores)))
    out = os.dup(1)
    os.dup2(2, 1)
    return sys.stdin.readline(), out
