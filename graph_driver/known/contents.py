"""What is in a file, without reading it where it has been read before: digests by path and stamp.

A digest is remembered only of a file that had been left alone for longer than the clock's resolution when it was
read, so that every later change has another stamp (`polyc.graph_driver.graph.stamps`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from polyc.emit import cache
from polyc.emit.cache_files import write_atomically
from polyc.graph_driver.graph.stamps import Stamp, now, stamp_of
from polyc.poly.records import dataclass

FOLDER = "files"
CHUNK = 1 << 20


@dataclass(frozen=True)
class Content:
    """The SHA-256 of a file, its stamp before it was read, and whether every change since has another stamp."""

    digest: str
    stamp: Stamp
    settled: bool


def content_of(path: Path) -> Content | None:
    """What a file holds; None: it cannot be read, is no ordinary file, or changes while it is read."""
    try:
        path = path.absolute()
        stamp = stamp_of(path)
        known = _remembered(path, stamp)
        if known is not None:
            return Content(known, stamp, True)
        if not path.is_file():
            return None
        start = now()
        digest = _digest(path)
        if stamp_of(path) != stamp:
            return None
    except (OSError, ValueError):
        return None
    settled = stamp.settled(start)
    if settled:
        _remember(path, stamp, digest)
    return Content(digest, stamp, settled)


def unchanged(path: Path, before: Content) -> bool:
    """Whether the file still holds what it did: by its stamp, by all of it where the stamp does not tell."""
    try:
        if stamp_of(path) != before.stamp:
            return False
        return before.settled or _digest(path) == before.digest
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _place(path: Path) -> Path:
    name = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()
    return cache.cache_folder() / FOLDER / f"{name}.json"


def _remembered(path: Path, stamp: Stamp) -> str | None:
    try:
        said = json.loads(_place(path).read_text(encoding="utf-8"))
        digest = said["digest"]
        if said["stamp"] != stamp.data() or said["check"] != _check(stamp, digest):
            return None
        return str(digest)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(path: Path, stamp: Stamp, digest: str) -> None:
    text = json.dumps({"stamp": stamp.data(), "digest": digest, "check": _check(stamp, digest)})
    with contextlib.suppress(OSError):  # the next compilation reads the file again
        write_atomically(_place(path), text.encode())


def _check(stamp: Stamp, digest: str) -> str:
    return hashlib.sha256(f"{stamp.data()} {digest}".encode()).hexdigest()
