"""Entries of finished programs on disk: a folder each, which is a compiled directory (`artifacts/package.py`) with one
more file that says how it was made.

    programs/KEY/known.json    what was compiled, when and how long, warnings; sums of the weights; its own checksum
    programs/KEY/...           as in a compiled directory; none for models that are compiled for the shapes of a call
    programs/KEY.json          for a model with external data: which files were read, by their names in the model
    weights/SHA256             weights, which entries of equal ones share by hard links

Nobody sees half an entry: it is written beside its place and renamed. Weights are checked by sums over their pages,
which is as fast as memory; `polyc cache verify` checks their SHA-256.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyc.emit import cache
from polyc.emit.cache_files import UNFINISHED, remove_folder, unfinished_folder, write_atomically

PROGRAMS, SHARED = "programs", "weights"
ABOUT = "known.json"
PAGE = 4096


def place_of(key: str) -> Path:
    """The folder of an entry."""
    return cache.cache_folder() / PROGRAMS / key


def about(folder: Path) -> dict[str, Any] | None:
    """What an entry says of itself; None: there is no entry.

    Raises:
        ValueError: it is damaged.
    """
    try:
        text = (folder / ABOUT).read_bytes()
    except FileNotFoundError:
        if folder.is_dir():
            raise ValueError(f"{ABOUT} is missing") from None
        return None
    except OSError as error:
        raise ValueError(error.strerror) from None
    return dict(unsealed(text))


def sealed(data: Any) -> bytes:
    """JSON with its checksum."""
    body = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def unsealed(text: bytes) -> Any:
    """The JSON back. Raises `ValueError`: it is damaged."""
    claimed, _, body = text.partition(b"\n")
    if claimed != hashlib.sha256(body).hexdigest().encode():
        raise ValueError("the checksum does not match")
    return json.loads(body)


def used_now(folder: Path) -> None:
    """Remember that an entry was used: those used longest ago go first."""
    with contextlib.suppress(OSError):
        os.utime(folder / ABOUT)


def new_folder() -> Path:
    """Where an entry is written. Raises `OSError`."""
    return unfinished_folder(cache.cache_folder() / PROGRAMS)


def drop(folder: Path) -> None:
    """Take a damaged entry away, with the weights that it shares with others."""
    for weights in folder.rglob("*.bin"):
        _drop_shared(weights)
    remove_folder(folder)


def _drop_shared(weights: Path) -> None:
    with contextlib.suppress(OSError):
        own = weights.stat()
        for shared in (cache.cache_folder() / SHARED).iterdir() if own.st_nlink > 1 else ():
            if shared.stat().st_ino == own.st_ino:
                shared.unlink()


def put_weights(path: Path, data: memoryview) -> dict[str, Any]:
    """Write weights, or link to those of another entry; size and SHA-256 as a manifest has them. Raises `OSError`."""
    digest = hashlib.sha256(data).hexdigest()
    said = {"bytes": len(data), "sha256": digest}
    shared = cache.cache_folder() / SHARED / digest
    if len(data) and _holds(shared, data):
        try:
            os.link(shared, path)
            return said
        except OSError:  # no links here, too many of them, or it has just gone
            pass
    with path.open("wb") as out:
        out.write(data)
    path.chmod(0o444)
    if len(data):
        with contextlib.suppress(OSError):
            shared.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, shared)
    return said


def _holds(path: Path, data: memoryview) -> bool:
    """Whether a file has these bytes (by their sums)."""
    try:
        if path.stat().st_size != len(data):
            return False
        return page_sums(np.memmap(path, np.uint8, "r")) == page_sums(np.frombuffer(data, np.uint8))
    except (OSError, ValueError):
        return False


def page_sums(data: np.ndarray) -> str:
    """A checksum of bytes at the speed of memory: the SHA-256 of one sum of words for each page.

    It finds pages that are missing, cut off, exchanged or changed in a bit; it is no defence against somebody who may
    write into the cache, which holds machine code.
    """
    whole = len(data) // PAGE * PAGE
    sums = np.add.reduce(data[:whole].view(np.uint64).reshape(-1, PAGE // 8), axis=1)
    digest = hashlib.sha256(f"{len(data)} ".encode())
    digest.update(np.ascontiguousarray(sums).data)
    digest.update(np.ascontiguousarray(data[whole:]).data)
    return digest.hexdigest()


# ---- external data ----


def read_files(key: str) -> list[str]:
    """The names of the files that a model of this key was compiled from, besides its own."""
    try:
        found = unsealed(place_of(key).with_suffix(".json").read_bytes())
        return [str(name) for name in found]
    except (OSError, ValueError, TypeError):
        return []


def remember_files(key: str, names: Sequence[str]) -> None:
    """Say which they are. Raises `OSError`."""
    if list(names) != read_files(key):
        write_atomically(place_of(key).with_suffix(".json"), sealed(list(names)))


def entries() -> list[Path]:
    """The folders of all entries."""
    with contextlib.suppress(OSError):
        return sorted(p for p in (cache.cache_folder() / PROGRAMS).iterdir() if p.is_dir() and not _unfinished(p))
    return []


def _unfinished(path: Path) -> bool:
    return path.name.startswith(UNFINISHED)
