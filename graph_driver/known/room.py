"""How much room finished programs may take, and who goes first when it is short."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from polyc.emit import cache
from polyc.emit.cache_files import UNFINISHED, remove_folder
from polyc.graph_driver.known import entries

LARGEST = 2
"""A finished program takes at most one part in so many of the room."""
LEFT_BEHIND = 3600
"""Seconds after which what a process has not finished writing is taken for left behind by it."""
MOST_FILES = 4096
"""Digests of files that are remembered, and lists of external data."""


def limit_bytes() -> int:
    """What all finished programs may take: three quarters of the cache. Raises `BuildError`."""
    return cache.limit_bytes() * 3 // 4


def most_bytes() -> int:
    """What the weights of one may take. Raises `BuildError`."""
    return limit_bytes() // LARGEST


def make_room(limit: int | None = None) -> int:
    """Remove what was used longest ago until the rest takes at most `limit` bytes; how many programs went."""
    limit = limit_bytes() if limit is None else limit
    found = sorted((_used(folder), folder) for folder in entries.entries())
    total, gone = bytes_of([folder for _, folder in found]), 0
    for _, folder in found:
        if total <= limit:
            break
        remove_folder(folder)
        gone += 1
        _drop_unused_weights()
        total = bytes_of(entries.entries())
    _drop_unused_weights()
    _tidy()
    return gone


def bytes_of(folders: list[Path]) -> int:
    """Bytes of entries on disk; weights that several share count once."""
    seen: dict[tuple[int, int], int] = {}
    for folder in folders:
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                about = path.stat()
                if path.is_file():
                    seen[about.st_dev, about.st_ino] = about.st_size
    return sum(seen.values())


def _used(folder: Path) -> float:
    with contextlib.suppress(OSError):
        return (folder / entries.ABOUT).stat().st_mtime
    return 0.0


def _drop_unused_weights() -> None:
    """Shared weights that no entry has any more."""
    with contextlib.suppress(OSError):
        for path in (cache.cache_folder() / entries.SHARED).iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_nlink == 1:
                    path.unlink()


def _tidy() -> None:
    """What was left behind half written, and the oldest of the small files."""
    root = cache.cache_folder()
    with contextlib.suppress(OSError):
        for path in (root / entries.PROGRAMS).glob(f"{UNFINISHED}*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - LEFT_BEHIND:
                    remove_folder(path)
    for small in ("files/*.json", f"{entries.PROGRAMS}/*.json", "compilers/*.txt"):
        dated = []
        for path in root.glob(small):
            with contextlib.suppress(OSError):
                dated.append((path.stat().st_mtime, path))
        for _, path in sorted(dated)[:-MOST_FILES]:
            with contextlib.suppress(OSError):
                path.unlink()
