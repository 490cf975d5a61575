"""Operators that only move elements."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, grid, max, min, op, zeros
from polyc.frontend_dsl.library.subscripts import add, pick, step, window
from polyc.poly.dtypes import DType

Shape = tuple[int, ...]


def make_transpose(T: DType, shape: Shape, perm: Shape) -> Any:
    """Dimension `d` of the result is dimension `perm[d]` of `X`."""
    out = tuple(shape[p] for p in perm)
    inverse = tuple(perm.index(d) for d in range(len(perm)))

    @op
    def transpose(X: T[shape]) -> T[out]:
        Y = empty(out, T)
        for i in grid(*out):
            Y[i] = X[pick(i, inverse)]
        return Y

    return transpose


def make_copy(T: DType, shape: Shape) -> Any:
    """The same elements."""

    @op
    def copy(X: T[shape]) -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = X[i]
        return Y

    return copy


def make_concat(T: DType, shapes: tuple[Shape, ...], axis: int) -> Any:
    """Two to four arrays one after another along `axis`."""
    rest, lead = shapes[0], len(shapes)
    total = (*rest[:axis], sum(s[axis] for s in shapes), *rest[axis + 1 :])
    a, b, c, d = (*shapes, *[shapes[0]] * (4 - lead))
    at_c = a[axis] + b[axis]
    at_d = at_c + c[axis]

    def shifted(index: Any, by: int) -> Any:
        return (*index[:axis], index[axis] + by, *index[axis + 1 :])

    @op
    def concat2(A: T[a], B: T[b]) -> T[total]:
        Y = empty(total, T)
        for i in grid(*a):
            Y[i] = A[i]
        for i in grid(*b):
            Y[shifted(i, a[axis])] = B[i]
        return Y

    @op
    def concat3(A: T[a], B: T[b], C: T[c]) -> T[total]:
        Y = empty(total, T)
        for i in grid(*a):
            Y[i] = A[i]
        for i in grid(*b):
            Y[shifted(i, a[axis])] = B[i]
        for i in grid(*c):
            Y[shifted(i, at_c)] = C[i]
        return Y

    @op
    def concat4(A: T[a], B: T[b], C: T[c], D: T[d]) -> T[total]:
        Y = empty(total, T)
        for i in grid(*a):
            Y[i] = A[i]
        for i in grid(*b):
            Y[shifted(i, a[axis])] = B[i]
        for i in grid(*c):
            Y[shifted(i, at_c)] = C[i]
        for i in grid(*d):
            Y[shifted(i, at_d)] = D[i]
        return Y

    return {2: concat2, 3: concat3, 4: concat4}[lead]


def make_slice(T: DType, shape: Shape, starts: Shape, steps: Shape, out: Shape) -> Any:
    """`Y[i] = X[start + step * i]`; steps may be negative."""

    @op
    def slice_(X: T[shape]) -> T[out]:
        Y = empty(out, T)
        for i in grid(*out):
            Y[i] = X[step(i, starts, steps)]
        return Y

    return slice_


def make_pad(T: DType, shape: Shape, begin: Shape, end: Shape, value: Any) -> Any:
    """Surround by `value`, or by the element of `V` when it is None; negative pads crop."""
    out = tuple(b + n + e for b, n, e in zip(begin, shape, end, strict=True))
    first, keep = cropped(shape, begin, end)
    where = tuple(max(0, b) for b in begin)
    unit = (1,) * len(shape)

    @op
    def pad(X: T[shape]) -> T[out]:
        Y = empty(out, T)
        for i in grid(*out):
            Y[i] = value
        for i in grid(*keep):
            Y[step(i, where, unit)] = X[step(i, first, unit)]
        return Y

    @op
    def pad_with(X: T[shape], V: T[1]) -> T[out]:
        Y = empty(out, T)
        for i in grid(*out):
            Y[i] = V[0]
        for i in grid(*keep):
            Y[step(i, where, unit)] = X[step(i, first, unit)]
        return Y

    return pad_with if value is None else pad


def make_pad_by(T: DType, shape: Shape, begin: Shape, end: Shape, mode: str) -> Any:
    """Surround by the image itself: `edge` repeats the border, `reflect` mirrors without it, `wrap` goes round.
    Negative pads crop first: the border is that of what they leave."""
    out = tuple(b + n + e for b, n, e in zip(begin, shape, end, strict=True))
    first, kept = cropped(shape, begin, end)

    def inside(i: Any, b: int, n: int) -> Any:
        j = add(i, -b)
        if mode == "wrap":
            return j % n
        if mode == "reflect":
            return (n - 1) - max((n - 1) - max(j, -j), max(j, -j) - (n - 1))
        return min(max(j, 0), n - 1)

    def source(index: Any) -> Any:
        return tuple(
            add(i if max(b, e) <= 0 else inside(i, max(0, b), n), f)
            for i, b, e, n, f in zip(index, begin, end, kept, first, strict=True)
        )

    @op
    def pad_by(X: T[shape]) -> T[out]:
        Y = empty(out, T)
        for i in grid(*out):
            Y[i] = X[source(i)]
        return Y

    return pad_by


def cropped(shape: Shape, begin: Shape, end: Shape) -> tuple[Shape, Shape]:
    """The first index that negative pads leave of each axis, and how many they leave."""
    first = tuple(max(0, -b) for b in begin)
    return first, tuple(n - f + min(0, e) for n, f, e in zip(shape, first, end, strict=True))


def make_tile(T: DType, shape: Shape, repeats: Shape) -> Any:
    """`X` repeated; the result's dimension `d` is split as `[repeats[d], shape[d]]`."""
    out = tuple(n for pair in zip(repeats, shape, strict=True) for n in pair)

    @op
    def tile(X: T[shape]) -> T[out]:
        Y = empty(out, T)
        for i in grid(*out):
            Y[i] = X[i[1::2]]
        return Y

    return tile


