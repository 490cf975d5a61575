"""Operators that read at positions which are data, sort, transform or quantise, against their references."""

from itertools import product

import numpy as np
import pytest
from onnx_case import built, check, f32, in_part, ints, rng, run
from test_onnx_windows import ort

GRIDS = list(product(("nearest", "linear", "cubic"), ("zeros", "border", "reflection"), (0, 1)))
ROIS = list(product((0, 2), ("avg", "max"), ("half_pixel", "output_half_pixel")))


@pytest.mark.parametrize(
    ("mode", "padding", "align"),
    in_part(GRIDS, ("linear", "zeros", 0), ("cubic", "reflection", 1), ("cubic", "border", 0)),
)
def test_grid_sample(mode: str, padding: str, align: int) -> None:
    """Positions up to half an image outside."""
    grid = (rng.random((2, 3, 4, 2)) * 3 - 1.5).astype(np.float32)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    check("GridSample", f32(2, 2, 5, 6), grid, opset=22, rtol=1e-4, atol=1e-4, **attrs)


def test_no_position_leaves_the_image() -> None:
    """What comes out is not compared, only that nothing outside of the array is read: NaN lies around it."""
    grid = np.array([[[[np.nan, 0.5], [1e30, -1e30], [-np.inf, np.inf]]]], np.float32)
    image, shape = np.full(60, np.nan, np.float32), [f32(1, 1, 1, 3)]
    image[20:40] = 1
    for padding in ("zeros", "border", "reflection"):
        inputs = [image[20:40].reshape(1, 1, 4, 5), grid]
        made = built("GridSample", inputs, shape, 22, (), {"padding_mode": padding, "mode": "nearest"})
        (y,) = run(made, inputs, shape)
        assert set(y.reshape(-1)) <= {0.0, 1.0}


@pytest.mark.parametrize(("ratio", "mode", "transform"), in_part(ROIS, (0, "avg", "half_pixel")))
def test_roi_align(ratio: int, mode: str, transform: str) -> None:
    low = rng.random((3, 2)) * 6
    rois = np.concatenate([low, low + rng.random((3, 2)) * 9], 1).astype(np.float32)
    attrs = {"output_height": 2, "output_width": 3, "sampling_ratio": ratio, "spatial_scale": 0.8, "mode": mode}
    index = np.array([1, 0, 1])
    check("RoiAlign", f32(2, 2, 7, 8), rois, index, opset=16, coordinate_transformation_mode=transform, **attrs)


def test_max_roi_pool() -> None:
    low = rng.integers(0, 12, (4, 2))
    rois = np.concatenate([rng.integers(0, 2, (4, 1)), low, low + rng.integers(0, 12, (4, 2))], 1).astype(np.float32)
    x, attrs = f32(2, 3, 9, 11), {"pooled_shape": [3, 2], "spatial_scale": 0.75}
    check("MaxRoiPool", x, rois, want=ort("MaxRoiPool", [x, rois], **attrs), **attrs)


def test_deform_conv() -> None:
    x, w, offset, mask = f32(1, 4, 5, 6), f32(2, 2, 2, 2), f32(1, 16, 4, 5), f32(1, 8, 4, 5)
    check("DeformConv", x, w, offset, f32(2), mask, opset=19, rtol=1e-4, atol=1e-4, group=2, offset_group=2)


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_of_equal_elements(largest: int) -> None:
    x = ints(0, 4, 3, 8, 2).astype(np.float32)
    check("TopK", x, np.array([5]), opset=11, const=(1,), outputs=2, axis=1, largest=largest)


@pytest.mark.parametrize("k", [1, 16, 17, 50])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_of_many_and_of_equal_ones(k: int, largest: int) -> None:
    """Lists and heaps; of equal elements the first ones count."""
    x = rng.integers(0, 9, (2, 50, 3)).astype(np.float32)
    order = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :k]
    want = [np.take_along_axis(x, order, 1), order]
    check("TopK", x, np.array([k]), opset=11, const=(1,), outputs=2, axis=1, largest=largest, want=want)


@pytest.mark.parametrize(("length", "inverse"), in_part(list(product((None, 5, 8), (0, 1))), (8, 0), (5, 1)))
def test_dft(length: int | None, inverse: int) -> None:
    x = f32(2, 6, 3, 2)
    n = length or 6
    turned = (np.fft.ifft if inverse else np.fft.fft)(x[..., 0] + 1j * x[..., 1], n, axis=1)
    want = [np.stack([turned.real, turned.imag], -1).astype(np.float32)]
    given = [x, None if length is None else np.array(length), np.array(1)]
    check("DFT", *given, opset=20, const=(1, 2), want=want, inverse=inverse)


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize(("size", "length"), [(48, 48), (90, 35), (40, 49), (64, 37)])
def test_dft_in_stages(size: int, length: int, inverse: int) -> None:
    """Lengths of two factors, of signals that are cut or padded; 37 has no factors."""
    x = f32(2, size, 1, 2)
    turned = (np.fft.ifft if inverse else np.fft.fft)(x[..., 0] + 1j * x[..., 1], length, axis=1)
    want = [np.stack([turned.real, turned.imag], -1).astype(np.float32)]
    check("DFT", x, np.array(length), np.array(1), opset=20, const=(1, 2), want=want, inverse=inverse)
    half = np.fft.rfft(x[..., 0], length, axis=1)
    want = [np.stack([half.real, half.imag], -1).astype(np.float32)]
    check("DFT", x[..., :1], np.array(length), np.array(1), opset=20, const=(1, 2), want=want, onesided=1)


@pytest.mark.parametrize("group", [1, 2])
def test_convolution_of_integers_with_a_zero_point_for_each_filter(group: int) -> None:
    x = ints(0, 255, 1, 4, 5, 5, dtype=np.uint8)
    w, zero = ints(0, 255, 6, 4 // group, 3, 3, dtype=np.uint8), ints(0, 255, 6, dtype=np.uint8)
    signed = x.astype(np.int64) - 7, w.astype(np.int64) - zero.reshape(6, 1, 1, 1)
    want = ort("Conv", [signed[0].astype(np.float32), signed[1].astype(np.float32)], group=group, pads=[1] * 4)
    want = [want[0].astype(np.int32)]
    check("ConvInteger", x, w, np.uint8(7), zero, opset=10, want=want, group=group, pads=[1] * 4)


def test_quantised_matrix_product_with_a_scale_for_each_column() -> None:
    a, b = ints(0, 255, 3, 4, dtype=np.uint8), ints(0, 255, 4, 5, dtype=np.uint8)
    scale, zero = (rng.random(5) * 0.01 + 0.001).astype(np.float32), ints(0, 255, 5, dtype=np.uint8)
    rest = (np.float32(0.02), np.uint8(3))
    check("QLinearMatMul", a, np.float32(0.01), np.uint8(128), b, scale, zero, *rest, opset=21)
