"""Output shapes of operators as formulas: one rule for each kind of operator.

onnx's own inference works on numbers; the rules here follow the same definitions on `Size`s. Each
answer is compared with onnx's at the representative sizes (`graph_driver.dynamic.infer`), so a wrong
rule is found on the first model that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from graph_driver.dynamic.size import Extent
from graph_driver.dynamic.symbols import Symbols
from graph_driver.ir import Tensor
from poly.errors import PolycError

Shape = tuple[Extent, ...]


class NoRule(PolycError):
    """The operator, or this form of it, has no rule for symbolic sizes; the text says what."""


@dataclass(frozen=True)
class Call:
    """One node: its operator, attributes, operands (None: absent) and how many outputs it has."""

    op_type: str
    opset: int
    attrs: Mapping[str, Any]
    inputs: Sequence[Tensor | None]
    outputs: int
    symbols: Symbols

    def shape(self, position: int = 0) -> Shape:
        """Shape of an operand. Raises `NoRule` when it is absent or unknown."""
        t = self.inputs[position] if position < len(self.inputs) else None
        if t is None or t.shape is None:
            raise NoRule(f"{self.op_type} whose operand {position} has an unknown shape")
        return t.shape

    def values(self, position: int) -> list[Extent] | None:
        """The elements of a small operand whose value is known as numbers or formulas; None when absent."""
        t = self.inputs[position] if position < len(self.inputs) else None
        if t is None:
            return None
        known = known_values(t)
        if known is None:
            raise NoRule(f"{self.op_type} whose operand '{t.name}' is known at run time only")
        return list(known.reshape(-1))

    def axis(self, default: int, name: str = "axis", rank: int | None = None) -> int:
        """An axis attribute, counted from the front."""
        rank = len(self.shape()) if rank is None else rank
        return int(self.attrs.get(name, default)) % max(rank, 1)

    def given(self, name: str, position: int) -> list[int] | None:
        """A list that was an attribute once and is a constant operand now; None when absent."""
        if name in self.attrs:
            return [int(v) for v in self.attrs[name]]
        found = self.values(position)
        return None if found is None else [int(v) for v in found]


def known_values(t: Tensor) -> np.ndarray | None:
    """Elements as Python integers and formulas, None when only a run knows them."""
    if t.sizes is not None:
        return t.sizes
    if t.const is None or t.const.dtype.kind not in "iub":
        return None
    return t.const.astype(object)


Rule = Callable[[Call], list[Shape]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def broadcast(call: Call, shapes: Sequence[Shape]) -> Shape:
    """NumPy's rule; two different formulas must be equal in every run (a guard)."""
    rank = max(len(s) for s in shapes)
    out: list[Extent] = []
    for axis in range(rank):
        extent: Extent = 1
        for s in shapes:
            k = axis - (rank - len(s))
            if k < 0 or (isinstance(s[k], int) and s[k] == 1) or s[k] == extent:
                continue
            if isinstance(extent, int) and extent == 1:
                extent = s[k]
                continue
            call.symbols.require_equal(extent, s[k], f"{call.op_type} broadcasts")
            extent = s[k] if isinstance(s[k], int) else extent
        out.append(extent)
    return tuple(out)


@rule(
    *"""Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh CumSum CumProd Dropout Elu
    Erf Exp EyeLike Floor Gelu Hardmax HardSigmoid HardSwish Identity InstanceNormalization GroupNormalization IsInf
    IsNaN LRN LayerNormalization RMSNormalization LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization
    Mish Neg Not PRelu QuantizeLinear DequantizeLinear Reciprocal Relu Round ScatterElements ScatterND Selu Shrink
    Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu BatchNormalization
    ReverseSequence Scatter TensorScatter""".split()
)
def like_first(call: Call) -> list[Shape]:
    if call.op_type in ("BatchNormalization", "LayerNormalization") and call.outputs > 1:
        raise NoRule(f"{call.op_type} with further outputs")
    return [call.shape()] * call.outputs


@rule(
    *"""Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min
    Mod Mul Or Pow Sub Sum Where Xor""".split()
)
def elementwise(call: Call) -> list[Shape]:
    return [broadcast(call, [call.shape(k) for k in range(len(call.inputs))])]


