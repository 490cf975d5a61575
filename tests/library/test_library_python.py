"""Every library operator as plain Python equals its compiled Scop (and touches every element)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyc  # noqa: F401  (wires the packages)
from polyc.emit.compile import compile_kernel
from polyc.frontend_dsl import dot_pairs, sigmoid, tanh
from polyc.frontend_dsl.library import (
    convolution,
    depthwise_rows,
    depthwise_strided,
    elementwise,
    indexing,
    matrix,
    movement,
    narrow,
    narrow_panels,
    normalization,
    pairs,
    pooling,
    quantization,
    quantized_recurrent,
    recurrent,
    reduction,
    resize,
    sampling,
    scalar,
    sorting,
    spectral,
    support_vectors,
    transposed,
    trees,
)
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.dtypes import f32, f64, i8, i32, i64, u8

rng = np.random.default_rng(3)
one, two, none = (1, 1), (2, 2), (0, 0)

CASES: dict[str, Callable[[], Any]] = {
    "conv": lambda: convolution.make_conv2d(f32, 1, (2, 3), (4, 5), (3, 2), (2, 1), one, one, one, True),
    "conv_plain": lambda: convolution.make_conv2d(f64, 1, (2, 3), (4, 5), (3, 2), one, one, none, none, False),
    "conv_pairs": lambda: convolution.make_conv2d(i32, 1, (2, 3), (4, 5), (3, 2), one, one, one, one, False, dot_pairs),
    "sparse_rows": lambda: convolution.make_sparse_rows(
        f32, 1, (2, 3), (4, 5), (3, 2), (2, 1), (3, 2), (3, 1), one, True
    ),
    "pointwise_pairs": lambda: convolution.make_pointwise(i32, 2, (2, 3), 4, False, dot_pairs),
    "pack_pairs": lambda: pairs.make_pack_pairs(u8, 2, 2, 3, True),
    "pack_pairs_plain": lambda: pairs.make_pack_pairs(i8, 2, 2, 3, False),
    "pair_matmul": lambda: pairs.make_pair_matmul(3, 2, 5),
    "block_product": lambda: narrow.make_block_product(f32, 2, narrow.Blocks(3, 21, 16, 4, "packed")),
    "block_product_of_bytes": lambda: narrow.make_block_product(f64, 2, narrow.Blocks(3, 32, 16, 8)),
    "panels": lambda: narrow_panels.make_panel_product(
        3, narrow_panels.Panels(narrow.Blocks(7, 21, 16, 4, "packed"), 2, 2, 0, 2)
    ),
    "panels_of_codes": lambda: narrow_panels.make_panel_product(
        3, narrow_panels.Panels(narrow.Blocks(7, 21, 16, 4, "packed"), 2, 2, 1, 2)
    ),
    "panels_of_three_digits": lambda: narrow_panels.make_panel_product(
        1, narrow_panels.Panels(narrow.Blocks(4, 16, 16, 8, "real"), 1, 4, 3, 1)
    ),
    "pointwise": lambda: convolution.make_pointwise(f32, 2, (2, 3), 4, True),
    "pointwise_nobias": lambda: convolution.make_pointwise(f32, 1, (2, 3), 4, False),
    "subsampled": lambda: convolution.make_subsampled(f32, 1, (2, 3), (4, 5), (2, 3), True),
    "subsampled_nobias": lambda: convolution.make_subsampled(f32, 2, (2, 3), (5, 5), (2, 1), False),
    "depthwise": lambda: convolution.make_depthwise(f32, 1, 2, (4, 4), (3, 3), one, one, one, one, True),
    "depthwise_in_whole_vectors": lambda: convolution.make_depthwise(
        f32, 1, 2, (4, 6), (3, 2), one, one, one, one, True
    ),
    "depthwise_strided": lambda: depthwise_strided.make_depthwise_strided(
        f32, 1, 2, (5, 7), (3, 3), (2, 2), (1, 1), (1, 1), (1, 2), True
    ),
    "depthwise_strided_in_whole_vectors": lambda: depthwise_strided.make_depthwise_strided(
        f32, 1, 2, (5, 14), (3, 5), (2, 2), (1, 1), (1, 2), (1, 2), True
    ),
    "depthwise_strided_nobias": lambda: depthwise_strided.make_depthwise_strided(
        f32, 1, 2, (5, 8), (2, 3), (1, 3), (1, 2), (0, 0), (0, 0), False
    ),
    "depthwise_rows": lambda: depthwise_rows.make_depthwise_rows(
        f32, 2, 3, (7, 5), (3, 3), (2, 1), (1, 1), (1, 1), (1, 2), True, 2
    ),
    "depthwise_rows_nobias": lambda: depthwise_rows.make_depthwise_rows(
        f32, 1, 2, (6, 8), (3, 2), (1, 3), (1, 2), (1, 0), (1, 3), False, 3
    ),
    "pointwise_rows": lambda: depthwise_rows.make_pointwise_rows(f32, 2, (3, 4), 2, 3, 5, True),
    "pointwise_rows_nobias": lambda: depthwise_rows.make_pointwise_rows(f32, 1, (2, 3), 3, 2, 4, False),
    "depthwise_nobias": lambda: convolution.make_depthwise(f32, 1, 2, (4, 4), (3, 3), one, one, none, none, False),
    "grouped": lambda: convolution.make_grouped(f32, 1, 2, (2, 2), (4, 4), (3, 3), one, one, one, one, True),
    "conv3d": lambda: convolution.make_grouped(
        f32, 1, 1, (2, 2), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0), False
    ),
    "conv_transpose": lambda: transposed.make_conv_transpose(
        f32, 1, 1, (2, 2), (3, 3), (3, 3), two, one, one, (5, 5), True
    ),
    "relu": lambda: elementwise.make_unary(scalar.relu, f32, f32, (2, 3)),
    "gelu": lambda: elementwise.make_unary(scalar.gelu, f32, f32, (2, 3)),
    "sign": lambda: elementwise.make_unary(scalar.sign, i32, i32, (7,)),
    "rank0": lambda: elementwise.make_unary(scalar.negative, f32, f32, ()),
    "add": lambda: elementwise.make_binary(scalar.add, (f32, f32), f32, ((2, 3), (3,)), (2, 3)),
    "maximum": lambda: elementwise.make_binary(scalar.maximum, (f32, f32), f32, ((2, 1), (1, 3)), (2, 3)),
    "batch_norm": lambda: elementwise.make_channelwise(scalar.batch_norm(1e-3), f32, (2, 3, 2), 1),
    "broadcast": lambda: elementwise.make_broadcast(f32, (3, 1), (2, 3, 4)),
    "matmul": lambda: matrix.make_matmul(f32, 3, 4, 5),
    "batched": lambda: matrix.make_batched_matmul(f32, (2, 1), (3,), (2, 3), 2, 3, 4),
    "gemm": lambda: matrix.make_gemm(f32, 3, 4, 5, (True, True), 1.0, 0.5, (5,)),
    "gemm_scaled": lambda: matrix.make_gemm(f32, 3, 4, 5, (False, False), 0.5, 1.0, (3, 1)),
    "max_pool": lambda: pooling.make_max_pool(f32, 2, (5, 5), (3, 3), (3, 3), two, one, one),
    "max_pool_u8": lambda: pooling.make_max_pool(u8, 2, (4,), (4,), (2,), (1,), (1,), (1,)),
    "max_pool_dilated": lambda: pooling.make_max_pool(f32, 2, (5, 6), (4, 2), (2, 3), (1, 2), two, one),
    "average_pool": lambda: pooling.make_average_pool(f32, 2, (5, 5), (3, 3), (3, 3), two, one, one, one, False),
    "average_pool_all": lambda: pooling.make_average_pool(f32, 2, (5, 5), (3, 3), (3, 3), two, one, one, one, True),
    "lp_pool": lambda: pooling.make_lp_pool(f32, 2, (5, 5), (3, 3), (3, 3), two, one, one, 2),
    "mean": lambda: reduction.make_reduce("mean", f32, (2, 3, 4), (1,), True),
    "l2": lambda: reduction.make_reduce("l2", f32, (2, 3, 4), (0, 2), False),
    "min": lambda: reduction.make_reduce("min", i64, (2, 3), (0, 1), False),
    "prod": lambda: reduction.make_reduce("prod", f32, (2, 3), (1,), False),
    "log_sum_exp": lambda: reduction.make_log_sum_exp(f32, (2, 3, 4), (0, 2), False),
    "arg_max": lambda: reduction.make_arg(True, False, f32, 2, 3, 4),
    "cumsum": lambda: reduction.make_cumulative(f32, 2, 3, 4, True, True),
    "softmax": lambda: normalization.make_softmax(f32, 2, 3, 4),
    "log_softmax": lambda: normalization.make_softmax(f32, 2, 3, 4, True),
    "softmax_rows": lambda: normalization.make_softmax_rows(f32, (2,), 5),
    "layer_norm": lambda: normalization.make_layer_norm(f32, 2, 5, 1e-5, True),
    "rms_norm": lambda: normalization.make_rms_norm(f32, 2, 5, 1e-5),
    "group_norm": lambda: normalization.make_group_norm(f32, 2, 2, 2, 3, 1e-5, True),
    "lrn": lambda: normalization.make_lrn(f32, 1, 5, 2, 3, 0.1, 0.75, 1.0),
    "lp_norm": lambda: normalization.make_lp_norm(f32, 2, 3, 2, 1),
    "transpose": lambda: movement.make_transpose(f32, (2, 3, 4), (2, 0, 1)),
    "concat": lambda: movement.make_concat(f32, ((2, 1), (2, 3), (2, 2)), 1),
    "slice": lambda: movement.make_slice(f32, (7, 5), (6, 0), (-2, 3), (3, 2)),
    "pad": lambda: movement.make_pad(f32, (3, 4), (-1, 2), (1, -1), 1.5),
    "reflect": lambda: movement.make_pad_by(f32, (3, 4), (2, 0), (1, 3), "reflect"),
    "edge": lambda: movement.make_pad_by(f32, (3, 4), (2, 0), (1, 5), "edge"),
    "wrap": lambda: movement.make_pad_by(f32, (3, 4), (2, 0), (1, 5), "wrap"),
    "tile": lambda: movement.make_tile(f32, (2, 3), (2, 3)),
    "trilu": lambda: movement.make_trilu(f32, 2, 3, 4, 1, True),
    "trees": lambda: trees.make_tree_scores(f32, f64, 19, 3, trees.Ensemble(9, 2, 3, 2)),
    "trees_viewed": lambda: trees.make_tree_scores(f64, f32, 5, 3, trees.Ensemble(9, 1, 18, 1, "MIN", trees.VIEWS[:2])),
    "distances": lambda: support_vectors.make_distances(f32, 3, 18, 5, False),
    "coupled": lambda: support_vectors.make_coupled(f64, 3, 4),
    "gather": lambda: indexing.make_gather(f32, i64, 2, 3, 4, 5),
    "gather_elements": lambda: indexing.make_gather_elements(f32, i64, (2, 3), (2, 2), 1),
    "gather_nd": lambda: indexing.make_gather_nd(f32, i64, 1, (2, 3), 4, 5),
    "one_hot": lambda: indexing.make_one_hot(i64, f32, 2, 3, 4),
    "scatter": lambda: indexing.make_scatter_elements(f32, i64, (3, 3), (2, 3), 0, "none"),
    "scatter_nd": lambda: indexing.make_scatter_nd(f32, i64, (2, 3), 2, 3, "add"),
    "repeat": lambda: resize.make_repeat(f32, (1, 2, 3), (1, 2, 3)),
    "nearest": lambda: resize.make_nearest(f32, (2, 3), (5, 7), ((3, 0, 5), (6, -2, 14))),
    "linear": lambda: resize.make_linear(f32, 2, (3, 3), (5, 6), ((6, -2, 10), (2, -1, 4))),
    "lstm": lambda: recurrent.make_lstm(f32, 3, 2, 2, 3, recurrent.Form((sigmoid, tanh, tanh), reverse=True)),
    "gru": lambda: recurrent.make_gru(f32, 3, 2, 2, 3, recurrent.Form((sigmoid, tanh), after=True)),
    "gru_before": lambda: recurrent.make_gru(f32, 3, 2, 2, 3, recurrent.Form((sigmoid, tanh), reverse=True)),
    "rnn": lambda: recurrent.make_rnn(f32, 3, 2, 2, 3, recurrent.Form((tanh,))),
    "lstm_all": lambda: recurrent.make_lstm(
        f32,
        3,
        2,
        2,
        3,
        recurrent.Form((sigmoid, tanh, scalar.relu), True, lengths=i32, clip=0.5, peephole=True, coupled=True),
    ),
    "quantized_lstm": lambda: quantized_recurrent.make_quantized_lstm(
        f32, 3, 2, 2, 3, (1, 12), recurrent.Form((sigmoid, tanh, tanh), reverse=True), False
    ),
    "quantized_lstm_pairs": lambda: quantized_recurrent.make_quantized_lstm(
        f32, 3, 2, 2, 4, (1, 16), recurrent.Form((sigmoid, tanh, tanh)), True
    ),
    "quantized_lstm_shifted_pairs": lambda: quantized_recurrent.make_quantized_lstm(
        f32, 2, 1, 2, 4, (1, 1), recurrent.Form((sigmoid, tanh, tanh)), True, (1, 16)
    ),
    "codes": lambda: quantized_recurrent.make_codes(i8, i32, 3, 4, 4),
    "gru_lengths": lambda: recurrent.make_gru(f32, 3, 2, 2, 3, recurrent.Form((sigmoid, tanh), lengths=i64)),
    "rnn_lengths": lambda: recurrent.make_rnn(f32, 3, 2, 2, 3, recurrent.Form((tanh,), True, lengths=i32)),
    "grid_linear": lambda: sampling.make_grid_sample(f32, 2, 2, (3, 4), (2, 3), "linear", "zeros", False),
    "grid_cubic": lambda: sampling.make_grid_sample(f32, 1, 2, (3, 4), (2, 2), "cubic", "reflection", True),
    "grid_nearest": lambda: sampling.make_grid_sample(f32, 1, 1, (3, 2, 4), (2, 2, 2), "nearest", "border", False),
    "deform": lambda: sampling.make_deform_conv(
        f32, 1, (4, 2), (2, 1), (4, 4), (3, 3), (2, 2), one, one, none, True, True
    ),
    "roi_align": lambda: sampling.make_roi_align(f32, i64, 2, 2, (5, 6), 2, (2, 2), 3.0, 0, True, False),
    "roi_align_max": lambda: sampling.make_roi_align(f32, i64, 2, 2, (5, 6), 2, (2, 2), 3.0, 2, False, True),
    "resample": lambda: resize.make_resample(f32, (2, 5, 2), 1, 3, (10, 4, 6), resize.Filter(-0.5, 0.6)),
    "resample_crop": lambda: resize.make_resample(f32, (5, 2), 0, 3, (9, -2, 4), resize.Filter(outside=7.0)),
    "resample_exclude": lambda: resize.make_resample(f32, (4,), 0, 7, (4, -3, 7), resize.Filter(-0.75, 1.0, True)),
    "dft": lambda: spectral.make_dft(f32, (1, 2), 5, 2, 2, 6, 6, False),
    "dft_inverse": lambda: spectral.make_dft(f32, (1, 1), 5, 1, 1, 4, 3, True),
    "staged_dft": lambda: spectral.make_staged_dft(f32, (1, 2), 5, 2, 2, (2, 3), 5, False),
    "staged_dft_inverse": lambda: spectral.make_staged_dft(f32, (2, 1), 9, 1, 1, (2, 3), 4, True),
    "real_inverse": lambda: spectral.make_real_inverse(f32, 2, 4, 2, 6),
    "frames": lambda: spectral.make_frames(f32, 2, 9, 1, 3, 2, 5, True),
    "top_k": lambda: sorting.make_top_k(f32, 2, 5, 3, 3, True),
    "bottom_k": lambda: sorting.make_top_k(i32, 2, 4, 1, 4, False),
    "pad_with": lambda: movement.make_pad(f32, (3, 4), (-1, 2), (1, -1), None),
    "eye": lambda: movement.make_eye(i32, 3, 4, 1),
    "col2im": lambda: movement.make_col2im(f32, 2, (4, 5), (2, 2), (4, 3), (1, 2), (1, 2), (1, 1)),
    "reverse_sequence": lambda: indexing.make_reverse_sequence(f32, i64, 3, 2, 2, False),
    "tensor_scatter": lambda: indexing.make_tensor_scatter(f32, i64, 2, 2, 4, 3, 2, True),
    "scatter_nd_max": lambda: indexing.make_scatter_nd(f32, i64, (2, 3), 2, 3, "max"),
    "one_hot_float": lambda: indexing.make_one_hot(f32, f32, 2, 3, 4),
    "cumulative_product": lambda: reduction.make_cumulative(f32, 2, 3, 4, False, False, True),
    "take": lambda: recurrent.make_take(f32, (2, 3), 1),
    "join": lambda: recurrent.make_join(f32, (2, 3), 1),
    "quantize": lambda: quantization.make_quantize(f32, i8, (2, 3, 4), (1,), True),
    "dequantize": lambda: quantization.make_dequantize(u8, f32, (2, 3, 4), (1,), True),
    "quantize_blocked": lambda: quantization.make_quantize_blocked(f32, i8, 2, 3, 2, 2, True),
    "dequantize_blocked": lambda: quantization.make_dequantize_blocked(u8, f32, 2, 3, 2, 2, False),
    "centred": lambda: quantization.make_centred(u8, (2, 3, 4), (0, 1), True),
    "requantize": lambda: quantization.make_requantize(f32, i8, (2, 3, 4), (1,), True),
    "max_pool_positions": lambda: pooling.make_max_pool_positions(f32, 2, (5, 4), (3, 2), (3, 3), two, one, one, True),
    "max_unpool": lambda: pooling.make_max_unpool(f32, i64, 8, 2, (3, 4), (4, 4)),
    "determinant": lambda: matrix.make_determinant(f64, 2, 4),
    "matmul_integer": lambda: quantization.make_matmul_integer(u8, i8, 2, 3, 4, 4),
}


def drawn(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.is_float:
        return np.asarray(rng.random(shape) + 0.25, dtype.np)
    most = 2 if dtype is i64 else 3  # indices are i64, and fit axes of two elements
    return rng.integers(0 if dtype.kind == "uint" else -2, most, shape).astype(dtype.np)


def compare(name: str, compiled: Callable[..., Any]) -> None:
    """The operator as plain Python against `compiled(scop)` on drawn arguments."""
    operator = CASES[name]()
    scop = operator.scop()
    args = [drawn(scop.arrays[a].dtype, tuple(int(e.value) for e in scop.arrays[a].shape)) for a in scop.args]
    want = operator.python(*args)
    got = compiled(scop)(*args)
    for x, y in zip(*[v if isinstance(v, tuple) else (v,) for v in (want, got)], strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        assert np.isfinite(x).all(), "poison is left in the result"
        np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_plain_python_equals_program_order(name: str) -> None:
    compare(name, lambda scop: compile_kernel(scop, scop.tree))


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_plain_python_equals_automatic_schedule(name: str) -> None:
    compare(name, lambda scop: compile_operator(scop, threads=2))
