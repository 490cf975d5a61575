"""Resize and Upsample, as exact rational coordinates. Modes without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Any

from polyc.frontend_dsl.library.movement import make_copy
from polyc.frontend_dsl.library.resize import Coordinate, Filter, make_linear, make_nearest, make_repeat, make_resample
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.chain import Wiring, joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import (
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
_WHOLE = (Fraction(0), Fraction(1))


@onnx_operator("Resize", "Upsample")
def resize(ctx: NodeContext) -> OperatorScop:
    """Nearest, linear and cubic in any dimensions, one after another where they need more than a gather."""
    x, y = data(ctx, 0), only_output(ctx)
    mode = ctx.attrs.get("mode", "nearest")
    legacy = ctx.op_type == "Upsample" or ctx.opset < 11
    transform = "asymmetric" if legacy else ctx.attrs.get("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if legacy else ctx.attrs.get("nearest_mode", "round_prefer_floor")
    scales = _scales(ctx, x.shape, y.shape)
    regions = _regions(ctx, len(x.shape)) if transform == "tf_crop_and_resize" else [_WHOLE] * len(x.shape)
    lines = [
        None if n == m and s == 1 and r == _WHOLE else _line(transform, n, m, s, r)
        for n, m, s, r in zip(x.shape, y.shape, scales, regions, strict=True)
    ]
    if mode == "nearest":
        if transform == "tf_crop_and_resize" and not _inside(lines, x.shape, y.shape):
            raise Unsupported("nearest Resize beyond the image")
        return _nearest(ctx, lines, rounding)
    need_float(ctx)
    moved = [d for d, line in enumerate(lines) if line is not None]
    plain = mode == "linear" and not ctx.attrs.get("antialias", 0) and transform != "tf_crop_and_resize"
    if plain and moved and moved[-1] - moved[0] <= 1 and (len(moved) == 1 or moved[-1] == len(lines) - 1):
        return _linear(ctx, lines, moved)
    outside = float(ctx.attrs.get("extrapolation_value", 0.0)) if transform == "tf_crop_and_resize" else None
    return _filtered(ctx, lines, scales, mode, outside)


def _filtered(
    ctx: NodeContext, lines: list[Line | None], scales: list[Fraction], mode: str, outside: float | None
) -> OperatorScop:
    """One resampling for each dimension that changes."""
    x, y = data(ctx, 0), only_output(ctx)
    if mode not in ("linear", "cubic"):
        raise Unsupported(f"Resize in mode {mode}")
    coefficient = float(ctx.attrs.get("cubic_coeff_a", -0.75)) if mode == "cubic" else None
    smooth, exclude = bool(ctx.attrs.get("antialias", 0)), bool(ctx.attrs.get("exclude_outside", 0))
    parts: list[Wiring] = []
    shape, name = x.shape, "X"
    for d, line in enumerate(lines):
        if line is None:
            continue
        stretch = min(1.0, float(scales[d])) if smooth else 1.0
        kind = Filter(coefficient, stretch, exclude, outside)
        scop = scop_of(make_resample, x.dtype, shape, d, y.shape[d], _integers(line), kind)
        parts.append((scop, {"X": name, scop.results[0]: f"Y{d}"}))
        shape, name = (*shape[:d], y.shape[d], *shape[d + 1 :]), f"Y{d}"
    if not parts:
        copy = scop_of(make_copy, x.dtype, shape)
        return OperatorScop(copy, ((0, "X"),), copy.results, True)
    return joined("resize", parts, ["X"], [name])


def _regions(ctx: NodeContext, rank: int) -> list[tuple[Fraction, Fraction]]:
    """The part of each dimension that is resized, from 0 to 1."""
    given = constant(ctx, 1, "its region")
    if given is None or given.size == 0:
        raise Unsupported("Resize of a region without the region")
    axes = ctx.attrs.get("axes")
    where = [a % rank for a in integers(axes)] if axes is not None else list(range(rank))
    regions = [_WHOLE] * rank
    for k, d in enumerate(where):
        low, high = (Fraction(float(given[j])).limit_denominator(10000) for j in (k, k + len(where)))
        regions[d] = (low, high)
    return regions


def _inside(lines: list[Line | None], shape: Shape, out: Shape) -> bool:
    """Whether every output position looks into the image."""
    ends = [(line, n, m) for line, n, m in zip(lines, shape, out, strict=True) if line is not None]
    return all(0 <= line[0] * i + line[1] <= n - 1 for line, n, m in ends for i in (0, m - 1))


def _scales(ctx: NodeContext, shape: Shape, out: Shape) -> list[Fraction]:
    """The exact scale of every dimension; decimal scales are read as the fraction they stand for."""
    if ctx.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return _kept_aspect(ctx, shape)
    given: Any = ctx.attrs.get("scales")
    if given is None:
        position = 1 if ctx.op_type == "Upsample" or ctx.opset < 11 else 2
        given = constant(ctx, position, "scales") if optional(ctx, position) is not None else None
    if given is None or len(given) == 0:
        return [_ratio(n, m) for n, m in zip(shape, out, strict=True)]
    axes = ctx.attrs.get("axes")
    where = [a % len(shape) for a in integers(axes)] if axes is not None else list(range(len(shape)))
    scales = [Fraction(1)] * len(shape)
    for d, value in zip(where, given, strict=True):
        scales[d] = Fraction(float(value)).limit_denominator(10000)
    return scales


def _ratio(n: Any, m: Any) -> Fraction:
    """m / n; of symbolic sizes a whole number."""
    if isinstance(n, int) and isinstance(m, int):
        return Fraction(m, n)
    factor = m // n
    if not isinstance(factor, int) or factor * n != m:
        raise Unsupported(f"Resize from {n} to {m}")
    return Fraction(factor)


def _kept_aspect(ctx: NodeContext, shape: Shape) -> list[Fraction]:
    """One scale for all resized dimensions: the smallest or largest of those that the sizes ask for."""
    sizes, axes = integers(constant(ctx, 3, "sizes")), ctx.attrs.get("axes")
    where = [a % len(shape) for a in integers(axes)] if axes is not None else list(range(len(shape)))
    asked = [Fraction(m, shape[d]) for m, d in zip(sizes, where, strict=True)]
    scale = min(asked) if ctx.attrs["keep_aspect_ratio_policy"] == "not_larger" else max(asked)
    return [scale if d in where else Fraction(1) for d in range(len(shape))]


def _line(transform: str, n: int, m: int, scale: Fraction, region: tuple[Fraction, Fraction]) -> Line:
    half = Fraction(1, 2)
    if transform == "tf_crop_and_resize":
        (low, high), whole = region, n * scale
        if whole == 1:
            return Fraction(0), (low + high) * (n - 1) / 2
        return (high - low) * (n - 1) / (whole - 1), low * (n - 1)
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
    if not isinstance(n, int):  # of slope 1 / factor: any n shows both ends and what lies between
        if a * factor != c:
            return False
        n, m = 4, 4 * factor
    return all(min(max((a * i + b) // c, 0), n - 1) == i // factor for i in range(m))


def _linear(ctx: NodeContext, lines: list[Line | None], moved: list[int]) -> OperatorScop:
    """One dimension, or the last two at once."""
    x, y = data(ctx, 0), only_output(ctx)
    d, end = moved[0], moved[-1] + 1
    inner = product(x.shape[end:])
    unmoved = (1, 0, 1)
    where = [_integers(line) for line in lines[d:end] if line is not None]
    size, out = list(x.shape[d:end]), list(y.shape[d:end])
    if len(moved) == 1:
        where, size, out = [*where, unmoved], [*size, inner], [*out, inner]
    scop = scop_of(make_linear, x.dtype, product(x.shape[:d]), tuple(size), tuple(out), tuple(where))
    return OperatorScop(scop, ((0, "X"),), scop.results, False)