def make_trilu(T: DType, batch: int, rows: int, cols: int, k: int, upper: bool) -> Any:
    """Keep the triangle above (or below) the `k`-th diagonal, zero the rest."""

    @op
    def trilu(X: T[batch, rows, cols]) -> T[batch, rows, cols]:
        Y = empty((batch, rows, cols), T)
        for b, i, j in grid(batch, rows, cols):
            Y[b, i, j] = 0
            if (j - i >= k) if upper else (j - i <= k):
                Y[b, i, j] = X[b, i, j]
        return Y

    return trilu


def make_full(T: DType, shape: Shape, value: Any) -> Any:
    """`value` everywhere."""

    @op
    def full_() -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = T(value)
        return Y

    return full_


def make_range(T: DType, n: int, start: int, step: int) -> Any:
    """`Y[i] = start + i * step`."""

    @op
    def range_() -> T[n]:
        Y = empty((n,), T)
        for i in range(n):
            Y[i] = T(start + i * step)
        return Y

    return range_


def make_eye(T: DType, rows: int, cols: int, k: int) -> Any:
    """Ones on the `k`-th diagonal, zeros elsewhere."""

    @op
    def eye() -> T[rows, cols]:
        Y = empty((rows, cols), T)
        for i, j in grid(rows, cols):
            Y[i, j] = 0
            if j - i == k:
                Y[i, j] = 1
        return Y

    return eye


def make_col2im(
    T: DType, lead: int, size: Shape, kernel: Shape, blocks: Shape, strides: Shape, dilations: Shape, begin: Shape
) -> Any:
    """Adds `X[l,*k,*b]`, tap `k` of window `b`, into its place in an image; `begin` is the padding."""
    reach = tuple((b - 1) * s + (k - 1) * d + 1 for b, s, k, d in zip(blocks, strides, kernel, dilations, strict=True))
    full = tuple(max(r, p + n) for r, p, n in zip(reach, begin, size, strict=True))
    unit = (1,) * len(size)

    @op
    def col2im(X: T[(lead, *kernel, *blocks)]) -> T[(lead, *size)]:
        P = zeros((lead, *full), T)
        Y = empty((lead, *size), T)
        for l in range(lead):
            for k in grid(*kernel):
                for b in grid(*blocks):
                    P[l, *window(b, k, strides, dilations)] += X[l, *k, *b]
        for l in range(lead):
            for p in grid(*size):
                Y[l, *p] = P[l, *step(p, begin, unit)]
        return Y

    return col2im
