"""Accuracy and special values of the elementary functions, and the expansion pass."""

from __future__ import annotations

import numpy as np
import pytest
from exact_values import ulp_errors
from mathlib_reference import evaluate, run

from polyc.emit.loop_ir.loops import Block, Broadcast, Buffer, For, Function, If, Let, Ramp, Stmt, Store, VLoad, walk
from polyc.emit.loop_ir.verify import verify
from polyc.emit.mathlib import BASIC, coefficients, expand_function
from polyc.emit.mathlib.trig import RANGE
from polyc.poly.dtypes import DType, bf16, bool_, f16, f32, f64, i32, i64
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Var
from polyc.poly.expr import walk as nodes
from polyc.poly.intrinsics import TABLE

UNARY = "exp exp_nonpositive expm1 log log1p tanh sigmoid erf sinh cosh rsqrt sin cos tan asin acos atan".split()


def expanded(value: Expr) -> Stmt:
    """The statement that stores the expansion of `value`."""
    fn = Function("f", (Buffer("o", value.dtype, (), "param"),), (), Store("o", (), value))
    return expand_function(fn).body


def call(name: str, dtype: DType, *arrays: np.ndarray) -> np.ndarray:
    """`name` applied to arrays through its expansion."""
    args = tuple(Var(f"x{i}", dtype) for i in range(len(arrays)))
    return run(expanded(Call(name, args, dtype)), {f"x{i}": a for i, a in enumerate(arrays)})


def values_of(s: Stmt) -> list[Expr]:
    return [t.value for t in walk(s) if isinstance(t, Let | Store)]


def inputs(name: str, dtype: DType, rng: np.random.Generator, n: int) -> np.ndarray:
    """Points in the interesting interval, of all magnitudes (denormals too), and around 1."""
    info = np.finfo(dtype.np)
    single = dtype == f32
    wide = {
        "exp": (-104, 89),
        "exp_nonpositive": (-104, 0),
        "sigmoid": (-104, 104),
        "expm1": (-20, 89),
        "sinh": (-90, 90),
        "cosh": (-90, 90),
    }
    small = {"erf": (-6, 6), "tanh": (-12, 12), "log": (0, 10), "rsqrt": (0, 10), "log1p": (-1, 3), "atan": (-9, 9)}
    wide |= {"exp_nonpositive": (-104, 0)}
    small |= {"asin": (-1, 1), "acos": (-1, 1)}
    lo, hi = small.get(name) or tuple(b * (1 if single else 8) for b in wide.get(name, (-30, 30)))
    plain = rng.uniform(lo, hi, n)
    top = {"sin": 30, "cos": 30, "tan": 30, "asin": 0, "acos": 0}.get(name, info.maxexp)
    magnitudes = np.exp2(rng.uniform(info.minexp - info.nmant, top, n)) * rng.choice([-1, 1], n)
    one = 1 + np.exp2(rng.uniform(-info.nmant, -1, n)) * rng.choice([-1, 1], n)
    halfpi = rng.integers(1, 2**29, n) * (np.pi / 2)
    with np.errstate(over="ignore", under="ignore"):
        x = np.concatenate([plain, magnitudes, one, halfpi]).astype(dtype.np)
    x = x[np.isfinite(x)]
    if name in ("log", "rsqrt"):
        x = np.abs(x[x != 0])
    if name == "exp_nonpositive":
        x = -np.abs(x)
    if name == "log1p":
        x = np.where(x <= -1, np.abs(x), x)
    if name in ("asin", "acos"):
        x = x[np.abs(x) <= 1]
    if name in ("sin", "cos", "tan"):
        x = x[np.abs(x) <= RANGE]
    return x


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_error_in_ulp(name: str, dtype: DType) -> None:
    x = inputs(name, dtype, np.random.default_rng(len(name)), 120)
    errors = ulp_errors(name, [x], call(name, dtype, x))
    worst = errors.argmax()
    bound = 3 if name in ("tanh", "tan", "sigmoid", "exp_nonpositive") else TABLE[name].ulp if name == "rsqrt" else 2.5
    assert errors[worst] <= bound, (x[worst], errors[worst])


