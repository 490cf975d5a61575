"""Updates that read other elements of the array that they update: which are reductions, by enumeration; and that
accepted orders of those that are compute the same, exactly, in integers."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import brute
import islpy as isl
import numpy as np
import pytest
from execute import execute

from polyc import dims, f64, inout, op
from polyc.poly.dtypes import i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Expr, Load, Var, const_int
from polyc.poly.legality import is_legal
from polyc.poly.reduction import reads_updated, updates_once
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Member, loop_dim
from polyc.poly.verify import verify

SIZE = 4
ITERS = ("i", "j", "k")
N = dims("N")


def subscript(r: random.Random) -> Expr:
    e: Expr = Var(r.choice(ITERS))
    return Binary("+", e, const_int(1), i64) if r.random() < 0.2 else e


def element(r: random.Random) -> Load:
    return Load("A", (subscript(r), subscript(r)), i64)


def update(r: random.Random) -> Statement:
    """A random update of an element, perhaps by others of the array, over a random nest."""
    bounds = [f"0 <= {i} < {SIZE}" for i in ITERS]
    bounds += [f"{a} < {b}" for a, b in permutations(ITERS, 2) if r.random() < 0.25]
    if r.random() < 0.2:
        bounds.append(f"({r.choice(ITERS)} + {r.choice(ITERS)}) mod 2 = {r.randint(0, 1)}")
    domain = isl.Set(f"{{ S[i, j, k] : {' and '.join(bounds)} }}")
    target = Load("A", (Var("i"), Var("j")), i64) if r.random() < 0.7 else element(r)
    other: Expr = Binary("*", element(r), r.choice((element(r), Load("B", (Var("k"),), i64))), i64)
    value = Binary(r.choice("+-"), target, other, i64)
    return Statement("S", ITERS, domain, "A", target.index, value)


def program(s: Statement, order: tuple[int, ...] = (0, 1, 2)) -> Scop:
    arrays = {"A": Array("A", i64, (const_int(SIZE + 1),) * 2, "inout"), "B": Array("B", i64, (const_int(SIZE),), "in")}
    tree = loops(s, [(k, False) for k in order])
    return Scop("updates", (), isl.Set("{ : }"), arrays, {"S": s}, tree, ("A", "B"), ())


def loops(s: Statement, order: list[tuple[int, bool]]) -> Band:
    from polyc.poly.tree import Leaf

    dims_ = [(ITERS[k], loop_dim(s.domain, k), back) for k, back in order]
    return Band(tuple(Member(n, {"S": d.neg() if back else d}) for n, d, back in dims_), Leaf())


def by_enumeration(s: Statement) -> bool:
    """Whether an instance reads, beside its accumulator, the element that it updates."""
    assert isinstance(s.value, Binary)
    for p in brute.points(s.domain):
        env = dict(zip(ITERS, brute.coordinates(p, 3), strict=True))
        own = tuple(brute.value(e, env) for e in s.index)
        for load in (x for x in brute.walk(s.value.b) if isinstance(x, Load) and x.array == "A"):
            if tuple(brute.value(e, env) for e in load.index) == own:
                return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_what_reads_the_updated_element_is_found_exactly(seed: int) -> None:
    s = update(random.Random(seed))
    assert isinstance(s.value, Binary)
    assert (reads_updated(s.target, [s.value.b], s.domain) is not None) == by_enumeration(s)
    written = [tuple(brute.value(e, dict(zip(ITERS, brute.coordinates(p, 3)))) for e in s.index)
               for p in brute.points(s.domain)]  # fmt: skip
    assert updates_once(s.target, s.domain) == (len(set(written)) == len(written))


@pytest.mark.parametrize("seed", range(40))
def test_accepted_orders_of_reductions_in_place_compute_the_same(seed: int) -> None:
    r = random.Random(f"order {seed}")
    s = update(r)
    while by_enumeration(s) or updates_once(s.target, s.domain):
        s = update(r)
    scop = program(replace(s, reduction="+"))
    verify(scop)
    given = {"A": np.array([[r.randint(-3, 3) for _ in range(SIZE + 1)] for _ in range(SIZE + 1)]),
             "B": np.array([r.randint(-3, 3) for _ in range(SIZE)])}  # fmt: skip
    wanted = execute(scop, given)["A"]
    for order in permutations(range(3)):
        for back in range(8):
            tree = loops(s, [(k, bool(back >> k & 1)) for k in order])
            if is_legal(scop, tree):
                assert (execute(scop.with_tree(tree), given)["A"] == wanted).all(), tree


def test_orders_of_reductions_in_place_are_accepted_that_plain_updates_forbid() -> None:
    """lu's update with its reduction backwards: the elements of a row are complete before another row reads them."""
    s = update(random.Random(0))
    target = Load("A", (Var("i"), Var("j")), i64)
    product = Binary("*", Load("A", (Var("i"), Var("k")), i64), Load("A", (Var("k"), Var("j")), i64), i64)
    s = replace(s, domain=isl.Set(f"{{ S[i, j, k] : 0 <= k < i < {SIZE} and k < j < {SIZE} }}"), index=target.index,
                value=Binary("-", target, product, i64))  # fmt: skip
    tree = loops(s, [(0, False), (1, False), (2, True)])
    marked, plain = program(replace(s, reduction="+")), program(s)
    assert is_legal(marked, tree) and not is_legal(plain, tree)


def test_an_update_by_the_updated_element_is_no_reduction() -> None:
    s = update(random.Random(0))
    target = Load("A", (Var("i"), Var("j")), i64)
    value = Binary("+", target, Load("A", (Var("i"), Var("k")), i64), i64)
    wrong = replace(s, domain=isl.Set("{ S[i, j, k] : 0 <= i, j, k < 3 }"), index=target.index, value=value)
    with pytest.raises(ScopError, match="not of that form"):
        verify(program(replace(wrong, reduction="+")))


@op
def solve(L: f64[N, N], x: inout(f64[N])):
    for i in range(N):
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]


@op
def running(x: inout(f64[N])):
    for i in range(1, N):
        x[i] += x[i - 1]


@op
def squared(x: inout(f64[N])):
    for i in range(N):
        for j in range(i + 1):
            x[i] -= x[j] * 0.5


@op
def by_condition(x: inout(f64[N])):
    for i in range(N):
        for j in range(N):
            if i != j:
                x[i] += x[j] * 0.5


def test_the_language_marks_what_is_a_reduction() -> None:
    assert [s.reduction for s in solve.scop().statements.values()] == ["+", None]
    assert [s.reduction for s in running.scop().statements.values()] == [None]
    assert [s.reduction for s in squared.scop().statements.values()] == [None]
    assert [s.reduction for s in by_condition.scop().statements.values()] == ["+"]
