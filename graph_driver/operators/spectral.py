"""DFT and STFT. Forms without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from polyc.frontend_dsl.library import spectral as lib
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.chain import joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import (
    constant,
    data,
    need_float,
    only_output,
    onnx_operator,
    optional,
    product,
    scop_of,
)
from polyc.poly.scop import Scop


@onnx_operator("DFT")
def dft(ctx: NodeContext) -> OperatorScop:
    """Forward, inverse, and the real inverse of half a spectrum."""
    need_float(ctx)
    x, y = data(ctx, 0), only_output(ctx)
    given = constant(ctx, 2, "its axis") if ctx.opset >= 20 else ctx.attrs.get("axis", 1)
    axis = int(-2 if given is None else given) % len(x.shape)
    inverse, onesided = bool(ctx.attrs.get("inverse", 0)), bool(ctx.attrs.get("onesided", 0))
    length = constant(ctx, 1, "its length")
    real = inverse and onesided
    n = int(length.reshape(-1)[0]) if length is not None else 2 * (x.shape[axis] - 1) if real else x.shape[axis]
    sizes = (product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 : -1]))
    if real:
        scop: Scop = scop_of(lib.make_real_inverse, x.dtype, *sizes, n)
    else:
        scop = scop_of(lib.make_dft, x.dtype, (1, sizes[0]), *sizes[1:], x.shape[-1], n, y.shape[axis], inverse)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("STFT")
def stft(ctx: NodeContext) -> OperatorScop:
    """Frames of the signal, each transformed."""
    need_float(ctx)
    x, window, y = data(ctx, 0), optional(ctx, 2), only_output(ctx)
    step, given = constant(ctx, 1, "its step"), constant(ctx, 3, "its frame length")
    if step is None or (given is None and window is None):
        raise Unsupported("STFT without a step or a frame length")
    length = int(given.reshape(-1)[0]) if given is not None else window.shape[0]  # type: ignore[union-attr]
    if window is not None and window.shape[0] != length:
        raise Unsupported("STFT whose window and frame length differ")
    batch, size, parts = x.shape if len(x.shape) == 3 else (*x.shape, 1)
    _, frames, bins, _ = y.shape
    cut = scop_of(lib.make_frames, x.dtype, batch, size, parts, frames, int(step.item()), length, window is not None)
    transform = scop_of(lib.make_dft, x.dtype, (batch, frames), length, 1, parts, length, bins, False)
    inputs = ["X"] if window is None else ["X", "W"]
    made = joined(
        "stft",
        [
            (cut, {n: n for n in inputs} | {cut.results[0]: "F"}),
            (transform, {"X": "F", transform.results[0]: "Y"}),
        ],
        inputs,
        ["Y"],
    )
    return OperatorScop(made.scop, ((0, "X"), (2, "W")) if window is not None else ((0, "X"),), made.outputs, False)
