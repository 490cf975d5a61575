"""What a Python function reads beside its arguments: for guards of a trace.

Found by walking from the function: closures, defaults, globals that its code names, functions among them, and
attributes that the code names of objects among them. Libraries are taken as they are.
"""

from __future__ import annotations

import random
import sys
import types
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from polyc.poly.records import dataclass

MOST = 20_000
"""Values that a walk looks at."""
_LIBRARIES = frozenset({"polyc", "numpy", "scipy", "onnx", *sys.stdlib_module_names}) - {"__main__"}


@dataclass
class Surroundings:
    """`tokens` say by path what was found, arrays by type and shape; `arrays` are these by path, `kept` all objects
    that a token names by identity."""

    tokens: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    generators: list[np.random.Generator] = field(default_factory=list)

    def digest(self) -> int:
        """A number that follows from the elements of all arrays."""
        total = 0
        for array in self.arrays.values():
            total = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data, total)
        return total

    def random_state(self) -> str:
        """The state of all random numbers that the function can draw."""
        legacy: Any = np.random.get_state()
        states = [str(g.bit_generator.state) for g in self.generators]
        return f"{legacy[1][:4]}{legacy[2:]}{hash(random.getstate())}{states}"


def surroundings(fn: Callable[..., Any]) -> Surroundings:
    """What a function reads beside its arguments, as it is now."""
    found = _Walk()
    found.value(fn, "", ())
    return found.made


class _Walk:
    def __init__(self) -> None:
        self.made = Surroundings()
        self.seen: set[tuple[int, int]] = set()
        self.first: dict[int, str] = {}
        self.left = MOST

    def value(self, value: Any, path: str, names: tuple[str, ...]) -> None:
        """One value; of objects the attributes `names`."""
        self.left -= 1
        if self.left < 0:
            return
        if isinstance(value, np.ndarray):
            first = self.first.setdefault(id(value), path)  # the same array under two names stays one
            self.made.tokens[path] = ("array", value.dtype.str, value.shape, first)
            self.made.arrays[path] = value
            self.made.kept.append(value)
        elif value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
            self.made.tokens[path] = (type(value).__name__, repr(value))
        elif isinstance(value, (list, tuple)):
            self.made.tokens[path] = (type(value).__name__, len(value))
            if self._new(value, names):
                for k, v in enumerate(value):
                    self.value(v, f"{path}[{k}]", names)
        elif isinstance(value, dict):
            self.made.tokens[path] = ("dict", tuple(map(repr, value)))
            if self._new(value, names):
                for key, v in value.items():
                    self.value(v, f"{path}[{key!r}]", names)
        else:
            self._object(value, path, names)

    def _object(self, value: Any, path: str, names: tuple[str, ...]) -> None:
        self.made.tokens[path] = (type(value).__name__, id(value))
        self.made.kept.append(value)
        if isinstance(value, np.random.Generator):
            self.made.generators.append(value)
        elif isinstance(value, types.MethodType):
            self.made.tokens[path] = ("method", id(value.__func__), id(value.__self__))
            if isinstance(value.__func__, types.FunctionType):
                self._function(value.__func__, path, value.__self__)
        elif isinstance(value, types.FunctionType):
            self._function(value, path, None)
        elif isinstance(value, types.ModuleType):
            if value.__name__.partition(".")[0] not in _LIBRARIES:
                self._attributes(vars(value), path, names)
        elif not isinstance(value, type) and not _library(type(value)) and self._new(value, names):
            self._attributes(getattr(value, "__dict__", {}), path, names)
            for cls in type(value).__mro__:
                for name in (*names, "__call__"):
                    inner = vars(cls).get(name)
                    inner = inner.fget if isinstance(inner, property) else inner
                    if isinstance(inner, types.FunctionType):
                        self._function(inner, f"{path}.{name}", value)

    def _attributes(self, found: Mapping[str, Any], path: str, names: tuple[str, ...]) -> None:
        for name in names:
            if name in found:
                self.value(found[name], f"{path}.{name}" if path else name, names)

    def _function(self, fn: types.FunctionType, path: str, owner: Any) -> None:
        if _library(fn) or not self._new(fn, (path if owner is not None else "",)):
            return
        names = tuple(dict.fromkeys(_names(fn.__code__)))
        dot = f"{path}." if path else ""
        self.made.tokens[f"{dot}code"] = id(fn.__code__)
        self.made.kept.append(fn.__code__)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                self.value(cell.cell_contents, f"{dot}{name}", names)
            except ValueError:  # a cell that has nothing yet
                self.made.tokens[f"{dot}{name}"] = None
        for k, default in enumerate((*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())):
            self.value(default, f"{dot}default{k}", names)
        self._attributes(fn.__globals__, path, tuple(n for n in names if n in fn.__globals__))
        for name in names:  # of modules and objects by name, what the code reads of them
            inner = fn.__globals__.get(name)
            if isinstance(inner, types.ModuleType) or hasattr(inner, "__dict__"):
                self.value(inner, f"{dot}{name}", names)
        if owner is not None:
            self.value(owner, f"{dot}self" if "self" not in path else f"{path}.self", names)

    def _new(self, value: Any, names: tuple[str, ...]) -> bool:
        """Whether this is looked at for the first time with these names; a circle ends here."""
        key = id(value), hash(names)
        if key in self.seen:
            return False
        self.seen.add(key)
        return True


def _library(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in _LIBRARIES


def _names(code: types.CodeType) -> Iterator[str]:
    """Names of globals and attributes in a code and in those inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
