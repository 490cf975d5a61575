"""Reductions, normalisations, movement, gathering and resizing against ONNX's reference."""

from typing import Any

import numpy as np
import pytest
from onnx_case import built, check, f32, ints, positive
from test_onnx_windows import both

from polyc import BoundsError
from polyc.graph_driver.operators import Unsupported

REDUCTIONS = "ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum " \
    "ReduceLogSumExp"  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS.split())
@pytest.mark.parametrize("axes", [[1], [0, 2], [-1], [0, 1, 2], None])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reduce(op: str, axes: Any, keepdims: int) -> None:
    x = positive(2, 3, 4)
    if axes is None:
        check(op, x, opset=18, keepdims=keepdims)
    else:
        check(op, x, np.array(axes), opset=18, const=(1,), keepdims=keepdims)


def test_reduce_by_attribute_and_of_integers() -> None:
    check("ReduceMax", f32(1, 4, 5, 3), opset=12, axes=[1, 2], keepdims=0)
    check("ReduceSum", ints(-9, 9, 3, 4, dtype=np.int32), np.array([0]), opset=13, const=(1,))
    check("ReduceMin", ints(-9, 9, 3, 4), opset=13, axes=[1])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_arg(op: str, last: int) -> None:
    x = ints(0, 3, 3, 5, 4, dtype=np.float32)
    for axis in (0, 1, -1):
        check(op, x, axis=axis, select_last_index=last, keepdims=axis % 2)


@pytest.mark.parametrize("attrs", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}], ids=str)
def test_cumsum(attrs: dict[str, int]) -> None:
    for axis in (0, 1, -1):
        check("CumSum", f32(3, 5, 4), np.array(axis), const=(1,), **attrs)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(op: str) -> None:
    for axis in (0, 1, 2, -1):
        check(op, f32(3, 5, 4) * 5, axis=axis)
        check(op, f32(3, 5, 4) * 5, axis=axis, opset=13)
    both(op, f32(3, 5, 4), axis=1, opset=11)
    both(op, f32(1, 10, 1, 1), opset=9)
    check(op, f32(3, 1))


def test_layer_norm() -> None:
    check("LayerNormalization", f32(2, 3, 8), f32(8), f32(8), epsilon=1e-3)
    check("LayerNormalization", f32(2, 3, 8), f32(3, 8), f32(3, 8), axis=1)
    check("LayerNormalization", f32(2, 3, 8), f32(8))
    x, s = f32(4, 6), f32(6)
    want = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * s
    check("RMSNormalization", x, s, opset=23, want=[want])


def test_instance_and_group_norm() -> None:
    check("InstanceNormalization", f32(2, 3, 4, 5), f32(3), f32(3))
    check("GroupNormalization", f32(2, 6, 4, 5), f32(6), f32(6), num_groups=3)


def test_lrn_and_lp_norm() -> None:
    both("LRN", f32(2, 6, 3, 3), size=3, alpha=0.1, beta=0.6, bias=1.5)
    both("LRN", f32(1, 8, 3, 2), size=5)
    x = f32(3, 4, 5)
    for p in (1, 2):
        want = x / (abs(x) ** p).sum(1, keepdims=True) ** np.float32(1 / p)
        check("LpNormalization", x, axis=1, p=p, want=[want])


def test_movement() -> None:
    check("Transpose", f32(2, 3, 4))
    check("Transpose", f32(2, 3, 4, 1), perm=[2, 0, 3, 1])
    check("Transpose", ints(0, 9, 2, 3, dtype=np.int8))
    check("Reshape", f32(2, 6), np.array([3, 4]), const=(1,))
    check("Tile", f32(2, 3), np.array([2, 3]), const=(1,))
    check("Tile", f32(2, 3), np.array([1, 1]), const=(1,))
    check("DepthToSpace", f32(1, 8, 2, 3), blocksize=2)
    check("DepthToSpace", f32(1, 8, 2, 3), blocksize=2, mode="CRD")
    check("SpaceToDepth", f32(1, 2, 4, 6), blocksize=2)
    for k in (-1, 0, 2):
        for upper in (0, 1):
            check("Trilu", f32(2, 4, 5), np.array(k), const=(1,), upper=upper)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9, 17])
def test_concat(count: int) -> None:
    check("Concat", *[f32(2, 1 + k % 3, 3) for k in range(count)], axis=1)
    check("Concat", *[f32(2, 3, 1 + k % 2) for k in range(count)], axis=-1)


