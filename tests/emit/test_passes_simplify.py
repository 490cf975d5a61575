"""Simplification, unrolling, sharing: exact rewrites, checked against evaluation."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
import pytest

from polyc.emit.interpreter import interp
from polyc.emit.loop_ir import linear as forms
from polyc.emit.loop_ir.linear import Linear, difference, interval_of, linear, nonnegative, rebuild
from polyc.emit.loop_ir.loops import Block, Broadcast, Buffer, For, Function, If, Let, Ramp, Store, VLoad, walk
from polyc.emit.loop_ir.printer import expr_text
from polyc.emit.loop_ir.rewrite import unique_names
from polyc.emit.loop_ir.verify import verify
from polyc.emit.passes.fma import contract
from polyc.emit.passes.share import share_loads
from polyc.emit.passes.simplify import decided_by_type, simplify, simplify_expr
from polyc.emit.passes.tiles import separate_tiles
from polyc.emit.passes.unroll import unroll
from polyc.poly.dtypes import DType, bool_, f32, i8, i64, u8, u32
from polyc.poly.expr import Binary, Const, Expr, Load, Select, Unary, Var, const_int, substitute

RANGES = {"a": (0, 7), "b": (-3, 5), "c": (None, None)}


def value(e: Expr, env: dict[str, int]) -> Any:
    """The value of an index expression."""
    fn = Function("f", (Buffer("Y", e.dtype, (), "param"),), tuple(env), Store("Y", (), e))
    out = np.zeros((), e.dtype.np)
    interp.run(fn, {"Y": out}, env)
    return out[()]


def random_index(rng: random.Random, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.15:
        return Var(rng.choice("abc")) if rng.random() < 0.7 else const_int(rng.randint(-9, 9))
    kind = rng.choice(["+", "-", "*", "//", "%", "min", "max", "neg"])
    a = random_index(rng, depth - 1)
    if kind == "neg":
        return Unary("neg", a, i64)
    b = random_index(rng, depth - 1)
    if kind == "*":
        b = const_int(rng.randint(-4, 4))
    elif kind in ("//", "%"):
        b = const_int(rng.choice([1, 2, 3, 4, 6, 8, 16]))
    return Binary(kind, a, b, i64)


@pytest.mark.parametrize("seed", range(60))
def test_random_index_expressions_keep_their_value(seed: int) -> None:
    rng = random.Random(seed)
    e = random_index(rng, 5)
    if seed % 3 == 0:
        e = Binary(rng.choice(["<", "<=", ">", ">=", "==", "!="]), e, random_index(rng, 3), bool_)
    s = simplify_expr(e, RANGES)
    low, high = interval_of(s, RANGES) if s.dtype == i64 else (None, None)
    for _ in range(12):
        env = {"a": rng.randint(0, 7), "b": rng.randint(-3, 5), "c": rng.randint(-50, 50)}
        want = value(e, env)
        assert value(s, env) == want
        assert (low is None or low <= want) and (high is None or want <= high)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(16*a + b) // 16", "a"),
        ("(16*a + b) % 16", "b"),
        ("(16*a + b) // 4", "4*a + b//4"),
        ("min(16, b)", "b"),
        ("max(b, 3 + a) - a", None),
        ("min(a, a + 1, a + 2)", "a"),
        ("a + b - a", "b"),
    ],
)
def test_what_index_expressions_become(text: str, expected: str | None) -> None:
    ranges = {"a": (0, 100), "b": (0, 15)}
    got = simplify_expr(parse(text), ranges)
    if expected is not None:
        assert got == simplify_expr(parse(expected), ranges)


def parse(text: str) -> Expr:
    """A Python expression over i64 variables."""
    import ast

    ops = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}

    def go(n: ast.AST) -> Expr:
        if isinstance(n, ast.BinOp):
            return Binary(ops[type(n.op)], go(n.left), go(n.right), i64)
        if isinstance(n, ast.Call):
            assert isinstance(n.func, ast.Name)
            out = go(n.args[0])
            for a in n.args[1:]:
                out = Binary(n.func.id, out, go(a), i64)
            return out
        if isinstance(n, ast.Name):
            return Var(n.id)
        assert isinstance(n, ast.Constant)
        return const_int(n.value)

    return go(ast.parse(text, mode="eval").body)


def test_linear_forms() -> None:
    assert difference(parse("3*a + b + 4"), parse("a + b + 2*a")) == 4
    assert linear(parse("a - a")) == Linear((), 0)
    assert rebuild(linear(parse("2*(a - 3) - b"))) == parse("2*a - b - 6")


def test_nonnegative_uses_symbolic_bounds() -> None:
    bounds = {"j": (const_int(0), parse("(N + 15) // 16")), "i": (const_int(0), Var("N"))}
    assert nonnegative(linear(parse("N - 16*j")), bounds)
    assert nonnegative(linear(parse("N - i - 1")), bounds)
    assert nonnegative(linear(parse("min(16, N - 16*j)")), bounds)
    assert not nonnegative(linear(parse("N - i - 2")), bounds)
    assert not nonnegative(linear(parse("N - 17*j")), bounds)


WAVEFRONT = {  # a stencil's loops in skewed tiles, outermost first
    "w": ("0", "32"),
    "b": ("max(0, (w + 1) // 2 - 4)", "min(13, w // 2 + 1)"),
    "c": ("0", "min(20 - b, 9)"),
    "t": ("max(max(max(1, 8*w - 8*b - 59), 8*b), 8*b + 8*c - 59)", "min(101, 8*b + 8)"),
    "i": ("max(0, 16*b + 2*t - 16*w + 1)", "min(min(16, 16*b + 2*t - 16*w + 120), 24*b + 8*c + t - 16*w + 126)"),
    "j": (
        "max(max(16*b + 16*c, 2*t + 1), 16*w + i - 16*b - 117)",
        "min(min(16*b + 16*c + 16, 2*t + 120), 16*w + i - 16*b + 118)",
    ),
}


def test_nonnegative_finds_its_way_through_many_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {name: (parse(lo), parse(hi)) for name, (lo, hi) in WAVEFRONT.items()}
    tried: list[Linear] = []
    step = forms._innermost_first

    def counted(form: Linear, known: Mapping[str, tuple[Expr, Expr]]) -> list[tuple[Expr, int]]:
        tried.append(form)
        return step(form, known)

    monkeypatch.setattr(forms, "_innermost_first", counted)
    for inside in ("16*w + i - 16*b - 2*t - 1", "j - 2*t - 1", "119 - j + 2*t"):
        assert nonnegative(linear(parse(inside)), bounds)
    assert len(tried) <= 16
    tried.clear()
    assert not nonnegative(linear(parse("j - 2*t - 2")), bounds)
    assert len(tried) <= 2 * forms.MOST_FORMS  # (a form may come again with more replacements left)


def test_data_is_not_reordered() -> None:
    """Integer data wraps and floats round: only constants are folded, and in their type."""
    x = Load("X", (), i8)
    twice = Binary("//", Binary("*", x, Const(2, i8), i8), Const(2, i8), i8)
    assert simplify_expr(twice) == twice
    assert simplify_expr(Binary("*", Const(100, i8), Const(2, i8), i8)) == Const(-56, i8)
    y = Load("Y", (), f32)
    zero = Binary("+", y, Const(0.0, f32), f32)
    assert simplify_expr(zero) == zero
    assert simplify_expr(Select(Const(True, bool_), y, zero, f32)) == y


def store(index: Expr, value: Expr) -> Store:
    return Store("Y", (index,), value)


def function(body: Any, n: int = 64) -> Function:
    x = Buffer("X", f32, (const_int(n),), "param", False)
    return Function("f", (x, Buffer("Y", f32, (const_int(n),), "param")), ("N",), body)


def both_run(a: Function, b: Function, sizes: range) -> None:
    verify(unique_names(b), "the pass under test")
    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    for n in sizes:
        ya, yb = np.full(64, np.nan, np.float32), np.full(64, np.nan, np.float32)
        interp.run(a, {"X": x, "Y": ya}, {"N": n})
        interp.run(unique_names(b), {"X": x, "Y": yb}, {"N": n})
        np.testing.assert_array_equal(ya, yb)


def loop(var: str, lo: str, hi: str, body: Any, kind: Any = "unroll", factor: int | None = None, step: int = 1) -> For:
    return For(var, parse(lo), parse(hi), step, body, kind, factor, var)


def doubled(index: str) -> Store:
    x = Load("X", (parse(index),), f32)
    return store(parse(index), Binary("+", x, x, f32))


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("factor", [None, 2, 4])
def test_constant_trip_counts_unroll(factor: int | None, step: int) -> None:
    fn = function(loop("i", "2", "13", doubled("i"), factor=factor, step=step))
    out = unroll(fn)
    assert not any(isinstance(s, For) and s.kind == "unroll" for s in walk(out.body))
    assert bool([s for s in walk(out.body) if isinstance(s, For)]) == (factor is not None and factor < 11 // step)
    both_run(fn, simplify(out), range(1))


@pytest.mark.parametrize("factor", [2, 5])
def test_symbolic_trip_counts_unroll_by_a_factor(factor: int) -> None:
    fn = function(loop("i", "1", "N", doubled("i"), factor=factor))
    both_run(fn, unroll(fn), range(14))


def test_bounded_trip_counts_get_guards() -> None:
    fn = function(loop("i", "0", "min(4, N)", doubled("i")))
    out = unroll(fn)
    assert sum(isinstance(s, If) for s in walk(out.body)) == 4
    both_run(fn, out, range(7))


def test_unknown_trip_counts_stay_loops_with_a_note() -> None:
    out = unroll(function(loop("i", "0", "N", doubled("i"))))
    assert out.notes == ("loop 'i' is not unrolled: its trip count has no constant bound",)
    assert [s.kind for s in walk(out.body) if isinstance(s, For)] == ["serial"]


def test_huge_expansions_are_declined() -> None:
    out = unroll(function(loop("i", "0", "100000", doubled("i"))))
    assert "100000 copies" in out.notes[0]


def test_partial_tiles_in_a_k_tile_are_a_nested_version() -> None:
    """The inner test has only what the outer one has not established."""
    tile = loop("i", "0", "min(4, N - 4*o)", loop("k", "0", "min(2, N - 2*p)", doubled("4*o + i")))
    first = loop("h", "0", "min(4, N - 4*o)", doubled("4*o + h"))
    nest = loop("o", "0", "(N + 3) // 4", Block((first, loop("p", "0", "(N + 1) // 2", tile, "serial"))), "serial")
    fn = function(nest)
    out = unique_names(separate_tiles(fn))
    versions = [s for s in walk(out.body) if isinstance(s, If) and s.orelse is not None]
    assert [str(v.cond.children()[0]) for v in versions]
    assert versions[0].cond == Binary(">=", parse("N - 4*o"), const_int(4), bool_)
    assert versions[1].cond == Binary(">=", Binary("-", Var("N"), parse("2*p"), i64), const_int(2), bool_)
    both_run(fn, unroll(out), range(11))


def test_rests_of_a_constant_size_are_versions_of_their_own() -> None:
    """7 = 4 + 3 and 9 = 2 * 4 + 1: four versions, none with a guard (a loop of 1 is none)."""
    inner = loop("j", "0", "min(4, 9 - 4*p)", doubled("9*(4*o + i) + 4*p + j"))
    tile = loop("i", "0", "min(4, 7 - 4*o)", inner)
    fn = function(loop("o", "0", "2", loop("p", "0", "3", tile, "serial"), "serial"))
    out = simplify(unique_names(separate_tiles(fn)))
    trips = [(s.loop, expr_text(s.hi)) for s in walk(out.body) if isinstance(s, For) and s.kind == "unroll"]
    assert sorted(trips) == [("i", "3"), ("i", "3"), ("i", "4"), ("i", "4"), ("j", "4"), ("j", "4")]
    both_run(fn, unroll(out), range(1))


def test_rests_of_blocks_are_known_from_what_the_blocks_leave() -> None:
    """31 = 2 * 12 + 4 + 3 in blocks of 12 and tiles of 4: each partial tile has 3."""
    tile = loop("i", "0", "min(4, 31 - 12*b - 4*o)", doubled("12*b + 4*o + i"))
    inner = loop("o", "0", "min(3, 8 - 3*b)", tile, "serial")
    fn = function(loop("b", "0", "3", inner, "serial"))
    out = simplify(unique_names(separate_tiles(fn)))
    trips = [expr_text(s.hi) for s in walk(out.body) if isinstance(s, For) and s.kind == "unroll"]
    assert trips == ["4", "3"]
    both_run(fn, unroll(out), range(1))


def test_an_empty_tile_is_no_rest() -> None:
    """The loop over tiles runs too far: there the rest is not 3, but nothing."""
    tile = loop("i", "0", "min(4, 31 - 12*b - 4*o)", doubled("12*b + 4*o + i"))
    fn = function(loop("b", "0", "4", loop("o", "0", "3", tile, "serial"), "serial"))
    both_run(fn, unroll(simplify(unique_names(separate_tiles(fn)))), range(1))


def test_repeated_loads_are_bound_once() -> None:
    x = Load("X", (const_int(3),), f32)
    body = Block((store(const_int(0), x), store(const_int(1), Binary("*", x, x, f32))))
    out = share_loads(function(body))
    lets = [s for s in walk(out.body) if isinstance(s, Let)]
    assert [s.value for s in lets] == [x]
    both_run(function(body), out, range(1))


def test_loads_of_written_arrays_and_lazy_loads_are_not_shared() -> None:
    y = Load("Y", (const_int(0),), f32)
    body = Block((store(const_int(1), y), store(const_int(0), Binary("+", y, y, f32)), store(const_int(2), y)))
    assert share_loads(function(body)).body == body
    outside = Load("X", (const_int(999),), f32)
    lazy = Select(Binary("<", Var("N"), const_int(0), bool_), outside, Const(1.0, f32), f32)
    body = Block((store(const_int(1), lazy), store(const_int(2), lazy)))
    assert share_loads(function(body)).body == body


def test_a_lazy_use_before_the_first_certain_one_stays() -> None:
    x = Load("X", (const_int(3),), f32)
    lazy = Select(Binary("<", Var("N"), const_int(0), bool_), x, Const(1.0, f32), f32)
    body = Block((store(const_int(0), lazy), store(const_int(1), x), store(const_int(2), x)))
    both_run(function(body), share_loads(function(body)), range(1))


def test_names_become_unique_without_changing_meaning() -> None:
    inner = loop("i", "0", "3", doubled("i"), "serial")
    body = Block((inner, inner, Let("t", parse("N"), store(Var("t"), Load("X", (Var("t"),), f32)))))
    fn = function(body)
    named = unique_names(fn)
    verify(named, "renaming")
    both_run(fn, named, range(3))


def test_masks_that_are_always_on_or_off_vanish() -> None:
    ramp = Ramp(parse("a + 8"), 1, 8, i64)
    on = Binary(">=", ramp, Broadcast(const_int(1), 8, i64), bool_)
    off = Binary("<", ramp, Broadcast(parse("a"), 8, i64), bool_)
    unknown = Binary("<", ramp, Broadcast(const_int(20), 8, i64), bool_)
    x, y = (VLoad("X", (ramp,), m, 8, f32) for m in (None, unknown))
    both = Binary("and", on, unknown, bool_)
    assert simplify_expr(both, RANGES) == unknown
    assert simplify_expr(Select(Unary("not", off, bool_), VLoad("X", (ramp,), on, 8, f32), y, f32), RANGES) == x
    assert simplify_expr(Select(off, x, y, f32), RANGES) == y
    assert simplify_expr(unknown, RANGES) == unknown


def test_substitution_helper() -> None:
    assert substitute(parse("a + b"), {"a": const_int(3)}) == Binary("+", const_int(3), Var("b"), i64)


def test_contraction_to_fma() -> None:
    x, y = Load("X", (const_int(1),), f32), Load("Y", (const_int(0),), f32)
    product = Binary("*", x, x, f32)
    update = Store("Y", (const_int(0),), Binary("+", y, product, f32), reduction="+")
    minus = Store("Y", (const_int(0),), Binary("-", y, product, f32), reduction="+")
    plain = store(const_int(1), Binary("+", product, x, f32))
    body = Block((update, minus, plain))

    def calls(**options: bool) -> list[str]:
        out = contract(replace(function(body), **options))
        verify(out, "contraction")
        return [expr_text(s.value) for s in walk(out.body) if isinstance(s, Store)]

    fused = ["fma(X[1], X[1], Y[0])", "fma(-X[1], X[1], Y[0])"]
    assert calls(fma=True)[:2] == fused and "fma" not in calls(fma=True)[2]
    assert not [c for c in calls(fma=False) if "fma" in c]
    assert calls(fma=False, fast_math=True) == [*fused, "fma(X[1], X[1], X[1])"]


def test_sums_that_an_update_adds_are_contracted() -> None:
    """`y += x*x + y*x - x`: the terms of a reduction may be rounded together, the factors of one may not."""
    x, y = Load("X", (const_int(1),), f32), Load("Y", (const_int(0),), f32)
    square, mixed = Binary("*", x, x, f32), Binary("*", y, x, f32)
    terms = Binary("-", Binary("+", square, mixed, f32), x, f32)
    inside = Binary("*", Binary("+", square, x, f32), Binary("/", x, y, f32), f32)
    updates = [Store("Y", (const_int(0),), Binary("+", y, e, f32), reduction="+") for e in (terms, inside)]
    out = contract(replace(function(Block(tuple(updates))), fma=True))
    verify(out, "contraction")
    texts = [expr_text(s.value) for s in walk(out.body) if isinstance(s, Store)]
    assert texts == ["Y[0] + (fma(Y[0], X[1], X[1] * X[1]) - X[1])", "fma(X[1] * X[1] + X[1], X[1] / Y[0], Y[0])"]


@pytest.mark.parametrize("dtype", [u8, i8, u32, i64], ids=lambda d: d.name)
def test_comparisons_that_the_type_decides(dtype: DType) -> None:
    """`x < 0` of an unsigned x and the like, against all the values that matter."""
    limits = np.iinfo(dtype.np)
    values = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    test = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
    for op, compare in test.items():
        for number in values:
            for flipped in (False, True):
                x, c = Load("X", (), dtype), Const(number, dtype)
                found = decided_by_type(Binary(op, c, x, bool_) if flipped else Binary(op, x, c, bool_))
                truths = {compare(number, v) if flipped else compare(v, number) for v in values}
                if isinstance(found, Const):
                    assert truths == {bool(found.value)}
                elif op not in ("==", "!="):
                    assert len(truths) == 2
