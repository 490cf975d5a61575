"""ATen operators on complex numbers, as operators on their real and imaginary parts.

What moves elements, and what is linear with real factors, is done with either part. A product with a real operand is
that of either part, too: eager mode gives it an imaginary part of 0, which makes NaN of infinite elements.
Operands that functions are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.lowering import TABLE, Complex, Lowering, Value, aten, aten_of_complex
from polyc.graph_driver.torch_bridge.types import PARTS, polyc_dtype
from polyc.poly.dtypes import i64

Number = Complex | Value | complex
"""What arithmetic takes; real numbers are complex ones, too."""


# ---- in memory ----


def pairs(b: Lowering, z: Complex) -> Value:
    """Real and imaginary part side by side along a last axis, as they lie in memory."""
    return z.pairs or b.op("Concat", *(b.reshape(x, [*x.shape, 1]) for x in z.parts), axis=z.rank)


def of_pairs(b: Lowering, x: Value) -> Complex:
    """The complex numbers whose parts are side by side along the last axis."""
    re, im = (b.op("Gather", x, b.constant(k, i64), axis=x.rank - 1) for k in range(2))
    return Complex(re, im, x)


@aten_of_complex("view_as_real.default", "view_as_real_copy.default")
def view_as_real(b: Lowering, z: Complex) -> Value:
    """The parts, side by side."""
    return pairs(b, z)


@aten_of_complex("view_as_complex.default", "view_as_complex_copy.default")
def view_as_complex(b: Lowering, x: Value) -> Complex:
    """Of parts that are side by side."""
    return of_pairs(b, x)


@aten_of_complex("complex.default")
def complex_of(b: Lowering, re: Value, im: Value) -> Complex:
    """Of two parts."""
    assert b.result is not None
    return Complex(*(b.expand(x, b.result[1]) for x in (re, im)))


@aten_of_complex("polar.default")
def polar(b: Lowering, size: Value, angle: Value) -> Complex:
    """Of absolute values and angles."""
    return complex_of(b, b.op("Mul", size, b.op("Cos", angle)), b.op("Mul", size, b.op("Sin", angle)))


@aten_of_complex("real.default")
def real(b: Lowering, z: Complex) -> Value:
    """The real parts."""
    return z.re


@aten_of_complex("imag.default")
def imag(b: Lowering, z: Complex) -> Value:
    """The imaginary parts."""
    return z.im


@aten("_neg_view.default")
def neg_view(b: Lowering, x: Value) -> Value:
    """The other sign, which torch puts off."""
    return b.op("Neg", x)


# ---- by parts ----


def _part(b: Lowering, x: Any, which: int, number: bool) -> Any:
    """The real (0) or the imaginary (1) part of an argument; `number`: where a real tensor is a complex number."""
    if isinstance(x, Complex):
        return x.parts[which]
    if isinstance(x, (list, tuple)):
        return [_part(b, e, which, number) for e in x]
    if isinstance(x, Value) and number and which:
        return b.full(0, x.dtype, x.shape)
    return x


def _by_parts(name: str, numbers: Sequence[int]) -> Callable[..., Any]:
    """The operator of real numbers done with either part; the arguments at `numbers` are numbers, others are not."""

    def run(b: Lowering, *args: Any, **kwargs: Any) -> Any:
        found = [
            TABLE[name](b, *(_part(b, a, which, k in numbers) for k, a in enumerate(args)), **kwargs)
            for which in range(2)
        ]
        if isinstance(found[0], list):
            return [Complex(re, im) for re, im in zip(*found, strict=True)]
        return Complex(*found)

    return run


BY_PARTS = {
    (0,): (
        "view.default", "_unsafe_view.default", "reshape.default", "permute.default", "t.default", "transpose.int",
        "expand.default", "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "slice.Tensor",
        "select.int", "cat.default", "stack.default", "flip.default", "roll.default", "repeat.default",
        "split.Tensor", "split_with_sizes.default", "unbind.int", "diagonal.default", "diagonal_backward.default",
        "tril.default", "triu.default", "as_strided.default", "unfold.default", "index.Tensor",
        "index_select.default", "gather.default",
        "select_backward.default", "slice_backward.default", "clone.default", "alias.default", "detach.default",
        "lift_fresh_copy.default", "lift_fresh.default", "contiguous.default", "positive.default", "neg.default",
        "sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "cumsum.default", "copy.default",
    ),
    (0, 1): (
        "slice_scatter.default", "select_scatter.default", "diagonal_scatter.default", "as_strided_scatter.default",
    ),
    (0, 2): ("index_put.default", "_unsafe_index_put.default"),
    (0, 3): ("scatter.src", "scatter_add.default"),
    (1, 2): ("where.self",),
}  # fmt: skip
"""Operators of which either part is that of the parts, by the places of the arguments that are complex."""

for _numbers, _names in BY_PARTS.items():
    for _name in _names:
        aten_of_complex(_name)(_by_parts(_name, _numbers))


@aten_of_complex("constant_pad_nd.default")
def pad(b: Lowering, z: Complex, widths: Sequence[int], value: complex = 0) -> Complex:
    """With a number at the edges."""
    fills = complex(value)
    return Complex(*(TABLE["constant_pad_nd.default"](b, x, widths, f)
                     for x, f in zip(z.parts, (fills.real, fills.imag), strict=True)))  # fmt: skip


@aten_of_complex("masked_fill.Scalar", "masked_fill.Tensor", "where.ScalarOther", "where.ScalarSelf")
def masked_fill(b: Lowering, x: Any, y: Any, z: Any) -> Complex:
    """Numbers where a mask holds, and where it does not; `masked_fill` names the mask second and the others first."""
    mask, one, other = (y, z, x) if b.kind.startswith("masked_fill") else (x, y, z)
    parts = [_split(b, one), _split(b, other)]
    zero = b.full(0, parts[0][0].dtype, ())
    (p, q), (r, s) = ((re, zero if im is None else im) for re, im in parts)
    return Complex(b.op("Where", mask, p, r), b.op("Where", mask, q, s))


# ---- made of nothing ----


def _filled(b: Lowering, fill: complex) -> Complex:
    assert b.result is not None
    return Complex(*(b.full(part, *b.result) for part in (complex(fill).real, complex(fill).imag)))


@aten_of_complex(
    "zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format", "empty_like.default",
    "new_empty.default", "empty_strided.default", "new_empty_strided.default", "empty_permuted.default",
)  # fmt: skip
def zeros(b: Lowering, *like: Any, **where: Any) -> Complex:
    """Of zeros, and of anything."""
    return _filled(b, 0)


@aten_of_complex("ones.default", "ones_like.default", "new_ones.default")
def ones(b: Lowering, *like: Any, **where: Any) -> Complex:
    """Of ones."""
    return _filled(b, 1)


@aten_of_complex("full.default", "full_like.default", "new_full.default", "fill.Scalar")
def full(b: Lowering, like: Any, fill: Any, *more: Any, **where: Any) -> Complex:
    """Of one number; the last argument of `new_full`."""
    fill = more[0] if more else fill
    if isinstance(fill, (Value, Complex)):
        raise Unsupported("filled with an element")
    return _filled(b, fill)


@aten_of_complex("scalar_tensor.default")
def scalar(b: Lowering, value: complex, **where: Any) -> Complex:
    """One number."""
    return _filled(b, value)


@aten_of_complex("_to_copy.default", "prims.convert_element_type.default")
def to_copy(b: Lowering, z: Complex | Value, dtype: torch.dtype | None = None, **where: Any) -> Complex | Value:
    """In another element type; of complex numbers as real ones the real parts."""
    if dtype is None:
        return z
    if dtype is torch.bool:
        raise Unsupported("complex numbers as truth values")
    if dtype not in PARTS:
        return b.cast(z.re if isinstance(z, Complex) else z, polyc_dtype(dtype))
    part = polyc_dtype(PARTS[dtype])
    if isinstance(z, Value):
        return Complex(b.cast(z, part), b.full(0, part, z.shape))
    return Complex(b.cast(z.re, part), b.cast(z.im, part))


# ---- arithmetic ----


def _split(b: Lowering, x: Number) -> tuple[Value, Value | None]:
    """The parts in the element type of the result's; None: the number is real."""
    assert b.result is not None
    dtype = b.result[0]
    if isinstance(x, Complex):
        return b.cast(x.re, dtype), b.cast(x.im, dtype)
    if isinstance(x, Value):
        return b.cast(x, dtype), None
    number = complex(x)
    return b.constant(number.real, dtype), b.constant(number.imag, dtype) if number.imag else None


