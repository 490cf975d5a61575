"""The typing rules against NumPy: every operator on every pair of element types and literals.

A power of floats is within some units in the last place of the exact one: NumPy rounds `x ** y` of two scalars
and of arrays, or of two types, differently where it has AVX-512 code. All else is compared bit for bit.
"""

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from brute_force import value
from exact_values import ulp_errors

import polyc
from polyc.frontend_dsl.functions import INTRINSICS
from polyc.frontend_dsl.values import PYTHON, Sym, TypeProblem, arithmetic, compare, intrinsic, to_sym
from polyc.poly.dtypes import ALL, DType
from polyc.poly.expr import Load
from polyc.poly.intrinsics import TABLE

VALUES = {"bool": [True, False], "int": [3, -2], "uint": [3, 2], "float": [1.3, -2.7]}
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "==", "<")


def same(op: str, x: Any, y: Any, a: Sym, b: Sym, storage: dict[str, np.ndarray]) -> None:
    """NumPy and the translated expression agree on dtype and value, or the language refuses."""
    try:
        sym = compare(op, a, b) if op in ("==", "<") else arithmetic(op, a, b)
    except TypeProblem:
        return
    try:
        want = PYTHON[op](x, y)
    except ValueError:
        return  # NumPy refuses at run time: an integer to a negative power
    got = value(sym.expr, {}, storage)
    if isinstance(want, np.generic):
        assert np.asarray(want).dtype == np.asarray(got).dtype, (op, x, y)
    if op == "**" and np.asarray(got).dtype.kind not in "iub":
        assert_power(x, y, want, np.asarray(got))
    else:
        np.testing.assert_array_equal(np.asarray(want).astype("f8"), np.asarray(got).astype("f8"), f"{op} {x!r} {y!r}")


def assert_power(x: Any, y: Any, want: Any, got: np.ndarray) -> None:
    """NumPy's power and the translated one are both `x ** y` of operands in the type of the result."""
    kind = got.dtype
    # bf16 is no float to np.finfo: its 8 bits of precision, f32's range
    measured, scale = (np.dtype("f4"), 2.0**-16) if kind.kind == "V" else (kind, 1.0)
    base, exponent = (np.asarray(v).astype(kind).astype(measured).reshape(1) for v in (x, y))
    for power in (np.asarray(want), got):
        power = power.astype(measured).reshape(1)
        if base[0] < 0 and exponent[0] != np.trunc(exponent[0]):
            assert np.isnan(power[0]), (x, y, power)
        else:
            assert ulp_errors("pow", [base, exponent], power)[0] * scale <= TABLE["pow"].ulp, (x, y, power)


@pytest.mark.parametrize("a", ALL)
@pytest.mark.filterwarnings("ignore")
def test_two_arrays(a: DType) -> None:
    for b in ALL:
        for p, q in itertools.product(VALUES[a.kind], VALUES[b.kind]):
            x, y = a.np.type(p), b.np.type(q)
            storage = {"x": np.array(x, a.np), "y": np.array(y, b.np)}
            for op in OPERATORS:
                same(op, x, y, Sym(Load("x", (), a), False), Sym(Load("y", (), b), False), storage)


@pytest.mark.parametrize("a", ALL)
@pytest.mark.filterwarnings("ignore")
def test_array_and_literal(a: DType) -> None:
    for p, literal, op in itertools.product(VALUES[a.kind], (True, 2, 0.7, -1, 300), OPERATORS):
        x = a.np.type(p)
        storage = {"x": np.array(x, a.np)}
        symbol = Sym(Load("x", (), a), False)
        try:
            PYTHON[op](x, literal)
        except OverflowError:
            with pytest.raises(TypeProblem):
                arithmetic(op, symbol, literal)
            continue
        except (TypeError, ValueError):
            continue
        same(op, x, literal, symbol, to_sym(literal), storage)
        same(op, literal, x, to_sym(literal), symbol, storage)


@pytest.mark.parametrize("function", [f for f in INTRINSICS if INTRINSICS[f] != "position"], ids=lambda f: f.__name__)
def test_functions_keep_their_dtype(function: Any) -> None:
    name = INTRINSICS[function]
    count = TABLE[name].arity
    only = TABLE[name].only
    for a in ALL if only is None else [only]:
        for p in VALUES[a.kind]:
            x = a.np.type(p)
            sym = intrinsic(name, [Sym(Load("x", (), a), False)] * count)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want, got = function(*[x] * count), value(sym.expr, {}, {"x": np.array(x, a.np)})
            assert np.asarray(want).dtype == np.asarray(got).dtype, (name, a)
            np.testing.assert_array_equal(np.asarray(want).astype("f8"), np.asarray(got).astype("f8"))


def test_python_numbers_stay_python_numbers() -> None:
    for function, name in INTRINSICS.items():
        if TABLE[name].only is None:
            args = [0.5] * TABLE[name].arity
            assert type(function(*args)) is (bool if name.startswith("is") else float)


def test_what_pythons_round_and_pow_take_polycs_take_too() -> None:
    """So that `from polyc import *` breaks no program around the operators."""
    assert (polyc.round(2.567, 2), polyc.round(1234, -2), polyc.pow(2, 5, 7)) == (2.57, 1200, 4)

    @polyc.op
    def scaled(X: polyc.f32[3]) -> polyc.f32[3]:
        Y = polyc.empty(3, polyc.f32)
        for i in range(3):
            Y[i] = polyc.round(X[i]) * polyc.pow(2, 5, 7) + polyc.round(2.567, 1)
        return Y

    x = np.array([1.5, 2.5, 1e30], np.float32)
    np.testing.assert_array_equal(scaled(x), scaled.python(x))
