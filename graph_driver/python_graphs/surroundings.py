"""What a Python function reads beside its arguments: for guards of a trace.

Found by walking from the function: closures, defaults, globals that its code names, functions among them, attributes
that the code names of objects and classes among them, what containers hold. Code of packages is taken as it is. A walk
that would not end is refused, as what it leaves out could change without anybody noticing.
"""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from polyc.graph_driver.python_graphs.elements import digest_of, frozen
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

MOST = 20_000
"""Values that a walk looks at."""
_OWN = frozenset({"polyc", "onnx"})
_NUMERIC = frozenset({"numpy", "scipy"})
_STANDARD = frozenset(sys.stdlib_module_names) - {"__main__"}
_LIBRARIES = _OWN | _NUMERIC | _STANDARD
_BY_TEXT = frozenset({"getattr", "vars", "__dict__", "attrgetter", "methodcaller"})
"""Names in a code that may reach any attribute."""
_NEVER_CALLED = frozenset({"__init__", "__new__", "__repr__", "__str__", "__del__", "__init_subclass__"})
"""Methods that no expression of a traced function calls on an object that is there already, but by name."""
_ANY_NAME = frozenset({"__getattr__", "__getattribute__"})
_SCALARS = (bool, int, float, complex, str, bytes, np.generic)


@dataclass
class Surroundings:
    """`tokens` say by path what was found, arrays by type and shape; `arrays` are these by path, `kept` all objects
    that a token names by identity."""

    tokens: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    generators: list[np.random.Generator] = field(default_factory=list)

    def digest(self) -> tuple[int, ...]:
        """Numbers that follow from the elements of the arrays that somebody could change."""
        return tuple(digest_of(a) for a in self.arrays.values() if not frozen(a))

    def random_state(self) -> str:
        """The state of all random numbers that the function can draw."""
        legacy: Any = np.random.get_state()
        states = [str(g.bit_generator.state) for g in self.generators]
        return f"{legacy[1][:4]}{legacy[2:]}{hash(random.getstate())}{states}"


def surroundings(fn: Callable[..., Any], most: int = MOST) -> Surroundings:
    """What a function reads beside its arguments, as it is now.

    Raises:
        ModelError: more values than `most`.
    """
    found = _Walk(most)
    found.value(fn, "", ())
    return found.made


