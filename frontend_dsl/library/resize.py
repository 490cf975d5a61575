"""Resizing: nearest by repetition; nearest, linear and filtered at exact rational positions."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import abs, empty, grid, max, min, op
from polyc.frontend_dsl.library.sampling import cubic
from polyc.frontend_dsl.library.subscripts import pick
from polyc.poly.dtypes import DType, i64
from polyc.poly.records import dataclass

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

    @op
    def linear_by_tables(X: T[lead, H, W]) -> T[lead, OH, OW]:
        Y = empty((lead, OH, OW), T)
        columns = empty((OW,), i64)
        shares = empty((OW,), T)
        for w in range(OW):
            left, _, u = place(w, W, horizontal)
            columns[w] = i64(left)
            shares[w] = u
        for b, h, w in grid(lead, OH, OW):
            top, bottom, v = place(h, H, vertical)
            left = columns[w]
            right = min(columns[w] + 1, i64(W - 1))
            u = shares[w]
            Y[b, h, w] = (1 - v) * ((1 - u) * X[b, top, left] + u * X[b, top, right]) + v * (
                (1 - u) * X[b, bottom, left] + u * X[b, bottom, right]
            )
        return Y

    # Lanes divide by powers of two in one instruction; other divisions, of 64 bits, cost more than a load.
    divisor = horizontal[2]
    quick = not isinstance(divisor, int) or divisor & (divisor - 1) == 0
    return linear if quick else linear_by_tables


@dataclass(frozen=True, slots=True)
class Filter:
    """How the taps around a position are weighted.

    `cubic` is the coefficient of the cubic kernel, None for the linear one; `stretch` below 1
    widens the kernel (antialiasing); `exclude` leaves out taps outside of the image instead of
    repeating its border; `outside` is the value at positions beyond the image, None to go on.
    """

    cubic: float | None = None
    stretch: float = 1.0
    exclude: bool = False
    outside: float | None = None

    @property
    def reach(self) -> int:
        """Taps on each side of a position."""
        radius = (1 if self.cubic is None else 2) / self.stretch
        return int(-(-radius // 1))


def make_resample(T: DType, shape: Shape, axis: int, extent: int, where: Coordinate, kind: Filter) -> Any:
    """Axis `axis` of `X` resampled to `extent` elements at positions `(a*i + b)/c`."""
    out = (*shape[:axis], extent, *shape[axis + 1 :])
    n, (a, b, c) = shape[axis], where
    first, taps = 1 - kind.reach, 2 * kind.reach
    normalise = kind.exclude or kind.stretch < 1
    beyond = kind.outside is not None

    def kernel(d: Any) -> Any:
        if kind.cubic is None:
            return max(1 - d, 0)
        return cubic(d, kind.cubic) if d < 2 else T(0)

    def counted(j: Any) -> Any:
        return (T(1) if j >= 0 and j < n else T(0)) if kind.exclude else 1

    @op
    def resample(X: T[shape]) -> T[out]:
        W = empty((extent, taps), T)
        Y = empty(out, T)
        for p in range(extent):
            total = T(0)
            for k in range(taps):
                distance = abs(T((a * p + b) % c) / T(c) - T(k + first)) * kind.stretch
                W[p, k] = kernel(distance) * counted((a * p + b) // c + k + first)
                total += W[p, k]
            if normalise:
                for k in range(taps):
                    W[p, k] = W[p, k] / total
        for i in grid(*out):
            Y[i] = 0
            for k in range(taps):
                Y[i] += (
                    W[i[axis], k] * X[*i[:axis], min(max((a * i[axis] + b) // c + k + first, 0), n - 1), *i[axis + 1 :]]
                )
            if beyond:
                if a * i[axis] + b < 0 or a * i[axis] + b > (n - 1) * c:
                    Y[i] = kind.outside
        return Y

    return resample
