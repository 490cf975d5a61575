"""What accesses that happen say of others: those may be performed although nobody needs them."""

from __future__ import annotations

import pytest

from polyc import dims, i32, inout, op
from polyc.emit.compile import compile_kernel
from polyc.emit.loop_ir.loops import Buffer, Ramp, VLoad
from polyc.emit.loop_ir.ranges import Ranges
from polyc.poly.dtypes import f32, i64
from polyc.poly.expr import Binary, Expr, Load, Var, const_int
from polyc.scheduler.schedule import Schedule

M, N = dims("M N")
I, J = Var("i"), Var("j")
SIZES: dict[str, Expr] = {"number": const_int(20), "symbol": Var("N")}


def plus(e: Expr, by: int) -> Expr:
    return Binary("+", e, const_int(by), i64)


def safe(r: Ranges, size: Expr, *index: Expr) -> bool:
    return r.safe(Load("B", index, f32), Buffer("B", f32, (plus(size, 1),) * len(index), "param"))


@pytest.mark.parametrize("size", SIZES)
def test_neighbours_of_what_is_accessed(size: str) -> None:
    """i is in [0, size), i + j in [1, size]: B has size + 1 elements a dimension."""
    r, n = Ranges(), SIZES[size]
    skewed = Binary("+", I, J, i64)
    r.learn("A", (I, plus(skewed, -1)), (n, n))
    assert safe(r, n, I) and safe(r, n, plus(I, 1)) and safe(r, n, skewed) and safe(r, n, plus(skewed, -1))
    assert not any(safe(r, n, e) for e in (plus(I, -1), plus(I, 2), plus(skewed, 1), plus(skewed, -2), J))


def test_two_accesses_together() -> None:
    r, n = Ranges(), Var("N")
    r.learn("A", (plus(I, 1),), (n,))
    assert not safe(r, n, I)
    r.learn("A", (plus(I, -2),), (n,))
    assert safe(r, n, I) and safe(r, n, plus(I, -2)) and safe(r, n, plus(I, 2)) and not safe(r, n, plus(I, -3))


def test_lanes() -> None:
    """Eight lanes from i on, or back from i: what they span is inside."""
    r, n = Ranges(), const_int(20)
    r.learn("A", (Ramp(I, 1, 8, i64),), (n,))
    assert (
        safe(r, n, plus(I, 7)) and safe(r, n, plus(I, 8)) and not safe(r, n, plus(I, 9)) and not safe(r, n, plus(I, -1))
    )
    row = Buffer("B", f32, (n,), "param")
    assert r.safe(VLoad("B", (Ramp(plus(I, 3), 1, 4, i64),), None, 4, f32), row)
    assert r.safe(VLoad("B", (Ramp(plus(I, 7), -1, 8, i64),), None, 8, f32), row)
    assert not r.safe(VLoad("B", (Ramp(plus(I, 6), -1, 8, i64),), None, 8, f32), row)


def test_what_may_not_have_happened_is_forgotten() -> None:
    r, n = Ranges(), const_int(20)
    with r.scope():
        r.learn("A", (I,), (n,))
        assert safe(r, n, I)
    assert not safe(r, n, I)


def test_what_data_say_is_not_remembered() -> None:
    r, n = Ranges(), const_int(20)
    r.learn("A", (Load("P", (I,), i64),), (n,))
    assert not safe(r, n, Load("P", (I,), i64))


@op
def longest(A: i32[M], B: i32[N], L: inout(i32[M + 1, N + 1])):
    """The longest common subsequence."""
    for i in range(1, M + 1):
        for j in range(1, N + 1):
            L[i, j] = L[i - 1, j - 1] + 1 if A[i - 1] == B[j - 1] else max(L[i - 1, j], L[i, j - 1])


@pytest.mark.parametrize("sizes", [{}, {"M": 40, "N": 30}])
def test_skewed_loops_choose_without_branches(sizes: dict[str, int]) -> None:
    s = Schedule.of(longest.scop(**sizes)).skew("j", "i", 1)
    text = compile_kernel(s.scop, s.tree, name="k").source("llvm")
    assert "pick" not in text and "select" in text