class _Walk:
    def __init__(self, most: int) -> None:
        self.made = Surroundings()
        self.seen: set[tuple[int, int]] = set()
        self.first: dict[int, str] = {}
        self.most = self.left = most

    def value(self, value: Any, path: str, names: tuple[str, ...]) -> None:
        """One value; of objects the attributes `names`."""
        self.left -= 1
        if self.left < 0:
            raise ModelError(
                f"the function reads more than {self.most} values from around, the last one {path}: give them as "
                f"arrays or arguments, so that a change of them is noticed"
            )
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            self.made.tokens[path] = ("array", "object", value.shape)
            self._each(enumerate(value.reshape(-1).tolist()), value, path, names)
        elif isinstance(value, np.ndarray):
            first = self.first.setdefault(id(value), path)  # the same array under two names stays one
            self.made.tokens[path] = ("array", value.dtype.str, value.shape, first)
            self.made.arrays[path] = value
            self.made.kept.append(value)
        elif value is None or isinstance(value, _SCALARS):
            self.made.tokens[path] = (type(value).__name__, repr(value))
        elif isinstance(value, memoryview):
            self.value(np.asarray(value), path, names)
        elif isinstance(value, (list, tuple)):
            self.made.tokens[path] = (type(value).__name__, len(value))
            self._each(enumerate(value), value, path, names)
        elif isinstance(value, (set, frozenset)):
            self.made.tokens[path] = (type(value).__name__, len(value))
            self._each(enumerate(sorted(value, key=repr)), value, path, names)
        elif isinstance(value, dict):
            self.made.tokens[path] = ("dict", tuple(map(repr, value)))
            self._each(value.items(), value, path, names)
        else:
            self._object(value, path, names)

    def _each(self, items: Any, owner: Any, path: str, names: tuple[str, ...]) -> None:
        """What a container holds, and the attributes of one whose class is the user's."""
        if not self._new(owner, names):
            return
        for key, v in items:
            self.value(v, f"{path}[{key!r}]", names)
        if not _library(type(owner)):
            self._instance(owner, path, names)

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
        elif isinstance(value, type):
            if not _library(value):
                self._class(value, value, path, names)
        elif _library(type(value)):
            self._of_library(value, path, names)
        elif self._new(value, names):
            self._instance(value, path, names)

    def _instance(self, value: Any, path: str, names: tuple[str, ...]) -> None:
        """Attributes of an object of a class of the user's."""
        own = dict(getattr(value, "__dict__", {}))
        for cls in type(value).__mro__:
            slots = vars(cls).get("__slots__", ())
            own |= {s: getattr(value, s) for s in ([slots] if isinstance(slots, str) else slots) if hasattr(value, s)}
        computed = any(n in vars(c) for c in type(value).__mro__ if not _installed(c) for n in _ANY_NAME)
        self._attributes(own, path, tuple(own) if computed or not _BY_TEXT.isdisjoint(names) else names)
        self._class(type(value), value, path, tuple(n for n in names if n not in own))

    def _class(self, cls: type, owner: Any, path: str, names: tuple[str, ...]) -> None:
        """Attributes of a class, and what its methods read that Python calls without their names."""
        for c in cls.__mro__:
            if _installed(c):
                continue
            special = () if owner is cls else (n for n in vars(c) if n[:2] == n[-2:] == "__" and n not in _NEVER_CALLED)
            for name in dict.fromkeys((*names, *special)):
                if name not in vars(c):
                    continue
                inner = vars(c)[name]
                inner = inner.fget if isinstance(inner, property) else getattr(inner, "__func__", inner)
                if isinstance(inner, types.FunctionType):
                    self._function(inner, f"{path}.{name}", owner)
                elif name in names and not isinstance(inner, types.MemberDescriptorType):
                    self.value(inner, f"{path}.{name}", names)

    def _of_library(self, value: Any, path: str, names: tuple[str, ...]) -> None:
        """What an object of a library holds, as it says to whoever would copy it."""
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            self.value(wrapped, f"{path}.__wrapped__", names)
        if _root(type(value)) in _OWN or not self._new(value, names):
            return
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # whatever a library says to that: it cannot be copied, and stands for itself
            return
        if isinstance(parts, tuple):
            _, arguments, *more = parts
            state, items, pairs = (*more, None, None, None)[:3]
            held = (arguments, state, None if items is None else list(items), None if pairs is None else dict(pairs))
            self.value(held, f"{path}.state", names)

    def _attributes(self, found: Mapping[str, Any], path: str, names: tuple[str, ...]) -> None:
        for name in names:
            if name in found:
                self.value(found[name], f"{path}.{name}" if path else name, names)

    def _function(self, fn: types.FunctionType, path: str, owner: Any) -> None:
        if _installed(fn) or not self._new(fn, (path if owner is not None else "",)):
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
        for name in names:
            if name in fn.__globals__:
                self.value(fn.__globals__[name], f"{dot}{name}", names)
        if owner is not None:
            self.value(owner, f"{dot}self" if "self" not in path else f"{path}.self", names)

    def _new(self, value: Any, names: tuple[str, ...]) -> bool:
        """Whether this is looked at for the first time with these names; a circle ends here."""
        key = id(value), hash(names)
        if key in self.seen:
            return False
        self.seen.add(key)
        self.made.kept.append(value)  # an id is a name only as long as the object lives
        return True


def _root(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def _library(value: Any) -> bool:
    return _root(value) in _LIBRARIES


def _installed(value: Any) -> bool:
    """Whether this is code of a library or of another package: it is taken as it is."""
    return _library(value) or _is_package(_root(value))


@cache
def _is_package(root: str) -> bool:
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _names(code: types.CodeType) -> Iterator[str]:
    """Names of globals and attributes in a code and in those inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
