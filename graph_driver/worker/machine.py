"""What this process may use of the machine: cores and memory, with the limits of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def usable_cores(root: Path = ROOT) -> int:
    """Cores that the scheduler gives this process: its affinity, or less where a control group has less time.

    `root`: where `proc` and `sys` are (for tests).
    """
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    shares = [len(affinity)]
    for group in _groups(root, "cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if not quota:
            quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            shares.append(-(-int(quota) // int(period)))
    return max(1, min(shares))


def free_memory(root: Path = ROOT) -> int | None:
    """Bytes of memory that are free for this process; None where the system does not tell."""
    free = []
    for line in _text(root / "proc" / "meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split()[0].isdecimal():
            free.append(int(value.split()[0]) * 1024)
    for group in _groups(root, "memory"):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            most, now = _text(group / limit), _text(group / used)
            if most.isdecimal() and now.isdecimal():
                free.append(max(0, int(most) - int(now)))
    return min(free, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The directories of the control groups that this process is in, of both versions, innermost first."""
    for line in _text(root / "proc" / "self" / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys" / "fs" / "cgroup" / (controller if controllers else "")
        inner = top / path.lstrip("/")
        while inner != top and top in inner.parents:
            yield inner
            inner = inner.parent
        yield top


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
