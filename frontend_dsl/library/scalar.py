"""Scalar functions that the elementwise operators apply: ONNX's semantics in the DSL's language.

Factories with parameters are `made_once`, so equal parameters give the same function object
(and with it the same cached Scop).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from polyc.frontend_dsl import abs, erf, exp, expm1, isinf, isnan, log1p, max, min, pow, sigmoid, sqrt, tanh
from polyc.poly.dtypes import DType, f64

LN2 = 0.6931471805599453
Scalar = Callable[..., Any]
Factory = TypeVar("Factory", bound=Callable[..., Any])


def made_once(make: Factory) -> Factory:
    """The factory with its results remembered.

    1, 1.0 and True are different parameters, and so are 0.0 and -0.0: an integer's function must not serve floats.
    """
    made: dict[tuple[object, ...], Any] = {}

    @wraps(make)
    def remembered(*args: Any) -> Any:
        key = tuple((type(a), repr(a)) if isinstance(a, (int, float)) else a for a in args)
        if key not in made:
            made[key] = make(*args)
        return made[key]

    return cast(Factory, remembered)


# ---- activations -----------------------------------------------------------------------------


def relu(x: Any) -> Any:
    """`x` first, so that NaN stays NaN."""
    return max(x, 0)


def softplus(x: Any) -> Any:
    """`log(1 + exp(x))`; the exponent is never positive, so that nothing overflows."""
    return log1p(exp(-abs(x))) + max(x, 0)


def softsign(x: Any) -> Any:
    """`x / (1 + |x|)`."""
    return x / (1 + abs(x))


def hard_swish(x: Any) -> Any:
    """`x * clip(x / 6 + 1/2, 0, 1)`."""
    return x * min(max(x * (1.0 / 6.0) + 0.5, 0), 1)


def mish(x: Any) -> Any:
    """`x * tanh(softplus(x))`."""
    return x * tanh(log1p(exp(-abs(x))) + max(x, 0))


def gelu(x: Any) -> Any:
    """`x` times the normal distribution's share below it: `x / 2 * (1 + erf(x / sqrt(2)))`."""
    return 0.5 * x * (1 + erf(x * 0.7071067811865476))


def gelu_tanh(x: Any) -> Any:
    """Gelu's approximation by `tanh(sqrt(2 / pi) * (x + 0.044715 x**3))`."""
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@made_once
def hard_sigmoid(alpha: float, beta: float) -> Scalar:
    """`x -> clip(alpha * x + beta, 0, 1)`."""

    def hard_sigmoid(x: Any) -> Any:
        return min(max(alpha * x + beta, 0), 1)

    return hard_sigmoid


@made_once
def leaky_relu(alpha: float) -> Scalar:
    """`x -> x`, of negative numbers `alpha * x`."""

    def leaky_relu(x: Any) -> Any:
        return alpha * x if x < 0 else x

    return leaky_relu


@made_once
def thresholded_relu(alpha: float) -> Scalar:
    """`x -> x` above `alpha`, else 0."""

    def thresholded_relu(x: Any) -> Any:
        return x if x > alpha else 0

    return thresholded_relu


@made_once
def elu(alpha: float, gamma: float = 1.0) -> Scalar:
    """`gamma` is Selu's outer factor."""

    def elu(x: Any) -> Any:
        return (gamma * alpha) * expm1(x) if x < 0 else gamma * x

    return elu


@made_once
def celu(alpha: float) -> Scalar:
    """`x -> max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)`: Elu, smooth at 0 for every `alpha`."""

    def celu(x: Any) -> Any:
        return max(x, 0) + min(alpha * expm1(x / alpha), 0)

    return celu


@made_once
def swish(alpha: float) -> Scalar:
    """`x -> x * sigmoid(alpha * x)`."""

    def swish(x: Any) -> Any:
        return x * sigmoid(alpha * x)

    return swish


@made_once
def shrink(bias: float, lambd: float) -> Scalar:
    """`x -> x` moved by `bias` towards 0; 0 where `|x| <= lambd`."""

    def shrink(x: Any) -> Any:
        return x + bias if x < -lambd else (x - bias if x > lambd else 0)

    return shrink


