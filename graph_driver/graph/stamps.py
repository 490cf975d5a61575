"""Whether a file is still the one that was read, without reading it again: size, times, and which file it is."""

from __future__ import annotations

import os
import time
from dataclasses import astuple
from pathlib import Path

from polyc.poly.records import dataclass

COARSE, FINE = 2_000_000_000, 100_000_000
"""Nanoseconds between two changes that may have the same time: where times are whole milliseconds (FAT has two
seconds), and elsewhere (Linux counts in ticks of up to ten milliseconds)."""
WHOLE = 1_000_000


@dataclass(frozen=True)
class Stamp:
    """Of a file: bytes, nanoseconds of its last change and of its inode's, device and inode.

    Nobody can set the time of the inode's last change: a file that is replaced, or that gets its old time back, has
    another stamp. What is written through a mapping into memory has one only when the system writes it out.
    """

    size: int
    modified: int
    changed: int
    device: int
    inode: int

    def settled(self, now: int) -> bool:
        """Whether a change after `now` (nanoseconds) would have another time."""
        latest = max(self.modified, self.changed)
        return latest + (COARSE if latest % WHOLE == 0 else FINE) < now

    def data(self) -> list[int]:
        """As JSON values."""
        return list(astuple(self))


def stamp_of(path: Path) -> Stamp:
    """The stamp of what a path leads to now. Raises `OSError`, or `ValueError` for a NUL in the path."""
    found = os.stat(path)
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)


def now() -> int:
    """The clock that files get their times from, in nanoseconds."""
    return time.time_ns()
