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
from types import ModuleType
from typing import Any


def version(name: str) -> str | None:
    """The version of an installed package; None: there is none of that name."""
    found = _folders(tuple(sys.path))
    if found is not None and all(f is PathFinder or not hasattr(f, "find_distributions") for f in sys.meta_path):
        return found.get(_plain(name))
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@functools.lru_cache(maxsize=2)
def _folders(places: tuple[str, ...]) -> dict[str, str] | None:
    """The version that the first folder of each name has; None: not all can be told from names of folders."""
    found: dict[str, str] = {}
    for place in places:
        try:
            entries = sorted(os.listdir(place or os.curdir))
        except FileNotFoundError:
            continue  # `sys.path` has the archive of the standard library, which is nowhere as a rule
        except OSError:
            return None
        for entry in entries:
            if entry.endswith((".egg-info", ".egg", ".egg-link")):
                return None
            if entry.endswith(".dist-info"):
                name, dash, number = entry.removesuffix(".dist-info").partition("-")
                if not dash or found.get(_plain(name), number) != number:
                    return None
                found[_plain(name)] = number
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