@rule("MatMul", "MatMulInteger")
def matmul(call: Call) -> list[Shape]:
    a, b = call.shape(0), call.shape(1)
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    call.symbols.require_equal(left[-1], right[-2], "the inner sizes of a matrix product")
    out = broadcast(call, [left[:-2], right[:-2]]) if len(left) > 2 or len(right) > 2 else ()
    return [(*out, *left[-2:-1][: len(a) > 1], *right[-1:][: len(b) > 1])]


@rule("QLinearMatMul")
def quantised_matmul(call: Call) -> list[Shape]:
    return matmul(replace(call, inputs=[call.inputs[0], call.inputs[3]]))


@rule("Gemm")
def gemm(call: Call) -> list[Shape]:
    a, b = call.shape(0), call.shape(1)
    rows, inner = reversed(a) if call.attrs.get("transA", 0) else a
    depth, columns = reversed(b) if call.attrs.get("transB", 0) else b
    call.symbols.require_equal(inner, depth, "the inner sizes of a matrix product")
    return [(rows, columns)]


@rule("Einsum")
def einsum(call: Call) -> list[Shape]:
    left, arrow, right = str(call.attrs["equation"]).replace(" ", "").partition("->")
    if "..." in left or not arrow:
        raise NoRule("Einsum with an ellipsis or an implicit output")
    sizes: dict[str, Extent] = {}
    for k, labels in enumerate(left.split(",")):
        for label, n in zip(labels, call.shape(k), strict=True):
            if label in sizes:
                call.symbols.require_equal(sizes[label], n, f"'{label}' of an Einsum")
            sizes.setdefault(label, n)
    return [tuple(sizes[label] for label in right)]


# ---- windows ---------------------------------------------------------------------------------------


def _windows(call: Call, kernel: Sequence[int]) -> Shape:
    """How many windows fit along each spatial axis."""
    size = call.shape()[2:]
    rank = len(size)
    strides, dilations = (list(call.attrs.get(n) or (1,) * rank) for n in ("strides", "dilations"))
    pads = list(call.attrs.get("pads") or (0,) * (2 * rank))
    auto = call.attrs.get("auto_pad", "NOTSET")
    out: list[Extent] = []
    for d, n in enumerate(size):
        reach = dilations[d] * (kernel[d] - 1) + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            out.append((n + strides[d] - 1) // strides[d])
            continue
        whole = n + (0 if auto == "VALID" else pads[d] + pads[d + rank]) - reach
        call.symbols.require_at_least(whole, 0, f"a window of {reach}")
        if not call.attrs.get("ceil_mode", 0):
            out.append(whole // strides[d] + 1)
            continue
        count = (whole + strides[d] - 1) // strides[d] + 1
        begin = 0 if auto == "VALID" else pads[d]
        out.append(count - 1 if (count - 1) * strides[d] >= n + begin else count)
    return tuple(out)


@rule("Conv", "ConvInteger")
def conv(call: Call) -> list[Shape]:
    weights = call.shape(1)
    return [(call.shape()[0], weights[0], *_windows(call, [int(k) for k in weights[2:]]))]


@rule("QLinearConv")
def quantised_conv(call: Call) -> list[Shape]:
    return conv(replace(call, inputs=[call.inputs[0], call.inputs[3]]))


@rule("DeformConv")
def deformed_conv(call: Call) -> list[Shape]:
    return conv(call)


@rule("MaxPool", "AveragePool", "LpPool")
def pool(call: Call) -> list[Shape]:
    return [(*call.shape()[:2], *_windows(call, list(call.attrs["kernel_shape"])))] * call.outputs


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(call: Call) -> list[Shape]:
    return [(*call.shape()[:2], *(1 for _ in call.shape()[2:]))]


@rule("GridSample")
def grid_sample(call: Call) -> list[Shape]:
    x, where = call.shape(), call.shape(1)
    call.symbols.require_equal(where[0], x[0], "the batch of GridSample and of its grid")
    return [(*x[:2], *where[1:-1])]


@rule("RoiAlign")
def roi_align(call: Call) -> list[Shape]:
    height, width = (int(call.attrs.get(n, 1)) for n in ("output_height", "output_width"))
    call.symbols.require_equal(call.shape(1)[0], call.shape(2)[0], "the boxes of RoiAlign and their images")
    return [(call.shape(1)[0], call.shape()[1], height, width)]


@rule("ConvTranspose")
def conv_transpose(call: Call) -> list[Shape]:
    x, w = call.shape(), call.shape(1)
    rank = len(x) - 2
    if call.attrs.get("output_shape") or call.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        raise NoRule("ConvTranspose with a given output shape")
    strides, dilations = (list(call.attrs.get(n) or (1,) * rank) for n in ("strides", "dilations"))
    pads, extra = (
        list(call.attrs.get("pads") or (0,) * (2 * rank)),
        list(call.attrs.get("output_padding") or (0,) * rank),
    )
    spatial = tuple(
        strides[d] * (x[2 + d] - 1) + extra[d] + dilations[d] * (w[2 + d] - 1) + 1 - pads[d] - pads[d + rank]
        for d in range(rank)
    )
    return [(x[0], w[1] * int(call.attrs.get("group", 1)), *spatial)]


# ---- reductions --------------------------------------------------------------------------------------


@rule(
    *"""ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum
    ReduceLogSumExp""".split()
)
def reduce(call: Call) -> list[Shape]:
    shape, given = call.shape(), call.given("axes", 1)
    if not given and call.attrs.get("noop_with_empty_axes", 0):
        return [shape]
    axes = {a % len(shape) for a in given} if given else set(range(len(shape)))
    return [_reduced(shape, axes, bool(call.attrs.get("keepdims", 1)))]


@rule("ArgMax", "ArgMin")
def arg(call: Call) -> list[Shape]:
    return [_reduced(call.shape(), {call.axis(0)}, bool(call.attrs.get("keepdims", 1)))]


def _reduced(shape: Shape, axes: set[int], keep: bool) -> Shape:
    return tuple(1 if d in axes else n for d, n in enumerate(shape) if keep or d not in axes)


@rule("TopK")
def top_k(call: Call) -> list[Shape]:
    shape, axis = list(call.shape()), call.axis(-1)
    given = [call.attrs["k"]] if "k" in call.attrs else call.values(1)
    assert given is not None
    call.symbols.require_at_least(shape[axis] - given[0], 0, "TopK")
    shape[axis] = given[0]
    return [tuple(shape)] * 2


# ---- movement ----------------------------------------------------------------------------------------


@rule("Transpose")
def transpose(call: Call) -> list[Shape]:
    shape = call.shape()
    perm = call.attrs.get("perm") or range(len(shape) - 1, -1, -1)
    return [tuple(shape[p] for p in perm)]


@rule("Reshape")
def reshape(call: Call) -> list[Shape]:
    shape, wanted = call.shape(), call.values(1)
    assert wanted is not None
    zero_copies = not call.attrs.get("allowzero", 0)
    new = [shape[k] if isinstance(n, int) and n == 0 and zero_copies else n for k, n in enumerate(wanted)]
    free = [k for k, n in enumerate(new) if isinstance(n, int) and n == -1]
    if len(free) > 1:
        raise NoRule("Reshape with two free sizes")
    if free:
        rest = prod(n for k, n in enumerate(new) if k not in free)
        new[free[0]] = prod(shape) // rest
    call.symbols.require_equal(prod(new), prod(shape), "Reshape keeps the number of elements")
    return [tuple(new)]


@rule("Flatten")
def flatten(call: Call) -> list[Shape]:
    shape, axis = call.shape(), int(call.attrs.get("axis", 1))
    axis = axis + len(shape) if axis < 0 else axis
    return [(prod(shape[:axis]), prod(shape[axis:]))]


@rule("Squeeze")
def squeeze(call: Call) -> list[Shape]:
    shape, given = call.shape(), call.given("axes", 1)
    if given is None:
        return [tuple(n for n in shape if (n != 1 if isinstance(n, int) else n > 1))]  # a guard for a formula
    axes = {a % len(shape) for a in given}
    for a in axes:
        call.symbols.require_equal(shape[a], 1, "Squeeze")
    return [tuple(n for d, n in enumerate(shape) if d not in axes)]


@rule("Unsqueeze")
def unsqueeze(call: Call) -> list[Shape]:
    given = call.given("axes", 1) or []
    rank = len(call.shape()) + len(given)
    axes, rest = {a % rank for a in given}, iter(call.shape())
    return [tuple(1 if d in axes else next(rest) for d in range(rank))]


@rule("Concat")
def concat(call: Call) -> list[Shape]:
    shapes = [call.shape(k) for k in range(len(call.inputs))]
    axis = call.axis(0)
    for s in shapes[1:]:
        for d, n in enumerate(s):
            if d != axis:
                call.symbols.require_equal(n, shapes[0][d], "the other sizes of a Concat")
    out = list(shapes[0])
    for s in shapes[1:]:
        out[axis] = out[axis] + s[axis]
    return [tuple(out)]


@rule("Split")
def split(call: Call) -> list[Shape]:
    shape, axis, given = call.shape(), call.axis(0), call.given("split", 1)
    parts = _equal_parts(call, shape[axis]) if given is None else given
    call.symbols.require_equal(sum(parts), shape[axis], "the parts of a Split")
    return [(*shape[:axis], n, *shape[axis + 1 :]) for n in parts]


def _equal_parts(call: Call, n: Extent) -> list[Extent]:
    """The last part may be smaller since opset 18; each has an element when `n` is a formula."""
    part = (n + call.outputs - 1) // call.outputs
    if isinstance(part, int):
        assert isinstance(n, int)
        return [max(0, min(part, n - k * part)) for k in range(call.outputs)]
    if call.opset < 18:
        call.symbols.require_equal(n % call.outputs, 0, "equal parts of a Split")
        return [n // call.outputs] * call.outputs
    last = n - part * (call.outputs - 1)
    call.symbols.require_at_least(last, 1, "the last part of a Split")
    return [part] * (call.outputs - 1) + [last]


@rule("Slice")
def slice_(call: Call) -> list[Shape]:
    shape = list(call.shape())
    for axis, start, stop, step in slices(call):
        shape[axis] = (
            max((stop - start + step - 1) // step, 0) if step > 0 else max((start - stop - step - 1) // -step, 0)
        )
    return [tuple(shape)]


FAR = 1 << 30  # an end beyond it means "to the end"


def slices(call: Call) -> list[tuple[int, Extent, Extent, int]]:
    """(axis, first, end, step) of a Slice with bounds inside the axis."""
    shape = call.shape()
    if call.opset < 10:
        starts, ends, axes, steps = call.attrs["starts"], call.attrs["ends"], call.attrs.get("axes"), None
    else:
        starts, ends, axes, steps = (call.values(k) for k in range(1, 5))
    where = list(axes) if axes is not None else list(range(len(starts)))
    out: list[tuple[int, Extent, Extent, int]] = []
    for k, a in enumerate(where):
        axis = int(a) % len(shape)
        n, step = shape[axis], int(steps[k]) if steps is not None else 1
        out.append((axis, *_bounds(starts[k], ends[k], n, step), step))
    return out


def _bounds(start: Extent, end: Extent, n: Extent, step: int) -> tuple[Extent, Extent]:
    def clamped(at: Extent, low: Extent, high: Extent) -> Extent:
        if isinstance(at, int) and at >= FAR:
            return high
        if isinstance(at, int) and at <= -FAR:
            return low
        at = at + n if at < 0 else at
        return low if at < low else high if at > high else at

    if step > 0:
        return clamped(start, 0, n), clamped(end, 0, n)
    return clamped(start, 0, n - 1), -1 if isinstance(end, int) and end <= -FAR else clamped(end, -1, n - 1)


@rule("Gather")
def gather(call: Call) -> list[Shape]:
    shape, axis = call.shape(), call.axis(0)
    return [(*shape[:axis], *call.shape(1), *shape[axis + 1 :])]


@rule("GatherElements")
def gather_elements(call: Call) -> list[Shape]:
    return [call.shape(1)]


@rule("GatherND")
def gather_nd(call: Call) -> list[Shape]:
    shape, index, skip = call.shape(), call.shape(1), int(call.attrs.get("batch_dims", 0))
    depth = index[-1]
    if not isinstance(depth, int):
        raise NoRule("GatherND whose index tuples have a symbolic length")
    return [(*index[:-1], *shape[skip + depth :])]


@rule("Expand")
def expand(call: Call) -> list[Shape]:
    wanted = call.values(1)
    assert wanted is not None
    return [broadcast(call, [call.shape(), tuple(wanted)])]


@rule("Tile")
def tile(call: Call) -> list[Shape]:
    repeats = call.values(1)
    assert repeats is not None
    return [tuple(n * r for n, r in zip(call.shape(), repeats, strict=True))]


@rule("Pad")
def pad(call: Call) -> list[Shape]:
    shape = list(call.shape())
    pads = call.given("pads", 1) or []
    axes = call.given("", 3) or list(range(len(shape)))
    for k, a in enumerate(axes):
        shape[a % len(shape)] = shape[a % len(shape)] + pads[k] + pads[k + len(axes)]
    return [tuple(shape)]


@rule("ConstantOfShape")
def constant_of_shape(call: Call) -> list[Shape]:
    wanted = call.values(0)
    assert wanted is not None
    return [tuple(wanted)]


@rule("Range")
def range_(call: Call) -> list[Shape]:
    (start,), (limit,), (delta,) = (call.values(k) or [0] for k in range(3))
    if not isinstance(delta, int) or delta == 0:
        raise NoRule("Range with a symbolic step")
    count = (limit - start + delta - 1) // delta if delta > 0 else (start - limit - delta - 1) // -delta
    call.symbols.require_at_least(count, 0, "Range")
    return [(count,)]


@rule("DepthToSpace")
def depth_to_space(call: Call) -> list[Shape]:
    (n, c, h, w), b = call.shape(), int(call.attrs["blocksize"])
    return [(n, c // (b * b), h * b, w * b)]


@rule("SpaceToDepth")
def space_to_depth(call: Call) -> list[Shape]:
    (n, c, h, w), b = call.shape(), int(call.attrs["blocksize"])
    for extent in (h, w):
        call.symbols.require_equal(extent % b, 0, "SpaceToDepth")
    return [(n, c * b * b, h // b, w // b)]


@rule("OneHot")
def one_hot(call: Call) -> list[Shape]:
    shape, depth = list(call.shape()), call.values(1)
    assert depth is not None
    axis = call.axis(-1, rank=len(shape) + 1)
    return [tuple([*shape[:axis], depth[0], *shape[axis:]])]


@rule("Resize", "Upsample")
def resize(call: Call) -> list[Shape]:
    shape = call.shape()
    scales_at = 1 if call.op_type == "Upsample" or call.opset < 11 else 2
    scales = call.inputs[scales_at] if scales_at < len(call.inputs) else None
    if len(call.inputs) > 3 and call.inputs[3] is not None:
        wanted = call.values(3)
        assert wanted is not None
        return [tuple(wanted)]
    if scales is None or scales.const is None or call.attrs.get("axes"):
        raise NoRule("Resize with scales that are known at run time only")
    factors = [float(s) for s in scales.const.reshape(-1)]
    out: list[Extent] = []
    for n, s in zip(shape, factors, strict=True):
        if isinstance(n, int):
            out.append(int(np.floor(n * np.float32(s))))
        elif s == int(s):
            out.append(n * int(s))
        elif 1 / s == int(1 / s):
            out.append(n // int(1 / s))
        else:
            raise NoRule(f"Resize of a symbolic size by {s:g}")
    return [tuple(out)]


@rule("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")
def recurrent(call: Call) -> list[Shape]:
    in_front = bool(call.attrs.get("layout", 0))
    steps, batch = call.shape()[1::-1] if in_front else call.shape()[:2]
    directions, hidden = call.shape(1)[0], int(call.attrs["hidden_size"])
    for position in (5, 6):  # initial states
        if position < len(call.inputs) and call.inputs[position] is not None:
            given = call.shape(position)[0 if in_front else 1]
            call.symbols.require_equal(given, batch, f"the batch of {call.op_type} and of its initial state")
    if len(call.inputs) > 4 and call.inputs[4] is not None:
        call.symbols.require_equal(call.shape(4)[0], batch, f"the batch of {call.op_type} and its lengths")
    state = (batch, directions, hidden) if in_front else (directions, batch, hidden)
    sequence = (batch, steps, directions, hidden) if in_front else (steps, directions, batch, hidden)
    return [sequence, state, state][: call.outputs]


@rule("DynamicQuantizeLinear")
def dynamic_quantize(call: Call) -> list[Shape]:
    return [call.shape(), (), ()]