def test_split() -> None:
    check("Split", f32(2, 7, 3), np.array([2, 4, 1]), const=(1,), outputs=3, axis=1)
    check("Split", f32(6, 2), outputs=3, opset=18, num_outputs=3)
    check("Split", f32(2, 6), outputs=2, opset=11, axis=-1, split=[2, 4])


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1, 0], [5, 3], None, None), ([-3], [100], [1], None), ([6, 0], [-100, 4], [0, 1], [-2, 3]),
        ([0], [-1], [-1], [2]), ([100], [0], [0], [-1]), ([2], [3], [0], [1]),
    ],
)  # fmt: skip
def test_slice(starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    extra = [np.array(v) for v in (starts, ends)]
    extra += [np.array(axes if axes is not None else range(len(starts)))]
    extra += [np.array(steps if steps is not None else [1] * len(starts))]
    check("Slice", f32(7, 5), *extra, const=(1, 2, 3, 4))


def test_slice_by_attributes() -> None:
    x = f32(7, 5)
    check("Slice", x, opset=9, want=[x[1:-1, 2:5]], starts=[1, 2], ends=[-1, 100], axes=[0, 1])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad(mode: str) -> None:
    pads = np.array([1, 0, 2, 0, 3, 1])
    value = np.array(1.5, np.float32)
    check("Pad", f32(3, 4, 5), pads, value, const=(1, 2), mode=mode)
    check("Pad", f32(3, 4), np.array([2, 1]), None, np.array([-1]), const=(1, 3), mode=mode, opset=19)


def test_pad_crops() -> None:
    x = f32(4, 6)
    check("Pad", x, np.array([-1, 2, 1, -3]), const=(1,), want=[np.pad(x[1:, :3], ((0, 1), (2, 0)))])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(0, 1, 0, -1), (-1, 3, 2, -2), (-2, -1, 1, 2), (-1, -2, -1, -1)])
def test_negative_pads_crop_before_the_rest_is_surrounded(mode: str, pads: tuple[int, ...]) -> None:
    x, (a, b, c, d) = f32(5, 7), pads
    left = x[max(0, -a) : 5 + min(0, c), max(0, -b) : 7 + min(0, d)]
    want = np.pad(left, ((max(0, a), max(0, c)), (max(0, b), max(0, d))), mode)  # type: ignore[call-overload]
    check("Pad", x, np.array(pads), const=(1,), want=[want], mode=mode, opset=19)


def test_gather() -> None:
    x = f32(3, 5, 4)
    for axis in (0, 1, -1):
        check("Gather", x, ints(-3, 3, 2, 3), axis=axis)
        check("Gather", x, np.array(-2), axis=axis, const=(1,))
        check("Gather", x, np.array([1], np.int32), axis=axis)
    check("GatherElements", x, ints(-3, 3, 2, 5, 4), axis=0)
    index = ints(-4, 4, 3, 5, 2)
    check("GatherElements", x, index, want=[np.take_along_axis(x, index, -1)], axis=-1)
    check("GatherND", x, ints(0, 3, 6, 2))
    check("GatherND", x, ints(0, 4, 3, 2, 1), batch_dims=1)
    check("OneHot", ints(-3, 3, 2, 4), np.array(4), np.array([0.5, 2.0], np.float32), const=(1,))
    check("OneHot", ints(0, 3, 2, 4), np.array(3), np.array([0, 1]), const=(1,), axis=1)


def test_a_bad_index_reads_nothing_outside() -> None:
    with pytest.raises(BoundsError, match="index 7 "):
        check("Gather", f32(3, 4), np.array([7, -2]), want=[])


NEAREST = ["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"]


@pytest.mark.parametrize("transform", NEAREST)
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_resize_nearest(transform: str, rounding: str) -> None:
    attrs = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": rounding}
    check("Resize", f32(1, 2, 3, 4), None, np.array([1, 1, 2, 2], np.float32), const=(2,), opset=13, **attrs)
    check("Resize", f32(1, 2, 4, 5), None, None, np.array([1, 2, 7, 3]), const=(3,), opset=13, **attrs)


@pytest.mark.parametrize("transform", NEAREST)
def test_resize_linear(transform: str) -> None:
    attrs = {"mode": "linear", "coordinate_transformation_mode": transform}
    check("Resize", f32(1, 2, 3, 4), None, np.array([1, 1, 2, 3], np.float32), const=(2,), opset=13, **attrs)
    check("Resize", f32(1, 2, 4, 5), None, None, np.array([1, 2, 7, 3]), const=(3,), opset=13, **attrs)
    check("Resize", f32(1, 2, 4, 5), None, None, np.array([1, 2, 7, 5]), const=(3,), opset=13, **attrs)
    check("Resize", f32(1, 4), None, None, np.array([1, 9]), const=(3,), opset=13, **attrs)


