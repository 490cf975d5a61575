"""Every operator of the library at sizes a, b, c of one's choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyc.frontend_dsl import sigmoid, tanh
from polyc.frontend_dsl.library import (
    convolution,
    einsum,
    elementwise,
    indexing,
    matrix,
    movement,
    normalization,
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
    winograd,
)
from polyc.frontend_dsl.library.recurrent import Form
from polyc.frontend_dsl.library.resize import Filter
from polyc.poly.dtypes import bool_, f32, f64, i8, i32, i64, u8

one, two, none = (1, 1), (2, 2), (0, 0)
Maker = Callable[[int, int, int], Any]


def winograd_tiles(height: int, width: int) -> int:
    """Of 2 x 2 outputs of two images."""
    return 2 * winograd.tiles(height, 2) * winograd.tiles(width, 2)


def half(n: int) -> int:
    """Windows of 3 elements, two apart, in `n` elements with one more at either end."""
    return (n - 1) // 2 + 1


CASES: dict[str, Maker] = {
    "conv": lambda a, b, c: convolution.make_conv2d(f32, 2, (a, c), (b, c), (3, 2), (2, 1), one, one, one, True),
    "conv_plain": lambda a, b, c: convolution.make_conv2d(f64, 1, (3, a), (b, c), (3, 3), one, one, none, none, False),
    "pointwise": lambda a, b, c: convolution.make_pointwise(f32, 2, (a, c), b, True),
    "pointwise_nobias": lambda a, b, c: convolution.make_pointwise(f32, 1, (c, a), b, False),
    "subsampled": lambda a, b, c: convolution.make_subsampled(f32, 1, (3, a), (b, c), (2, 3), True),
    "subsampled_nobias": lambda a, b, c: convolution.make_subsampled(f32, 2, (a, 3), (c, b), (2, 1), False),
    "depthwise": lambda a, b, c: convolution.make_depthwise(f32, 2, a, (b, c), (3, 3), one, one, one, one, True),
    "depthwise_nobias": lambda a, b, c: convolution.make_depthwise(
        f32, 1, a, (c, b), (3, 3), one, one, none, none, False
    ),
    "grouped": lambda a, b, c: convolution.make_grouped(f32, 1, 3, (2, a), (c, b), (3, 3), one, one, one, one, True),
    "conv3d": lambda a, b, c: convolution.make_grouped(
        f32, 1, 1, (2, 3), (3, a, c), (2, 2, 2), (1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0), False
    ),
    "conv_transpose": lambda a, b, c: transposed.make_conv_transpose(
        f32, 1, 1, (2, 3), (a, c), (3, 3), two, one, one, (2 * a - 1, 2 * c - 1), True
    ),
    "winograd_input": lambda a, b, c: winograd.make_input_transform(
        f32, 2, a, (b, c), one, (b, c), 2, winograd_tiles(b, c)
    ),
    "winograd_products": lambda a, b, c: winograd.make_products(f32, 16, (3, a), b, b),
    "winograd_output": lambda a, b, c: winograd.make_output_transform(f32, 2, a, (b, c), 2, winograd_tiles(b, c)),
    "relu": lambda a, b, c: elementwise.make_unary(scalar.relu, f32, f32, (a, b)),
    "gelu": lambda a, b, c: elementwise.make_unary(scalar.gelu, f32, f32, (b, c)),
    "sign": lambda a, b, c: elementwise.make_unary(scalar.sign, i32, i32, (a * c,)),
    "rank0": lambda a, b, c: elementwise.make_unary(scalar.negative, f32, f32, ()),
    "add": lambda a, b, c: elementwise.make_binary(scalar.add, (f32, f32), f32, ((a, b), (b,)), (a, b)),
    "where": lambda a, b, c: elementwise.make_ternary(
        scalar.choose, (bool_, f32, f32), f32, ((a, b), (b,), (1,)), (a, b)
    ),
    "maximum": lambda a, b, c: elementwise.make_binary(scalar.maximum, (f32, f32), f32, ((a, 1), (1, c)), (a, c)),
    "batch_norm": lambda a, b, c: elementwise.make_channelwise(scalar.batch_norm(1e-3), f32, (a, b, c), 1),
    "broadcast": lambda a, b, c: elementwise.make_broadcast(f32, (b, 1), (a, b, c)),
    "matmul": lambda a, b, c: matrix.make_matmul(f32, a, b, c),
    "batched": lambda a, b, c: matrix.make_batched_matmul(f32, (2, 1), (3,), (2, 3), a, c, b),
    "gemm": lambda a, b, c: matrix.make_gemm(f32, a, b, c, (True, True), 1.0, 0.5, (c,)),
    "gemm_scaled": lambda a, b, c: matrix.make_gemm(f32, b, a, c, (False, False), 0.5, 1.0, (b, 1)),
    "einsum": lambda a, b, c: einsum.make_einsum(
        f32, (("bij", (3, a, b)), ("bjk", (3, b, c))), "bik", (("b", 3), ("i", a), ("j", b), ("k", c))
    ),
    "determinant": lambda a, b, c: matrix.make_determinant(f64, b, min(a, 7)),
    "max_pool": lambda a, b, c: pooling.make_max_pool(f32, a, (b, c), (half(b), half(c)), (3, 3), two, one, one),
    "max_pool_u8": lambda a, b, c: pooling.make_max_pool(u8, a, (b,), (b,), (2,), (1,), (1,), (1,)),
    "max_pool_positions": lambda a, b, c: pooling.make_max_pool_positions(
        f32, a, (b, c), (half(b), half(c)), (3, 3), two, one, one, True
    ),
    "max_unpool": lambda a, b, c: pooling.make_max_unpool(f32, i64, a, 2, (b, c), (b + 1, c)),
    "average_pool": lambda a, b, c: pooling.make_average_pool(
        f32, a, (b, c), (half(b), half(c)), (3, 3), two, one, one, one, False
    ),
    "average_pool_all": lambda a, b, c: pooling.make_average_pool(
        f32, a, (c, b), (half(c), half(b)), (3, 3), two, one, one, one, True
    ),
    "lp_pool": lambda a, b, c: pooling.make_lp_pool(f32, a, (b, c), (half(b), half(c)), (3, 3), two, one, one, 2),
    "mean": lambda a, b, c: reduction.make_reduce("mean", f32, (a, b, c), (1,), True),
    "l2": lambda a, b, c: reduction.make_reduce("l2", f32, (a, b, c), (0, 2), False),
    "min": lambda a, b, c: reduction.make_reduce("min", i64, (b, c), (0, 1), False),
    "prod": lambda a, b, c: reduction.make_reduce("prod", f32, (b, a), (1,), False),
    "log_sum_exp": lambda a, b, c: reduction.make_log_sum_exp(f32, (a, b, c), (0, 2), False),
    "arg_max": lambda a, b, c: reduction.make_arg(True, False, f32, a, b, c),
    "cumsum": lambda a, b, c: reduction.make_cumulative(f32, a, b, c, True, True),
    "cumulative_product": lambda a, b, c: reduction.make_cumulative(f32, b, a, c, False, False, True),
    "softmax": lambda a, b, c: normalization.make_softmax(f32, a, b, c),
    "log_softmax": lambda a, b, c: normalization.make_softmax(f32, a, c, b, True),
    "softmax_rows": lambda a, b, c: normalization.make_softmax_rows(f32, (a,), 7 * b),
    "layer_norm": lambda a, b, c: normalization.make_layer_norm(f32, a, 7 * b, 1e-5, True),
    "rms_norm": lambda a, b, c: normalization.make_rms_norm(f32, a, 7 * c, 1e-5),
    "group_norm": lambda a, b, c: normalization.make_group_norm(f32, 2, 3, a, b, 1e-5, True),
    "lrn": lambda a, b, c: normalization.make_lrn(f32, 2, b, a, 3, 0.1, 0.75, 1.0),
    "lp_norm": lambda a, b, c: normalization.make_lp_norm(f32, a, b, c, 1),
    "hardmax": lambda a, b, c: normalization.make_hardmax(f32, a, b, c),
    "mean_variance": lambda a, b, c: normalization.make_mean_variance(f32, (1, 0, 2), (a, 3, c), 1),
    "transpose": lambda a, b, c: movement.make_transpose(f32, (a, b, c), (2, 0, 1)),
    "copy": lambda a, b, c: movement.make_copy(f32, (a, b)),
    "full": lambda a, b, c: movement.make_full(f32, (a, b), 1.5),
    "range": lambda a, b, c: movement.make_range(i64, a * b, -3, 2),
    "concat": lambda a, b, c: movement.make_concat(f32, ((b, 1), (b, a), (b, c)), 1),
    "slice": lambda a, b, c: movement.make_slice(f32, (b, c), (b - 1, 0), (-2, 3), (b // 2, (c + 2) // 3)),
    "pad": lambda a, b, c: movement.make_pad(f32, (b, c), (-1, 2), (1, -1), 1.5),
    "pad_with": lambda a, b, c: movement.make_pad(f32, (a, c), (-1, 2), (1, -1), None),
    "reflect": lambda a, b, c: movement.make_pad_by(f32, (a, b), (2, 0), (1, 3), "reflect"),
    "edge": lambda a, b, c: movement.make_pad_by(f32, (a, b), (2, 0), (1, 5), "edge"),
    "wrap": lambda a, b, c: movement.make_pad_by(f32, (a, b), (2, 0), (1, 5), "wrap"),
    "tile": lambda a, b, c: movement.make_tile(f32, (b, c), (2, 3)),
    "trilu": lambda a, b, c: movement.make_trilu(f32, a, b, c, 1, True),
    "eye": lambda a, b, c: movement.make_eye(i32, b, c, 1),
    "col2im": lambda a, b, c: movement.make_col2im(f32, 2, (b, c), (2, 2), (b, half(c)), (1, 2), (1, 2), (1, 1)),
    "trees": lambda a, b, c: trees.make_tree_scores(f32, f32, a * b, c, trees.Ensemble(b * c, 2, a, 2)),
    "trees_viewed": lambda a, b, c: trees.make_tree_scores(
        f32, f32, b, a, trees.Ensemble(c * c, 1, b, 1, "MAX", trees.VIEWS)
    ),
    "distances": lambda a, b, c: support_vectors.make_distances(f32, a, b, c, True),
    "coupled": lambda a, b, c: support_vectors.make_coupled(f32, b, 4),
    "gather": lambda a, b, c: indexing.make_gather(f32, i64, a, b, c, 7),
    "gather_elements": lambda a, b, c: indexing.make_gather_elements(f32, i64, (b, c), (b, a), 1),
    "gather_nd": lambda a, b, c: indexing.make_gather_nd(f32, i64, 2, (a, b), c, 7),
    "one_hot": lambda a, b, c: indexing.make_one_hot(i64, f32, a, b, c),
    "one_hot_float": lambda a, b, c: indexing.make_one_hot(f32, f32, a, c, b),
    "scatter": lambda a, b, c: indexing.make_scatter_elements(f32, i64, (a, b), (2, b), 0, "none"),
    "scatter_nd": lambda a, b, c: indexing.make_scatter_nd(f32, i64, (a, b), c, 7, "add"),
    "scatter_nd_max": lambda a, b, c: indexing.make_scatter_nd(f32, i64, (a, b), c, 7, "max"),
    "reverse_sequence": lambda a, b, c: indexing.make_reverse_sequence(f32, i64, a, b, c, False),
    "tensor_scatter": lambda a, b, c: indexing.make_tensor_scatter(f32, i64, a, 2, b, 3, c, True),
    "repeat": lambda a, b, c: resize.make_repeat(f32, (1, b, c), (1, 2, 3)),
    "nearest": lambda a, b, c: resize.make_nearest(f32, (a, b), (c, 17), ((a, 0, c), (2 * b, b - 17, 34))),
    "linear": lambda a, b, c: resize.make_linear(f32, 2, (a, b), (c, 17), ((2 * a, a - c, 2 * c), (2 * b, b - 17, 34))),
    "resample": lambda a, b, c: resize.make_resample(f32, (2, b, a), 1, c, (2 * b, b - c, 2 * c), Filter(-0.5, 0.6)),
    "resample_crop": lambda a, b, c: resize.make_resample(f32, (b, a), 0, c, (2 * b, -b, 2 * c), Filter(outside=7.0)),
    "resample_exclude": lambda a, b, c: resize.make_resample(
        f32, (b,), 0, c, (2 * b, b - c, 2 * c), Filter(-0.75, 1.0, True)
    ),
    "lstm": lambda a, b, c: recurrent.make_lstm(f32, 3, 2, a, b, Form((sigmoid, tanh, tanh), reverse=True)),
    "lstm_all": lambda a, b, c: recurrent.make_lstm(
        f32, 3, 5, a, c, Form((sigmoid, tanh, scalar.relu), True, lengths=i32, clip=0.5, peephole=True, coupled=True)
    ),
    "gru": lambda a, b, c: recurrent.make_gru(f32, 3, 2, a, b, Form((sigmoid, tanh), after=True)),
    "gru_before": lambda a, b, c: recurrent.make_gru(f32, 3, 5, a, c, Form((sigmoid, tanh), reverse=True)),
    "gru_lengths": lambda a, b, c: recurrent.make_gru(f32, 3, 5, a, c, Form((sigmoid, tanh), lengths=i64)),
    "rnn": lambda a, b, c: recurrent.make_rnn(f32, 3, 5, a, b, Form((tanh,))),
    "rnn_lengths": lambda a, b, c: recurrent.make_rnn(f32, 3, 5, a, b, Form((tanh,), True, lengths=i32)),
    "fill": lambda a, b, c: recurrent.make_fill(f32, (a, b)),
    "take": lambda a, b, c: recurrent.make_take(f32, (a, b), 1),
    "join": lambda a, b, c: recurrent.make_join(f32, (a, b), 1),
    "quantized_lstm": lambda a, b, c: quantized_recurrent.make_quantized_lstm(
        f32, 3, 2, a, c, (1, 4 * c), Form((sigmoid, tanh, tanh), reverse=True), False
    ),
    "quantized_lstm_pairs": lambda a, b, c: quantized_recurrent.make_quantized_lstm(
        f32, 3, 2, 2 * a, 2 * c, (1, 8 * c), Form((sigmoid, tanh, tanh)), True, (1, 8 * c)
    ),
    "codes": lambda a, b, c: quantized_recurrent.make_codes(i8, i32, a, b, b),
    "grid_linear": lambda a, b, c: sampling.make_grid_sample(f32, 2, 3, (a, b), (c, 5), "linear", "zeros", False),
    "grid_cubic": lambda a, b, c: sampling.make_grid_sample(f32, 1, 2, (a, b), (c, 3), "cubic", "reflection", True),
    "grid_nearest": lambda a, b, c: sampling.make_grid_sample(
        f32, 1, 2, (3, a, b), (2, 3, c), "nearest", "border", False
    ),
    "deform": lambda a, b, c: sampling.make_deform_conv(
        f32, 1, (4, 6), (2, 1), (a, b), (a - 1, b - 1), two, one, one, none, True, True
    ),
    "roi_align": lambda a, b, c: sampling.make_roi_align(f32, i64, 3, c, (a, b), 5, (3, 2), 3.0, 0, True, False),
    "roi_align_max": lambda a, b, c: sampling.make_roi_align(f32, i64, 3, c, (a, b), 5, (3, 2), 3.0, 2, False, True),
    "max_roi_pool": lambda a, b, c: sampling.make_max_roi_pool(f32, 3, c, (a, b), 5, (3, 2), 1.0),
    "dft": lambda a, b, c: spectral.make_dft(f32, (1, a), b, 3, 2, b + 1, b + 1, False),
    "dft_inverse": lambda a, b, c: spectral.make_dft(f32, (a, 1), b, 1, 1, b - 1, half(b), True),
    "staged_dft": lambda a, b, c: spectral.make_staged_dft(f32, (2, a), b, 1, 1, (2, 3), 4, False),
    "real_inverse": lambda a, b, c: spectral.make_real_inverse(f32, a, half(c), 3, c),
    "frames": lambda a, b, c: spectral.make_frames(f32, a, 2 * b + c, 1, b, 2, c, True),
    "top_k": lambda a, b, c: sorting.make_top_k(f32, a, b, c, 3, True),
    "bottom_k": lambda a, b, c: sorting.make_top_k(i32, a, c, 1, 3, False),
    "quantize": lambda a, b, c: quantization.make_quantize(f32, i8, (a, b, c), (1,), True),
    "dequantize": lambda a, b, c: quantization.make_dequantize(u8, f32, (a, b, c), (1,), True),
    "quantize_blocked": lambda a, b, c: quantization.make_quantize_blocked(f32, i8, 2, a, 3, c, True),
    "dequantize_blocked": lambda a, b, c: quantization.make_dequantize_blocked(u8, f32, 2, a, 3, c, False),
    "centred": lambda a, b, c: quantization.make_centred(u8, (a, b, 4), (0, 1), True),
    "requantize": lambda a, b, c: quantization.make_requantize(f32, i8, (a, b, c), (1,), True),
    "matmul_integer": lambda a, b, c: quantization.make_matmul_integer(u8, i8, a, b, c, c),
}
