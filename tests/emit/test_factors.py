"""Factors that terms share are multiplied once, under `fast_math`, and the result is the same but for rounding."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from polyc import dims, f64, inout, op
from polyc.emit.loop_ir.loops import Store, walk
from polyc.emit.passes.factors import factored
from polyc.poly import dtypes
from polyc.poly.expr import Binary, Call, Expr, Unary, Var
from polyc.poly.expr import walk as walk_expr

N = dims("N")


@op(fast_math=True)
def polynomial(x: f64[N], y: inout(f64[N])):
    for i in range(N):
        y[i] = 3.0 * x[i] * x[i] * x[i] - 2.0 * x[i] * x[i] + 5.0 * x[i] - 1.0


@op(fast_math=True)
def symmetric(a: f64[N], b: f64[N], c: f64[N], d: f64[N], y: inout(f64[N])):
    for i in range(N):
        y[i] = a[i] * b[i] * c[i] + a[i] * b[i] * d[i] - a[i] * c[i] * d[i] + b[i] * c[i] * d[i]


@op(fast_math=True)
def handed_on(a: inout(f64[N]), b: f64[N], c: f64[N], d: f64[N]):
    for i in range(1, N):
        a[i] = a[i - 1] * b[i] * c[i] + b[i] * c[i] * d[i] + b[i] * d[i] * d[i]


@op
def exact(a: f64[N], b: f64[N], c: f64[N], d: f64[N], y: inout(f64[N])):
    for i in range(N):
        y[i] = a[i] * b[i] * c[i] + a[i] * b[i] * d[i] + a[i] * c[i] * d[i] + b[i] * c[i] * d[i]


def is_nested(operator: Any) -> bool:
    """Whether the kernel multiplies sums."""
    body = operator.compile(N=37).function.body
    exprs = [e for s in walk(body) if isinstance(s, Store) for e in walk_expr(s.value) if e.dtype == dtypes.f64]
    products = [e.children() for e in exprs if isinstance(e, Binary) and e.op == "*"]
    products += [e.args[:2] for e in exprs if isinstance(e, Call) and e.fn == "fma"]
    sums = [x for p in products for x in p if isinstance(x, Binary) and x.op in ("+", "-") or isinstance(x, Call)]
    return bool(sums)


@pytest.mark.parametrize("operator", [polynomial, symmetric, handed_on, exact], ids=lambda o: o.name)
def test_results_are_those_of_the_source(operator: Any) -> None:
    n = 37
    kernel = operator.compile(N=n)
    rng = np.random.default_rng()
    ours = [rng.uniform(-0.9, 0.9, n) for _ in kernel.scop.args]
    theirs = [x.copy() for x in ours]
    kernel(*ours)
    operator.python(*theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_sum_of_fewer_operations() -> None:
    a, b, c, d = (Var(n, dtypes.f64) for n in "abcd")

    def times(*fs: Expr) -> Expr:
        out = fs[0]
        for f in fs[1:]:
            out = Binary("*", out, f, dtypes.f64)
        return out

    def plus(*terms: Expr) -> Expr:
        out = terms[0]
        for t in terms[1:]:
            out = Binary("+", out, t, dtypes.f64)
        return out

    got = factored(plus(times(a, b, c), times(a, b, d), times(a, c, d)))
    assert got == times(a, plus(times(b, plus(c, d)), times(c, d)))
    for stays in (plus(times(a, b), times(a, c)), plus(a, b, c), plus(times(a, b), times(a, c), d), times(a, b, c)):
        assert factored(stays) is stays


def test_random_sums_keep_their_values() -> None:
    rng = random.Random()
    names = "abcde"
    changed = 0
    for _ in range(300):
        e: Expr | None = None
        for _ in range(rng.randint(2, 9)):
            term: Expr = Var(rng.choice(names), dtypes.f64)
            for _ in range(rng.randint(0, 3)):
                term = Binary("*", term, Var(rng.choice(names), dtypes.f64), dtypes.f64)
            e = term if e is None else Binary(rng.choice("+-"), e, term, dtypes.f64)
        assert e is not None
        values = {n: rng.randint(-9, 9) for n in names}
        made = factored(e)
        changed += made is not e
        assert value(made, values) == value(e, values)
    assert changed > 50


def value(e: Expr, values: dict[str, int]) -> int:
    if isinstance(e, Var):
        return values[e.name]
    if isinstance(e, Unary):
        return -value(e.a, values)
    assert isinstance(e, Binary)
    a, b = value(e.a, values), value(e.b, values)
    return a + b if e.op == "+" else a - b if e.op == "-" else a * b


def test_what_iterations_hand_on_and_what_must_round_as_written_stay() -> None:
    assert is_nested(symmetric) and is_nested(polynomial)
    assert not is_nested(handed_on) and not is_nested(exact)


def test_sums_with_the_same_end_share_it() -> None:
    a, b, c, d, e = (Var(n, dtypes.f64) for n in "abcde")
    pairs = [Binary("*", x, y, dtypes.f64) for x, y in ((c, d), (c, e), (d, e))]
    longer = [Binary("*", Binary("*", a, x, dtypes.f64), y, dtypes.f64) for x, y in ((b, c), (b, d), (b, e))]
    longer += [Binary("*", Binary("*", a, x, dtypes.f64), y, dtypes.f64) for x, y in ((c, d), (c, e), (d, e))]
    shorter = [Binary("*", b, p, dtypes.f64) for p in pairs]

    def plus(terms: list[Expr]) -> Expr:
        out = terms[0]
        for t in terms[1:]:
            out = Binary("+", out, t, dtypes.f64)
        return out

    both = {x for e in (plus(longer), plus(shorter)) for x in walk_expr(factored(e)) if isinstance(x, Binary)}
    assert len(both) == 9
