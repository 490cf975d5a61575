"""What stands for an array while a graph is recorded: Python's operators, methods and NumPy's functions on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from polyc.graph_driver.building.construction import Value
from polyc.graph_driver.graph.size import Size
from polyc.graph_driver.python_graphs import indexing, movement, ufuncs
from polyc.graph_driver.python_graphs.place import placed
from polyc.graph_driver.python_graphs.recording import Recording, element_type
from polyc.graph_driver.python_graphs.table import FUNCTIONS
from polyc.poly.dtypes import i64
from polyc.poly.errors import ModelError


class GraphTensor(NDArrayOperatorsMixin):
    """A tensor of a graph that is being recorded, in the place of a NumPy array.

    Operators of Python, functions and methods of NumPy on it become nodes; what its elements are, only a run can tell.
    `shape` has numbers and, of symbolic sizes, formulas.
    """

    def __init__(self, recording: Recording, value: Value, shared: bool = False) -> None:
        """`shared`: in NumPy other arrays have the same memory (an argument, a view), so it is not updated in place."""
        self.recording, self.value, self.shared = recording, value, shared

    # ---- what it is ----

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents."""
        return self.value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type, as NumPy has it."""
        return self.value.dtype.np

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.value.rank

    @property
    def size(self) -> Any:
        """Number of elements."""
        return prod(self.shape)

    @property
    def T(self) -> GraphTensor:
        """With the axes in reverse order."""
        return self._call("T", np.transpose, (self,), {})

    def __add__(self, other: Any) -> Any:
        return np.add(self, self._size(other))

    def __sub__(self, other: Any) -> Any:
        return np.subtract(self, self._size(other))

    def __mul__(self, other: Any) -> Any:
        return np.multiply(self, self._size(other))

    def __truediv__(self, other: Any) -> Any:
        return np.divide(self, self._size(other))

    def _size(self, other: Any) -> Any:
        """A symbolic size as a number of this tensor's type, as NumPy takes the number that it stands for."""
        if not isinstance(other, Size):
            return other
        r, kind = self.recording, self.value.dtype if self.value.dtype.is_float else i64
        return GraphTensor(r, r.checked("a size", lambda: r.operand(other, kind)))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without axes")
        (n,) = self.recording.checked("len", lambda: self.recording.numbers(self.shape[:1], "len()"))
        return int(n)

    def __repr__(self) -> str:
        return f"<{self.value.dtype}[{', '.join(map(str, self.shape))}] of a graph>"

    # ---- what only a run knows ----

    def _data(self, what: str, instead: str) -> NoReturn:
        raise ModelError(placed(f"{what} asks for the elements of a tensor, which only a run has: {instead}"))

    def __bool__(self) -> bool:
        self._data("a condition of Python", "choose between values by np.where, or compute it outside")

    def __int__(self) -> int:
        self._data("int()", "keep it a tensor, or compute it outside")

    def __float__(self) -> float:
        self._data("float()", "keep it a tensor, or compute it outside")

    def __index__(self) -> int:
        self._data("an index or a size", "np.take chooses by a tensor; sizes are numbers")

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._data("np.asarray, or a function outside of NumPy,", "keep it a tensor, or compute it outside")

    def item(self) -> Any:
        """Refused: only a run has elements. Raises `ModelError`."""
        self._data("item()", "keep it a tensor, or compute it outside")

    def tolist(self) -> Any:
        """Refused: only a run has elements. Raises `ModelError`."""
        self._data("tolist()", "keep it a tensor, or compute it outside")

    # ---- NumPy's protocols ----

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        dtype = kwargs.pop("dtype", None)
        what = f"np.{function.__name__}"
        if method != "__call__" or kwargs:
            more = f".{method}" if method != "__call__" else f" with {', '.join(kwargs)}"
            raise ModelError(placed(f"polyc has no nodes for {what}{more}"))
        made = self._record(what, lambda r, *a: ufuncs.call(r, function, a, dtype), inputs, {})
        if out is None:
            return made
        (place,) = out
        if not isinstance(place, GraphTensor):
            raise ModelError(placed(f"{what} would write to an array of the program: return a new array instead"))
        return place._replaced(made, what)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        return self._call(f"np.{function.__name__}", function, args, kwargs)

    def __polyc_operator__(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What calling an operator of the language with this tensor among its arguments does."""
        return self._record(op.name, lambda r, *a, **k: r.operator(op, a, k), args, kwargs, several=True)

    def _call(self, what: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A function of NumPy that is no ufunc."""
        found = FUNCTIONS.get(function)
        if found is None:
            raise ModelError(
                placed(f"polyc has no nodes for {what}: compute it outside, or write it as an operator (@polyc.op)")
            )
        views = function in movement.VIEWS
        if views:
            self.shared = True
        return self._record(what, found, args, kwargs, shared=views)

    def _record(
        self, what: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
        shared: bool = False, several: bool = False,
    ) -> Any:  # fmt: skip
        r = self.recording

        def record() -> Any:
            return function(r, *[unwrapped(a, r) for a in args], **{k: unwrapped(v, r) for k, v in kwargs.items()})

        try:
            made = r.checked(what, record)
        except TypeError as error:
            raise ModelError(placed(f"{what}: {error}")) from None
        if several:
            results = tuple(GraphTensor(r, v) for v in made)
            return results[0] if len(results) == 1 else results
        if isinstance(made, list):
            return [GraphTensor(r, v, shared) for v in made]
        return GraphTensor(r, made, shared)

    # ---- in place ----

    def _replaced(self, made: GraphTensor, what: str) -> GraphTensor:
        """This tensor with the elements of another from now on."""
        if self.shared:
            raise ModelError(placed(f"{what} would update an argument or a view in place: make a new array instead"))
        if made.shape != self.shape:
            raise ModelError(placed(f"{what}: {list(made.shape)} has no room in {list(self.shape)}"))
        if not np.can_cast(made.dtype, self.dtype, "same_kind"):
            raise ModelError(placed(f"{what}: {made.dtype} has no room in {self.dtype}"))
        r = self.recording
        self.value = r.checked(what, lambda: r.cast(made.value, element_type(self.dtype)))
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ModelError(placed("elements of a tensor cannot be set: make a new one by np.where or np.concatenate"))

    # ---- methods ----

    def __getitem__(self, index: Any) -> GraphTensor:
        basic = indexing.is_basic(index)
        made = self._record("an index", indexing.chosen, (self, index), {}, shared=basic)
        if basic:
            self.shared = True
        assert isinstance(made, GraphTensor)
        return made

    def astype(self, dtype: Any) -> GraphTensor:
        """In another element type."""
        wanted = element_type(np.dtype(dtype))
        made = self._record("astype", lambda r, x: r.cast(x, wanted), (self,), {})
        assert isinstance(made, GraphTensor)
        return made

    def copy(self) -> GraphTensor:
        """A tensor of its own with the same elements."""
        return GraphTensor(self.recording, self.value)

    def reshape(self, *shape: Any) -> GraphTensor:
        """The same elements in another shape."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._call("reshape", np.reshape, (self, wanted), {})

    def transpose(self, *axes: Any) -> GraphTensor:
        """With the axes in another order."""
        wanted = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return self._call("transpose", np.transpose, (self, wanted), {})

    def __getattr__(self, name: str) -> Any:
        function = METHODS.get(name)
        if function is None:
            if name.startswith("__"):
                raise AttributeError(name)
            raise AttributeError(placed(f"a tensor of a graph has no '{name}'"))
        return lambda *args, **kwargs: self._call(name, function, (self, *args), kwargs)


METHODS = {
    name: getattr(np, name)
    for name in (
        "sum mean max min prod all any argmax argmin var std squeeze swapaxes ravel dot clip repeat take cumsum round"
    ).split()
}


def unwrapped(value: Any, recording: Recording) -> Any:
    """Arguments of a function with `Value`s in the place of tensors. Raises `ModelError`: a tensor of another graph."""
    if isinstance(value, GraphTensor):
        if value.recording is not recording:
            raise ModelError(placed(f"{value!r} belongs to another graph ({value.recording.graph.name})"))
        return value.value
    if type(value) in (list, tuple):
        return type(value)(unwrapped(v, recording) for v in value)
    return value
