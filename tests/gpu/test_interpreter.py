"""The interpreter of launches finds what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
import simt

from polyc.emit.interpreter.interp import run
from polyc.emit.loop_ir.loops import Alloc, Barrier, Block, Buffer, For, Function, If, Launch, Stmt, Store
from polyc.emit.loop_ir.verify import verify
from polyc.poly.dtypes import bool_, f32, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Const, Load, Var, const_int

T, B = Var("t"), Var("b")
ONE = Const(1.0, f32)


def kernel(body: Stmt, threads: int = 4, blocks: int = 2) -> Function:
    out = Buffer("Y", f32, (const_int(8),), "param")
    grid = (("b", const_int(blocks)),)
    return Function("f", (out,), (), Launch("k", grid, (("t", threads),), body))


def ran(fn: Function, **how: bool) -> np.ndarray:
    y = np.zeros(8, "f4")
    run(fn, {"Y": y}, {}, **how)
    return y


def at(*terms: object) -> Binary:
    return Binary("+", terms[0], terms[1], i64)


def test_blocks_and_threads_run_once_each() -> None:
    index = at(T, Binary("*", const_int(4), B, i64))
    fn = kernel(Store("Y", (index,), ONE))
    verify(fn)
    assert (ran(fn, races=True) == 1).all()
    assert (ran(kernel(Store("Y", (index,), ONE), blocks=-1)) == 0).all(), "no blocks: nothing is launched"


def shared(barrier: Stmt) -> Function:
    """Thread t writes S[t] and reads S[3 - t]."""
    other = Binary("-", const_int(3), T, i64)
    read = Store("Y", (at(T, Binary("*", const_int(4), B, i64)),), Load("S", (other,), f32))
    body = Block((Store("S", (T,), ONE), barrier, read))
    return kernel(Alloc(Buffer("S", f32, (const_int(4),), "shared"), body))


def test_a_race_in_shared_memory() -> None:
    assert (ran(shared(Barrier()), races=True) == 1).all()
    with pytest.raises(simt.Race, match=r"touch S\[\d\] with no barrier between"):
        ran(shared(Block(())), races=True)
    assert np.isnan(ran(shared(Block(())))).any(), "and without the detector it reads memory that is not set yet"


def test_a_race_between_blocks() -> None:
    with pytest.raises(simt.Race, match=r"block 1 and another block touch Y\[0\]"):
        ran(kernel(Store("Y", (T,), ONE)), races=True)


def test_a_divergent_barrier() -> None:
    fn = shared(If(Binary("<", T, const_int(2), bool_), Barrier()))
    with pytest.raises(simt.Divergence, match="threads 0 and 2 of block 0 do not come to the same barrier"):
        ran(fn)
    with pytest.raises(BuildError, match="a barrier in 'k' under a condition on which threads may disagree"):
        verify(fn)


def test_a_barrier_in_a_loop_of_different_lengths() -> None:
    fn = shared(For("i", const_int(0), T, 1, Barrier()))
    with pytest.raises(simt.Divergence):
        ran(fn)
    with pytest.raises(BuildError, match="under loop 'i' on which threads may disagree"):
        verify(fn)
