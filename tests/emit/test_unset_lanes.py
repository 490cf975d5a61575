"""Vectors of partial tiles load lanes that no iteration has: of local arrays these hold zeros, not what memory held."""

from __future__ import annotations

import numpy as np
import pytest

from polyc import dims, empty, f32, f64, grid, inout, op
from polyc.emit import targets
from polyc.emit.interpreter.interp import run
from polyc.emit.loop_ir.loops import Alloc, For, Function, Store, walk
from polyc.emit.lowering.lower import lower
from polyc.poly.scop import Scop
from polyc.scheduler.strategies.auto import automatic

M, N, K = dims("M N K")


@op
def product(C: inout(f32[M, N]), A: f32[M, K], B: f32[K, N]):
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]


@op
def of_columns(C: inout(f64[M, N]), A: f64[M, K], B: f64[N, K]):
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[j, k]


@op
def window(Y: inout(f32[M, N]), X: f32[M, N], F: f32[K, 3]):
    P = empty((M, N + 2), f32)
    for i, j in grid(M, N + 2):
        P[i, j] = 0.0
    for i, j in grid(M, N):
        P[i, j + 1] = X[i, j]
    for i, j in grid(M, N):
        Y[i, j] = 0.0
        for k in range(3):
            Y[i, j] += P[i, j + k] * F[0, k]


def loops(scop: Scop, target: str) -> Function:
    machine = targets.get(target)
    s = automatic(scop, machine)
    return lower(s.scop, s.tree, "f", machine)


def local_arrays(fn: Function) -> set[str]:
    return {s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.space != "register"}


def read_unset(fn: Function, shapes: list[tuple[int, ...]], sizes: dict[str, int]) -> set[tuple[str, tuple[int, ...]]]:
    """The elements of local arrays that a run reads before it has written them."""
    local, written, found = local_arrays(fn), set(), set()

    def see(array: str, at: tuple[int, ...], write: bool) -> None:
        if array in local:
            if write:
                written.add((array, at))
            elif (array, at) not in written:
                found.add((array, at))

    rng = np.random.default_rng()
    arrays = {b.name: rng.random(n).astype(b.dtype.np) for b, n in zip(fn.buffers, shapes, strict=True)}
    run(fn, arrays, sizes, accesses=see)
    return found


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("m, n, k", [(70, 21, 8), (20, 9, 4)])
@pytest.mark.parametrize("symbolic", [False, True], ids=["numbers", "symbols"])
def test_no_lane_of_a_panel_is_read_unset(target: str, m: int, n: int, k: int, symbolic: bool) -> None:
    sizes = {"M": m, "N": n, "K": k}
    for operator, second in ((product, (k, n)), (of_columns, (n, k))):
        fn = loops(operator.scop(**({} if symbolic else sizes)), target)
        assert not read_unset(fn, [(m, n), (m, k), second], sizes if symbolic else {})


def set_ahead(fn: Function) -> list[str]:
    """The arrays whose lanes begin as 0."""
    return [
        s.array
        for loop in walk(fn.body)
        if isinstance(loop, For) and "_unset" in loop.var
        for s in walk(loop)
        if isinstance(s, Store)
    ]


def test_only_the_panel_that_ends_early_is_set_ahead() -> None:
    """Of the panels of 21 columns the last one has lanes without a column; of 32 columns none."""
    assert any(set_ahead(loops(product.scop(M=70, N=21, K=16), t)) for t in ("x86-64-v3", "x86-64-v4"))
    assert not set_ahead(loops(product.scop(M=70, N=32, K=16), "x86-64-v4"))


def test_what_the_program_writes_itself_is_not_set_before() -> None:
    """A padded row is longer than the tile's last vector of results, but no lane of it is unset."""
    assert not set_ahead(loops(window.scop(M=6, N=7, K=1), "x86-64-v3"))
