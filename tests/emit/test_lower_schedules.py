"""Lowering of automatic schedules of larger operators: promoted tiles, packing, contraction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scops import TARGET, member, tiled_matmul
from small_operators import softmax

from polyc import dims, empty, f32, grid, op
from polyc.emit.c.cc import find_compiler
from polyc.emit.compile import compile_kernel
from polyc.emit.interpreter import interp
from polyc.emit.loop_ir.loops import Alloc, For, Ramp, Store, walk
from polyc.emit.lowering.lower import build_loops, lower
from polyc.emit.lowering.promotion import Promotion
from polyc.emit.mathlib import expand_function
from polyc.poly.binding import bind_sizes
from polyc.poly.tree import Band, Filter, Leaf, Promote, Sequence
from polyc.scheduler.strategies.auto import automatic

M, N, K = dims("M N K")
RNG = np.random.default_rng(3)


def agree(operator: Any, *args: Any, tolerance: float = 2e-5) -> None:
    """Program order = automatic schedule, before and after the passes, = plain Python."""
    scop = operator.scop()
    given = dict(zip(scop.args, args))
    sizes = bind_sizes(scop, {n: a.shape for n, a in given.items()})
    wanted = operator.python(*args)
    tree = automatic(scop, TARGET).tree
    for fn in (build_loops(scop, tree, "f"), expand_function(lower(scop, tree, "f", TARGET))):
        out = interp.poisoned(wanted.shape, scop.arrays[scop.results[0]].dtype)
        interp.run(fn, {**{n: a.copy() for n, a in given.items()}, scop.results[0]: out}, sizes, shuffle=5)
        np.testing.assert_allclose(out, wanted, rtol=tolerance, atol=tolerance)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@op
def conv(X: f32[2, 3, 7, 9], F: f32[10, 3, 3, 3], B: f32[10]) -> f32[2, 10, 7, 9]:
    P = empty((2, 3, 9, 11), f32)
    for n, c, h, w in grid(2, 3, 9, 11):
        P[n, c, h, w] = X[n, c, h - 1, w - 1] if h >= 1 and h < 8 and w >= 1 and w < 10 else 0.0
    Y = empty((2, 10, 7, 9), f32)
    for n, o, h, w in grid(2, 10, 7, 9):
        Y[n, o, h, w] = B[o]
        for c, kh, kw in grid(3, 3, 3):
            Y[n, o, h, w] += P[n, c, h + kh, w + kw] * F[o, c, kh, kw]
    for n, o, h, w in grid(2, 10, 7, 9):
        Y[n, o, h, w] = max(Y[n, o, h, w], 0.0)
    return Y


def test_a_padded_convolution() -> None:
    agree(conv, floats(2, 3, 7, 9), floats(10, 3, 3, 3), floats(10))


@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (4, 40)])
def test_softmax(shape: tuple[int, int]) -> None:
    agree(softmax, floats(*shape))


@op
def mlp(X: f32[M, K], W: f32[K, N], B: f32[N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i, j in grid(M, N):
        s = B[j]
        for k in range(K):
            s += X[i, k] * W[k, j]
        Y[i, j] = s if s > 0.0 else 0.1 * s
    return Y


@pytest.mark.parametrize("shape", [(1, 5, 1), (9, 21, 4), (14, 33, 8)])
def test_matmul_with_a_contracted_accumulator(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    agree(mlp, floats(m, k), floats(k, n), floats(n))


@op
def band(A: f32[N, N], x: f32[N]) -> f32[N]:
    y = empty((N,), f32)
    for i in range(N):
        y[i] = 0.0
        for j in range(max(0, i - 2), min(N, i + 3)):
            y[i] += A[i, j] * x[j]
    return y


@pytest.mark.parametrize("n", [1, 3, 20])
def test_min_and_max_bounds(n: int) -> None:
    agree(band, floats(n, n), floats(n))


c0, c1 = dims("c0 c1")


@op
def awkward(A: f32[c0, c1]) -> f32[c1, c0]:
    y = empty((c1, c0), f32)
    for c2 in range(c0):
        for c3 in range(c1):
            y[c3, c2] = A[c2, c3] + f32(c0 - c1)
    return y


def test_sizes_named_like_isl_s_iterators() -> None:
    agree(awkward, floats(5, 3))


@op
def pointwise(X: f32[5, 11], F: f32[19, 5]) -> f32[19, 11]:
    Y = empty((19, 11), f32)
    for o in range(19):
        for p in range(11):
            Y[o, p] = 0.0
            for c in range(5):
                Y[o, p] += F[o, c] * X[c, p]
    return Y


def transposed_tile() -> tuple[Any, Any]:
    """A register tile whose lanes run over the rows of Y: 4 values of p, 8 lanes of o."""
    s = pointwise.scop()
    first, update = s.statements.values()

    def inner(stmt: Any, *above: Any) -> Any:
        n = stmt.name
        own = ", ".join(stmt.iters)
        at = {"p": f"{{ {n}[{own}] -> [(p mod 4)] }}", "o": f"{{ {n}[{own}] -> [(o mod 8)] }}"}
        members = (member(f"p_{n}", "unroll", **{n: at["p"]}), member(f"o_{n}", "vector", 8, **{n: at["o"]}))
        return Filter({n: stmt.domain}, Band((*above, *members), Leaf()))

    outer = {
        k: {st.name: f"{{ {st.name}[{', '.join(st.iters)}] -> [(floor({k}/{size}))] }}" for st in (first, update)}
        for k, size in (("o", 8), ("p", 4))
    }
    k_loop = member("c", **{update.name: f"{{ {update.name}[{', '.join(update.iters)}] -> [(c)] }}"})
    body = Sequence((inner(first), inner(update, k_loop)))
    tile = Promote("Y", "tile", "register", body, ((1, 1, 0), (0, 1, 0)), copy_in=False)
    return s, Band((member("o.out", **outer["o"]), member("p.out", **outer["p"])), tile)


def test_a_transposed_register_tile_is_stored_in_rows() -> None:
    s, tree = transposed_tile()
    fn = lower(s, tree, "f", TARGET)
    stores = [x for x in walk(fn.body) if isinstance(x, Store) and x.array == "Y"]
    wide = [x for x in stores if x.value.lanes == 4]
    assert wide and all(isinstance(x.index[1], Ramp) for x in wide)
    assert all(x.value.lanes + x.index[1].lanes <= 4 for x in stores if x not in wide)  # 11 = 8 + 2 + 1
    assert not any(x.buffer.space != "register" for x in walk(fn.body) if isinstance(x, Alloc))
    x, f = floats(5, 11), floats(19, 5)
    wanted = pointwise.python(x, f)
    copied = tree.with_children((replace(tree.child, copy_in=True, child=tree.child.child.filters[1]),))
    filled = build_loops(s, copied, "f")
    kinds = {y.loop: y.kind for y in walk(filled.body) if isinstance(y, For) and y.loop.startswith("tile.in")}
    assert kinds == {"tile.in0": "unroll", "tile.in1": "unroll"}
    for backend in ["interp", "llvm", *(["c"] if find_compiler() else [])]:
        got = compile_kernel(s, tree, backend=backend)(x, f)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@op
def beside(X: f32[M, K, 1], W: f32[K, 60]) -> f32[M, 60, 1]:
    Y = empty((M, 60, 1), f32)
    for p, i, j in grid(1, M, 60):
        Y[i, j, p] = 0.0
        for k in range(K):
            Y[i, j, p] += X[i, k, p] * W[k, j]
    return Y


@op
def apart(X: f32[M, K, 3], W: f32[K, 36]) -> f32[M, 36, 3]:
    Y = empty((M, 36, 3), f32)
    for p, i, j in grid(3, M, 36):
        Y[i, j, p] = 0.0
        for k in range(K):
            Y[i, j, p] += X[i, k, p] * W[k, j]
    return Y


@pytest.mark.parametrize("operator", [beside, apart])
def test_rows_of_registers_are_stored_as_vectors(operator: Any) -> None:
    """Their lanes lie side by side (the last dimension has one element) or apart: no statement for each of them, and
    the tile stays in registers."""
    x = floats(9, 5, 1 if operator is beside else 3)
    agree(operator, x, floats(5, 60 if operator is beside else 36))
    scop = operator.scop()
    fn = lower(scop, automatic(scop, TARGET).tree, "f", TARGET)
    tiles = [s.buffer for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.name.startswith("Y_tile")]
    assert tiles
    assert {b.space for b in tiles} == {"register"}
    stores = [s for s in walk(fn.body) if isinstance(s, Store) and s.array == "Y"]
    assert stores
    assert all(any(e.lanes > 1 for e in s.index) for s in stores)


def test_subscripts_in_buffers_are_worked_out_once_for_all_copies_of_a_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, asked = Promotion.buffer_index, []

    def counted(self: Promotion, *args: Any) -> Any:
        asked.append(self.array)
        return plain(self, *args)

    monkeypatch.setattr(Promotion, "buffer_index", counted)
    counts = []
    for rows in (2, 8):
        asked.clear()
        scop, tree = tiled_matmul(mr=rows)
        build_loops(scop, tree, "f")
        counts.append(len(asked))
    assert counts[0] == counts[1]
