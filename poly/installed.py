"""Versions of installed packages without `importlib.metadata`, whose import and parser of mails take 25 ms or more.

A package that pip or another installer of wheels put on `sys.path` has a folder NAME-VERSION.dist-info there. Where
packages may lie elsewhere (archives, finders of other makers, eggs), `importlib.metadata` is asked.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


def version(name: str) -> str | None:
    """The version of an installed package; None: there is none of that name."""
    known = _folders(tuple(sys.path))
    if known is not None and all(f is PathFinder or not hasattr(f, "find_distributions") for f in sys.meta_path):
        found = known.get(_plain(name), "")
        if not isinstance(found, Path):
            return found or None
        number = _said(found / "PKG-INFO")
        if number is not None:
            return number
    return _asked(name, tuple(sys.path), tuple(id(f) for f in sys.meta_path))


@functools.lru_cache(maxsize=64)
def _asked(name: str, places: tuple[str, ...], finders: tuple[int, ...]) -> str | None:
    """What `importlib.metadata` says, asked once while Python looks in the same places in the same ways: an answer
    takes a millisecond, and each key of the cache has four versions."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _said(file: Path) -> str | None:
    """The version that a file of what is known about a package says in its head."""
    try:
        head = file.read_text(encoding="utf-8").partition("\n\n")[0]
    except (OSError, ValueError):
        return None
    return next((line[8:].strip() for line in head.splitlines() if line.startswith("Version:")), None)


@functools.lru_cache(maxsize=2)
def _folders(places: tuple[str, ...]) -> dict[str, str | Path] | None:
    """The version of each package, or the folder that says it (`pip install -e` of some makers of packages leaves one
    beside the sources); of several the first on the path counts. None: not all packages can be told from folders."""
    found: dict[str, str | Path] = {}
    for place in places:
        try:
            entries = os.listdir(place or os.curdir)
        except FileNotFoundError:
            continue  # `sys.path` has the archive of the standard library, which is nowhere as a rule
        except OSError:
            return None
        for entry in entries:
            stem, dot, kind = entry.rpartition(".")
            name, dash, number = stem.partition("-")
            if kind in ("egg", "egg-link") or (kind == "dist-info" and not dash) or (kind == "egg-info" and dash):
                return None
            if kind == "dist-info":
                found.setdefault(_plain(name), number)
            elif kind == "egg-info":
                found.setdefault(_plain(name), Path(place, entry))
    return found


def _plain(name: str) -> str:
    """A name with the spellings that mean the same made one."""
    return re.sub(r"[-_.]+", "-", name).lower()


class _IslpyVersion(ModuleType):
    """What `islpy.version` says, and all that islpy asks of it."""

    def __init__(self, number: str, status: str) -> None:
        super().__init__("islpy.version")
        self._values = {"VERSION": tuple(int(n) for n in number.split(".")), "VERSION_TEXT": number + status}
        self._values["VERSION_STATUS"] = status

    def __getattr__(self, name: str) -> Any:
        if name not in self._values:
            raise AttributeError(f"module 'islpy.version' has no attribute '{name}'")
        vars(self).update(self._values)
        sys.modules["islpy"].__dict__["version"] = self  # as the import of a submodule does
        return self._values[name]


def spare_islpy() -> None:
    """Give islpy its version, for which it would import `importlib.metadata`: half of the time of its import."""
    if "islpy" in sys.modules or "islpy.version" in sys.modules:
        return
    parts = re.fullmatch(r"([0-9]+(?:\.[0-9]+)*)([a-z0-9]*)", version("islpy") or "")
    if parts is not None:
        sys.modules["islpy.version"] = _IslpyVersion(parts[1], parts[2])