def _joined(b: Lowering, re: Value, im: Value | None) -> Complex:
    return Complex(re, b.full(0, re.dtype, re.shape) if im is None else im)


def _sum(b: Lowering, kind: str, x: Number, y: Number, alpha: complex) -> Complex:
    if alpha != 1:
        y = mul(b, y, alpha)
    (p, q), (r, s) = _split(b, x), _split(b, y)
    re = b.op(kind, p, r)
    if s is None:
        return _joined(b, re, None if q is None else b.expand(q, re.shape))
    if q is None:
        q = b.full(0, s.dtype, ())
    return Complex(re, b.expand(b.op(kind, q, s), re.shape))


@aten_of_complex("add.Tensor", "add.Scalar")
def add(b: Lowering, x: Number, y: Number, alpha: complex = 1) -> Complex:
    """`x + alpha y`."""
    return _sum(b, "Add", x, y, alpha)


@aten_of_complex("sub.Tensor", "sub.Scalar")
def sub(b: Lowering, x: Number, y: Number, alpha: complex = 1) -> Complex:
    """`x - alpha y`."""
    return _sum(b, "Sub", x, y, alpha)


@aten_of_complex("rsub.Tensor", "rsub.Scalar")
def rsub(b: Lowering, x: Number, y: Number, alpha: complex = 1) -> Complex:
    """`y - alpha x`."""
    return _sum(b, "Sub", y, x, alpha)


