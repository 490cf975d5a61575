"""What a hybrid-script function calls, in its plain-Python meaning on NumPy scalars.

`grid`, `empty`, `zeros`, `full` and the scalar functions. Scalar functions keep the
dtype of NumPy scalars (integers become f64 where the function needs a float); Python
numbers stay Python numbers, so they remain weak as literals are.
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from polyc.poly.dtypes import DType, bf16, f32, from_numpy, promote
from polyc.poly.intrinsics import TABLE, Intrinsic
from polyc.poly.words import counted

from .annotations import running_python
from .checked_arrays import checked


def grid(*extents: Any) -> Iterator[tuple[int, ...]]:
    """The points of a box, last index fastest, always as tuples.

    Each extent is a size `n`, a pair `(lo, hi)`, a triple `(lo, hi, step)` or a `range`.
    """
    return itertools.product(*[_extent(e) for e in extents])


def serial(*bounds: Any) -> range:
    """`range` whose loop runs serially and stays where it is: the automatic schedule leaves its nest alone."""
    return range(*bounds)


def parallel(*bounds: Any) -> range:
    """`range` whose iterations run on all threads; refused with a witness where they depend on each other."""
    return range(*bounds)


def vectorize(*bounds: Any, lanes: int | None = None) -> range:
    """`range` whose iterations run in vector lanes: `lanes` at a time, or as many as the target has."""
    return range(*bounds)


def unroll(*bounds: Any, factor: int | None = None) -> range:
    """`range` whose loop is unrolled: `factor` times, or (constant bounds) as a whole."""
    return range(*bounds)


def bind(axis: str, *bounds: Any) -> range:
    """`range` whose iterations are the blocks (`block.x`, ...) or threads (`thread.x`, ...) of a GPU."""
    if axis not in AXES:
        raise ValueError(f"bind: {axis!r} is none of {', '.join(AXES)}")
    return range(*bounds)


def const_range(*bounds: Any) -> tuple[int, ...]:
    """The numbers of `range` as constants: a loop over them is written out at specialisation."""
    return tuple(range(*bounds))


AXES = ("block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z")


F = TypeVar("F", bound=Callable[..., Any])
_STATIC: set[Any] = set()


def static(function: F) -> F:
    """Mark a helper that only picks among its arguments by what is known at specialisation: Python runs it,
    with sizes that are still symbols as they are."""
    _STATIC.add(function)
    return function


def is_static(function: Any) -> bool:
    """Whether `static` marked it."""
    return function in _STATIC


def _extent(extent: Any) -> range:
    if isinstance(extent, range):
        return extent
    return range(*extent) if isinstance(extent, (tuple, list)) else range(extent)


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in shape) if isinstance(shape, (tuple, list)) else (int(shape),)


def _type(dtype: Any) -> DType:
    return dtype if isinstance(dtype, DType) else from_numpy(dtype)


def empty(shape: Any, dtype: Any) -> np.ndarray:
    """An array without values: the plain-Python run fills it with poison (NaN, odd integers).

    `dtype` is one of polyc's types, or an array's `.dtype`.
    """
    return _local(np.full(_shape(shape), poison(_type(dtype)), _type(dtype).np))


def poison(dtype: DType) -> Any:
    """A value that no sensible program computes: NaN, or the largest integer."""
    if dtype.is_float:
        return dtype.np.type(float("nan"))
    return True if dtype.kind == "bool" else np.iinfo(dtype.np).max


def zeros(shape: Any, dtype: Any) -> np.ndarray:
    """An array of zeros."""
    return _local(np.zeros(_shape(shape), _type(dtype).np))


def full(shape: Any, value: Any, dtype: Any) -> np.ndarray:
    """An array filled with `value`."""
    return _local(np.full(_shape(shape), _type(dtype)(value), _type(dtype).np))


def _local(array: np.ndarray) -> np.ndarray:
    return checked(array) if running_python() else array


def scalar_dtype(value: Any) -> DType | None:
    """The dtype of a NumPy scalar or rank-0 array; None for a (weak) Python number."""
    if isinstance(value, (np.generic, np.ndarray, ml_dtypes.bfloat16)):
        return from_numpy(np.asarray(value).dtype)
    return None


def _common(values: tuple[Any, ...]) -> DType | None:
    found: DType | None = None
    for value in values:
        dtype = scalar_dtype(value)
        if dtype is not None:
            found = dtype if found is None else promote(found, dtype)
    if found == bf16 and any(isinstance(v, float) for v in values):
        return f32  # as ml_dtypes does for bf16 with a Python float
    return found


def _apply(intrinsic: Intrinsic, args: tuple[Any, ...]) -> Any:
    if len(args) != intrinsic.arity:
        raise TypeError(f"{intrinsic.name} takes {counted(intrinsic.arity, 'argument')}, not {len(args)}")
    dtype = _common(args)
    if intrinsic.only is not None and dtype not in (None, intrinsic.only):
        raise TypeError(f"{intrinsic.name} takes pairs packed in {intrinsic.only}, not {dtype}")
    integer = all(isinstance(a, int) for a in args) if dtype is None else dtype.is_int
    if dtype is None and intrinsic.integers and integer:
        return intrinsic.numpy(*args).item()
    if dtype is None:
        return intrinsic.numpy(*[np.float64(float(a)) for a in args]).item()
    if not dtype.is_float and not (intrinsic.integers and integer):
        return intrinsic.numpy(*[np.float64(a) for a in args])
    return intrinsic.numpy(*[dtype.np.type(a) for a in args])


def _scalar(name: str) -> Callable[..., Any]:
    intrinsic = TABLE[name]

    def function(*args: Any) -> Any:
        return _apply(intrinsic, args)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{name}` of a scalar, in its own dtype."
    return function


exp = _scalar("exp")
log = _scalar("log")
log1p = _scalar("log1p")
expm1 = _scalar("expm1")
sqrt = _scalar("sqrt")
rsqrt = _scalar("rsqrt")
sin = _scalar("sin")
cos = _scalar("cos")
tan = _scalar("tan")
asin = _scalar("asin")
acos = _scalar("acos")
atan = _scalar("atan")
sinh = _scalar("sinh")
cosh = _scalar("cosh")
tanh = _scalar("tanh")
erf = _scalar("erf")
sigmoid = _scalar("sigmoid")
floor = _scalar("floor")
ceil = _scalar("ceil")
_nearest = _scalar("round")


def round(value: Any, ndigits: int | None = None) -> Any:
    """The nearest whole number, of two the even one, in the value's own dtype; with `ndigits` Python's own `round`."""
    return _nearest(value) if ndigits is None else builtins.round(value, ndigits)


trunc = _scalar("trunc")
abs = builtins.abs
min = builtins.min
max = builtins.max
fma = _scalar("fma")
dot_pairs = _scalar("dot_pairs")
dot_bf16 = _scalar("dot_bf16")
pack_bf16 = _scalar("pack_bf16")
widen_pairs = _scalar("widen_pairs")
dot_bytes = _scalar("dot_bytes")
isnan = _scalar("isnan")
isinf = _scalar("isinf")


def position(j: Any, size: Any) -> Any:
    """`j` as a subscript that must be in 0..size-1: another is an error of the array (`BoundsError`); compiled without
    checks, the nearest counts."""
    return j


def pow(base: Any, exponent: Any, modulus: int | None = None) -> Any:
    """`base ** exponent`; with a `modulus` Python's own `pow`, of whole numbers."""
    return base**exponent if modulus is None else builtins.pow(base, exponent, modulus)


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`, in the common dtype of both."""
    chosen = a if condition else b
    dtype = _common((a, b))
    if dtype is None:
        return chosen
    if dtype.kind != "float" and any(isinstance(v, float) for v in (a, b)):
        return np.float64(chosen)
    return dtype.np.type(chosen)


# The scalar functions that translate to one intrinsic of `polyc.poly.intrinsics`.
INTRINSICS: dict[Callable[..., Any], str] = {
    f: f.__name__
    for f in (
        exp, log, log1p, expm1, sqrt, rsqrt, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh,
        erf, sigmoid, floor, ceil, round, trunc, fma, isnan, isinf, dot_pairs, widen_pairs, dot_bf16,
        dot_bytes,
        pack_bf16, position,
    )
}  # fmt: skip
