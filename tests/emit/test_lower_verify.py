"""The loop-IR verifier refuses every broken rule; the interpreter checks what it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyc.emit.interpreter import interp
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Broadcast,
    Buffer,
    For,
    Function,
    HReduce,
    If,
    Let,
    Ramp,
    Store,
    VLoad,
)
from polyc.emit.loop_ir.printer import expr_text, to_text
from polyc.emit.loop_ir.verify import verify
from polyc.poly.dtypes import bf16, bool_, f32, f64, i32, i64, u8
from polyc.poly.errors import ArgumentError, BuildError
from polyc.poly.expr import Binary, Call, Cast, Const, Load, Select, Unary, Var, const_int

N = Var("N")
I = Var("i")
X = Load("X", (I,), f32)
ONE = Const(1.0, f32)
ZERO = const_int(0)
RAMP = Ramp(ZERO, 1, 4, i64)
VX = VLoad("X", (RAMP,), None, 4, f32)
MASK = Binary("<", RAMP, Broadcast(N, 4, i64), bool_)


def function(body: Any, *more: Buffer) -> Function:
    x = Buffer("X", f32, (N,), "param", writable=False)
    y = Buffer("Y", f32, (N,), "param")
    return Function("f", (x, y, *more), ("N",), body)


def over_i(body: Any, **changes: Any) -> For:
    options = {"lo": ZERO, "hi": N, "step": 1} | changes
    return For("i", options["lo"], options["hi"], options["step"], body)


GOOD = over_i(Store("Y", (I,), X))

BROKEN = {
    "variable 'j' is not bound": over_i(Store("Y", (Var("j"),), X)),
    "no buffer 'Z' in scope": over_i(Store("Z", (I,), X)),
    "'Y' has 1 dimension, accessed with 2": over_i(Store("Y", (I, I), X)),
    "store to read-only 'X'": over_i(Store("X", (I,), X)),
    "store of i64 to 'Y' of f32": over_i(Store("Y", (I,), I)),
    "load of f64 from 'X' of f32": over_i(Store("Y", (I,), Cast(Load("X", (I,), f64), f32))),
    "a subscript of 'Y' is not i64": over_i(Store("Y", (Cast(I, i32),), X)),
    "loop 'i' has step 0": over_i(Store("Y", (I,), X), step=0),
    "the upper bound of 'i' is no scalar i64": over_i(Store("Y", (I,), X), hi=ONE),
    "the name 'i' is bound twice": Block((GOOD, GOOD)),
    "the name 'N' is bound twice": Let("N", ZERO, GOOD),
    "'a.b' is not an identifier": Let("a.b", ZERO, GOOD),
    "a condition is no scalar bool_": If(ZERO, GOOD),
    "Binary + of [f32, f64] cannot give f32": over_i(Store("Y", (I,), Binary("+", X, Const(1.0, f64), f32))),
    "Binary < of [f32, f32] cannot give f32": over_i(Store("Y", (I,), Binary("<", X, X, f32))),
    "Binary and of [f32, f32] cannot give bool_": If(Binary("and", ONE, ONE, bool_), GOOD),
    "Select  of [f32, f32, f32] cannot give f32": over_i(Store("Y", (I,), Select(X, X, X, f32))),
    "Call nosuch of [f32] cannot give f32": over_i(Store("Y", (I,), Call("nosuch", (X,), f32))),
    "Call pow of [f32] cannot give f32": over_i(Store("Y", (I,), Call("pow", (X,), f32))),
    "Unary not of [f32] cannot give f32": over_i(Store("Y", (I,), Unary("not", X, f32))),
    "operands of [4, 1] lanes in Binary +": Store("Y", (RAMP,), Binary("+", VX, ONE, f32)),
    "operands of [4, 8] lanes": Store("Y", (RAMP,), Binary("+", VX, Broadcast(ONE, 8, f32), f32)),
    "store of 1 lanes to 'Y' at 4": Store("Y", (RAMP,), ONE),
    "store of 4 lanes to 'Y' at 1": Store("Y", (ZERO,), VX),
    "load from 'X' has 4 lanes": Store("Y", (RAMP,), VLoad("X", (ZERO,), None, 4, f32)),
    "a mask of a 1-lane access": over_i(Store("Y", (I,), X, Const(True, bool_))),
    "a mask of a 4-lane access": Store("Y", (RAMP,), VX, RAMP),
    "a vector of 1 lanes": Store("Y", (Ramp(ZERO, 1, 1, i64),), ONE),
    "the operand of a Broadcast is no scalar f32": Store("Y", (RAMP,), Broadcast(VX, 4, f32)),
    "horizontal reduction of 1 lanes": over_i(Store("Y", (I,), HReduce("+", X, f32))),
    "variable 'v' is bound as": Let("v", VX, Store("Y", (ZERO,), Var("v", f32))),
    "register buffer 'R' has no constant shape": Alloc(Buffer("R", f32, (N,), "register"), GOOD),
    "allocated buffer 'R' has space 'param'": Alloc(Buffer("R", f32, (N,), "param"), GOOD),
    "no buffer 'R' in scope": Block((Alloc(Buffer("R", f32, (N,), "heap"), GOOD), Store("R", (ZERO,), ONE))),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_rules(message: str) -> None:
    with pytest.raises(BuildError) as e:
        verify(function(BROKEN[message]), "this test")
    assert message in str(e.value) and "'f' is wrong after this test" in str(e.value)


def test_two_vector_subscripts() -> None:
    a = Buffer("A", f32, (N, N), "param")
    with pytest.raises(BuildError, match="two vector subscripts"):
        verify(function(Store("A", (RAMP, RAMP), VX), a))


def test_good_programs_pass() -> None:
    verify(function(GOOD))
    verify(function(Let("v", VX, Store("Y", (RAMP,), Var("v", f32, 4), MASK))))
    verify(function(Store("Y", (ZERO,), HReduce("max", VX, f32))))


def test_text_of_everything() -> None:
    body = Block((
        If(Binary("and", Binary("<", N, const_int(4), bool_), Unary("not", Const(True, bool_), bool_), bool_), GOOD),
        Alloc(Buffer("R", f32, (const_int(4),), "register"), Block((
            Store("R", (RAMP,), Select(MASK, VX, Broadcast(ONE, 4, f32), f32), MASK),
            Store("Y", (ZERO,), HReduce("+", VLoad("R", (RAMP,), MASK, 4, f32), f32)),
        ))),
        Let("t", Binary("-", N, Binary("-", N, const_int(-3), i64), i64),
            For("k", ZERO, Var("t"), 2, Store("Y", (Var("k"),), Cast(Var("k"), f32)), "parallel", None, "k.out")),
    ))  # fmt: skip
    assert (
        to_text(function(body))
        == """\