@pytest.mark.long
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_error_in_ulp_many(name: str, dtype: DType) -> None:
    x = inputs(name, dtype, np.random.default_rng(7), 10_000)
    assert ulp_errors(name, [x], call(name, dtype, x)).max() <= 3.5


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_pow_error_in_ulp(dtype: DType) -> None:
    rng, info, n = np.random.default_rng(5), np.finfo(dtype.np), 300
    one = 1 + np.exp2(rng.uniform(-info.nmant, -1, n)) * rng.choice([-1, 1], n)
    x = np.concatenate([np.exp2(rng.uniform(info.minexp - info.nmant, info.maxexp, n)), one]).astype(dtype.np)
    # Exponents that make the result cover all magnitudes, with overflow and underflow.
    target = rng.uniform(info.minexp - info.nmant - 2, info.maxexp + 1, 2 * n)
    with np.errstate(all="ignore"):
        y = (target / np.log2(x.astype(np.float64))).astype(dtype.np)
    ok = np.isfinite(y) & np.isfinite(x) & (x > 0)
    x, y = x[ok], y[ok]
    assert ulp_errors("pow", [x, y], call("pow", dtype, x, y)).max() <= 1.5


def same(a: np.ndarray, b: np.ndarray, spacing: float = 4) -> np.ndarray:
    """Equal within some ulps, and in the sign of zero, in NaN and inf."""
    with np.errstate(all="ignore"):
        near = (a == b) | (np.abs(a - b) <= spacing * np.spacing(np.abs(b)))
        return (near & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_special_values_are_numpys(name: str, dtype: DType) -> None:
    tiny = np.finfo(dtype.np).smallest_subnormal
    x = np.array([0.0, -0.0, 1, -1, 2, -2, np.inf, -np.inf, np.nan, tiny, -tiny], dtype.np)
    if name == "exp_nonpositive":
        x = x[~(x > 0)]
    with np.errstate(all="ignore"):
        expected = TABLE[name].numpy(x)
    got = call(name, dtype, x)
    assert same(got, expected).all(), list(zip(x, got, expected))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_pow_special_values_are_numpys(dtype: DType) -> None:
    s = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e30, -1e30, 2.5, -2.5, 1e-30, -1e-30]
    x, y = (v.ravel() for v in np.meshgrid(np.array(s, dtype.np), np.array(s, dtype.np)))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    got = call("pow", dtype, x, y)
    assert same(got, expected).all(), [t for t in zip(x, y, got, expected) if not same(*map(np.array, t[2:]))]


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5])
def test_pow_with_a_constant_exponent_needs_no_logarithm(exponent: float) -> None:
    s = expanded(Binary("**", Var("x", f64), Const(exponent, f64), f64))
    x = np.array([0.0, -0.0, -np.inf, np.inf, 0.3, 7.5])
    with np.errstate(all="ignore"):
        expected = np.array([v**exponent for v in x])
    assert same(np.broadcast_to(run(s, {"x": x}), x.shape), expected, 1).all()
    assert not any(isinstance(n, Call) and n.fn == "fma" for v in values_of(s) for n in nodes(v))


def test_integer_power_wraps() -> None:
    rng = np.random.default_rng(3)
    x, n = rng.integers(-9, 9, 200).astype(np.int32), rng.integers(0, 40, 200).astype(np.int32)
    s = expanded(Binary("**", Var("x", i32), Var("n", i32), i32))
    with np.errstate(all="ignore"):
        assert (run(s, {"x": x, "n": n}) == x**n).all()


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_half_precision_computes_in_f32(dtype: DType) -> None:
    x = np.random.default_rng(1).uniform(-4, 4, 50).astype(dtype.np)
    got = run(expanded(Call("tanh", (Var("x", dtype),), dtype)), {"x": x})
    assert got.dtype == dtype.np
    assert (got == np.tanh(x.astype(np.float64)).astype(np.float32).astype(dtype.np)).all()


def test_only_basic_calls_are_left_and_sharing_keeps_it_small() -> None:
    x: Expr = Var("x", f32)
    for name in UNARY:
        x = Call(name, (x,), f32)
    s = expanded(x)
    everything = [n for v in values_of(s) for n in nodes(v)]
    assert {n.fn for n in everything if isinstance(n, Call)} <= BASIC
    assert len(everything) < 3000