def test_upsample() -> None:
    both("Upsample", f32(1, 2, 3, 3), np.array([1, 1, 2, 2], np.float32), opset=9)


@pytest.mark.parametrize("transform", NEAREST)
@pytest.mark.parametrize("antialias", [0, 1])
def test_resize_cubic(transform: str, antialias: int) -> None:
    attrs = {"mode": "cubic", "coordinate_transformation_mode": transform, "antialias": antialias}
    check("Resize", f32(1, 2, 3, 4), None, None, np.array([1, 2, 2, 7]), const=(3,), opset=18, **attrs)
    attrs |= {"exclude_outside": 1, "cubic_coeff_a": -0.5}
    check("Resize", f32(1, 2, 5, 4), None, None, np.array([1, 2, 3, 6]), const=(3,), opset=18, **attrs)


@pytest.mark.parametrize("antialias", [0, 1])
def test_resize_linear_in_three_dimensions(antialias: int) -> None:
    attrs = {"mode": "linear", "antialias": antialias}
    check("Resize", f32(1, 1, 5, 4, 6), None, None, np.array([1, 1, 3, 6, 4]), const=(3,), opset=18, **attrs)


def test_unsupported_says_why() -> None:
    with pytest.raises(Unsupported, match="run time"):
        built("Tile", [f32(2), np.array([3])], [f32(6)], 13, (), {})


def test_scatter() -> None:
    x, index = f32(4, 5), np.array([[3, 0, -2, 1, 1], [0, 2, 1, -1, 3]])
    updates = f32(2, 5)
    for reduction in ("none", "add", "mul", "max", "min"):
        check("ScatterElements", x, index, updates, axis=0, opset=18, reduction=reduction)
    check("ScatterElements", x, np.array([[1, -1], [0, 3]]), f32(2, 2), axis=1)
    for reduction in ("none", "add", "mul"):
        check("ScatterND", f32(4, 5, 2), np.array([[[0], [2]], [[3], [-3]]]), f32(2, 2, 5, 2), reduction=reduction)
    check("ScatterND", f32(4, 5), np.array([[0, 1], [3, 4]]), f32(2))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_quantisation(dtype: Any) -> None:
    x, scale = f32(2, 3, 4) * 30, positive(3)
    zero = ints(0, 5, 3, dtype=dtype)
    check("QuantizeLinear", x, scale, zero)
    check("QuantizeLinear", x, np.array(0.5, np.float32), np.array(3, dtype))
    check("DequantizeLinear", ints(0, 100, 2, 3, 4, dtype=dtype), scale, zero)
    check("DequantizeLinear", ints(0, 100, 2, 3, dtype=dtype), scale, axis=-1)


def test_matmul_integer() -> None:
    a, b = ints(0, 255, 2, 3, 4, dtype=np.uint8), ints(-128, 127, 4, 5, dtype=np.int8)
    check("MatMulInteger", a, b)
    check("MatMulInteger", a, b, np.array(7, np.uint8), np.array(-3, np.int8))
    check("MatMulInteger", a, b, None, np.array(-3, np.int8))
    want = a.astype(np.int32) @ (b.astype(np.int32) - np.arange(5, dtype=np.int32))
    check("MatMulInteger", a, b, np.array(0, np.uint8), np.arange(5, dtype=np.int8), want=[want])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("ij->ji", [(3, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]), ("ij->i", [(3, 4)]), ("ii->i", [(4, 4)]), ("i,i->", [(4,), (4,)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]), ("i,j->ij", [(3,), (4,)]), ("...ii->...i", [(2, 3, 3)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]), ("...ij,...jk,km->...im", [(5, 2, 3), (5, 3, 4), (4, 2)]),
    ],
)  # fmt: skip
def test_einsum(equation: str, shapes: Any) -> None:
    check("Einsum", *[f32(*s) for s in shapes], equation=equation)


def test_hardmax_and_mean_variance() -> None:
    x = ints(0, 3, 3, 4, 5, dtype=np.float32)
    for axis in (0, 1, -1):
        check("Hardmax", x, axis=axis)
    check("MeanVarianceNormalization", f32(2, 3, 4, 5))
    check("MeanVarianceNormalization", f32(2, 3, 4), axes=[1, -1])
