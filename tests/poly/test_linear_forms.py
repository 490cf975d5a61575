"""Subscripts as isl functions: sums of multiples of variables take one way, all others another; both mean the same."""

from __future__ import annotations

import random

import islpy as isl
import pytest

from polyc.poly.dtypes import bool_, f32, i8, i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Unary, Var, const_int
from polyc.poly.forms import affine
from polyc.poly.forms.affine import NotAffine, is_affine, linear_aff, outside, set_space, to_pw_aff, to_set

SPACE = set_space("S", ("i", "j"), ("N",))
NAMES = ("i", "j", "N")


def drawn(r: random.Random, depth: int, pieces: bool) -> Expr:
    """A random integer expression; with `pieces` there are floors, remainders and minima in it."""
    if depth == 0:
        return Var(r.choice(NAMES)) if r.random() < 0.6 else const_int(r.randint(-5, 5))
    kind = r.choice(["+", "-", "*", "neg", "cast"] + ["//", "%", "min", "max"] * pieces)
    a = drawn(r, depth - 1, pieces)
    if kind == "neg":
        return Unary("neg", a, i64)
    if kind == "cast":
        return Cast(a, i64)
    if kind == "*":
        factor = const_int(r.randint(-3, 3))
        return Binary("*", *((a, factor) if r.random() < 0.5 else (factor, a)), i64)
    if kind in ("//", "%"):
        return Binary(kind, a, const_int(r.randint(1, 4)), i64)
    return Binary(kind, a, drawn(r, depth - 1, pieces), i64)


def value(e: Expr, at: dict[str, int]) -> int:
    """What Python makes of it."""
    if isinstance(e, Var):
        return at[e.name]
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Unary):
        return -value(e.a, at)
    if isinstance(e, Cast):
        return value(e.a, at)
    assert isinstance(e, Binary)
    a, b = value(e.a, at), value(e.b, at)
    plain = {"+": a + b, "-": a - b, "*": a * b, "min": min(a, b), "max": max(a, b)}
    return plain[e.op] if e.op in plain else (a // b if e.op == "//" else a % b)


@pytest.mark.parametrize("seed", range(60))
def test_functions_have_the_values_of_expressions(seed: int) -> None:
    r = random.Random(seed)
    e = drawn(r, r.randint(0, 5), pieces=bool(seed % 3))
    function = to_pw_aff(e, SPACE)
    assert is_affine(e, SPACE)
    for _ in range(8):
        at = {name: r.randint(-9, 9) for name in NAMES}
        point = isl.Point.zero(SPACE)
        for kind, pos, name in ((isl.dim_type.set, 0, "i"), (isl.dim_type.set, 1, "j"), (isl.dim_type.param, 0, "N")):
            point = point.set_coordinate_val(kind, pos, isl.Val(at[name]))
        assert function.eval(point).to_python() == value(e, at)


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_multiples_are_one_function(seed: int) -> None:
    assert linear_aff(drawn(random.Random(seed), 5, pieces=False), SPACE) is not None


def test_a_sum_is_what_isl_makes_of_its_parts() -> None:
    i, j = to_pw_aff(Var("i"), SPACE), to_pw_aff(Var("j"), SPACE)
    four = to_pw_aff(const_int(4), SPACE)
    e = Binary("-", Binary("*", const_int(4), Var("i"), i64), Binary("+", Var("j"), Var("i"), i64), i64)
    assert str(to_pw_aff(e, SPACE)) == str(four.mul(i).sub(j.add(i)))


WRONG = {
    "an unknown variable": Binary("+", Var("i"), Var("x"), i64),
    "one that cancels": Binary("-", Var("x"), Var("x"), i64),
    "one times 0": Binary("*", Var("x"), const_int(0), i64),
    "a product": Binary("*", Var("i"), Var("j"), i64),
    "a float": Binary("+", Var("i"), Const(1.5, f32), i64),
    "a factor of float": Binary("*", Var("i"), Const(2.0, f32), i64),
    "a sum of floats": Binary("+", Var("i", f32), Var("j", f32), f32),
    "a narrow cast": Cast(Var("i"), i8),
    "a division by a variable": Binary("+", Var("i"), Binary("//", Var("i"), Var("N"), i64), i64),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_affine_is_refused(what: str) -> None:
    assert not is_affine(WRONG[what], SPACE)
    with pytest.raises(NotAffine):
        to_pw_aff(WRONG[what], SPACE)


def test_products_by_what_turns_out_constant_are_affine() -> None:
    nothing = Binary("-", Var("N"), Var("N"), i64)
    assert str(to_pw_aff(Binary("*", nothing, Var("i"), i64), SPACE)) == str(to_pw_aff(const_int(0), SPACE))


@pytest.mark.parametrize("seed", range(40))
def test_comparisons_of_sums_are_the_sets_that_functions_in_pieces_make(seed: int) -> None:
    """The very conditions, not only the same points: what is derived from them is printed and compared as text."""
    r = random.Random(seed)
    a, b = (drawn(r, r.randint(0, 3), pieces=False) for _ in range(2))
    x, y = to_pw_aff(a, SPACE), to_pw_aff(b, SPACE)
    compared = {"<": x.lt_set(y), "<=": x.le_set(y), ">": x.gt_set(y), ">=": x.ge_set(y), "==": x.eq_set(y)}
    for op, wanted in (compared | {"!=": x.ne_set(y)}).items():
        found = to_set(Binary(op, a, b, bool_), SPACE)
        assert str(found) == str(wanted) and found.is_equal(wanted), op
    beyond = x.lt_set(y.sub(y)).union(x.ge_set(y))
    assert str(outside(a, b, SPACE)) == str(beyond)


def test_sums_are_compared_without_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that stays 0: functions in pieces take isl ten times as long."""
    asked: list[Expr] = []
    monkeypatch.setattr(affine, "to_pw_aff", lambda e, space: asked.append(e))
    i, n = Var("i"), Var("N")
    to_set(Binary("<", i, Binary("-", n, const_int(1), i64), bool_), SPACE)
    outside(i, n, SPACE)
    assert not asked
