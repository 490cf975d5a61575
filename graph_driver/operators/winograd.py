"""The operators that `passes.winograd` puts in the place of a convolution (domain `polyc`): three, or one in blocks."""

from __future__ import annotations

from polyc.frontend_dsl.library.winograd import make_input_transform, make_output_transform, make_products
from polyc.frontend_dsl.library.winograd_blocks import make_winograd_blocks
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import data, onnx_operator, scop_of

DOMAIN = "polyc"


@onnx_operator("WinogradInput", domain=DOMAIN)
def winograd_input(ctx: NodeContext) -> OperatorScop:
    """`X[n, c, h, w]` to `V[k, c, p]`; attributes `m`, `pads` (top, left), `out` (height, width)."""
    x = data(ctx, 0)
    batch, channels, *size = x.shape
    pads, out, columns = tuple(ctx.attrs["pads"]), tuple(ctx.attrs["out"]), ctx.outputs[0].shape[2]
    scop = scop_of(make_input_transform, x.dtype, batch, channels, tuple(size), pads, out, int(ctx.attrs["m"]), columns)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("WinogradProducts", domain=DOMAIN)
def winograd_products(ctx: NodeContext) -> OperatorScop:
    """`V[k, c, p]` and `U[k, c, o]` to `M[k, p, o]`; attribute `unused`, how many p of `M` hold nothing (0)."""
    v, u = data(ctx, 0), data(ctx, 1)
    count, channels, columns = v.shape
    tiles = columns - int(ctx.attrs.get("unused", 0))
    scop = scop_of(make_products, v.dtype, count, (channels, u.shape[2]), tiles, columns)
    return OperatorScop(scop, ((0, "V"), (1, "U")), scop.results, False)


@onnx_operator("WinogradOutput", domain=DOMAIN)
def winograd_output(ctx: NodeContext) -> OperatorScop:
    """`M[k, p, o]` and the bias to `Y[n, o, h, w]`; attributes `m`, `staged`."""
    batch, filters, *out = ctx.outputs[0].shape
    m, size, staged = data(ctx, 0), int(ctx.attrs["m"]), bool(ctx.attrs["staged"])
    scop = scop_of(make_output_transform, m.dtype, batch, filters, tuple(out), size, m.shape[1], staged)
    return OperatorScop(scop, ((0, "M"), (1, "B")), scop.results, False)


@onnx_operator("WinogradBlocks", domain=DOMAIN)
def winograd_blocks(ctx: NodeContext) -> OperatorScop:
    """`X[n, c, h, w]`, `U[k, c, o]` and the bias to `Y[n, o, h, w]`; attributes `m`, `pads` (top, left),
    `rows` of tiles in a block."""
    x, filters = data(ctx, 0), data(ctx, 1)
    batch, channels, *size = x.shape
    out, pads = tuple(ctx.outputs[0].shape[2:]), tuple(ctx.attrs["pads"])
    m, rows = int(ctx.attrs["m"]), int(ctx.attrs["rows"])
    both = channels, filters.shape[2]
    scop = scop_of(make_winograd_blocks, x.dtype, batch, both, tuple(size), pads, out, m, rows)
    return OperatorScop(scop, ((0, "X"), (1, "U"), (2, "B")), scop.results, False)
