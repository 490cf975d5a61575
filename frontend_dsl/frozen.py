"""Values from outside an operator as exact, hashable pictures: equal pictures give the same program."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Hashable
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from .annotations import Dim

LARGEST = 50_000  # values in one picture

_POLYC = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # its packages may be links
_ATOMS = (int, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_NUMBERS = (np.generic, ml_dtypes.bfloat16)


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Folders of installed modules and of polyc. (`sysconfig` is slow to import, and few operators need it.)"""
    import sysconfig

    folders = [p for k, p in sysconfig.get_paths().items() if k in ("stdlib", "purelib", "platlib")]
    folders += [_POLYC, *(entry.path for entry in os.scandir(_POLYC) if entry.is_dir())]
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


class TooLarge(Exception):
    """A value with more parts than a picture may have (internal signal)."""


class Same:
    """An object that only equals itself; kept alive, so that its address is not used again."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@functools.lru_cache(maxsize=1024)
def in_library(file: str) -> bool:
    """Whether code from this file is part of Python, of an installed package or of polyc: it does not change."""
    if file.startswith("<"):
        return file.startswith("<frozen")
    return os.path.realpath(file).startswith(_libraries())


def is_library(value: Any) -> bool:
    """Whether a function or class is from a library (see `in_library`)."""
    if isinstance(value, FunctionType):
        return in_library(value.__code__.co_filename)
    module = getattr(value, "__module__", None)
    if module in (None, "builtins") or not isinstance(module, str):
        return True
    return is_library_module(module)


@functools.lru_cache(maxsize=1024)
def is_library_module(name: str) -> bool:
    """The same for a module by its name."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if name.partition(".")[0] in ("__main__", "__mp_main__"):
        return False
    return name in sys.builtin_module_names or (isinstance(file, str) and in_library(file))


def steady(value: Any) -> bool:
    """Whether a value cannot change while it stays the same object."""
    kind = type(value)
    if kind in _ATOMS or kind in (float, complex, range) or isinstance(value, (*_NUMBERS, Dim, Enum)):
        return True
    if isinstance(value, FunctionType):
        return is_library(value)
    if isinstance(value, BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, ModuleType)
    if isinstance(value, (ModuleType, np.ufunc, np.dtype)):
        return True
    if isinstance(value, type):
        return is_library(value)
    if kind is tuple:
        return all(map(steady, value))
    return kind.__module__.startswith("polyc.") and not isinstance(value, (list, dict, set))


def freeze(value: Any) -> Hashable:
    """The picture of a value. Containers, arrays and objects are pictured with all that is in them.

    What shows no state (modules, classes, functions of libraries, open files) stands for itself. Unlike `==`, pictures
    tell 1 from 1.0 and True, and 0.0 from -0.0.

    Raises:
        TooLarge: more than `LARGEST` parts.
    """
    return _Freezer().freeze(value)


class _Freezer:
    def __init__(self) -> None:
        self.count = 0
        self.open: list[int] = []  # containers around the value at hand: cycles end there

    def freeze(self, value: Any) -> Hashable:
        self.count += 1
        if self.count > LARGEST:
            raise TooLarge
        kind = type(value)
        if kind in _ATOMS:
            return kind, value
        if kind is float:
            return kind, value.hex()
        if kind is complex:
            return kind, value.real.hex(), value.imag.hex()
        if isinstance(value, _NUMBERS):
            array = np.asarray(value)
            return kind, array.dtype.str, array.tobytes()
        if isinstance(value, Dim):
            return kind, value.expr
        if kind is range:
            return kind, value.start, value.stop, value.step
        if id(value) in self.open:
            return "again", len(self.open) - self.open.index(id(value))
        self.open.append(id(value))
        try:
            return self._parts(kind, value)
        finally:
            self.open.pop()

    def _all(self, values: Any) -> tuple[Hashable, ...]:
        return tuple([self.freeze(v) for v in values])

    def _parts(self, kind: type, value: Any) -> Hashable:
        if isinstance(value, np.ndarray):
            content = self._all(value.ravel()) if value.dtype.hasobject else value.tobytes()
            return kind, value.dtype.str, value.dtype.name, value.shape, content
        if isinstance(value, FunctionType) and not is_library(value):
            return Same(value), Same(value.__code__), self.freeze(value.__defaults__), self.freeze(value.__kwdefaults__)
        if isinstance(value, BuiltinFunctionType) and not steady(value):
            return kind, value.__name__, self.freeze(value.__self__)
        if isinstance(value, MethodType):
            return kind, self.freeze(value.__func__), self.freeze(value.__self__)
        if isinstance(value, functools.partial):
            return kind, self.freeze(value.func), self._all(value.args), self.freeze(value.keywords)
        if kind is tuple or kind is list:
            return kind, self._all(value)
        if kind is dict:
            return kind, self._all(value.keys()), self._all(value.values())
        if kind is set or kind is frozenset:
            return kind, frozenset(self._all(value))
        if steady(value) or isinstance(value, (type, FunctionType)):
            return Same(value)
        return self._object(kind, value)

    def _object(self, kind: type, value: Any) -> Hashable:
        """An instance by what `copy` and `pickle` would take of it."""
        try:
            made = value.__reduce_ex__(4)
        except Exception:  # no state that Python could show (a lock, a generator)
            return Same(value)
        if not isinstance(made, tuple):
            return Same(value)
        function, args, *state = made
        items = [list(s) if n in (1, 2) and s is not None else s for n, s in enumerate(state)]
        return Same(kind), self._all((function, *args)) if function is not None else (), self._all(items)
