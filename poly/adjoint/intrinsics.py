"""The derivatives of the intrinsics: a column beside the table of `polyc.poly.intrinsics`.

`COLUMN[name](args, value)` gives, for each argument, the partial derivative there (None: zero, or an argument that has
none). `value` is the call itself, for those whose derivative is said in terms of it. `REFUSED` are the intrinsics that
have none, with the reason.

At points where a function has no derivative these are the rules: `abs` has 0 at 0; rounding functions have 0
everywhere, at their steps as well; `0 ** y` has the derivative 0 in y for y >= 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from polyc.poly.adjoint.algebra import compared, div, mul, neg, number, sub, where
from polyc.poly.expr import Binary, Call, Const, Expr

Partials = tuple[Expr | None, ...]
Args = tuple[Expr, ...]
Rule = Callable[[Args, Expr], Partials]


def _one(a: Expr) -> Const:
    return number(1.0, a.dtype)


def _call(fn: str, a: Expr) -> Expr:
    return Call(fn, (a,), a.dtype)


def _square(a: Expr) -> Expr:
    return mul(a, a)


def _plus_one(a: Expr) -> Expr:
    return Binary("+", _one(a), a, a.dtype)


def _minus_square(a: Expr) -> Expr:
    """`1 - a * a`."""
    return sub(_one(a), _square(a))


def _scaled(factor: float, a: Expr) -> Expr:
    return mul(number(factor, a.dtype), a)


def _sign(a: Expr) -> Expr:
    zero = number(0.0, a.dtype)
    below = where(compared("<", a, zero), number(-1.0, a.dtype), zero)
    return where(compared(">", a, zero), _one(a), below)


def power(args: Args, value: Expr) -> Partials:
    """Of `x ** y`, for constant exponents without a logarithm."""
    x, y = args
    if isinstance(y, Const):
        n = float(y.value)
        if n in (0.0, 1.0):
            return (None if n == 0.0 else _one(x)), None
        lower = x if n == 2.0 else Binary("**", x, number(n - 1.0, x.dtype), x.dtype)
        return _scaled(n, lower), None
    zero = number(0.0, x.dtype)
    lower = mul(y, Binary("**", x, sub(y, _one(y)), x.dtype))
    of_base = where(compared("==", y, zero), zero, lower)
    flat = Binary("and", compared("==", x, zero), compared(">=", y, zero), compared("==", x, zero).dtype)
    return of_base, where(flat, zero, mul(value, _call("log", x)))


COLUMN: Mapping[str, Rule] = {
    "exp": lambda a, v: (v,),
    "exp_nonpositive": lambda a, v: (v,),
    "log": lambda a, v: (div(_one(v), a[0]),),
    "log1p": lambda a, v: (div(_one(v), _plus_one(a[0])),),
    "expm1": lambda a, v: (_call("exp", a[0]),),
    "sqrt": lambda a, v: (div(number(0.5, v.dtype), v),),
    "rsqrt": lambda a, v: (mul(number(-0.5, v.dtype), div(v, a[0])),),
    "sin": lambda a, v: (_call("cos", a[0]),),
    "cos": lambda a, v: (neg(_call("sin", a[0])),),
    "tan": lambda a, v: (_plus_one(_square(v)),),
    "asin": lambda a, v: (div(_one(v), _call("sqrt", _minus_square(a[0]))),),
    "acos": lambda a, v: (neg(div(_one(v), _call("sqrt", _minus_square(a[0])))),),
    "atan": lambda a, v: (div(_one(v), _plus_one(_square(a[0]))),),
    "sinh": lambda a, v: (_call("cosh", a[0]),),
    "cosh": lambda a, v: (_call("sinh", a[0]),),
    "tanh": lambda a, v: (_minus_square(v),),
    "erf": lambda a, v: (_scaled(2.0 / math.sqrt(math.pi), _call("exp", neg(_square(a[0])))),),
    "sigmoid": lambda a, v: (mul(v, sub(_one(v), v)),),
    "floor": lambda a, v: (None,),
    "ceil": lambda a, v: (None,),
    "round": lambda a, v: (None,),
    "trunc": lambda a, v: (None,),
    "abs": lambda a, v: (_sign(a[0]),),
    "pow": power,
    "fma": lambda a, v: (a[1], a[0], _one(v)),
    "isnan": lambda a, v: (None,),
    "isinf": lambda a, v: (None,),
    "position": lambda a, v: (None, None),
}

REFUSED: Mapping[str, str] = {
    "dot_pairs": "it works on pairs of integers in one word",
    "widen_pairs": "it works on pairs of integers in one word",
    "dot_bytes": "it works on integers of eight bits in one word",
    "dot_bytes_add": "it works on integers of eight bits in one word",
    "dot_bf16": "it works on pairs of bf16 in one word",
    "dot_bf16_add": "it works on pairs of bf16 in one word",
    "pack_bf16": "it packs two bf16 in one word",
    "bitcast": "it gives the bits of a number",
}
