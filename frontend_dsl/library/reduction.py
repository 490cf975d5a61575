"""Reductions over any axes, arg-max, cumulative sums."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Callable
from typing import Any

from polyc.frontend_dsl import abs, empty, exp, grid, log, max, min, op, sqrt
from polyc.frontend_dsl.library.subscripts import pick
from polyc.poly.dtypes import DType, i64

Shape = tuple[int, ...]


def same(x: Any) -> Any:
    """The identity."""
    return x


def square(x: Any) -> Any:
    """`x * x`."""
    return x * x


# name -> (how elements join, what is done to each before, what is done to the total)
REDUCTIONS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any] | None]] = {
    "sum": ("+", same, None),
    "mean": ("+", same, None),  # divided by the number of elements
    "prod": ("*", same, None),
    "max": ("max", same, None),
    "min": ("min", same, None),
    "l1": ("+", abs, None),
    "l2": ("+", square, sqrt),
    "sum_square": ("+", square, None),
    "log_sum": ("+", same, log),
}


def neutral(join: str, T: DType) -> Any:
    """The value that a reduction starts from."""
    if join in ("+", "*"):
        return 0 if join == "+" else 1
    if T.kind == "bool":
        return join == "min"
    if T.is_float:
        return float("-inf") if join == "max" else float("inf")
    low = -(2 ** (T.bits - 1)) if T.kind == "int" else 0
    return low if join == "max" else low + 2**T.bits - 1


def _plan(shape: Shape, axes: Shape, keepdims: bool) -> tuple[Shape, Shape, Shape]:
    """Output shape, reduced extents, and the order that picks X's subscripts from (output, reduced)."""
    out = tuple(1 if d in axes else n for d, n in enumerate(shape) if keepdims or d not in axes)
    reduced = tuple(n for d, n in enumerate(shape) if d in axes)
    kept = [d for d in range(len(shape)) if keepdims or d not in axes]
    order = tuple(len(out) + axes.index(d) if d in axes else kept.index(d) for d in range(len(shape)))
    return out, reduced, order


def make_reduce(kind: str, T: DType, shape: Shape, axes: Shape, keepdims: bool) -> Any:
    """One of `REDUCTIONS` over the sorted `axes`; with `keepdims` they stay as extent 1."""
    out, reduced, order = _plan(shape, axes, keepdims)
    join, before, after = REDUCTIONS[kind]
    start = neutral(join, T)
    count = 1
    for n in reduced:
        count *= n

    @op
    def reduce(X: T[shape]) -> T[out]:
        Y = empty(out, T)
        for o in grid(*out):
            Y[o] = start
            for k in grid(*reduced):
                if join == "+":
                    Y[o] += before(X[pick((*o, *k), order)])
                elif join == "*":
                    Y[o] *= X[pick((*o, *k), order)]
                elif join == "max":
                    Y[o] = max(Y[o], X[pick((*o, *k), order)])
                else:
                    Y[o] = min(Y[o], X[pick((*o, *k), order)])
            if kind == "mean":
                Y[o] = Y[o] / T(count) if T.is_float else Y[o] // T(count)
            if after is not None:
                Y[o] = after(Y[o])
        return Y

    return reduce


def make_log_sum_exp(T: DType, shape: Shape, axes: Shape, keepdims: bool) -> Any:
    """`log(sum(exp(x)))`, computed from the maximum so that it does not overflow."""
    out, reduced, order = _plan(shape, axes, keepdims)

    @op
    def log_sum_exp(X: T[shape]) -> T[out]:
        Y = empty(out, T)
        for o in grid(*out):
            top = T(float("-inf"))
            for k in grid(*reduced):
                top = max(top, X[pick((*o, *k), order)])
            total = T(0)
            for k in grid(*reduced):
                total += exp(X[pick((*o, *k), order)] - top)
            Y[o] = log(total) + top
        return Y

    return log_sum_exp


def make_arg(largest: bool, last: bool, T: DType, outer: int, n: int, inner: int) -> Any:
    """Position of the extreme element of `X[o,:,i]`, as i64; of equal ones the first or the `last`."""

    def better(x: Any, best: Any) -> Any:
        if largest:
            return x >= best if last else x > best
        return x <= best if last else x < best

    @op
    def arg(X: T[outer, n, inner]) -> i64[outer, inner]:
        Y = empty((outer, inner), i64)
        for o, i in grid(outer, inner):
            best = X[o, 0, i]
            Y[o, i] = 0
            for k in range(1, n):
                Y[o, i] = k if better(X[o, k, i], best) else Y[o, i]
                best = X[o, k, i] if better(X[o, k, i], best) else best
        return Y

    return arg


def make_cumulative(
    T: DType, outer: int, n: int, inner: int, exclusive: bool, reverse: bool, product: bool = False
) -> Any:
    """Running sums (or products) along the middle axis."""
    last = n - 1

    def joined(a: Any, b: Any) -> Any:
        return a * b if product else a + b

    @op
    def cumulative(X: T[outer, n, inner]) -> T[outer, n, inner]:
        Y = empty((outer, n, inner), T)
        for o, i in grid(outer, inner):
            if exclusive:
                Y[o, last if reverse else 0, i] = 1 if product else 0
            else:
                Y[o, last if reverse else 0, i] = X[o, last if reverse else 0, i]
            for k in range(1, n):
                here, before = (last - k, last - k + 1) if reverse else (k, k - 1)
                Y[o, here, i] = joined(Y[o, before, i], X[o, before if exclusive else here, i])
        return Y

    return cumulative
