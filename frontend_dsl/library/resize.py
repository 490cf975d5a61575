"""Resizing: nearest by repetition, nearest and linear at exact rational positions."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from frontend_dsl import empty, grid, max, min, op
from frontend_dsl.library.subscripts import pick
from poly.dtypes import DType

Shape = tuple[int, ...]
# Where output position `i` looks: (a * i + b) / c, as integers.
Coordinate = tuple[int, int, int]


def make_repeat(T: DType, shape: Shape, factors: Shape) -> Any:
    """Every element `factors[d]` times along `d`; the result's dimension `d` is split as `[shape[d], factors[d]]`.

    Factors of 1 are left out of the result's shape.
    """
    out: list[int] = []
    order: list[int] = []
    for n, f in zip(shape, factors, strict=True):
        order.append(len(out))
        out += [n] if f == 1 else [n, f]

    @op
    def repeat(X: T[shape]) -> T[tuple(out)]:
        Y = empty(tuple(out), T)
        for i in grid(*out):
            Y[i] = X[pick(i, order)]
        return Y

    return repeat


def make_nearest(T: DType, shape: Shape, out: Shape, coordinates: tuple[Coordinate | None, ...]) -> Any:
    """`Y[i] = X[floor((a*i + b) / c)]`, clamped to the image; None leaves a dimension alone."""

    def at(i: Any, n: int, where: Coordinate | None) -> Any:
        if where is None:
            return i
        a, b, c = where
        return min(max((a * i + b) // c, 0), n - 1)

    def source(index: Any) -> Any:
        return tuple(at(i, n, w) for i, n, w in zip(index, shape, coordinates, strict=True))

    @op
    def nearest(X: T[shape]) -> T[out]:
        Y = empty(out, T)
        for i in grid(*out):
            Y[i] = X[source(i)]
        return Y

    return nearest


def make_linear(
    T: DType, lead: int, size: tuple[int, int], out: tuple[int, int], where: tuple[Coordinate, Coordinate]
) -> Any:
    """Bilinear: `Y[b,h,w]` between the four elements around `((a*h + b)/c, (a*w + b)/c)`, clamped to the image."""
    (H, W), (OH, OW), (vertical, horizontal) = size, out, where

    def place(i: Any, n: int, coordinate: Coordinate) -> Any:
        # Lower and upper neighbour, and how far towards the upper one (in [0, 1)).
        a, b, c = coordinate
        x = min(max(a * i + b, 0), (n - 1) * c)
        return x // c, min(x // c + 1, n - 1), T(x % c) / T(c)

    @op
    def linear(X: T[lead, H, W]) -> T[lead, OH, OW]:
        Y = empty((lead, OH, OW), T)
        for b, h, w in grid(lead, OH, OW):
            top, bottom, v = place(h, H, vertical)
            left, right, u = place(w, W, horizontal)
            Y[b, h, w] = (1 - v) * ((1 - u) * X[b, top, left] + u * X[b, top, right]) + v * (
                (1 - u) * X[b, bottom, left] + u * X[b, bottom, right]
            )
        return Y

    return linear