def test_vector_code_has_only_vector_operands() -> None:
    i = Var("i")
    load = VLoad("A", (Ramp(i, 1, 8, i64),), None, 8, f32)
    fn = Function(
        "f", (Buffer("A", f32, (Const(64, i64),), "param"),), (),
        Store("A", (Ramp(i, 1, 8, i64),), Call("exp", (load,), f32)),
    )  # fmt: skip
    for value in values_of(expand_function(fn).body):
        for n in nodes(value):
            if not isinstance(n, Broadcast | Ramp | VLoad):
                assert {c.lanes for c in n.children()} <= {8}
    assert all(v.lanes == 8 for v in values_of(expand_function(fn).body))


def test_a_load_under_a_select_stays_under_it() -> None:
    i = Var("i")
    cond = Binary(">", i, Const(0, i64), bool_)
    load = Load("A", (Binary("-", i, Const(1, i64), i64),), f32)
    inner = Select(Binary(">", load, Const(0.0, f32), bool_), Call("log", (load,), f32), load, f32)
    s = expanded(Select(cond, Call("exp", (inner,), f32), Const(0.0, f32), f32))
    for value in values_of(s):
        assert not any(isinstance(n, Load) for n in unguarded(value)), value


@pytest.mark.parametrize("all_or_none", [True, False])
def test_a_scalar_call_under_a_vector_condition_stays_scalar(all_or_none: bool) -> None:
    """Vector code guards the load of a scalar call by whether any lane wants it."""
    i = Var("i")
    cond: Expr = Binary(">", Ramp(i, 1, 8, i64), Broadcast(Const(2, i64), 8, i64), bool_)
    if all_or_none:
        cond = Broadcast(Binary(">", i, Const(2, i64), bool_), 8, bool_)
    call = Broadcast(Call("atan", (Load("A", (Const(0, i64),), f32),), f32), 8, f32)
    value = Select(cond, call, Broadcast(Const(0.0, f32), 8, f32), f32)
    size = (Const(64, i64),)
    body = For("i", Const(0, i64), Const(56, i64), 8, Store("B", (Ramp(i, 1, 8, i64),), value))
    fn = Function("f", (Buffer("A", f32, size, "param", writable=False), Buffer("B", f32, size, "param")), (), body)
    verify(expand_function(fn))


def unguarded(e: Expr) -> list[Expr]:
    """Nodes that are evaluated whenever `e` is."""
    kids = e.children()[:1] if isinstance(e, Select) else e.children()
    return [e, *(n for k in kids for n in unguarded(k))]


def test_lets_of_an_if_condition_stand_around_it() -> None:
    cond = Binary(">", Call("exp", (Load("A", (), f32),), f32), Const(1.0, f32), bool_)
    body = If(cond, Store("A", (), Const(2.0, f32)))
    fn = Function("f", (Buffer("A", f32, (), "param"),), (), Block((body, Store("A", (), Const(1.0, f32)))))
    out = expand_function(fn).body
    assert isinstance(out, Block) and isinstance(out.stmts[0], Let) and out.stmts[1] == fn.body.stmts[1]


def test_a_function_without_calls_is_unchanged() -> None:
    fn = Function("f", (), (), Store("A", (), Cast(Call("sqrt", (Load("A", (), f32),), f32), f32)))
    assert expand_function(fn) == fn


def test_the_reference_fma_rounds_once() -> None:
    a, b = np.float32(1 + 2**-12), np.float32(1 - 2**-12)
    e = Call("fma", (Const(float(a), f32), Const(float(b), f32), Const(-1.0, f32)), f32)
    assert evaluate(e, {}) == np.float32(-(2.0**-24))


@pytest.mark.parametrize("name", ["SIN_F32", "COS_F64", "EXP_F32"])
def test_the_committed_coefficients_are_the_generated_ones(name: str) -> None:
    from polyc.emit.mathlib.fit import fit, jobs

    job = next(j for j in jobs() if j.name == name)
    assert tuple(fit(job)[0]) == getattr(coefficients, name)
