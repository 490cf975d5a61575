"""What the disk cache holds, for people: finished programs, kernels, and how much room they take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from polyc.emit import cache
from polyc.emit.cache_files import remove_folder
from polyc.graph_driver.artifacts.package import check_files
from polyc.graph_driver.known import entries, room
from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass

SMALL = ("files", "compilers")
"""Folders of what is only remembered: digests of files, hashes of the compiler."""


@dataclass(frozen=True)
class Program:
    """A finished program: its key, the model's name and file, the target, bytes on disk, when it was made and how long
    that took, hours since it was used."""

    key: str
    name: str
    path: str
    target: str
    bytes: int
    made: str
    seconds: float
    unused_hours: float

    def data(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def programs() -> list[Program]:
    """The finished programs, the one used last first; damaged ones are left out."""
    found = []
    for folder in entries.entries():
        with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
            about = entries.about(folder)
            if about is None:
                continue
            unused = (time.time() - (folder / entries.ABOUT).stat().st_mtime) / 3600
            seconds = sum(float(s) for _, s in about["seconds"])
            name, path, target = (str(about[what]) for what in ("name", "path", "target"))
            size = room.bytes_of([folder])
            on = str(about["on"])
            found.append(Program(folder.name, name, path, target, size, on, seconds, max(0.0, unused)))
    return sorted(found, key=lambda p: p.unused_hours)


def sizes() -> dict[str, Any]:
    """How many there are of each kind and what they take, in bytes, and what they may take.

    Raises:
        BuildError: `POLYC_CACHE_SIZE` is no size.
    """
    kernels = _bytes(cache.files())
    folders = entries.entries()
    return {
        "folder": str(cache.cache_folder()),
        "programs": {"number": len(folders), "bytes": room.bytes_of(folders), "limit": room.limit_bytes()},
        "kernels": {"number": len(kernels), "bytes": sum(kernels), "limit": cache.limit_bytes() // cache.KERNELS},
        "tuning": {"number": len(_tuning()), "bytes": sum(_bytes(_tuning())), "limit": None},
    }


def verify() -> tuple[int, list[str]]:
    """Read every program and every kernel and remove the damaged ones: how many there were, and a line for each of
    these."""
    count, damaged = 0, []
    for folder in entries.entries():
        count += 1
        try:
            about = entries.about(folder)
            if about is not None and "sums" in about:  # else it is compiled for the shapes of calls
                check_files(folder)
        except (BuildError, ValueError) as error:
            if folder.is_dir():
                entries.drop(folder)
                damaged.append(f"program {folder.name}: {error}")
    for path in cache.files():
        with contextlib.suppress(OSError):
            count += 1
            if not cache.is_whole(path):
                path.unlink()
                damaged.append(f"kernel {path.name}: the checksum does not match")
    return count, damaged


def clear(only: str | None = None) -> int:
    """Remove finished programs, kernels, or both, and what is only remembered; gives the bytes that they took. What
    tuning has found stays."""
    before = sum(sizes()[kind]["bytes"] for kind in ("programs", "kernels"))
    if only != "kernels":
        for folder in entries.entries():
            remove_folder(folder)
        room.make_room(0)
        for small in SMALL:
            remove_folder(cache.cache_folder() / small)
        for path in (cache.cache_folder() / entries.PROGRAMS).glob("*.json"):
            path.unlink(missing_ok=True)
    if only != "programs":
        for path in cache.files():
            path.unlink(missing_ok=True)
    return int(before - sum(sizes()[kind]["bytes"] for kind in ("programs", "kernels")))


def _tuning() -> list[Path]:
    return list((cache.cache_folder() / "tuning").glob("*.json"))


def _bytes(paths: Sequence[Path]) -> list[int]:
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            found.append(path.stat().st_size)
    return found
