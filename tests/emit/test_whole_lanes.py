"""Partial vectors in registers lose their selections where nobody reads the other lanes, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from hand_ir import Alloc, Block, Buffer, Function, Ramp, Store, VLoad, num, param, ramp, splat

from polyc import empty, f32, grid, max, op
from polyc.emit import targets
from polyc.emit.interpreter import interp
from polyc.emit.loop_ir.loops import walk
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.emit.lowering.lower import lower
from polyc.emit.passes.whole_lanes import whole_lanes
from polyc.frontend_dsl.library.convolution import make_pointwise
from polyc.poly.dtypes import bool_
from polyc.poly.dtypes import f32 as single
from polyc.poly.expr import Binary, Expr, Select, const_int
from polyc.poly.expr import walk as walk_expr
from polyc.scheduler.strategies.auto import automatic

V3 = targets.get("x86-64-v3")


def selections(fn: Function) -> int:
    """Selections between vectors."""
    exprs = (e for s in walk(fn.body) for top in stmt_exprs(s) for e in walk_expr(top))
    return sum(isinstance(e, Select) and e.lanes > 1 for e in exprs)


@pytest.mark.parametrize("columns", [3, 7, 13, 15, 31, 63])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_have_none_and_are_right(columns: int, transposed: bool) -> None:
    @op
    def product(X: f32[5, 9], W: f32[9, columns], b: f32[columns]) -> f32[(columns, 5) if transposed else (5, columns)]:
        C = empty((5, columns), f32)
        Y = empty((columns, 5) if transposed else (5, columns), f32)
        for i, j in grid(5, columns):
            C[i, j] = b[j]
            for k in range(9):
                C[i, j] += X[i, k] * W[k, j]
        for i, j in grid(5, columns):
            if transposed:
                Y[j, i] = max(C[i, j], 0.0)
            else:
                Y[i, j] = max(C[i, j], 0.0)
        return Y

    scop, rng = product.scop(), np.random.default_rng()
    fn = lower(scop, automatic(scop, V3).tree, "f", V3)
    assert selections(fn) == 0
    registers = {s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.space == "register"}
    masked = [s for s in walk(fn.body) if isinstance(s, Store) and s.array in registers and s.mask is not None]
    assert not masked, "buffers that are stored to under masks lie in memory"
    shapes = {n: tuple(int(e.value) for e in scop.arrays[n].shape) for n in (*scop.args, *scop.results)}
    given = {n: rng.standard_normal(shapes[n]).astype(np.float32) for n in scop.args}
    expected = product.python(*given.values())
    (result,) = scop.results
    given[result] = interp.poisoned(shapes[result], single)
    interp.run(fn, given, {})
    assert np.allclose(given[result], expected, rtol=1e-5, atol=1e-5)


def partial_update(read: Expr) -> Function:
    """Eight ones in registers, of which five become twos; `read` goes to Y."""
    first = (ramp(const_int(0), 8),)
    mask = Binary("<", Ramp(const_int(0), 1, 8, first[0].dtype), splat(const_int(5), 8), bool_)
    twos = Select(mask, splat(num(2.0), 8), VLoad("R", first, None, 8, single), single)
    where = ramp(const_int(0), read.lanes)
    body = Block((Store("R", first, splat(num(1.0), 8)), Store("R", first, twos), Store("Y", (where,), read)))
    register = Buffer("R", single, (const_int(8),), "register")
    return Function("f", (param("Y", single, 8, writable=True),), (), Alloc(register, body))


@pytest.mark.parametrize("lanes, left", [(8, 1), (4, 0)])
def test_lanes_that_are_read_keep_their_selection(lanes: int, left: int) -> None:
    fn = partial_update(VLoad("R", (ramp(const_int(0), lanes),), None, lanes, single))
    after = whole_lanes(fn)
    assert selections(after) == left
    outs = []
    for f in (fn, after):
        y = np.zeros(8, np.float32)
        interp.run(f, {"Y": y}, {})
        outs.append(y)
    assert np.array_equal(*outs)


def test_rests_in_registers_stay_whole_vectors() -> None:
    """30 columns are 16 and 14: 8 + 4 + 2 for each row would take more registers than there are."""
    scop = make_pointwise(single, 1, (9, 20), 30, False).scop()
    fn = lower(scop, automatic(scop, V3).tree, "f", V3)
    sums = [s for s in walk(fn.body) if isinstance(s, Store) and s.reduction is not None]
    assert sums and {s.value.lanes for s in sums} == {8}
    x, f = (np.random.default_rng(k).integers(-9, 9, s).astype("f4") for k, s in enumerate([(1, 9, 30), (20, 9)]))
    y = interp.poisoned((1, 20, 30), single)
    interp.run(fn, {"X": x, "F": f, "Y": y}, {})
    np.testing.assert_array_equal(y, np.einsum("oc,ncp->nop", f, x))
