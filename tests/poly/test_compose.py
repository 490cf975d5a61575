"""Composition means running the parts one after another; every name stays unique."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import small_scops as scops
from execute import execute
from small_scops import add, mul, ref

from polyc.poly.dtypes import f32
from polyc.poly.errors import IllegalSchedule, ScopError
from polyc.poly.expr import Const
from polyc.poly.legality import check
from polyc.poly.rewriting.compose import compose, rename
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import LoopMark, Scop
from polyc.poly.tree import Leaf, loop_names
from polyc.poly.verify import verify


def bias() -> Scop:
    """`Y[i,j] = X[i,j] + b[j]` through a local of the same shape."""
    ps = ["M", "N"]
    dom = "[i, j] : 0 <= i < M and 0 <= j < N"
    s0 = scops.stmt("S0", "S0" + dom, "t[i,j]", add(ref("X[i,j]"), ref("b[j]")), ps)
    s1 = scops.stmt("S1", "S1" + dom.replace("j", "j_1"), "Y[i,j_1]", add(ref("t[i,j_1]"), Const(1.0, f32)), ps)
    tree = scops.band([s0, s1], ["i"], scops.seq(
        ([s0], scops.band([s0], ["j"], Leaf())), ([s1], scops.band([s1], ["j_1"], Leaf()))))  # fmt: skip
    return scops.scop("bias", ps, {"X": ("M,N", "in"), "b": ("N", "in"), "Y": ("M,N", "out"), "t": ("M,N", "local")},
                      [s0, s1], tree)  # fmt: skip


def doubled() -> Scop:
    """`A[i] *= 2` in place."""
    twice = mul(ref("A[i,j]"), Const(2.0, f32))
    s0 = scops.stmt("S0", "S0[i, j] : 0 <= i < M and 0 <= j < N", "A[i,j]", twice, ["M", "N"])
    return scops.scop("doubled", ["M", "N"], {"A": ("M,N", "inout")}, [s0], scops.band([s0], ["i", "j"], Leaf()))


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)


SIZES = {"M": 3, "N": 4, "K": 2}


def chain() -> Scop:
    parts: list[tuple[Scop, Mapping[str, str]]] = [
        (scops.matmul(), {"A": "a", "B": "w", "C": "x"}),
        (bias(), {"X": "x", "b": "b", "Y": "y"}),
        (bias(), {"X": "y", "b": "b", "Y": "z"}),
    ]
    return compose("chain", parts, ["a", "w", "b"], ["z"])


def test_runs_the_parts_in_order() -> None:
    scop = chain()
    verify(scop)
    check(scop, scop.tree)
    given = {"a": rand(3, 2), "w": rand(2, 4), "b": rand(4)}
    out = execute(specialise(scop, SIZES), given)["z"]
    np.testing.assert_allclose(out, given["a"] @ given["w"] + 2 * given["b"] + 2, rtol=1e-6)


def test_names_kinds_and_arguments() -> None:
    scop = chain()
    assert (scop.args, scop.results, scop.params) == (("a", "w", "b"), ("z",), ("M", "N", "K"))
    assert {n: a.kind for n, a in scop.arrays.items()} == {
        "a": "in", "w": "in", "b": "in", "z": "out", "x": "local", "y": "local", "t": "local", "t_1": "local",
    }  # fmt: skip
    assert list(scop.statements) == ["S0", "S1", "S0_1", "S1_1", "S0_2", "S1_2"]
    assert len(set(loop_names(scop.tree))) == len(loop_names(scop.tree))
    iters = {i for s in scop.statements.values() for i in s.iters}
    assert not iters & {*scop.arrays, *scop.params, *scop.statements}


def test_a_part_may_update_a_tensor_in_place() -> None:
    parts: list[tuple[Scop, Mapping[str, str]]] = [
        (scops.matmul(), {"A": "a", "B": "w", "C": "x"}), (doubled(), {"A": "x"})]  # fmt: skip
    scop = compose("twice", parts, ["a", "w"], ["x"])
    verify(scop)
    assert scop.arrays["x"].kind == "out" and scop.results == ("x",)
    a, w = rand(3, 2), rand(2, 4)
    np.testing.assert_allclose(execute(specialise(scop, SIZES), {"a": a, "w": w})["x"], 2 * (a @ w), rtol=1e-6)
    alone = compose("alone", [(doubled(), {"A": "x"})], ["x"], ["x"])
    assert alone.arrays["x"].kind == "inout" and alone.args == ("x",) and alone.results == ()


def test_one_tensor_as_two_arguments() -> None:
    s0 = scops.stmt("S0", "S0[i] : 0 <= i < N", "C[i]", mul(ref("A[i]"), ref("B[i]")), ["N"])
    product = scops.scop("product", ["N"], {"A": ("N", "in"), "B": ("N", "in"), "C": ("N", "out")}, [s0],
                         scops.band([s0], ["i"], Leaf()))  # fmt: skip
    square = compose("square", [(product, {"A": "a", "B": "a", "C": "c"})], ["a"], ["c"])
    verify(square)
    a = rand(5)
    np.testing.assert_allclose(execute(specialise(square, {"N": 5}), {"a": a})["c"], a * a)


def test_what_the_program_says_of_loops_goes_with_them() -> None:
    marked = replace(bias(), marks=(LoopMark("j_1", "unroll"),))
    parts: list[tuple[Scop, Mapping[str, str]]] = [
        (marked, {"X": "x", "b": "b", "Y": "y"}), (marked, {"X": "y", "b": "b", "Y": "z"}),
    ]  # fmt: skip
    scop = compose("twice", parts, ["x", "b"], ["z"])
    assert [m.kind for m in scop.marks] == ["unroll", "unroll"]
    loops = [m.loop for m in scop.marks]
    assert len(set(loops)) == 2 and set(loops) <= set(loop_names(scop.tree))


def test_rename_is_simultaneous_and_keeps_the_meaning() -> None:
    swapped = rename(scops.matmul(), {"A": "B", "B": "A", "i": "j", "j": "i", "S0": "S1", "S1": "S0"})
    swapped = specialise(rename(swapped, {}), SIZES)
    assert set(loop_names(swapped.tree)) == {"i", "j", "k"}
    a, b = rand(3, 2), rand(2, 4)
    np.testing.assert_allclose(execute(swapped, {"B": a, "A": b})["C"], a @ b, rtol=1e-6)
    check(swapped, swapped.tree)


def test_order_of_parts_is_kept_by_legality() -> None:
    scop = chain()
    from polyc.poly.tree import Sequence

    assert isinstance(scop.tree, Sequence)
    back = Sequence(scop.tree.filters[::-1])
    with pytest.raises(IllegalSchedule, match="runs .* before"):
        check(scop, back)


def wide() -> Scop:
    s0 = scops.stmt("S0", "S0[i] : 0 <= i < N", "Y[i]", ref("X[i,0]"), ["N"])
    return scops.scop("wide", ["N"], {"X": ("N+1,N", "in"), "Y": ("N", "out")}, [s0], scops.band([s0], ["i"], Leaf()))


@pytest.mark.parametrize("parts, inputs, outputs, message", [
    ([(scops.matmul(), {"A": "a", "B": "b"}), (bias(), {"X": "x", "b": "v", "Y": "y"})], ["a", "b", "v"], ["y"],
     "reads the tensor 'x' before"),
    ([(scops.matmul(), {"A": "a", "C": "c"})], ["a"], ["c"], "argument 'B' of matmul is not connected"),
    ([(scops.matmul(), {"A": "a", "B": "b", "D": "c"})], ["a", "b"], ["c"], "no argument or result 'D'"),
    ([(scops.matmul(), {"A": "a", "B": "b", "C": "c"})], ["a", "b", "q"], ["c"], "no part uses the tensor 'q'"),
    ([(scops.matmul(), {"A": "a", "B": "b", "C": "c"})], ["a", "b"], ["a"], "no part writes the output 'a'"),
    ([(scops.matmul(), {"A": "a", "B": "b", "C": "x"}), (wide(), {"X": "x", "Y": "y"})], ["a", "b"], ["y"],
     r"tensor 'x' is \(.*f32\[M, N\]\) in one part, \(.*f32\[N \+ 1, N\]\) in wide"),
])  # fmt: skip
def test_wrong_wiring_is_named(parts, inputs, outputs, message) -> None:
    with pytest.raises(ScopError, match=message):
        compose("wrong", parts, inputs, outputs)


def test_reassociation_needs_every_part() -> None:
    from dataclasses import replace

    strict = replace(bias(), reassociate=False)
    parts: list[tuple[Scop, Mapping[str, str]]] = [
        (bias(), {"X": "x", "b": "b", "Y": "y"}), (strict, {"X": "y", "b": "b", "Y": "z"})]  # fmt: skip
    assert not compose("mixed", parts, ["x", "b"], ["z"]).reassociate
