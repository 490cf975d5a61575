"""Operators that only move elements. Types and forms without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from polyc.frontend_dsl.library import movement as lib
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.chain import Wiring, joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import (
    accumulates,
    axis_of,
    constant,
    data,
    integers,
    only_output,
    onnx_operator,
    optional,
    product,
    scop_of,
    sizes_of,
)  # fmt: skip
from polyc.poly.dtypes import DType, u8, u16, u32, u64
from polyc.poly.scop import Scop

Shape = tuple[int, ...]
_BITS = {1: u8, 2: u16, 4: u32, 8: u64}


def _one(scop: Scop) -> OperatorScop:
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def view(ctx: NodeContext) -> OperatorScop:
    """A copy; the memory planner aliases most of these away."""
    y = only_output(ctx)
    scop = scop_of(lib.make_copy, data(ctx, 0).dtype, y.shape)
    return OperatorScop(scop, ((0, "X"),), scop.results, True)


@onnx_operator("Transpose")
def transpose(ctx: NodeContext) -> OperatorScop:
    """The default reverses all dimensions."""
    x = data(ctx, 0)
    perm = integers(ctx.attrs.get("perm") or range(len(x.shape) - 1, -1, -1))
    return _one(scop_of(lib.make_transpose, x.dtype, x.shape, perm))


@onnx_operator("DepthToSpace", "SpaceToDepth")
def depth_space(ctx: NodeContext) -> OperatorScop:
    """Transposes of a split view."""
    x, b = data(ctx, 0), int(ctx.attrs["blocksize"])
    n, c, h, w = x.shape
    if ctx.op_type == "SpaceToDepth":
        perm = (0, 3, 5, 1, 2, 4) if ctx.attrs.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
        split = (n, c, h // b, b, w // b, b)
    elif ctx.attrs.get("mode", "DCR") == "DCR":
        split, perm = (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
    return _one(scop_of(lib.make_transpose, x.dtype, split, perm))


@onnx_operator("Concat")
def concat(ctx: NodeContext) -> OperatorScop:
    """Many operands join in a tree of fours."""
    present = [(k, info) for k, info in enumerate(ctx.inputs) if info is not None]
    shapes = tuple(info.shape for _, info in present)
    made = _concat(present[0][1].dtype, shapes, axis_of(ctx, len(shapes[0]), 1))
    return replace(made, inputs=tuple((present[k][0], name) for k, name in made.inputs))


@lru_cache(maxsize=1024)
def _concat(dtype: DType, shapes: tuple[Shape, ...], axis: int) -> OperatorScop:
    if len(shapes) == 1:
        return _one(scop_of(lib.make_copy, dtype, shapes[0]))
    if len(shapes) <= 4:
        scop = scop_of(lib.make_concat, dtype, shapes, axis)
        return OperatorScop(scop, tuple(enumerate(scop.args)), scop.results, False)
    inputs = [f"X{k}" for k in range(len(shapes))]
    level = list(zip(inputs, shapes, strict=True))
    parts: list[Wiring] = []
    while len(level) > 1:
        above = []
        for group in (level[k : k + 4] for k in range(0, len(level), 4)):
            above.append(group[0] if len(group) == 1 else _join(parts, dtype, group, axis))
        level = above
    return joined("concat", parts, inputs, [level[0][0]])


def _join(parts: list[Wiring], dtype: DType, group: list[tuple[str, Shape]], axis: int) -> tuple[str, Shape]:
    shapes = tuple(s for _, s in group)
    scop = scop_of(lib.make_concat, dtype, shapes, axis)
    name = f"Y{len(parts)}"
    parts.append((scop, {**dict(zip(scop.args, (n for n, _ in group), strict=True)), scop.results[0]: name}))
    total = sum(s[axis] for s in shapes)
    return name, (*shapes[0][:axis], total, *shapes[0][axis + 1 :])


@onnx_operator("Split")
def split(ctx: NodeContext) -> OperatorScop:
    """One slice for each output."""
    x = data(ctx, 0)
    return _split(x.dtype, x.shape, axis_of(ctx, len(x.shape), 0), tuple(o.shape for o in ctx.outputs))


@lru_cache(maxsize=1024)
def _split(dtype: DType, shape: Shape, axis: int, outs: tuple[Shape, ...]) -> OperatorScop:
    parts: list[Wiring] = []
    at = 0
    for k, out in enumerate(outs):
        starts = tuple(at if d == axis else 0 for d in range(len(shape)))
        scop = scop_of(lib.make_slice, dtype, shape, starts, (1,) * len(shape), out)
        parts.append((scop, {"X": "X", scop.results[0]: f"Y{k}"}))
        at += out[axis]
    return joined("split", parts, ["X"], [f"Y{k}" for k in range(len(outs))])


@onnx_operator("Slice")
def slice_(ctx: NodeContext) -> OperatorScop:
    """Bounds by attributes (opset < 10) or constant inputs."""
    x, y = data(ctx, 0), only_output(ctx)
    if ctx.opset < 10:
        starts, axes, steps = ctx.attrs["starts"], ctx.attrs.get("axes"), None
    else:
        starts, axes, steps = sizes_of(ctx, 1, "bounds"), constant(ctx, 3, "axes"), constant(ctx, 4, "steps")
    first = tuple(starts)
    where = integers(axes) if axes is not None else tuple(range(len(first)))
    by = integers(steps) if steps is not None else (1,) * len(first)
    rank = len(x.shape)
    origin: list[Any] = [0] * rank
    stride = [1] * rank
    for a, s, b in zip(where, first, by, strict=True):
        n = x.shape[a % rank]
        s = s + n if s < 0 else s
        origin[a % rank] = min(max(s, 0), n if b > 0 else n - 1)
        stride[a % rank] = b
    return _one(scop_of(lib.make_slice, x.dtype, x.shape, tuple(origin), tuple(stride), y.shape))


@onnx_operator("Pad")
def pad(ctx: NodeContext) -> OperatorScop:
    """Constant, edge, reflect, wrap; negative pads crop."""
    x = data(ctx, 0)
    rank = len(x.shape)
    if ctx.opset < 11:
        pads, value, axes = integers(ctx.attrs["pads"]), ctx.attrs.get("value", 0.0), tuple(range(rank))
    else:
        pads = integers(constant(ctx, 1, "pads"))
        fill = optional(ctx, 2)
        value = 0 if fill is None else None if fill.const is None else fill.const.reshape(-1)[0].item()
        given = constant(ctx, 3, "axes")
        axes = tuple(a % rank for a in integers(given)) if given is not None else tuple(range(rank))
    begin, end = [0] * rank, [0] * rank
    for k, a in enumerate(axes):
        begin[a], end[a] = pads[k], pads[k + len(axes)]
    mode = ctx.attrs.get("mode", "constant")
    scop = _padded(mode, x.dtype, x.shape, tuple(begin), tuple(end), value)
    inputs = ((0, "X"), (2, "V")) if value is None and mode == "constant" else ((0, "X"),)
    return OperatorScop(scop, inputs, scop.results, False)


def _padded(mode: str, dtype: DType, shape: Shape, begin: Shape, end: Shape, value: Any) -> Scop:
    if mode == "constant":
        if dtype.kind == "bool" and value is not None:
            value = bool(value)
        return scop_of(lib.make_pad, dtype, shape, begin, end, value)
    kept = lib.cropped(shape, begin, end)[1]
    for n, b, e in zip(kept, begin, end, strict=True):
        if max(b, e) > 0 and n < 1:
            raise Unsupported(f"Pad in mode {mode} of an axis without elements")
        if mode == "reflect" and max(b, e) >= max(n, 1):
            raise Unsupported("Pad that reflects more than the image")
    return scop_of(lib.make_pad_by, dtype, shape, begin, end, mode)


@onnx_operator("Tile")
def tile(ctx: NodeContext) -> OperatorScop:
    """Constant repeats."""
    x = data(ctx, 0)
    repeats = integers(constant(ctx, 1, "repeats"))
    if ctx.opset < 6:
        raise Unsupported("Tile before opset 6")
    return _one(scop_of(lib.make_tile, x.dtype, x.shape, repeats))


@onnx_operator("Trilu")
def trilu(ctx: NodeContext) -> OperatorScop:
    """The upper or lower triangle of the last two dimensions."""
    x = data(ctx, 0)
    k = 0 if optional(ctx, 1) is None else int(constant(ctx, 1, "its diagonal").reshape(-1)[0])
    *batch, rows, cols = x.shape
    upper = bool(ctx.attrs.get("upper", 1))
    return _one(scop_of(lib.make_trilu, x.dtype, product(tuple(batch)), rows, cols, k, upper))


@onnx_operator("EyeLike")
def eye_like(ctx: NodeContext) -> OperatorScop:
    """Only the input's shape counts."""
    y = only_output(ctx)
    scop = scop_of(lib.make_eye, y.dtype, *y.shape, int(ctx.attrs.get("k", 0)))
    return OperatorScop(scop, (), scop.results, False)


