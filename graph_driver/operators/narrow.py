"""Products with weights of 4 and 8 bits in blocks, and rows gathered from them (`com.microsoft`)."""

from __future__ import annotations

from polyc.frontend_dsl.library.narrow import Blocks, make_block_product, make_gather_blocks
from polyc.frontend_dsl.library.narrow_panels import Panels, make_panel_product
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import (
    accumulates,
    axis_of,
    data,
    onnx_operator,
    optional,
    product,
    scop_of,
)
from polyc.poly.dtypes import u8

DOMAIN = "com.microsoft"


def blocks_of(ctx: NodeContext) -> Blocks:
    """How a `MatMulNBits` node stores its weights. Raises `Unsupported` for forms without loops."""
    n, k = int(ctx.attrs["N"]), int(ctx.attrs["K"])
    size, bits = int(ctx.attrs["block_size"]), int(ctx.attrs.get("bits", 4))
    codes, zero = data(ctx, 1), optional(ctx, 3)
    if bits not in (2, 4, 8) or codes.dtype != u8:
        raise Unsupported(f"{ctx.op_type} of {bits} bits in {codes.dtype}")
    if ctx.attrs.get("weight_prepacked", 0):
        raise Unsupported(f"{ctx.op_type} of weights in another program's own order")
    if optional(ctx, 4) is not None:
        raise Unsupported(f"{ctx.op_type} with groups by index (g_idx)")
    kind = "" if zero is None else "packed" if zero.dtype == u8 else "real"
    return Blocks(n, k, size, bits, kind)


@onnx_operator("MatMulNBits", domain=DOMAIN)
def block_product(ctx: NodeContext) -> OperatorScop:
    """Rows times columns of codes; in f16 and bf16 as well. Raises `Unsupported` for forms without loops."""
    blocks = blocks_of(ctx)
    accumulates(ctx)
    a = data(ctx, 0)
    if data(ctx, 2).size != blocks.columns * blocks.count:
        raise Unsupported(f"{ctx.op_type} with scales of shape {list(data(ctx, 2).shape)}")
    scop = scop_of(make_block_product, a.dtype, product(a.shape[:-1]), blocks)
    return OperatorScop(scop, tuple(enumerate("AWSZ" if blocks.zero else "AWS")), scop.results, False)


@onnx_operator("PanelProduct", domain="polyc")
def panel_product(ctx: NodeContext) -> OperatorScop:
    """Rows times weights in panels (`passes.weight_panels`)."""
    a, n = data(ctx, 0), ctx.attrs
    blocks = Blocks(n["columns"], n["inner"], n["size"], n["bits"], n["zero"])
    panels = Panels(blocks, n["vectors"], n["lanes"], n["digits"], n["rows"])
    scop = scop_of(make_panel_product, product(a.shape[:-1]), panels)
    return OperatorScop(scop, tuple(enumerate("AWSZ")), scop.results, False)


@onnx_operator("GatherBlockQuantized", domain=DOMAIN)
def gather_blocks(ctx: NodeContext) -> OperatorScop:
    """Rows of a table whose last axis is in blocks. Raises `Unsupported` for other blocks."""
    table, index, scales, zero = data(ctx, 0), data(ctx, 1), data(ctx, 2), optional(ctx, 3)
    rank, bits = len(table.shape), int(ctx.attrs.get("bits", 4))
    if table.dtype != u8 or bits not in (4, 8):
        raise Unsupported(f"{ctx.op_type} of {bits} bits in {table.dtype}")
    if axis_of(ctx, rank, 0, "gather_axis") or axis_of(ctx, rank, 1, "quantize_axis") != rank - 1:
        raise Unsupported(f"{ctx.op_type} along other axes than the first, of blocks along others than the last")
    size = int(ctx.attrs.get("block_size", 128))
    rows, inner = product(table.shape[1:-1]), table.shape[-1] * (8 // bits)
    blocks = Blocks(table.shape[0] * rows, inner, size, bits, "" if zero is None else "packed")
    if inner % size:
        raise Unsupported(f"{ctx.op_type} in blocks that do not fill the axis")
    scop = scop_of(make_gather_blocks, scales.dtype, index.dtype, blocks, table.shape[0], rows, index.size)
    return OperatorScop(scop, tuple(enumerate("WJSZ" if blocks.zero else "WJS")), scop.results, False)