def _product(b: Lowering, multiply: Callable[[Value, Value], Value], x: Number, y: Number) -> Complex:
    """By what multiplies real ones."""
    (p, q), (r, s) = _split(b, x), _split(b, y)
    if q is None and s is None:
        return _joined(b, multiply(p, r), None)
    if s is None:
        assert q is not None
        return Complex(multiply(p, r), multiply(q, r))
    if q is None:
        return Complex(multiply(p, r), multiply(p, s))
    return Complex(
        b.op("Sub", multiply(p, r), multiply(q, s)),
        b.op("Add", multiply(p, s), multiply(q, r)),
    )


@aten_of_complex("mul.Tensor", "mul.Scalar")
def mul(b: Lowering, x: Number, y: Number) -> Complex:
    """`x y`."""
    return _product(b, lambda p, r: b.op("Mul", p, r), x, y)


@aten_of_complex("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default")
def products(b: Lowering, x: Number, y: Number) -> Complex:
    """Products of matrices and vectors."""
    name = b.kind
    return _product(b, lambda p, r: TABLE[name](b, p, r), x, y)


@aten_of_complex("addmm.default", "addmv.default", "baddbmm.default")
def sum_of_products(b: Lowering, z: Number, x: Number, y: Number, *, beta: complex = 1, alpha: complex = 1) -> Complex:
    """`beta z + alpha x y`."""
    name = {"addmm": "mm", "addmv": "mv", "baddbmm": "bmm"}[b.kind.partition(".")[0]] + ".default"
    found: Number = _product(b, lambda p, r: TABLE[name](b, p, r), x, y)
    return add(b, z if beta == 1 else mul(b, z, beta), found if alpha == 1 else mul(b, found, alpha))


