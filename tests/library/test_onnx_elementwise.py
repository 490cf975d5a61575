"""Elementwise operators against ONNX's reference."""

from typing import Any

import numpy as np
import pytest
from onnx_case import built, check, f32, ints, positive, run

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 3.0], np.float32)


@pytest.mark.parametrize(
    "op",
    "Relu Neg Abs Sign Exp Floor Ceil Round Sin Cos Tan Atan Sinh Cosh Tanh Asinh Erf Sigmoid Softplus Softsign "
    "HardSwish Mish HardSigmoid LeakyRelu ThresholdedRelu Elu Selu Celu Shrink Gelu Identity Reciprocal".split(),
)
def test_unary(op: str) -> None:
    check(op, f32(2, 3, 5) * 2)


@pytest.mark.parametrize("op", ["Sqrt", "Log", "Acosh", "Atanh", "Asin", "Acos"])
def test_unary_on_its_domain(op: str) -> None:
    x = positive(4, 6)
    check(op, x + 1 if op == "Acosh" else x * 0.8)


@pytest.mark.parametrize(
    "op", ["Relu", "Neg", "Abs", "Floor", "IsNaN", "IsInf", "Sign", "ThresholdedRelu", "Shrink", "LeakyRelu", "Elu"]
)
def test_special_values(op: str) -> None:
    check(op, SPECIAL)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("LeakyRelu", {"alpha": 0.3}),
        ("ThresholdedRelu", {"alpha": 0.3}),
        ("Elu", {"alpha": 0.7}), ("Selu", {"alpha": 1.1, "gamma": 2.0}), ("Celu", {"alpha": 0.7}),
        ("Shrink", {"bias": 0.2, "lambd": 0.3}), ("Gelu", {"approximate": "tanh"}),
        ("IsInf", {"detect_negative": 0}), ("IsInf", {"detect_positive": 0}),
    ],
)  # fmt: skip
def test_unary_with_attributes(op: str, attrs: dict[str, Any]) -> None:
    check(op, SPECIAL if op == "IsInf" else f32(3, 7), **attrs)


def test_rank_zero() -> None:
    check("Relu", np.array(-1.5, np.float32))
    check("Add", np.array(1.5, np.float32), np.array(2.0, np.float32))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(
    "shapes",
    [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (3, 1)), ((4,), (2, 1, 4)), ((1, 1), (1, 1)), ((2, 1), (1, 3)), ((), (3,))],
)
def test_broadcasting(op: str, shapes: Any) -> None:
    check(op, f32(*shapes[0]), positive(*shapes[1]))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_constant_scalar_on_either_side(op: str) -> None:
    s = np.array([[1.7]], np.float32)
    assert len(check(op, positive(3, 4), s, const=(1,)).inputs) == 1
    assert len(check(op, s, positive(3, 4), const=(0,)).inputs) == 1
    check(op, positive(4), s, const=(1,))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_integer_arithmetic(dtype: Any) -> None:
    low = 0 if np.dtype(dtype).kind == "u" else -50
    a, b = ints(low, 50, 30, dtype=dtype), ints(low, 50, 30, dtype=dtype)
    b[b == 0] = 7
    for op in ("Add", "Sub", "Mul"):
        check(op, a, b)
    want = np.trunc(a.astype(np.float64) / b).astype(dtype)
    check("Div", a, b, want=[want])
    check("Mod", a, b)
    check("Mod", a, b, fmod=1)


def test_float_mod() -> None:
    check("Mod", f32(20) * 10, positive(20), fmod=1)


@pytest.mark.parametrize("exponent", [-0.5, 1.0, 2.0, 3.0, 0.5, -1.0, 1.7])
def test_pow_by_a_constant(exponent: float) -> None:
    check("Pow", positive(3, 5), np.array(exponent, np.float32), const=(1,))


def test_pow() -> None:
    check("Pow", positive(3, 5), f32(5))
    check("Pow", ints(1, 5, 6, dtype=np.int32), ints(0, 4, 6, dtype=np.int32))
    check("Pow", positive(6), ints(-3, 4, 6))


@pytest.mark.parametrize("op", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
def test_comparison(op: str) -> None:
    check(op, ints(0, 3, 4, 5), ints(0, 3, 5))
    check(op, SPECIAL, SPECIAL[::-1].copy())


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    check(op, ints(0, 2, 4, 5, dtype=bool), ints(0, 2, 5, dtype=bool))


def test_bits() -> None:
    a, b = ints(-100, 100, 20, dtype=np.int32), ints(-100, 100, 20, dtype=np.int32)
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        check(op, a, b)
    check("BitwiseNot", a)
    check("Not", ints(0, 2, 20, dtype=bool))
    u, s = ints(0, 200, 20, dtype=np.uint8), ints(0, 8, 20, dtype=np.uint8)
    check("BitShift", u, s, direction="LEFT")
    check("BitShift", u, s, direction="RIGHT")


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_variadic(op: str, count: int) -> None:
    shapes = [(2, 3, 4), (3, 1), (4,), (2, 1, 1), (1,)]
    check(op, *[f32(*s) for s in shapes[:count]])


def test_maximum_keeps_nan() -> None:
    check("Max", SPECIAL, SPECIAL[::-1].copy())
    check("Min", SPECIAL, SPECIAL[::-1].copy())


def test_clip() -> None:
    x, low, high = f32(4, 5), np.array(-0.5, np.float32), np.array(0.7, np.float32)
    check("Clip", x, low, high)
    check("Clip", x, low, high, const=(1, 2))
    check("Clip", x, None, high, const=(2,))
    check("Clip", x, low, const=(1,))
    check("Clip", x, opset=6, min=-0.3, max=0.3)
    check("Clip", SPECIAL, low, high, const=(1, 2))


def test_where_and_prelu_and_expand() -> None:
    check("Where", ints(0, 2, 3, 1, dtype=bool), f32(3, 4), f32(4))
    check("PRelu", f32(2, 3, 4), f32(3, 1))
    check("Expand", f32(3, 1), np.array([2, 1, 4]), const=(1,))


@pytest.mark.parametrize("to", [np.float64, np.int32, np.int64, np.uint8, np.bool_, np.float16])
def test_cast(to: Any) -> None:
    from onnx.helper import np_dtype_to_tensor_dtype

    x = positive(20) * 5
    x[3] = 0
    check("Cast", x, want=[x.astype(to)], to=np_dtype_to_tensor_dtype(np.dtype(to)))
    check("Cast", ints(-3, 3, 20), to=1)


def test_batch_normalization() -> None:
    check("BatchNormalization", f32(2, 3, 4, 5), f32(3), f32(3), f32(3), positive(3), epsilon=1e-3)
    check("BatchNormalization", f32(4, 3), f32(3), f32(3), f32(3), positive(3))


def test_constants_that_compare_equal_are_different_functions() -> None:
    check("Clip", f32(9) * 4, np.array(1, np.float32), np.array(5, np.float32), const=(1, 2))
    check("Clip", ints(-9, 9, 9), np.array(1), np.array(5), const=(1, 2))
    zeros = np.array([0.0, -0.0], np.float32)
    for zero in (0.0, -0.0):
        operand = np.array(zero, np.float32)
        made = built("Add", [zeros, operand], [zeros + operand], 21, (1,), {})
        (got,) = run(made, [zeros, operand], [zeros + operand])
        np.testing.assert_array_equal(np.signbit(got), np.signbit(zeros + operand))
