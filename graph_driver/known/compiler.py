"""Which compiler this is: a hash of polyc's own sources, and the versions of the packages whose code decides, too."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from polyc.emit import cache as disk
from polyc.emit.cache_files import write_atomically

FOLDER = "compilers"
PACKAGES = ("onnx", "numpy", "islpy", "llvmlite", "cgen", "ml_dtypes")
STARTED = time.time_ns()
"""When this process imported polyc, as near as this module can tell."""


def identity() -> str | None:
    """A hash of everything that compiles; None where it has changed since this process started: what is in memory is
    another compiler then than what is on disk.

    Reading all sources takes a while, so the hash is remembered by their stamps.
    """
    stamps, newest = _stamps()
    if newest >= STARTED:
        return None
    return _of_stamps(stamps)


@cache
def _of_stamps(stamps: str) -> str:
    place = disk.cache_folder() / FOLDER / f"{stamps}.txt"
    try:
        found = place.read_text(encoding="ascii").split()
        if len(found) == 2 and found[1] == _check(stamps, found[0]):
            return found[0]
    except (OSError, ValueError):
        pass
    made = _computed()
    with contextlib.suppress(OSError):  # the next process reads the sources again
        write_atomically(place, f"{made} {_check(stamps, made)}\n".encode())
    return made


def _check(stamps: str, found: str) -> str:
    return hashlib.sha256(f"{stamps} {found}".encode()).hexdigest()


def _computed() -> str:
    from importlib.metadata import PackageNotFoundError, version

    from polyc.graph_driver.worker.jobs import fingerprint

    parts = [fingerprint(), disk.package_versions(), sys.version]
    for name in PACKAGES:
        try:
            parts.append(version(name))
        except PackageNotFoundError:
            parts.append("none")
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _stamps() -> tuple[str, int]:
    """A hash of the stamps of polyc's sources and of the packages' first files, and the newest time in them."""
    digest = hashlib.sha256(repr((sys.version, sys.executable, sys.byteorder)).encode())
    newest = 0
    root = Path(__file__).resolve().parent.parent.parent
    folders = [str(root / name) for name in ("poly", "frontend_dsl", "scheduler", "emit", "graph_driver")]
    while folders:
        folder = folders.pop()
        for entry in sorted(os.scandir(folder), key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    folders.append(entry.path)
            elif entry.name.endswith((".py", ".toml", ".h")):
                newest = max(newest, _add(digest, entry.path, entry.stat()))
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None and os.path.exists(spec.origin):
            newest = max(newest, _add(digest, spec.origin, os.stat(spec.origin)))
    return digest.hexdigest(), newest


def _add(digest: hashlib._Hash, path: str, about: os.stat_result) -> int:
    digest.update(f"{path}|{about.st_size}|{about.st_mtime_ns}|{about.st_ctime_ns}|{about.st_ino}\n".encode())
    return max(about.st_mtime_ns, about.st_ctime_ns)
