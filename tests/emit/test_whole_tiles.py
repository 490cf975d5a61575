"""Tiles that an edge cuts: computed whole where nobody sees the rest, and the same results for all sizes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from back_ends import ALL, execute
from parts import in_part

from examples import polybench
from polyc import dims, empty, f32, f64, grid, inout, op
from polyc.emit import targets
from polyc.emit.loop_ir.linear import Linear, operands
from polyc.emit.loop_ir.loops import Alloc, For, If, Stmt, Store, walk
from polyc.emit.lowering.lower import lower
from polyc.emit.passes.bounds import not_negative
from polyc.poly.expr import Expr, Select
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.strategies.auto import automatic

N, K = dims("N K")


@op
def lower_triangle(C: inout(f64[N, N]), A: f64[N, K], B: f64[N, K]):
    for i in range(N):
        for k in range(K):
            for j in range(i + 1):
                C[i, j] += A[i, k] * B[j, k]


@op
def upper_triangle(C: inout(f64[N, N]), A: f64[N, K], B: f64[N, K]):
    for i in range(N - 1):
        for j in range(i + 1, N):
            for k in range(K):
                C[i, j] -= 2.0 * A[i, k] * B[j, k]


@op
def short_sums(C: inout(f64[N, K]), A: f64[N, N], B: f64[N, K]):
    for i in range(N):
        for j in range(K):
            for k in range(i):
                C[i, j] += A[i, k] * B[k, j]


@op
def images(X: f64[N, 5, K], F: f64[16, 5], B: f64[16]):
    Y = empty((N, 16, K), f64)
    for n, o, p in grid(N, 16, K):
        Y[n, o, p] = B[o]
        for c in range(5):
            Y[n, o, p] += F[o, c] * X[n, c, p]
    return Y


def arguments(operator: Any, n: int, k: int) -> list[np.ndarray]:
    rng = np.random.default_rng()
    shapes = {"short_sums": [(n, k), (n, n), (n, k)]}.get(operator.name, [(n, n), (n, k), (n, k)])
    return [rng.random(s) for s in shapes]


@pytest.mark.parametrize(
    ("backend", "n", "k"),
    in_part([(b, *s) for b in ALL for s in ((33, 9), (48, 17))], lambda b, n, k: n == 33 or b == "llvm"),
)
@pytest.mark.parametrize("operator", [lower_triangle, upper_triangle, short_sums], ids=lambda o: o.name)
def test_results(operator: Any, n: int, k: int, backend: str) -> None:
    args = arguments(operator, n, k)
    expected = [a.copy() for a in args]
    operator.python(*expected)
    for sizes in ({"N": n, "K": k}, {}):
        s = automatic(operator.scop(**sizes), targets.host())
        got = execute(s.scop, s.tree, args, backend)
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-12)


def buffers(operator: Any, **sizes: int) -> list[str]:
    s = automatic(operator.scop(**sizes), targets.get("x86-64-v3"))
    fn = lower(s.scop, s.tree, "f", targets.get("x86-64-v3"))
    return [x.buffer.name for x in walk(fn.body) if isinstance(x, Alloc) and x.buffer.space == "register"]


def test_the_reduction_of_a_cut_tile_has_all_of_it_in_registers() -> None:
    """Of the triangle's tiles one kind is full, one whole in registers while its sum runs."""
    assert any(name.startswith("C_tile_whole") for name in buffers(lower_triangle, N=96, K=64))


def test_where_the_sum_itself_is_cut_every_element_counts() -> None:
    """Rows of different lengths of the sum: an element outside of one step's domain is inside of another's."""
    assert not any("whole" in name for name in buffers(short_sums, N=96, K=64))


def asked_twice(s: Stmt, known: tuple[Linear, ...] = ()) -> list[Expr]:
    """Parts of conditions of two versions that a condition around already says, perhaps in other words."""
    found: list[Expr] = []
    if isinstance(s, If):
        parts = [(c, not_negative(c)) for c in operands(s.cond, "and")]
        forms = tuple(form for _, form in parts if form is not None)
        if s.orelse is not None:
            said = [(c, form - k) for c, form in parts if form is not None for k in known]
            found += [c for c, apart in said if apart.is_const and apart.const >= 0]
        found += asked_twice(s.then, (*known, *forms))
        return found + (asked_twice(s.orelse, known) if s.orelse is not None else [])
    return found + [c for b in s.bodies() for c in asked_twice(b, known)]


@pytest.mark.parametrize("name", ["correlation", "syrk", "cholesky"])
def test_no_version_is_made_for_what_a_version_around_it_rules_out(name: str) -> None:
    """Loops of one tile spell their ends differently (`N >= 8*j + 8`, `N - 8*j >= 8`)."""
    kernel = polybench.load(name)
    scop = kernel.operator.scop(**kernel.arguments("MEDIUM")[1])
    scop = specialise(scop, {n: v for n, v in kernel.sizes["MEDIUM"].items() if n in scop.params})
    s = automatic(scop, targets.get("x86-64-v3"))
    assert asked_twice(lower(s.scop, s.tree, "f", targets.get("x86-64-v3")).body) == []


@pytest.mark.parametrize("backend", in_part(ALL, lambda b: b == "llvm"))
def test_tiles_at_the_end_of_any_number_of_columns(backend: str) -> None:
    """Their sums run over vectors in registers: nothing in the loop asks where the columns end, but the lanes of the
    tile for less than a vector."""
    rng = np.random.default_rng()
    s = automatic(images.scop(), targets.get("x86-64-v3"))
    for n, k in ((2, 37), (1, 1), (3, 16), (1, 3)):
        args = [rng.random((n, 5, k)), rng.random((16, 5)), rng.random(16)]
        got = execute(s.scop, s.tree, args, backend)
        np.testing.assert_allclose(got[-1], images.python(*args), rtol=1e-12)
    fn = lower(s.scop, s.tree, "f", targets.get("x86-64-v3"))
    sums = [x for x in walk(fn.body) if isinstance(x, For) and x.loop == "c"]
    assert sums and not any(isinstance(x, If) for loop in sums for x in walk(loop.body))
    asking = [loop for loop in sums if any(isinstance(x, Store) and isinstance(x.value, Select) for x in walk(loop))]
    assert len(asking) <= 2 < len(sums)


@op
def product(A: f32[N, 40], B: f32[40, 48]) -> f32[N, 48]:
    """Any number of rows."""
    C = empty((N, 48), f32)
    for i, j in grid(N, 48):
        C[i, j] = 0.0
        for k in range(40):
            C[i, j] += A[i, k] * B[k, j]
    return C


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3", "c"])
def test_a_tile_with_one_row_keeps_its_sums_in_registers(target: str) -> None:
    kernel = product.compile(target=target)
    for rows in (1, 2, 5, 6, 7, 12, 13, 25):
        a, b = (np.random.default_rng(rows).standard_normal(s).astype(np.float32) for s in ((rows, 40), (40, 48)))
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-5)
    text = kernel.source("loops")
    assert "C_tile = alloc_register" in text and not re.search(r"C_tile\w* = alloc_local", text)
