"""`polyc.lazy`: arrays that record NumPy's calls, and are computed when somebody reads a value.

A lazy array is an array, or a call (a function of NumPy and its arguments). Reading one (`np.asarray`, `float`, a
condition, its shape, printing) replays all calls behind it in `polyc.trace`, as one graph; other lazy arrays on the way
that the program still has are results of that graph, too. Programs are known by their calls, so calls in the same order
on arrays of the same types and shapes are compiled once.

What a graph cannot have (functions without nodes, several results, data that decide about shapes) NumPy computes at
once; `polyc.lazy.in_numpy` counts these calls by name.
"""

from __future__ import annotations

import operator
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from polyc.graph_driver.python_graphs.structure import mapped
from polyc.graph_driver.python_graphs.table import FUNCTIONS
from polyc.graph_driver.python_graphs.tensors import METHODS
from polyc.graph_driver.python_graphs.trace import Traced, trace
from polyc.graph_driver.python_graphs.ufuncs import COMPOSED, DIRECT
from polyc.poly.errors import ArgumentError, ModelError

KEPT = 256
"""Programs that are kept; the one used longest ago goes first."""
SEVERAL = frozenset({np.split, np.array_split, np.hsplit, np.vsplit, np.dsplit, np.meshgrid, np.broadcast_arrays})
"""Functions of several results, which a lazy array cannot stand for."""


class Call:
    """A call that has been recorded, or the array that it gave."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.value: np.ndarray | None = None
        self.holder: Callable[[], Any] = lambda: None  # a weak reference to the program's lazy array

    def give(self, value: Any) -> None:
        """It has been computed; what it was made of is let go."""
        self.value, self.function, self.args, self.kwargs = np.asarray(value), operator.pos, (), {}

    def operands(self) -> Iterator[Call]:
        """The calls and arrays among its arguments."""
        found: list[Call] = []
        mapped((self.args, dict(self.kwargs)), "", lambda v, _: found.append(v) if isinstance(v, Call) else None)
        return iter(found)


class LazyArray(NDArrayOperatorsMixin):
    """An array whose elements are computed when they are read. It cannot be updated in place."""

    def __init__(self, call: Call) -> None:
        self._call = call
        call.holder = weakref.ref(self)

    # ---- recording ----

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            raise ArgumentError(
                f"np.{function.__name__} would update a lazy array in place: write x = x + y, not x += y"
            )
        name = function.__name__
        known = (name in DIRECT or name in COMPOSED) and function.nout == 1 and kwargs.keys() <= {"dtype"}
        if method == "__call__" and known:
            return _recorded(function, inputs, kwargs)
        return _at_once(f"np.{name}", getattr(function, method), inputs, kwargs)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if function in FUNCTIONS and function not in SEVERAL and "out" not in kwargs:
            return _recorded(function, tuple(args), kwargs)
        return _at_once(f"np.{function.__name__}", function, args, kwargs)

    def __getitem__(self, index: Any) -> LazyArray:
        return _recorded(operator.getitem, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ArgumentError("elements of a lazy array cannot be set: make a new one by np.where or np.concatenate")

    def __getattr__(self, name: str) -> Any:
        if name in METHODS or name in ("astype", "reshape", "transpose", "copy"):
            return lambda *args, **kwargs: _recorded(operator.methodcaller, (name, self, *args), kwargs)
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"a lazy array has no '{name}': np.asarray of it has all of NumPy's")

    @property
    def T(self) -> LazyArray:
        """With the axes in reverse order."""
        return _recorded(np.transpose, (self,), {})

    # ---- reading ----

    @property
    def value(self) -> np.ndarray:
        """The array, computed now if it has not been. It is not to be written to."""
        if self._call.value is None:
            lazy.compute(self._call)
        assert self._call.value is not None
        return self._call.value

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents; they are read from the value."""
        return self.value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type; it is read from the value."""
        return self.value.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.value.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.value.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value, dtype)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[LazyArray]:
        return (self[k] for k in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __index__(self) -> int:
        return operator.index(self.value[()])

    def item(self) -> Any:
        """The only element, as Python's number."""
        return self.value.item()

    def tolist(self) -> Any:
        """The elements as nested lists."""
        return self.value.tolist()

    def __repr__(self) -> str:
        return f"lazy {self.value!r}"


