"""What a translation reads from outside the operator, and whether it still holds.

Names of globals and closures, attributes and elements of what they stand for, and whatever plain Python functions
may read that are run at specialisation. A kernel is used again only while all of it is as it was.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Hashable, Iterator
from operator import is_
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from polyc.poly.records import dataclass

from .frozen import TooLarge, freeze, is_library, is_library_module, steady

_NOTHING = object()
_SMALL = 256  # elements of a container that is watched as a whole
_PLAIN = (int, float, bool, str, type(None))
_OF_SHAPE = ("shape", "ndim", "size", "dtype")
_CONTAINERS = (list, tuple, dict, str, bytes, range, set, frozenset, np.ndarray)


@dataclass(frozen=True, slots=True)
class Path:
    """The way to a value: a name in a dictionary of globals, a closure's cell or an object, then steps.

    A step is an attribute (True, name) or an element (False, key).
    """

    scope: Any
    name: str | None
    steps: tuple[tuple[bool, Any], ...] = ()

    def attribute(self, name: str) -> Path:
        """The way to an attribute of what lies here."""
        return Path(self.scope, self.name, (*self.steps, (True, name)))

    def element(self, key: Any) -> Path:
        """The way to an element of what lies here."""
        return Path(self.scope, self.name, (*self.steps, (False, key)))

    @property
    def key(self) -> Hashable:
        """Equal for equal ways: the scope by identity, names and frozen keys of elements."""
        return id(self.scope), self.name, freeze(self.steps) if self.steps else ()

    def value(self) -> Any:
        """What lies there now, or `_NOTHING`."""
        try:
            found = self._root()
            for is_attribute, key in self.steps:
                found = getattr(found, key) if is_attribute else found[key]
        except Exception:  # properties are the user's own code
            return _NOTHING
        return found

    def _root(self) -> Any:
        if self.name is not None and isinstance(self.scope, dict):
            return self.scope[self.name]
        return self.scope.cell_contents if isinstance(self.scope, CellType) else self.scope


def of_object(value: Any) -> Path:
    """The path that starts at an object itself."""
    return Path(value, None)


@dataclass(slots=True)
class _Watch:
    """A value that may change in place: its picture, and the elements last seen (compared one by one, by identity)."""

    path: Path
    picture: Hashable
    seen: Any = _NOTHING
    same: Any = _NOTHING

    def holds(self) -> bool:
        value = self.path.value()
        if value is self.same and value is not _NOTHING:
            return True
        kind = type(value)
        if kind is list and type(self.seen) is list and len(value) == len(self.seen):
            if all(map(is_, value, self.seen)):
                return True
        if value is _NOTHING or freeze(value) != self.picture:
            return False
        self.see(value)
        return True

    def see(self, value: Any) -> None:
        if steady(value):
            self.same = value
        elif type(value) is list and all(type(v) in _PLAIN for v in value):
            self.seen = value[:]


class Reads:
    """A record of reads (see the module). `holds()` is quick: most entries are compared by identity, in C."""

    def __init__(self) -> None:
        self.lost = False  # something too large to watch: never reuse
        self._found: dict[Hashable, tuple[Path, Any, bool]] = {}  # whether a watch compares it
        self._absent: dict[tuple[int, str], dict[str, Any]] = {}
        self._watches: list[_Watch] = []
        self._walked: set[int] = set()
        self._kept: list[Any] = []
        self._names: list[tuple[Any, tuple[str, ...], list[Any]]] | None = None
        self._cells: list[tuple[CellType, Any]] = []
        self._code: list[tuple[FunctionType, CodeType, Any, Any]] = []

    # ---- recording ---------------------------------------------------------------------------

    def add(self, path: Path, value: Any) -> None:
        """A value that the program uses as a whole."""
        self.found(path, value)
        self._within(value)

    def found(self, path: Path, value: Any) -> None:
        """The same, but of a function that is translated: its own reads are recorded as they come."""
        key = path.key
        if key in self._found:
            return
        named = not path.steps and path.name is not None and value is not None
        watched = not (named and (steady(value) or isinstance(value, FunctionType)))
        self._found[key] = path, value, watched
        self._names = None
        if watched:
            try:
                watch = _Watch(path, freeze(value))
            except TooLarge:
                self.lost = True
                return
            watch.see(value)
            self._watches.append(watch)

    def absent(self, scope: dict[str, Any], name: str) -> None:
        """A name that is not in `scope` (so that the built-in one is meant)."""
        self._absent[id(scope), name] = scope
        self._names = None

    def attribute(self, path: Path | None, base: Any, name: str) -> Path | None:
        """The way to an attribute of a value; None when nothing of it needs to be watched."""
        whole = isinstance(base, _CONTAINERS) and not (isinstance(base, np.ndarray) and name in _OF_SHAPE)
        if whole or steady(base) and not (isinstance(base, ModuleType) and not is_library_module(base.__name__)):
            if path is not None:
                self.add(path, base)
            return None
        return (of_object(base) if path is None else path).attribute(name)

    def element(self, path: Path | None, base: Any, key: Any) -> Path | None:
        """The way to an element of a container; None when the container is watched as a whole."""
        if path is not None and self._is_plain(base):
            self.add(path, base)
            return None
        if path is None:
            return None if isinstance(base, _CONTAINERS) else of_object(base).element(key)
        return path.element(key)

    def _is_plain(self, base: Any) -> bool:
        if type(base) in (list, tuple):
            return len(base) <= _SMALL and all(type(v) in _PLAIN for v in base)
        return isinstance(base, np.ndarray) and base.size <= _SMALL and not base.dtype.hasobject

    def runs(self, function: Any) -> None:
        """A function that Python runs at specialisation: all that its code may read."""
        if isinstance(function, functools.partial):
            function = function.func
        if isinstance(function, MethodType):
            self.add(of_object(function.__self__), function.__self__)
            function = function.__func__
        if isinstance(function, (FunctionType, type)):
            self._within(function)
        elif not steady(function):
            self.add(of_object(function), function)

    def function(self, fn: FunctionType) -> None:
        """A function whose text is translated: its code and default values."""
        if is_library(fn) or any(f is fn for f, *_ in self._code):
            return
        self._code.append((fn, fn.__code__, fn.__defaults__, fn.__kwdefaults__))
        for default in (fn.__defaults__, fn.__kwdefaults__):
            if default is not None and not steady(default):
                self.add(of_object(default), default)

    def _within(self, value: Any) -> None:
        """What code reads that comes with a value: functions, methods of classes, in containers too."""
        if id(value) in self._walked or steady(value):
            return
        self._walked.add(id(value))
        self._kept.append(value)
        if isinstance(value, FunctionType):
            self.function(value)
            self._code_reads(value)
        elif isinstance(value, type):
            for name, part in vars(value).items():
                self._class_part(value, name, part)
            for base in value.__bases__:
                self._within(base)
        elif isinstance(value, (MethodType, functools.partial)):
            self.runs(value)
        elif isinstance(getattr(value, "__wrapped__", None), FunctionType):
            self._within(value.__wrapped__)
        elif type(value) in (list, tuple, dict, set) and len(value) <= _SMALL:
            for part in value.values() if isinstance(value, dict) else value:
                self._within(part)
        elif not isinstance(value, _CONTAINERS):
            self._within(type(value))

    def _class_part(self, owner: type, name: str, part: Any) -> None:
        """A class attribute, or a method's code."""
        if isinstance(part, property):
            self._within(part.fget)
        elif isinstance(part, (staticmethod, classmethod)):
            self._within(part.__func__)
        elif isinstance(part, FunctionType) or not (name.startswith("__") and name.endswith("__")):
            self.add(of_object(owner).attribute(name), getattr(owner, name, part))

    def _code_reads(self, fn: FunctionType) -> None:
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            path = Path(cell, name)
            content = path.value()
            if content is not _NOTHING:
                self.add(path, content)
        names = dict.fromkeys(_names(fn.__code__))
        scope = fn.__globals__
        for name in names:
            if name not in scope:
                if hasattr(builtins, name):
                    self.absent(scope, name)
                continue
            path, value = Path(scope, name), scope[name]
            self.add(path, value)
            if isinstance(value, ModuleType) and not is_library_module(value.__name__):
                for attribute in names:
                    if hasattr(value, attribute):
                        self.add(path.attribute(attribute), getattr(value, attribute))

    # ---- asking ------------------------------------------------------------------------------

    def holds(self) -> bool:
        """Whether everything still is as it was when it was read."""
        if self.lost:
            return False
        if self._names is None:
            self._index()
        for scope, names, values in self._names:  # type: ignore[union-attr]
            if not all(map(is_, map(scope.get, names), values)):
                return self._holds_slowly()
        try:
            for cell, content in self._cells:
                if cell.cell_contents is not content:
                    return self._holds_slowly()
        except ValueError:
            return False
        for fn, code, defaults, keywords in self._code:
            if fn.__code__ is not code or fn.__defaults__ is not defaults or fn.__kwdefaults__ is not keywords:
                return False
        for watch in self._watches:
            if not watch.holds():
                return False
        return True

    def _holds_slowly(self) -> bool:
        """By value: a notebook's cell that ran again makes new objects that are equal."""
        for (_, name), scope in self._absent.items():
            if name in scope:
                return False
        for key, (path, old, watched) in self._found.items():
            new = old if watched else path.value()
            if new is _NOTHING or (new is not old and freeze(new) != freeze(old)):
                return False
            self._found[key] = path, new, watched
        self._names = None
        self._index()
        return all(watch.holds() for watch in self._watches) and all(
            fn.__code__ is code and fn.__defaults__ is d and fn.__kwdefaults__ is k for fn, code, d, k in self._code
        )

    def _index(self) -> None:
        """Sort the record into what `holds` compares in one go."""
        groups: dict[int, tuple[Any, list[str], list[Any]]] = {}
        self._cells = []
        for path, value, watched in self._found.values():
            if watched:
                continue
            if isinstance(path.scope, CellType):
                self._cells.append((path.scope, value))
            else:
                _, names, values = groups.setdefault(id(path.scope), (path.scope, [], []))
                names.append(str(path.name))
                values.append(value)
        for (_, name), scope in self._absent.items():
            _, names, values = groups.setdefault(id(scope), (scope, [], []))
            names.append(name)
            values.append(None)
        self._names = [(scope, tuple(names), values) for scope, names, values in groups.values()]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
