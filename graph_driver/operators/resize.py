"""Resize and Upsample, as exact rational coordinates."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Any

from frontend_dsl.library.resize import Coordinate, make_linear, make_nearest, make_repeat
from graph_driver.operators.context import NodeContext, OperatorScop, Unsupported
from graph_driver.operators.registry import (
    constant,
    data,
    integers,
    need_float,
    only_output,
    onnx_operator,
    optional,
    product,
    scop_of,
)  # fmt: skip

Shape = tuple[int, ...]
Line = tuple[Fraction, Fraction]  # output position i looks at slope * i + offset


@onnx_operator("Resize", "Upsample")
def resize(ctx: NodeContext) -> OperatorScop:
    """Nearest in any dimensions; linear in the last two, or in one."""
    x, y = data(ctx, 0), only_output(ctx)
    mode = ctx.attrs.get("mode", "nearest")
    if ctx.attrs.get("antialias", 0) or ctx.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unsupported("Resize with antialiasing or a kept aspect ratio")
    legacy = ctx.op_type == "Upsample" or ctx.opset < 11
    transform = "asymmetric" if legacy else ctx.attrs.get("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if legacy else ctx.attrs.get("nearest_mode", "round_prefer_floor")
    scales = _scales(ctx, x.shape, y.shape)
    lines = [
        None if n == m and s == 1 else _line(transform, n, m, s)
        for n, m, s in zip(x.shape, y.shape, scales, strict=True)
    ]
    if mode == "nearest":
        return _nearest(ctx, lines, rounding)
    if mode == "linear":
        return _linear(ctx, lines)
    raise Unsupported(f"Resize in mode {mode}")


def _scales(ctx: NodeContext, shape: Shape, out: Shape) -> list[Fraction]:
    """The exact scale of every dimension; decimal scales are read as the fraction they stand for."""
    given: Any = ctx.attrs.get("scales")
    if given is None:
        position = 1 if ctx.op_type == "Upsample" or ctx.opset < 11 else 2
        given = constant(ctx, position, "scales") if optional(ctx, position) is not None else None
    if given is None or len(given) == 0:
        return [Fraction(m, n) for n, m in zip(shape, out, strict=True)]
    axes = ctx.attrs.get("axes")
    where = [a % len(shape) for a in integers(axes)] if axes is not None else list(range(len(shape)))
    scales = [Fraction(1)] * len(shape)
    for d, value in zip(where, given, strict=True):
        scales[d] = Fraction(float(value)).limit_denominator(10000)
    return scales


def _line(transform: str, n: int, m: int, scale: Fraction) -> Line:
    half = Fraction(1, 2)
    if transform == "asymmetric":
        return 1 / scale, Fraction(0)
    if transform == "align_corners":
        whole = n * scale  # not rounded, as the standard has it
        return ((n - 1) / (whole - 1) if whole != 1 else Fraction(0)), Fraction(0)
    if transform == "pytorch_half_pixel" and m == 1:
        return Fraction(0), Fraction(0)
    if transform in ("half_pixel", "pytorch_half_pixel"):
        return 1 / scale, half / scale - half
    if transform == "half_pixel_symmetric":
        return 1 / scale, Fraction(n, 2) * (1 - m / (scale * n)) + half / scale - half
    raise Unsupported(f"Resize with coordinates {transform}")


def _integers(line: Line) -> Coordinate:
    slope, offset = line
    c = lcm(slope.denominator, offset.denominator)
    return int(slope * c), int(offset * c), c


def _rounded(line: Line, rounding: str) -> Coordinate:
    """A line whose floor is the nearest position: `ceil(p/c)` is `floor((p+c-1)/c)`."""
    slope, offset = line
    half = Fraction(1, 2)
    if rounding in ("round_prefer_floor", "round_prefer_ceil"):
        offset += -half if rounding == "round_prefer_floor" else half
    a, b, c = _integers((slope, offset))
    return (a, b + c - 1, c) if rounding in ("ceil", "round_prefer_floor") else (a, b, c)


def _nearest(ctx: NodeContext, lines: list[Line | None], rounding: str) -> OperatorScop:
    x, y = data(ctx, 0), only_output(ctx)
    where = tuple(None if line is None else _rounded(line, rounding) for line in lines)
    factors = tuple(m // n for n, m in zip(x.shape, y.shape, strict=True))
    dims = zip(x.shape, y.shape, factors, where, strict=True)
    if all(m == n * f and _repeats(n, m, f, w) for n, m, f, w in dims):
        scop = scop_of(make_repeat, x.dtype, x.shape, factors)
    else:
        scop = scop_of(make_nearest, x.dtype, x.shape, y.shape, where)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


def _repeats(n: int, m: int, factor: int, where: Coordinate | None) -> bool:
    """Whether position `i` reads `i // factor`."""
    if where is None:
        return factor == 1
    a, b, c = where
    return all(min(max((a * i + b) // c, 0), n - 1) == i // factor for i in range(m))


def _linear(ctx: NodeContext, lines: list[Line | None]) -> OperatorScop:
    need_float(ctx)
    x, y = data(ctx, 0), only_output(ctx)
    moved = [d for d, line in enumerate(lines) if line is not None]
    if not moved or moved[-1] - moved[0] > 1:
        raise Unsupported("linear Resize of dimensions that are not two neighbours")
    d, end = moved[0], moved[-1] + 1
    inner = product(x.shape[end:])
    if len(moved) == 2 and inner > 1:
        raise Unsupported("linear Resize of two dimensions that are not the last")
    unmoved = (1, 0, 1)
    where = [_integers(line) for line in lines[d:end] if line is not None]
    size, out = list(x.shape[d:end]), list(y.shape[d:end])
    if len(moved) == 1:
        where, size, out = [*where, unmoved], [*size, inner], [*out, inner]
    scop = scop_of(make_linear, x.dtype, product(x.shape[:d]), tuple(size), tuple(out), tuple(where))
    return OperatorScop(scop, ((0, "X"),), scop.results, False)