class Lazy:
    """`polyc.lazy(array)`: a lazy array with these elements. `compilations` counts graphs, `in_numpy` by name what
    NumPy has computed in their place."""

    def __init__(self) -> None:
        self.in_numpy: Counter[str] = Counter()
        self._programs: dict[Hashable, Traced] = {}
        self._forgotten = 0

    def __call__(self, array: Any) -> LazyArray:
        """A lazy array with the elements of an array (copied: later changes of it are not seen)."""
        return array if isinstance(array, LazyArray) else LazyArray(_leaf(array))

    @property
    def compilations(self) -> int:
        """How many graphs have been recorded and compiled."""
        return self._forgotten + sum(p.count for p in self._programs.values())

    def compute(self, wanted: Call) -> None:
        """Give a call, and others on the way that the program still has, their values."""
        order = _behind(wanted)
        number = {id(c): k for k, c in enumerate(order)}
        outputs = [k for k, c in enumerate(order) if c.value is None and (c is wanted or c.holder() is not None)]
        inputs = [k for k, c in enumerate(order) if c.value is not None]

        def placed(c: Call) -> Any:
            return mapped((c.args, dict(c.kwargs)), "", lambda v, _: _At(number[id(v)]) if isinstance(v, Call) else v)

        steps = tuple((k, c.function, *placed(c)) for k, c in enumerate(order) if c.value is None)
        key = (tuple(map(_text, steps)), tuple(inputs), tuple(outputs))
        program = self._programs.pop(key, None) or trace(_replay(steps, inputs, outputs))
        self._programs[key] = program  # the last is the one used last
        if len(self._programs) > KEPT:
            self._forgotten += self._programs.pop(next(iter(self._programs))).count
        given = [order[k].value for k in inputs]
        try:
            made = program(*given)
        except ModelError:  # something in it has no nodes for these types
            self.in_numpy.update(getattr(s[1], "__name__", str(s[1])) for s in steps)
            made = program.eager(*given)
        for k, value in zip(outputs, made, strict=True):
            order[k].give(value)


class _At(int):
    """The number of a call, in the place of its value."""


def _leaf(array: Any) -> Call:
    made = Call(operator.pos, (), {})
    made.give(np.array(array))
    return made


def _recorded(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> LazyArray:
    def leaf(value: Any, _: str) -> Any:
        return value._call if isinstance(value, LazyArray) else _leaf(value) if isinstance(value, np.ndarray) else value

    return LazyArray(Call(function, mapped(tuple(args), "", leaf), mapped(dict(kwargs), "", leaf)))


def _at_once(what: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A call that NumPy computes."""
    lazy.in_numpy[what] += 1
    given, named = mapped((tuple(args), dict(kwargs)), "", lambda v, _: v.value if isinstance(v, LazyArray) else v)
    return mapped(function(*given, **named), "", lambda v, _: lazy(v) if isinstance(v, np.ndarray) else v)


def _behind(wanted: Call) -> list[Call]:
    """All calls and arrays that a call is made of, in an order of which each reads those before it."""
    order: list[Call] = []
    seen: set[int] = set()
    waiting = [(wanted, False)]
    while waiting:
        call, read = waiting.pop()
        if read:
            order.append(call)
        elif id(call) not in seen:
            seen.add(id(call))
            waiting.append((call, True))
            waiting += [(c, False) for c in call.operands()]
    return order


def _text(value: Any) -> Hashable:
    """What tells two recorded arguments apart."""
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, *map(_text, value))
    if isinstance(value, dict):
        return tuple((k, _text(v)) for k, v in value.items())
    if callable(value):
        return id(value)  # functions of NumPy: they stay
    return (type(value).__name__, repr(value))


def _replay(steps: Sequence[Any], inputs: Sequence[int], outputs: Sequence[int]) -> Callable[..., Any]:
    """The recorded calls as a function of the arrays that they begin with."""

    def replay(*arrays: Any) -> list[Any]:
        known = dict(zip(inputs, arrays, strict=True))
        for number, function, args, kwargs in steps:
            given, named = mapped((args, kwargs), "", lambda v, _: known[v] if isinstance(v, _At) else v)
            if function is operator.methodcaller:
                name, array, *rest = given
                known[number] = getattr(array, name)(*rest, **named)
            else:
                known[number] = function(*given, **named)
        return [known[k] for k in outputs]

    return replay


lazy = Lazy()