@aten_of_complex("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(b: Lowering, x: Number, y: Number) -> Complex:
    """`x / y`, whose divisor is scaled by the larger of its parts (Smith, "Algorithm 116: complex division", 1962)."""
    (p, q), (r, s) = _split(b, x), _split(b, y)
    if s is None:
        re = b.op("Div", p, r)
        return _joined(b, re, None if q is None else b.op("Div", q, r))
    if q is None:
        q = b.full(0, p.dtype, ())
    wide = b.op("GreaterOrEqual", b.op("Abs", r), b.op("Abs", s))
    large, small = b.op("Where", wide, r, s), b.op("Where", wide, s, r)
    zero = b.op("Equal", large, 0.0)
    ratio = b.op("Where", zero, b.full(0, r.dtype, ()), b.op("Div", small, large))
    below = b.op("Add", large, b.op("Mul", small, ratio))
    one, other = b.op("Where", wide, p, q), b.op("Where", wide, q, p)
    re = b.op("Div", b.op("Add", one, b.op("Mul", other, ratio)), below)
    crossed = b.op("Sub", other, b.op("Mul", one, ratio))
    im = b.op("Div", b.op("Where", wide, crossed, b.op("Neg", crossed)), below)
    return Complex(re, im)


@aten_of_complex("reciprocal.default")
def reciprocal(b: Lowering, z: Complex) -> Complex:
    """`1 / z`."""
    return div(b, 1, z)


@aten_of_complex("_conj.default", "_conj_copy.default", "_conj_physical.default", "conj_physical.default")
def conj(b: Lowering, z: Complex | complex) -> Complex:
    """With imaginary parts of the other sign."""
    if not isinstance(z, Complex):
        return _filled(b, complex(z).conjugate())
    return Complex(z.re, b.op("Neg", z.im))


@aten_of_complex("pow.Tensor_Scalar", "square.default")
def power(b: Lowering, z: Complex, exponent: complex = 2) -> Complex:
    """`z ** n` of a small whole number."""
    if exponent not in (1, 2, 3):
        raise Unsupported(f"complex numbers to the power of {exponent}")
    found = z
    for _ in range(int(complex(exponent).real) - 1):
        found = mul(b, found, z)
    return found


# ---- functions ----


@aten_of_complex("abs.default")
def absolute(b: Lowering, z: Complex) -> Value:
    """`|z|`, scaled by the larger part: squares do not overflow."""
    re, im = (b.op("Abs", x) for x in z.parts)
    large, small = b.op("Max", re, im), b.op("Min", re, im)
    plain = b.op("Or", b.op("Equal", large, 0.0), b.op("IsInf", large))
    ratio = b.op("Div", small, b.op("Where", plain, b.full(1, re.dtype, ()), large))
    scaled = b.op("Mul", large, b.op("Sqrt", b.op("Add", b.op("Mul", ratio, ratio), 1.0)))
    endless = b.op("Or", b.op("IsInf", re), b.op("IsInf", im))
    found = b.op("Where", plain, large, scaled)
    return b.op("Where", endless, b.full(math.inf, re.dtype, ()), found)


@aten_of_complex("angle.default")
def angle(b: Lowering, z: Complex) -> Value:
    """The angle of each number."""
    found: Value = TABLE["atan2.default"](b, z.im, z.re)
    return found


@aten_of_complex("sgn.default")
def sgn(b: Lowering, z: Complex) -> Complex:
    """`z / |z|`, and 0 of 0."""
    size = absolute(b, z)
    below = b.op("Where", b.op("Equal", size, 0.0), b.full(1, size.dtype, ()), size)
    return Complex(*(b.op("Div", x, below) for x in z.parts))


@aten_of_complex("exp.default")
def exp(b: Lowering, z: Complex) -> Complex:
    """The exponential."""
    return polar(b, b.op("Exp", z.re), z.im)


@aten_of_complex("eq.Tensor", "eq.Scalar")
def eq(b: Lowering, x: Number, y: Number) -> Value:
    """Whether both parts are equal."""
    parts = [_parts_of(b, x, y), _parts_of(b, y, x)]
    return b.op("And", *(b.op("Equal", p, q) for p, q in zip(*parts, strict=True)))


@aten_of_complex("ne.Tensor", "ne.Scalar")
def ne(b: Lowering, x: Number, y: Number) -> Value:
    """Whether a part is another."""
    return b.op("Not", eq(b, x, y))


def _parts_of(b: Lowering, x: Number, other: Number) -> tuple[Value, Value]:
    """Both parts, in the wider element type of the two operands."""
    dtypes = [t.dtype for t in (x, other) if isinstance(t, (Value, Complex))]
    dtype = max((d for d in dtypes if d.is_float), key=lambda d: d.bits)
    if isinstance(x, Complex):
        return b.cast(x.re, dtype), b.cast(x.im, dtype)
    if isinstance(x, Value):
        return b.cast(x, dtype), b.full(0, dtype, x.shape)
    return b.constant(complex(x).real, dtype), b.constant(complex(x).imag, dtype)