@made_once
def clip(low: Any, high: Any) -> Scalar:
    """Either bound may be None."""

    def clip(x: Any) -> Any:
        if low is None:
            return x if high is None else min(x, high)
        return max(x, low) if high is None else min(max(x, low), high)

    return clip


def clip3(x: Any, low: Any, high: Any) -> Any:
    """Clip with both bounds as operands; where they cross, the upper one wins."""
    return min(max(x, low), high)


def clip_low(x: Any, low: Any) -> Any:
    """Clip without an upper bound."""
    return max(x, low)


def clip_high(x: Any, high: Any) -> Any:
    """Clip without a lower bound."""
    return min(x, high)


def always(x: Any) -> Any:
    """True, whatever `x` is."""
    return x == x or x != x


def prelu(x: Any, slope: Any) -> Any:
    """Leaky Relu whose slope is an operand."""
    return slope * x if x < 0 else x


@made_once
def affine(alpha: float, beta: float) -> Scalar:
    """`x -> alpha * x + beta`."""

    def affine(x: Any) -> Any:
        return alpha * x + beta

    return affine


@made_once
def scaled_tanh(alpha: float, beta: float) -> Scalar:
    """`x -> alpha * tanh(beta * x)`."""

    def scaled_tanh(x: Any) -> Any:
        return alpha * tanh(beta * x)

    return scaled_tanh