@onnx_operator("ConstantOfShape")
def constant_of_shape(ctx: NodeContext) -> OperatorScop:
    """Of a shape that follows from symbolic sizes (of others it is a constant)."""
    y = only_output(ctx)
    given = ctx.attrs.get("value")
    value = 0 if given is None else given.reshape(-1)[0].item()
    scop = scop_of(lib.make_full, y.dtype, y.shape, value)
    return OperatorScop(scop, (), scop.results, False)


@onnx_operator("Range")
def range_(ctx: NodeContext) -> OperatorScop:
    """Of a length that follows from symbolic sizes (of others it is a constant)."""
    start, delta = sizes_of(ctx, 0, "its start"), sizes_of(ctx, 2, "its step")
    y = only_output(ctx)
    if start is None or delta is None or not y.dtype.is_int:
        raise Unsupported(f"Range of {y.dtype}")
    scop = scop_of(lib.make_range, y.dtype, y.shape[0], start[0], delta[0])
    return OperatorScop(scop, (), scop.results, False)


@onnx_operator("Col2Im")
def col2im(ctx: NodeContext) -> OperatorScop:
    """Constant sizes of image and block."""
    accumulates(ctx)
    x = data(ctx, 0)
    size, kernel = integers(constant(ctx, 1, "its image")), integers(constant(ctx, 2, "its block"))
    rank = len(size)
    strides = integers(ctx.attrs.get("strides") or (1,) * rank)
    dilations = integers(ctx.attrs.get("dilations") or (1,) * rank)
    pads = integers(ctx.attrs.get("pads") or (0,) * (2 * rank))
    begin, end = pads[:rank], pads[rank:]
    dims = zip(size, begin, end, kernel, strides, dilations, strict=True)
    blocks = tuple((n + b + e - d * (k - 1) - 1) // s + 1 for n, b, e, k, s, d in dims)
    lead = x.shape[0] * (x.shape[1] // product(kernel))
    return _one(scop_of(lib.make_col2im, x.dtype, lead, size, kernel, blocks, strides, dilations, begin))


@onnx_operator("OptionalGetElement")
def present(ctx: NodeContext) -> OperatorScop:
    """Of a plain tensor: the tensor."""
    scop = scop_of(lib.make_copy, data(ctx, 0).dtype, only_output(ctx).shape)
    return OperatorScop(scop, ((0, "X"),), scop.results, True)


@onnx_operator("BitCast")
def bit_cast(ctx: NodeContext) -> OperatorScop:
    """The bytes copied: between types of one width there is nothing to compute."""
    x, y = data(ctx, 0), only_output(ctx)
    if x.dtype.bytes != y.dtype.bytes:
        raise Unsupported(f"BitCast from {x.dtype} to {y.dtype}")
    return replace(_one(scop_of(lib.make_copy, _BITS[x.dtype.bytes], y.shape)), pointwise=False)
