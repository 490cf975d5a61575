"""A process and all that it starts: processor time, and the memory that they hold together."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
INTERVAL = 0.01  # seconds between two looks at the memory


@dataclass(frozen=True)
class Ended:
    """A process that has ended: what it printed, processor seconds with those of the processes that it waited for,
    and the largest sum of proportional set sizes seen (bytes; 0: nobody looked)."""

    code: int
    out: str
    err: str
    processors: float
    peak: int


def ran(command: Sequence[str], environment: Mapping[str, str], watch: bool = False) -> Ended:
    """Run a command to its end; `watch`: look at the memory of all its processes, which slows them down a little."""
    process = subprocess.Popen(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    texts = ["", ""]
    pipes = [p for p in (process.stdout, process.stderr) if p is not None]

    def read(k: int) -> Callable[[], None]:
        def drain() -> None:
            texts[k] = pipes[k].read()

        return drain

    readers = [threading.Thread(target=read(k)) for k in (0, 1)]
    watcher = _Watcher(process.pid)
    for thread in (*readers, *([watcher] if watch else [])):
        thread.start()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    watcher.ended.set()
    for thread in (*readers, *([watcher] if watch else [])):
        thread.join()
    return Ended(process.returncode, *texts, used.ru_utime + used.ru_stime, watcher.peak)


class _Watcher(threading.Thread):
    """Looks at a tree of processes until it is told that they have ended."""

    def __init__(self, root: int) -> None:
        super().__init__()
        self.ended = threading.Event()
        self.peak = 0
        self._root = root

    def run(self) -> None:
        while not self.ended.wait(INTERVAL):
            self.peak = max(self.peak, sum(map(proportional, tree(self._root))))


def tree(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir(PROC):
        if entry.name.isdecimal() and (parent := _parent(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for process in found:  # it grows while it is read
        found += children.get(process, ())
    return found


def _parent(process: int) -> int | None:
    try:
        text = (PROC / str(process) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])  # after the name, which may hold anything, and the state


def proportional(process: int) -> int:
    """The proportional set size of a process in bytes: a page that n processes share counts for 1/n. 0: it is gone."""
    try:
        text = (PROC / str(process) / "smaps_rollup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))


def plain_environment(root: Path, cache: Path) -> dict[str, str]:
    """The environment of a user of the checkout `root` with this cache: byte code is kept, libraries have as many
    threads as they like."""
    dropped = ("PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    kept = {k: v for k, v in os.environ.items() if k not in dropped}
    return {**kept, "PYTHONPATH": str(root), "POLYC_CACHE": str(cache)}


def write_byte_code(root: Path, packages: Sequence[str]) -> None:
    """Byte code of a checkout on disk, as after its first use."""
    places = [str(root / p) for p in packages if (root / p).exists()]
    command = [sys.executable, "-m", "compileall", "-q", *places]
    subprocess.run(command, check=True, env=plain_environment(root, root), stdout=subprocess.DEVNULL)
