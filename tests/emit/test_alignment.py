"""Aligned vector accesses: what is claimed of an address is true of every address of a run."""

# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

import re
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scops import TARGET

from polyc import empty, f32, grid, op
from polyc.emit.compile import compile_step
from polyc.emit.llvm.ir import to_llvm
from polyc.emit.loop_ir.loops import Block, For
from polyc.emit.loop_ir.ranges import Ranges
from polyc.emit.passes.workspace import hoist
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Expr, Unary, Var, const_int

NAMES = ("i", "j")


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.integers(-40, 40).map(const_int), st.sampled_from(NAMES).map(lambda n: Var(n, i64)))
    return st.recursive(
        leaves,
        lambda e: st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*", "//", "%"]), e, e).map(lambda t: Binary(*t, i64)),
            e.map(lambda a: Unary("neg", a, i64)),
        ),
        max_leaves=6,
    )


def value(e: Expr, env: dict[str, int]) -> int:
    if isinstance(e, Var):
        return env[e.name]
    if isinstance(e, Unary):
        return -value(e.a, env)
    if isinstance(e, Binary):
        a, b = value(e.a, env), value(e.b, env)
        if e.op in ("//", "%") and b == 0:
            return 0
        return {"+": a + b, "-": a - b, "*": a * b, "//": a // (b or 1), "%": a % (b or 1)}[e.op]
    return int(e.value)


@settings(max_examples=300, deadline=None)
@given(
    expressions(), st.tuples(st.integers(0, 20), st.integers(1, 9)), st.tuples(st.integers(0, 20), st.integers(1, 9))
)
def test_divisors_divide(e: Expr, first: tuple[int, int], second: tuple[int, int]) -> None:
    ranges, nothing = Ranges(), Block(())
    loops = [For(n, const_int(lo), const_int(lo + 30), step, nothing) for n, (lo, step) in zip(NAMES, (first, second))]
    with ranges.loop(loops[0]), ranges.loop(loops[1]):
        found = ranges.divisor(e)
    for i in range(first[0], first[0] + 30, first[1]):
        for j in range(second[0], second[0] + 30, second[1]):
            v = value(e, {"i": i, "j": j})
            assert v == 0 if found == 0 else v % found == 0


@op
def twice(X: f32[6, 64]) -> f32[6, 64]:
    P = empty((6, 64), f32)
    for i, j in grid(6, 64):
        P[i, j] = X[i, j] + 1.0
    Y = empty((6, 64), f32)
    for i, j in grid(6, 64):
        Y[i, j] = P[5 - i, j] * 2.0
    return Y


@op
def odd(X: f32[6, 72]) -> f32[6, 64]:
    P = empty((6, 72), f32)
    for i, j in grid(6, 72):
        P[i, j] = X[i, j] + 1.0
    Y = empty((6, 64), f32)
    for i, j in grid(6, 64):
        Y[i, j] = P[5 - i, j + 4] * 2.0
    return Y


def vector_accesses(operator: object, own: bool) -> set[int]:
    """The alignments of vector loads and stores in the text of a step whose local array has a place of a plan's."""
    s = operator.scop().schedule().vectorize("j", 16).vectorize("j_1", 16)
    loops = compile_step(s.scop, s.tree, TARGET, "llvm", "f")[0]
    fn = hoist(loops, 0, 0)[0]
    fn = replace(fn, buffers=tuple(replace(b, aligned=own and b.name == "P") for b in fn.buffers))
    return {int(a) for a in re.findall(r"(?:load|store) <16 x float>.*align (\d+)", to_llvm(fn, TARGET))}


def test_vectors_of_planned_arrays_are_aligned() -> None:
    assert vector_accesses(twice, True) == {4, 64}  # of X and Y nothing is known
    assert vector_accesses(odd, True) == {4, 16, 32}
    assert vector_accesses(twice, False) == {4}


def test_results_are_right() -> None:
    x = np.random.default_rng(0).standard_normal((6, 72)).astype("f")
    s = odd.scop().schedule().vectorize("j", 16).vectorize("j_1", 16)
    np.testing.assert_array_equal(odd.compile(schedule=s)(x), odd.python(x))