def f(N: i64, X: const f32[N], Y: f32[N]):
    if N < 4 and not True:
        for i in range(0, N):
            Y[i] = X[i]
    R = alloc_register(f32[4])
    R[ramp(0, 1, 4)] = (vload(X[ramp(0, 1, 4)]) if ramp(0, 1, 4) < splat(N, 4) else splat(f32(1.0), 4)) \
where ramp(0, 1, 4) < splat(N, 4)
    Y[0] = hreduce('+', vload(R[ramp(0, 1, 4)], where=ramp(0, 1, 4) < splat(N, 4)))
    t: i64 = N - (N - -3)
    for k in range(0, t, 2):  # parallel
        Y[k] = f32(k)
"""
    )


def test_precedence_in_text() -> None:
    a, b = Var("a"), Var("b")
    assert expr_text(Binary("*", Binary("+", a, b, i64), Unary("neg", a, i64), i64)) == "(a + b) * -a"
    assert expr_text(Binary("<<", a, Binary("&", a, b, i64), i64)) == "a << (a & b)"
    assert expr_text(Binary("**", Binary("**", a, b, i64), b, i64)) == "(a ** b) ** b"
    assert expr_text(Unary("not", Binary("or", Binary("<", a, b, bool_), Const(False, bool_), bool_), bool_)) == (
        "not (a < b or False)"
    )


# ---- the interpreter ------------------------------------------------------------------------


def run(body: Any, n: int, *more: Buffer, **arrays: Any) -> dict[str, Any]:
    given = {"X": np.arange(n, dtype=np.float32), "Y": np.full(n, np.nan, np.float32)} | arrays
    interp.run(function(body, *more), given, {"N": n})
    return given


def test_accesses_are_checked() -> None:
    with pytest.raises(interp.OutOfBounds, match=r"X\[3\] is outside \[3\]"):
        run(over_i(Store("Y", (I,), Load("X", (Binary("+", I, const_int(1), i64),), f32))), 3)
    with pytest.raises(interp.OutOfBounds, match=r"X\[-1\]"):
        run(over_i(Store("Y", (I,), Load("X", (Binary("-", I, const_int(1), i64),), f32))), 3)
    with pytest.raises(interp.OutOfBounds, match=r"lane 3: Y\[3\]"):
        run(Store("Y", (RAMP,), Broadcast(ONE, 4, f32)), 3)


def test_masked_lanes_touch_nothing_and_load_zero() -> None:
    got = run(Store("Y", (RAMP,), VLoad("X", (RAMP,), MASK, 4, f32), MASK), 3)
    np.testing.assert_array_equal(got["Y"], [0, 1, 2])
    big = Buffer("Z", f32, (const_int(4),), "param")
    z = run(Store("Z", (RAMP,), VLoad("X", (RAMP,), MASK, 4, f32)), 2, big, Z=np.full(4, 9, np.float32))["Z"]
    np.testing.assert_array_equal(z, [0, 1, 0, 0])


def test_selects_and_logic_are_lazy() -> None:
    outside = Load("X", (N,), f32)
    inside = Binary("<", N, const_int(0), bool_)
    got = run(over_i(Store("Y", (I,), Select(inside, outside, X, f32))), 3)
    np.testing.assert_array_equal(got["Y"], [0, 1, 2])
    reads = Binary("and", inside, Binary("<", outside, ONE, bool_), bool_)
    run(If(reads, GOOD), 3)


def test_fresh_memory_is_poisoned_every_time() -> None:
    r = Buffer("R", f32, (const_int(1),), "local")
    body = over_i(Alloc(r, Block((Store("Y", (I,), Load("R", (ZERO,), f32)), Store("R", (ZERO,), ONE)))))
    assert np.isnan(run(body, 3)["Y"]).all()
    assert interp.poisoned((2,), u8).dtype == np.uint8 and (interp.poisoned((2,), u8) != 0).all()
    assert np.isnan(interp.poisoned((2,), bf16).astype(np.float32)).all()


def test_parallel_loops_run_shuffled() -> None:
    body = For("i", ZERO, N, 1, Store("Y", (I,), X, None, ("S", (I,))), "parallel")
    arrays = {"X": np.zeros(20, np.float32), "Y": np.zeros(20, np.float32)}
    order = [p[0] for _, p in interp.trace(function(body), arrays, {"N": 20}, shuffle=1)]
    assert order != sorted(order) and sorted(order) == list(range(20))
    assert [p[0] for _, p in interp.trace(function(body), arrays, {"N": 20})] == list(range(20))


def test_accesses_are_observed() -> None:
    seen: list[Any] = []
    arrays = {"X": np.zeros(2, np.float32), "Y": np.zeros(2, np.float32)}
    interp.run(function(GOOD), arrays, {"N": 2}, accesses=lambda a, at, w: seen.append((a, at, w)))
    assert seen == [("X", (0,), False), ("Y", (0,), True), ("X", (1,), False), ("Y", (1,), True)]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ArgumentError, match="no array for 'Y'"):
        interp.run(function(GOOD), {"X": np.zeros(2, np.float32)}, {"N": 2})
    with pytest.raises(ArgumentError, match="no value for the size 'N'"):
        interp.run(function(GOOD), {}, {})
    with pytest.raises(ArgumentError, match=r"'X' is float64\[2\], expected float32\[2\]"):
        interp.run(function(GOOD), {"X": np.zeros(2), "Y": np.zeros(2, np.float32)}, {"N": 2})


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_horizontal_sums_are_pairwise(n: int) -> None:
    values = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    fold = values.copy()
    while len(fold) > 1:
        fold = fold[: len(fold) // 2] + fold[len(fold) // 2 :]
    whole = VLoad("X", (Ramp(ZERO, 1, n, i64),), None, n, f32)
    got = run(Store("Y", (ZERO,), HReduce("+", whole, f32)), n, X=values)
    assert got["Y"][0] == fold[0]


def test_integers_wrap_and_divide_down() -> None:
    a = Buffer("A", i32, (N,), "param")
    big = Const(2**31 - 1, i32)
    body = Block((
        Store("A", (ZERO,), Binary("+", big, Const(1, i32), i32)),
        Store("A", (const_int(1),), Binary("//", Const(-7, i32), Const(2, i32), i32)),
        Store("A", (const_int(2),), Binary("%", Const(-7, i32), Const(2, i32), i32)),
        Store("A", (const_int(3),), Binary(">>", Const(-8, i32), Const(1, i32), i32)),
        Store("A", (const_int(4),), Unary("neg", Const(-(2**31), i32), i32)),
    ))  # fmt: skip
    got = run(body, 5, a, A=np.zeros(5, np.int32))["A"]
    assert list(got) == [-(2**31), -4, 1, -4, -(2**31)]
