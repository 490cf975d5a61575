"""One timing at a time on each core of a machine, whoever asks for it: locks on files in the machine's own temporary
folder, which the system gives back when a process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

AGAIN = 0.02
"""Seconds between two attempts to get cores."""


def usable() -> list[int]:
    """The numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


@contextlib.contextmanager
def owned(count: int, folder: Path | None = None) -> Iterator[list[int]]:
    """`count` cores of this machine (at most those that there are) for this block alone; waits until they are free.

    Processes of one user on one machine share the locks, whatever cluster they belong to. All cores are taken at once
    or none, so that no two wait for each other.

    Raises:
        OSError: the folder of the locks cannot be written.
    """
    place = folder or Path(tempfile.gettempdir()) / f"polyc-cores-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    here = usable()
    count = min(count, len(here))
    while True:
        held: dict[int, int] = {}
        try:
            for core in here:
                if len(held) < count and (handle := _locked(place / f"core-{core}")) is not None:
                    held[core] = handle
            if len(held) == count:
                yield sorted(held)
                return
        finally:
            for handle in held.values():
                os.close(handle)
        time.sleep(AGAIN)


def _locked(path: Path) -> int | None:
    """A handle that holds the lock of a core until it is closed; None: somebody else does."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle
