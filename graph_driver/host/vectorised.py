"""NumPy implementations of whole operators that are quick enough to answer before there are kernels.

onnx.reference computes products of convolutions element by element or with index arrays as large as the result of
`im2col`, pools in loops of Python, and products of integers and of half floats without a BLAS. What stands here makes
matrix products of them: a convolution is `im2col` in blocks that stay in a cache, then one product (Chellapilla, Puri,
Simard: High performance convolutional neural networks for document processing, 2006). Integers are multiplied in f64,
which is exact up to 2^53. `QUICK` names all operators for which NumPy is quick, these and those of onnx.reference.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

BLOCK_BYTES = 4 << 20
"""Bytes of one block of `im2col`: most of them stay in the second level of cache while they are multiplied."""

Index = tuple[Any, ...]
"""An index of an array."""

HALVES = ("float16", "bfloat16")
"""Types that NumPy multiplies one element at a time: they are multiplied in f32 instead."""


def _work(dtype: np.dtype) -> np.dtype:
    """The type in which products of this one are computed."""
    return np.dtype(np.float32) if dtype.name in HALVES else dtype


class Window:
    """Where the windows of a convolution or of a pool lie on the spatial axes of an image.

    `begin` and `end` are the paddings, `shape` the numbers of windows along each axis.
    """

    def __init__(
        self, image: Sequence[int], kernel: Sequence[int], strides: Sequence[int] | None,
        dilations: Sequence[int] | None, pads: Sequence[int] | None, auto_pad: str | None, ceil: bool = False,
    ) -> None:  # fmt: skip
        rank = len(image)
        self.kernel = [int(k) for k in kernel]
        self.strides = [int(s) for s in strides or [1] * rank]
        self.dilations = [int(d) for d in dilations or [1] * rank]
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = [max(0, (-(-n // s) - 1) * s + r - n) for n, s, r in zip(image, self.strides, reach)]
            less, more = [t // 2 for t in total], [t - t // 2 for t in total]
            self.begin, self.end = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
        else:
            given = [0] * (2 * rank) if auto_pad == "VALID" or not pads else [int(p) for p in pads]
            self.begin, self.end = given[:rank], given[rank:]
        self.shape = []
        for n, r, s, b, e in zip(image, reach, self.strides, self.begin, self.end):
            room = n + b + e - r
            count = (-(-room // s) if ceil else room // s) + 1
            if ceil and (count - 1) * s >= n + b:  # a window begins in the image or before it
                count -= 1
            self.shape.append(max(0, count))
        self.needed = [(c - 1) * s + r for c, s, r in zip(self.shape, self.strides, reach)]

    def padded(self, x: np.ndarray, fill: Any) -> np.ndarray:
        """The image with all elements that windows look at: (batch, channels, ...)."""
        more = [max(0, need - n - b) for need, n, b in zip(self.needed, x.shape[2:], self.begin)]
        if not any(self.begin) and not any(more):
            return x
        return np.pad(x, [(0, 0), (0, 0), *zip(self.begin, more)], constant_values=fill)

    def taps(self) -> Iterator[tuple[Index, Index]]:
        """Each element of a window as an index of weights, and where it lies in the padded image for all windows."""
        for tap in product(*map(range, self.kernel)) if all(self.shape) else ():
            where = [
                slice(t * d, t * d + (c - 1) * s + 1, s)
                for t, d, c, s in zip(tap, self.dilations, self.shape, self.strides)
            ]
            yield (..., *tap), (..., *where)

    def rows(self, begin: int, end: int) -> Window:
        """The windows of rows `begin` to `end` (not included) alone, of an image that is cut so, too."""
        part = copy(self)
        part.shape = [end - begin, *self.shape[1:]]
        return part


def convolved(x: np.ndarray, w: np.ndarray, window: Window, group: int, fill: Any = 0) -> np.ndarray:
    """The convolution of an image (batch, channels, ...) with weights (results, channels / group, kernel ...), without
    a bias; elements of the padding are `fill`."""
    work = _work(x.dtype)
    x, w = x.astype(work, copy=False), w.astype(work, copy=False)
    batch, channels, results = x.shape[0], x.shape[1], w.shape[0]
    out = np.empty((batch, results, *window.shape), work)
    if not out.size:
        return out
    image = window.padded(x, fill)
    if group == channels and results % group == 0 and w.shape[1] == 1 and group > 1:
        return _depthwise(image, w, window, out)
    weights = w.reshape(group, results // group, -1)
    row = (channels // group) * math.prod(window.kernel) * math.prod(window.shape[1:]) * x.itemsize
    step = max(1, min(window.shape[0], BLOCK_BYTES // max(1, row)))
    for b, g in product(range(batch), range(group)):
        part = image[b : b + 1, g * channels // group : (g + 1) * channels // group]
        into = out[b, g * results // group : (g + 1) * results // group]
        if math.prod(window.kernel) == 1 and not any(s > 1 for s in window.strides) and part[0].flags.c_contiguous:
            np.matmul(weights[g], part.reshape(part.shape[1], -1), out=into.reshape(into.shape[0], -1))
            continue
        for begin in range(0, window.shape[0], step):
            end = min(window.shape[0], begin + step)
            columns = _columns(part[:, :, begin * window.strides[0] :], window.rows(begin, end))
            into[:, begin:end] = np.matmul(weights[g], columns).reshape(-1, end - begin, *window.shape[1:])
    return out


def _columns(image: np.ndarray, window: Window) -> np.ndarray:
    """`im2col` of one padded image: (channels * elements of a window, windows)."""
    columns = np.empty((image.shape[1], math.prod(window.kernel), *window.shape), image.dtype)
    for k, (_, where) in enumerate(window.taps()):
        columns[:, k] = image[0][where]
    return columns.reshape(-1, math.prod(window.shape))


def _depthwise(image: np.ndarray, w: np.ndarray, window: Window, out: np.ndarray) -> np.ndarray:
    """One or more results of each channel: a sum over the elements of the window."""
    batch, channels = image.shape[:2]
    each = out.shape[1] // channels
    ones = (1,) * len(window.shape)
    step = max(1, BLOCK_BYTES // 8 // (image[0, 0].nbytes + out[0, 0].nbytes))
    for b, begin, r in product(range(batch), range(0, channels, step), range(each)):
        some = slice(begin, min(channels, begin + step))
        part, weights = image[b, some], w[some.start * each + r : some.stop * each : each, 0]
        total = np.zeros((part.shape[0], *window.shape), part.dtype)
        term = np.empty_like(total)
        for tap, where in window.taps():
            total += np.multiply(part[where], weights[tap].reshape(-1, *ones), out=term)
        out[b, some.start * each + r : some.stop * each : each] = total
    return out


def _convolution(x: np.ndarray, w: np.ndarray, group: Any, how: dict[str, Any], fill: Any = 0) -> np.ndarray:
    window = Window(x.shape[2:], w.shape[2:], how["strides"], how["dilations"], how["pads"], how["auto_pad"])
    return convolved(x, w, window, int(group or 1), fill)


def _channels(values: np.ndarray, rank: int) -> np.ndarray:
    """One value for each channel, as it is added to an image."""
    return values.reshape(-1, *(1,) * (rank - 2))


class Conv(OpRun):
    """A convolution of floats."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, auto_pad: Any = None, dilations: Any = None,
        group: Any = None, kernel_shape: Any = None, pads: Any = None, strides: Any = None,
    ) -> tuple[np.ndarray]:  # fmt: skip
        how = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
        y = _convolution(x, w, group, how)
        if b is not None:
            y += _channels(b, x.ndim)
        return (y.astype(x.dtype, copy=False),)


def _exact(a: np.ndarray, zero: np.ndarray | None, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Integers less their zero points, as f64."""
    wide = a.astype(np.float64)
    return wide if zero is None else wide - zero.astype(np.float64).reshape(shape if zero.size > 1 else ())


def _wrapped(y: np.ndarray) -> np.ndarray:
    """Exact integers as i32, modulo 2^32 as sums of i32 are."""
    return y.astype(np.int64).astype(np.int32)


class ConvInteger(OpRun):
    """A convolution of 8-bit integers."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, w: np.ndarray, x_zero_point: np.ndarray | None = None,
        w_zero_point: np.ndarray | None = None, auto_pad: Any = None, dilations: Any = None, group: Any = None,
        kernel_shape: Any = None, pads: Any = None, strides: Any = None,
    ) -> tuple[np.ndarray]:  # fmt: skip
        how = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
        weights = _exact(w, w_zero_point, (-1, *(1,) * (w.ndim - 1)))
        return (_wrapped(_convolution(_exact(x, x_zero_point), weights, group, how)),)


class MatMulInteger(OpRun):
    """A product of 8-bit integers."""

    op_domain = ""

    def _run(
        self, a: np.ndarray, b: np.ndarray, a_zero_point: np.ndarray | None = None,
        b_zero_point: np.ndarray | None = None,
    ) -> tuple[np.ndarray]:  # fmt: skip
        rows = (-1, 1) if a_zero_point is not None and a_zero_point.ndim == 1 else (-1,)
        left = a_zero_point.shape if a_zero_point is not None and a_zero_point.ndim > 1 else rows
        right = b_zero_point.shape if b_zero_point is not None and b_zero_point.ndim > 1 else (-1,)
        return (_wrapped(np.matmul(_exact(a, a_zero_point, left), _exact(b, b_zero_point, right))),)


class MatMul(OpRun):
    """A product; of half floats in f32, of small integers in f64."""

    op_domain = ""

    def _run(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
        work = _work(a.dtype)
        y = np.matmul(a.astype(work, copy=False), b.astype(work, copy=False))
        return (np.asarray(y).astype(a.dtype, copy=False),)


class Gemm(OpRun):
    """A product of matrices, scaled, with a third one added."""

    op_domain = ""

    def _run(
        self, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, alpha: Any = None, beta: Any = None,
        transA: Any = None, transB: Any = None, broadcast: Any = None,
    ) -> tuple[np.ndarray]:  # fmt: skip
        """`broadcast` is of opsets before 7, where NumPy's rules do the same for what it allows."""
        kind, work = a.dtype, _work(a.dtype)
        y = np.matmul((a.T if transA else a).astype(work, copy=False), (b.T if transB else b).astype(work, copy=False))
        y = y if alpha in (None, 1.0) else y * np.asarray(alpha, work)
        if c is not None and beta != 0:
            y = y + (c.astype(work, copy=False) if beta in (None, 1.0) else c * np.asarray(beta, work))
        return (y.astype(kind, copy=False),)


class MaxPool(OpRun):
    """The largest element of each window; `QUICK` nodes have one result."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, auto_pad: Any = None, ceil_mode: Any = None, dilations: Any = None,
        kernel_shape: Any = None, pads: Any = None, storage_order: Any = None, strides: Any = None,
    ) -> tuple[np.ndarray]:  # fmt: skip
        window = Window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, bool(ceil_mode))
        least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        image, out = window.padded(x, least), np.full((*x.shape[:2], *window.shape), least, x.dtype)
        for _, where in window.taps():
            np.maximum(out, image[where], out=out)
        return (out,)


class AveragePool(OpRun):
    """The mean of each window, with the padding or without."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, auto_pad: Any = None, ceil_mode: Any = None, count_include_pad: Any = None,
        dilations: Any = None, kernel_shape: Any = None, pads: Any = None, strides: Any = None,
    ) -> tuple[np.ndarray]:  # fmt: skip
        window = Window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, bool(ceil_mode))
        work = _work(x.dtype)
        image, out = window.padded(x.astype(work, copy=False), 0), np.zeros((*x.shape[:2], *window.shape), work)
        ones = np.ones((1, 1, *x.shape[2:]), work)
        if count_include_pad:
            ones = np.pad(ones, [(0, 0), (0, 0), *zip(window.begin, window.end)], constant_values=1)
            beyond = [max(0, need - n) for need, n in zip(window.needed, ones.shape[2:])]
            ones = np.pad(ones, [(0, 0), (0, 0), *((0, more) for more in beyond)])
        else:
            ones = window.padded(ones, 0)
        count = np.zeros((1, 1, *window.shape), work)
        for _, where in window.taps():
            out += image[where]
            count += ones[where]
        return ((out / count).astype(x.dtype, copy=False),)


class BatchNormalization(OpRun):
    """A factor and a summand for each channel; `QUICK` nodes have one result."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, var: np.ndarray,
        epsilon: Any = None, momentum: Any = None, training_mode: Any = None, spatial: Any = None, is_test: Any = None,
    ) -> tuple[np.ndarray]:  # fmt: skip
        work = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        by = scale.astype(work) / np.sqrt(var.astype(work) + np.asarray(1e-5 if epsilon is None else epsilon, work))
        shift = bias.astype(work) - mean.astype(work) * by
        y = x * _channels(by, x.ndim)
        y += _channels(shift, x.ndim)
        return (y.astype(x.dtype, copy=False),)


def error_function(x: np.ndarray) -> np.ndarray:
    """erf of f32 within 2e-7, computed in f64: its series at 0 up to 1, else 1 - erfc by the Chebyshev fit of Press et
    al., Numerical Recipes in C, 2nd edition, section 6.2."""
    a = np.abs(x.astype(np.float64))
    near = np.minimum(a, 1.0)
    square, term = near * near, near.copy()
    series = near.copy()
    for n in range(1, 14):
        term *= -square / n
        series += term / (2 * n + 1)
    t = 1.0 / (1.0 + 0.5 * a)
    fit = np.polynomial.polynomial.polyval(t, ERFC)
    far = 1.0 - t * np.exp(np.minimum(-a * a + fit, 0.0))
    return np.copysign(np.where(a < 1.0, series * (2.0 / math.sqrt(math.pi)), far), x).astype(x.dtype)


ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
    0.17087277,
)  # fmt: skip
"""Coefficients of that fit, which is good to 1.2e-7 of erfc."""


class Erf(OpRun):
    """The error function of f32."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (error_function(x),)


class Relu(OpRun):
    """The larger of an element and zero."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.maximum(x, np.zeros((), x.dtype)),)


IMPLEMENTED: tuple[type[OpRun], ...] = (
    Conv, ConvInteger, MatMul, MatMulInteger, Gemm, MaxPool, AveragePool, BatchNormalization, Erf, Relu,
)  # fmt: skip
"""Those above."""

FLOATS, INTEGERS = frozenset({"f32", "f64"}), frozenset({"i32", "i64", "bool"})

HALVES_TOO = frozenset({"Conv", "MatMul", "Gemm", "MaxPool", "AveragePool", "Relu", "Transpose", "Reshape", "Concat"})
"""Operators that take f16 and bf16, too; onnx.reference rounds after each step of the others."""

CODES_TOO = frozenset(
    "ConvInteger MatMulInteger QuantizeLinear DequantizeLinear MaxPool Transpose Reshape Concat".split()
)
"""Operators that take 8-bit integers, too."""

ONE_RESULT = frozenset({"MaxPool", "BatchNormalization", "LayerNormalization"})
"""Operators that may have more results, and are quick with one."""

QUICK = frozenset({op.__name__ for op in IMPLEMENTED}) | frozenset(
    "Abs Add And Clip Concat Cos DequantizeLinear Div Equal Exp Expand Flatten Floor Ceil Gather GlobalAveragePool"
    " GlobalMaxPool QuantizeLinear"
    " Greater GreaterOrEqual HardSwish Identity LayerNormalization LeakyRelu Less LessOrEqual Log Max Min"
    " Mul Neg Not Or PRelu Pad Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Reshape Shape Sigmoid Sign Sin"
    " Slice Softmax Softplus Split Sqrt Squeeze Sub Sum Tanh Transpose Unsqueeze Where".split()
)
"""Operators of ONNX's own domain that NumPy computes with whole arrays at a time."""


def is_quick(op_type: str, domain: str, results: int, dtypes: Collection[str]) -> bool:
    """Whether NumPy is quick, and right, for a node of this operator with so many results; `dtypes` are those of all
    operands and results (names of `polyc.poly.dtypes`)."""
    if domain or op_type not in QUICK or (results > 1 and op_type in ONE_RESULT):
        return False
    allowed = FLOATS | INTEGERS
    if op_type in HALVES_TOO:
        allowed |= {"f16", "bf16"}
    if op_type in CODES_TOO:
        allowed |= {"i8", "u8"}
    if op_type == "Erf":
        allowed = frozenset({"f32"})
    return allowed.issuperset(dtypes)