@made_once
def batch_norm(epsilon: float) -> Scalar:
    """Normalisation by given moments: `(x - mean) * scale / sqrt(variance + epsilon) + bias`."""

    def batch_norm(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        return (x - mean) * (scale / sqrt(variance + epsilon)) + bias

    return batch_norm


# ---- arithmetic ------------------------------------------------------------------------------


def identity(x: Any) -> Any:
    """`x`: a copy."""
    return x


def negative(x: Any) -> Any:
    """`-x`."""
    return -x


def absolute(x: Any) -> Any:
    """`|x|`."""
    return abs(x)


def reciprocal(x: Any) -> Any:
    """`1 / x`."""
    return 1 / x


def reciprocal_sqrt(x: Any) -> Any:
    """`pow(x, -0.5)`, which is plus infinity for both zeros."""
    return 1 / sqrt(x + 0.0)


def sign(x: Any) -> Any:
    """-1, 0 or 1; a zero or NaN stays as it is."""
    return 1 if x > 0 else (-1 if x < 0 else x)


def asinh(x: Any) -> Any:
    """By `log1p` of `|x| + x**2 / (1 + sqrt(x**2 + 1))`, so that small arguments keep their digits; above 1 by `1 / x`
    and half of that sum, so that nothing overflows. A zero stays as it is."""
    a = 1.0 * abs(x)  # arithmetic on bf16 gives f32
    u = 1 / a if a > 1 else a
    more = (a if a > 1 else u * u) / ((u if a > 1 else 1) + sqrt(u * u + 1))
    y = log1p(0.5 * a + (0.5 * more - 0.5)) + LN2 if a > 1 else log1p(a + more)
    return y if x > 0 else (-y if x < 0 else 1.0 * x)


def acosh(x: Any) -> Any:
    """By `log1p` of what `x + sqrt(x**2 - 1)` is above 1, so that arguments close to 1 keep their digits; above 2 of
    half of it, so that nothing overflows."""
    t = 1.0 * x - 1
    more = sqrt(t) * sqrt(t + 2)
    return log1p(0.5 * t + (0.5 * more - 0.5)) + LN2 if x > 2 else log1p(t + more)


def atanh(x: Any) -> Any:
    """By `log1p` of a positive number, so that arguments close to 0, 1 and -1 keep their digits."""
    a = abs(x)
    y = 0.5 * log1p(2 * a / (1 - a))
    return y if x > 0 else (-y if x < 0 else 1.0 * x)


def add(a: Any, b: Any) -> Any:
    """`a + b`; integers wrap."""
    return a + b


def sub(a: Any, b: Any) -> Any:
    """`a - b`; integers wrap."""
    return a - b


def mul(a: Any, b: Any) -> Any:
    """`a * b`; integers wrap."""
    return a * b


def divide(a: Any, b: Any) -> Any:
    """True division, of floating-point numbers."""
    return a / b


def divide_truncating(a: Any, b: Any) -> Any:
    """Integer division towards zero."""
    return a // b + 1 if (a % b != 0) and ((a < 0) != (b < 0)) else a // b


def divide_unsigned(a: Any, b: Any) -> Any:
    """Division of integers that are not negative."""
    return a // b


def modulo(a: Any, b: Any) -> Any:
    """The divisor's sign (Python's rule)."""
    return a % b


def remainder(a: Any, b: Any) -> Any:
    """The dividend's sign (C's fmod)."""
    return -(-a % abs(b)) if a < 0 else a % abs(b)


def power(a: Any, b: Any) -> Any:
    """`a ** b` in the operands' type."""
    return pow(a, b)


@made_once
def power_of(T: DType) -> Scalar:
    """`a ** b` rounded to `T` from f64: integer bases and mixed types."""

    def power_of(a: Any, b: Any) -> Any:
        return T(pow(f64(a), f64(b)))

    return power_of


def square(x: Any) -> Any:
    """`x ** 2` by one product."""
    return x * x


def cube(x: Any) -> Any:
    """`x ** 3` by two products."""
    return x * x * x


def maximum(a: Any, b: Any) -> Any:
    """NaN if either is NaN."""
    return b if b != b else max(a, b)


def minimum(a: Any, b: Any) -> Any:
    """NaN if either is NaN."""
    return b if b != b else min(a, b)


def maximum_whole(a: Any, b: Any) -> Any:
    """The larger of two integers."""
    return max(a, b)


def minimum_whole(a: Any, b: Any) -> Any:
    """The smaller of two integers."""
    return min(a, b)


@made_once
def scaled(factor: float) -> Scalar:
    """`x -> x * factor`."""

    def scaled(x: Any) -> Any:
        return x * factor

    return scaled


# ---- comparison, logic, bits -------------------------------------------------------------------


def equal(a: Any, b: Any) -> Any:
    """`a == b`; NaN equals nothing."""
    return a == b


def greater(a: Any, b: Any) -> Any:
    """`a > b`."""
    return a > b


def greater_equal(a: Any, b: Any) -> Any:
    """`a >= b`."""
    return a >= b


def less(a: Any, b: Any) -> Any:
    """`a < b`."""
    return a < b


def less_equal(a: Any, b: Any) -> Any:
    """`a <= b`."""
    return a <= b


def both(a: Any, b: Any) -> Any:
    """ONNX's And, of booleans."""
    return a and b


def either(a: Any, b: Any) -> Any:
    """ONNX's Or, of booleans."""
    return a or b


def differ(a: Any, b: Any) -> Any:
    """ONNX's Xor, of booleans."""
    return a != b


def negation(x: Any) -> Any:
    """ONNX's Not, of a boolean."""
    return not x


def bit_not(x: Any) -> Any:
    """`~x`, of an integer."""
    return ~x


def bit_and(a: Any, b: Any) -> Any:
    """`a & b`, of integers."""
    return a & b


def bit_or(a: Any, b: Any) -> Any:
    """`a | b`, of integers."""
    return a | b


def bit_xor(a: Any, b: Any) -> Any:
    """`a ^ b`, of integers."""
    return a ^ b


def shift_left(a: Any, b: Any) -> Any:
    """`a << b`, of integers."""
    return a << b


def shift_right(a: Any, b: Any) -> Any:
    """`a >> b`, of integers."""
    return a >> b


def is_nan(x: Any) -> Any:
    """Whether `x` is NaN."""
    return isnan(x)


@made_once
def is_inf(positive: bool, negative: bool) -> Scalar:
    """Whether `x` is infinite, with a sign that counts."""

    def is_inf(x: Any) -> Any:
        if positive and negative:
            return isinf(x)
        return isinf(x) and (x > 0 if positive else x < 0)

    return is_inf


def choose(condition: Any, a: Any, b: Any) -> Any:
    """ONNX's Where."""
    return a if condition else b


# ---- a constant operand --------------------------------------------------------------------------


@made_once
def with_right(fn: Scalar, value: Any) -> Scalar:
    """`x -> fn(x, value)`."""

    def with_right(x: Any) -> Any:
        return fn(x, value)

    return with_right


@made_once
def with_left(fn: Scalar, value: Any) -> Scalar:
    """`x -> fn(value, x)`."""

    def with_left(x: Any) -> Any:
        return fn(value, x)

    return with_left
