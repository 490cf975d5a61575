"""Lowering of matmul: program order, tiles, register tiles, packing; loops and values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest
from scops import TARGET, matmul, member, only, tiled_matmul

from polyc.emit.interpreter import interp
from polyc.emit.loop_ir.loops import Alloc, Block, Broadcast, For, Function, If, Let, Ramp, Store, VLoad, walk
from polyc.emit.loop_ir.printer import to_text
from polyc.emit.lowering.lower import build_loops, lower
from polyc.emit.proof.proven import prove
from polyc.poly.dtypes import f64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Call, Const, Load, Select
from polyc.poly.expr import walk as walk_expr
from polyc.poly.tree import Band, Filter, Leaf, Promote, Sequence

SIZES = [(6, 16, 3), (12, 32, 4), (7, 19, 5), (5, 15, 3), (1, 1, 1), (13, 40, 2)]


def check(fn: Function, m: int, n: int, k: int, exact: bool = False, fixed: bool = False) -> None:
    dtype = np.float32
    rng = np.random.default_rng(m * 1000 + n)
    if exact:
        a, b = (rng.integers(-9, 9, s).astype(dtype) for s in ((m, k), (k, n)))
    else:
        a, b = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, dtype)
    interp.run(fn, {"A": a, "B": b, "C": c}, {} if fixed else {"M": m, "N": n, "K": k})
    np.testing.assert_allclose(c, a @ b, rtol=0 if exact else 1e-4, atol=0 if exact else 1e-5)


def test_program_order_is_the_source() -> None:
    s = matmul()
    fn = lower(s, s.tree, "mm", TARGET)
    assert to_text(fn) == (
        "def mm(M: i64, N: i64, K: i64, A: const f32[M, K], B: const f32[K, N], C: f32[M, N]):\n"
        "    for i in range(0, M):\n"
        "        for j in range(0, N):\n"
        "            C[i, j] = f32(0.0)\n"
        "            for k in range(0, K):\n"
        "                C[i, j] = fma(A[i, k], B[k, j], C[i, j])\n"
    )
    check(fn, 7, 9, 5)


def test_trace_is_the_schedule_order() -> None:
    s = matmul()
    fn = build_loops(s, s.tree, "mm")
    arrays = {n: np.ones(shape, np.float32) for n, shape in (("A", (2, 2)), ("B", (2, 1)), ("C", (2, 1)))}
    got = interp.trace(fn, arrays, {"M": 2, "N": 1, "K": 2})
    assert got == [
        ("S0", (0, 0)),
        ("S1", (0, 0, 0)),
        ("S1", (0, 0, 1)),
        ("S0", (1, 0)),
        ("S1", (1, 0, 0)),
        ("S1", (1, 0, 1)),
    ]


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_register_tiles_of_any_size(pack: bool, size: tuple[int, int, int]) -> None:
    s, tree = tiled_matmul(pack=pack)
    check(build_loops(s, tree, "mm"), *size, exact=True)
    check(lower(s, tree, "mm", TARGET), *size, exact=True)
    check(lower(s, tree, "mm", TARGET, vectorise=False), *size, exact=True)


@pytest.mark.parametrize("size", [(6, 16, 4), (13, 35, 3)])
def test_constant_sizes(size: tuple[int, int, int]) -> None:
    s, tree = tiled_matmul(sizes=size, pack=True)
    check(lower(s, tree, "mm", TARGET), *size, exact=True, fixed=True)


def test_divisible_constant_sizes_have_one_version() -> None:
    s, tree = tiled_matmul(sizes=(12, 32, 5))
    fn = lower(s, tree, "mm", TARGET)
    assert not any(isinstance(x, If) for x in walk(fn.body))
    assert not any(isinstance(x, Store) and x.mask is not None for x in walk(fn.body))


def hot_loop(fn: Function) -> list[Store]:
    """The stores of the first k loop, which is the one of full tiles."""
    loop = next(x for x in walk(fn.body) if isinstance(x, For) and x.loop == "k")
    return [x for x in walk(loop.body) if isinstance(x, Store)]


def test_the_inner_loop_of_a_register_tile() -> None:
    s, tree = tiled_matmul(pack=True)
    fn = lower(s, tree, "mm", TARGET)
    loop = next(x for x in walk(fn.body) if isinstance(x, For) and x.loop == "k")
    assert all(isinstance(x, (Let, Block, Store)) for x in walk(loop.body))
    lets = [x.value for x in walk(loop.body) if isinstance(x, Let)]
    assert sum(isinstance(v, VLoad) and v.array == "Bp" for v in lets) == 2
    assert sum(isinstance(v, Broadcast) and isinstance(v.a, Load) and v.a.array == "A" for v in lets) == 6
    stores = hot_loop(fn)
    assert len(stores) == 12
    for x in stores:
        assert isinstance(x.value, Call) and x.value.fn == "fma" and x.mask is None
        assert isinstance(x.index[0], Const) and isinstance(x.index[1], Ramp) and isinstance(x.index[1].base, Const)


def test_register_buffers_have_constant_subscripts_everywhere() -> None:
    s, tree = tiled_matmul()
    fn = lower(s, tree, "mm", TARGET)
    spaces = {x.buffer.name: x.buffer.space for x in walk(fn.body) if isinstance(x, Alloc)}
    assert set(spaces.values()) == {"register"}
    for x in walk(fn.body):
        if isinstance(x, Store) and x.array in spaces:
            assert x.mask is None
            for e in x.index:
                assert isinstance(e.base if isinstance(e, Ramp) else e, Const)


def test_one_condition_separates_full_tiles() -> None:
    s, tree = tiled_matmul()
    fn = lower(s, tree, "mm", TARGET)
    first = next(x for x in walk(fn.body) if isinstance(x, For) and x.loop == "k")
    assert not any(
        isinstance(x, If) or (isinstance(x, Store) and isinstance(x.value, Select)) for x in walk(first.body)
    )
    rows = next(x for x in walk(fn.body) if isinstance(x, If))
    columns = next(x for x in walk(rows.then) if isinstance(x, If))
    assert not any(isinstance(x, If) for x in walk(columns.then))  # full, or moved back


def test_without_reassociation_nothing_is_contracted() -> None:
    s, tree = tiled_matmul(dtype=f64)
    plain = {n: replace(x, reduction=None) for n, x in s.statements.items()}  # as `@op(reassociate=False)` makes it
    strict = replace(s, reassociate=False, statements=plain)
    fn = lower(strict, tree, "mm", TARGET)
    calls = [e for x in walk(fn.body) if isinstance(x, Store) for e in walk_expr(x.value) if isinstance(e, Call)]
    assert not calls and not fn.fma


def test_wider_registers_give_wider_vectors() -> None:
    s, tree = tiled_matmul(mr=4, nr=32, lanes=16)
    fn = lower(s, tree, "mm", replace(TARGET, vector_bits=512))
    assert {x.value.lanes for x in hot_loop(fn)} == {16}
    assert len(hot_loop(fn)) == 8
    check(fn, 9, 70, 3, exact=True)


def test_two_loops_of_one_name_are_refused() -> None:
    s = matmul()
    i = member("i", S0="[M, N, K] -> { S0[i, j] -> [(i)] }", S1="[M, N, K] -> { S1[i, j, k] -> [(i)] }")
    with pytest.raises(BuildError, match="two loops named 'i'"):
        build_loops(s, Band((i, i), Leaf()), "mm")


def test_a_schedule_that_loses_instances_fails_the_proof() -> None:
    s = matmul()
    fn = build_loops(s, s.tree, "mm")
    half = isl.Set("[M, N, K] -> { S1[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K + 1 }")
    bigger = replace(s, statements={**s.statements, "S1": replace(s.statements["S1"], domain=half)})
    with pytest.raises(BuildError, match=r"the loops miss .*S1"):
        prove(bigger, fn)
    smaller = replace(s.statements["S1"], domain=s.statements["S1"].domain.subtract(isl.Set("{ S1[0, 0, 0] }")))
    with pytest.raises(BuildError, match=r"wrongly run .*S1"):
        prove(replace(s, statements={**s.statements, "S1": smaller}), fn)
    twice = replace(fn, body=Block((fn.body, fn.body)))
    with pytest.raises(BuildError, match=r"some instance of S0 twice"):
        prove(s, twice)


def test_unbounded_buffers_are_refused() -> None:
    s = matmul()
    tree = Promote("B", "Bs", "register", s.tree)
    with pytest.raises(BuildError, match="no constant shape"):
        lower(s, tree, "mm", TARGET)


@pytest.mark.parametrize("layout", [None, ((1, 4, 0), (0, 1, 0), (1, 1, 4)), ((1, 1, 0), (0, 1, 0))])
def test_layouts_of_a_packed_operand(layout: Any) -> None:
    """B packed per j.out tile, in row-major, panels of 4, and transposed."""
    s, tree = tiled_matmul(mr=2, nr=8)
    assert isinstance(tree, Band)
    inner = Promote("B", "Bp", "local", tree.child, layout, copy_out=False)
    fn = lower(s, Band(tree.members, inner), "mm", TARGET)
    check(fn, 5, 21, 7, exact=True)


def test_the_same_array_promoted_twice() -> None:
    """B goes to a panel first and from there to a small tile."""
    s, tree = tiled_matmul(mr=2, nr=8)
    assert isinstance(tree, Band)
    inner = Promote("B", "Bt", "local", tree.child, copy_out=False)
    outer = Promote("B", "Bp", "local", Band(tree.members, inner), ((1, 8, 0), (0, 1, 0), (1, 1, 8)), copy_out=False)
    fn = lower(s, outer, "mm", TARGET)
    sources = {e.array for x in walk(fn.body) if isinstance(x, Store) and x.array.startswith("Bt")
               for e in walk_expr(x.value) if isinstance(e, (Load, VLoad))}  # fmt: skip
    assert sources == {"Bp"}
    check(fn, 5, 21, 7, exact=True)


def test_what_is_written_first_is_not_copied_in() -> None:
    s, tree = tiled_matmul(mr=2, nr=8)
    assert isinstance(tree, Band) and isinstance(tree.child, Promote)
    fn = build_loops(s, Band(tree.members, replace(tree.child, copy_in=True)), "mm")
    assert not [x for x in walk(fn.body) if isinstance(x, For) and x.loop.startswith("Creg.in")]


def test_an_accumulator_that_is_only_updated_is_copied_in() -> None:
    """The initialisation is a nest of its own: k.out around the tile would be the same."""
    s, tree = tiled_matmul(mr=2, nr=8)
    assert isinstance(tree, Band) and isinstance(tree.child, Promote)
    s0, s1 = s.statements["S0"], s.statements["S1"]
    body = tree.child.child
    assert isinstance(body, Sequence)

    def restricted(f: Filter, names: str) -> Band:
        members = tuple(replace(m, name=m.name + names) for m in tree.members)
        inner = f.child if names == "" else replace(f.child, members=f.child.members)
        return Band(members, inner if names else Promote("C", "Creg", "register", inner))

    parts = Sequence((only(s0, restricted(body.filters[0], "_0")), only(s1, restricted(body.filters[1], ""))))
    fn = lower(s, parts, "mm", TARGET)
    raw = build_loops(s, parts, "mm")
    assert [x for x in walk(raw.body) if isinstance(x, For) and x.loop.startswith("Creg.in")]
    check(fn, 5, 21, 7, exact=True)
