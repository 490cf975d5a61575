"""Chains of two products are found by access relations: heads, rows and columns wherever they stand in subscripts."""

from __future__ import annotations

import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from back_ends import execute

from polyc import empty, exp, f32, grid, max, op, where, zeros
from polyc.emit.gpu.targets import get as get_gpu
from polyc.emit.targets import get
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.strategies.planner import first_loops
from polyc.scheduler.transformations.tree_edit import locate

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
import simt

from tests.parts import in_part

Sizes = tuple[int, int, int, int, int]
"""Heads, rows, columns of scores, elements that are summed up, elements of a row of the result."""

ON_CPU: Sizes = (2, 70, 64, 32, 64)
ON_GPU: Sizes = (2, 20, 24, 8, 16)
LOWEST = float("-inf")


def heads_first(sizes: Sizes) -> Any:
    H, N, M, D, E = sizes

    @op
    def heads_first(Q: f32[H, N, D], K: f32[H, M, D], V: f32[H, M, E]) -> f32[H, N, E]:
        S = empty((H, N, M), f32)
        O = empty((H, N, E), f32)
        for b, i, j in grid(H, N, M):
            S[b, i, j] = 0.0
            for k in range(D):
                S[b, i, j] += Q[b, i, k] * K[b, j, k]
        for b, i, j in grid(H, N, M):
            S[b, i, j] = where(j <= i, S[b, i, j] * 0.25, f32(LOWEST))
        for b, i in grid(H, N):
            top = f32(LOWEST)
            for j in range(M):
                top = max(top, S[b, i, j])
            total = 0.0
            for j in range(M):
                S[b, i, j] = exp(S[b, i, j] - top)
                total += S[b, i, j]
            for j in range(M):
                S[b, i, j] = S[b, i, j] / total
        for b, i, j in grid(H, N, E):
            O[b, i, j] = 0.0
            for k in range(M):
                O[b, i, j] += S[b, i, k] * V[b, k, j]
        return O

    return heads_first


def heads_between(sizes: Sizes) -> Any:
    H, N, M, D, E = sizes

    @op
    def heads_between(Q: f32[N, H, D], K: f32[M, H, D], V: f32[M, H, E]) -> f32[N, H, E]:
        S = zeros((N, H, M), f32)
        O = zeros((N, H, E), f32)
        for b, k, j, i in grid(H, D, M, N):
            S[i, b, j] += K[j, b, k] * Q[i, b, k]
        for b, i in grid(H, N):
            for j in range(M):
                S[i, b, j] = where(j <= i, S[i, b, j] * 0.25, f32(LOWEST))
        for i in range(N):
            for b in range(H):
                top = f32(LOWEST)
                for j in range(M):
                    top = max(top, S[i, b, j])
                total = 0.0
                for j in range(M):
                    S[i, b, j] = exp(S[i, b, j] - top)
                    total += S[i, b, j]
                inverse = 1.0 / total
                for j in range(M):
                    S[i, b, j] *= inverse
        for b, i, j, k in grid(H, N, E, M):
            O[i, b, j] += S[i, b, k] * V[k, b, j]
        return O

    return heads_between


def divided_last(sizes: Sizes) -> Any:
    H, N, M, D, E = sizes

    @op
    def divided_last(Q: f32[N, H, D], K: f32[H, D, M], V: f32[M, H, E]) -> f32[N, H, E]:
        S = zeros((H, N, M), f32)
        T = empty((H, N), f32)
        O = zeros((N, H, E), f32)
        for b, i, j, k in grid(H, N, M, D):
            S[b, i, j] += K[b, k, j] * Q[i, b, k]
        for b, i in grid(H, N):
            for j in range(M):
                S[b, i, j] = where(j <= i, S[b, i, j] * 0.25, f32(LOWEST))
            top = f32(LOWEST)
            for j in range(M):
                top = max(top, S[b, i, j])
            T[b, i] = 0.0
            for j in range(M):
                S[b, i, j] = exp(S[b, i, j] - top)
                T[b, i] += S[b, i, j]
        for b, i, j, k in grid(H, N, E, M):
            O[i, b, j] += S[b, i, k] * V[k, b, j]
        for b, i, j in grid(H, N, E):
            O[i, b, j] = O[i, b, j] / T[b, i]
        return O

    return divided_last


def ones_between(sizes: Sizes) -> Any:
    """Dimensions and loops of one element, in other places of each array."""
    H, N, M, D, E = sizes

    @op
    def ones_between(Q: f32[1, H, N, D], K: f32[H, M, D], V: f32[H, M, E]) -> f32[H, N, E]:
        S = empty((1, H, N, M), f32)
        P = empty((H, 1, N, M), f32)
        O = empty((H, N, E), f32)
        for z, b, i, j in grid(1, H, N, M):
            S[z, b, i, j] = 0.0
            for k in range(D):
                S[z, b, i, j] += Q[z, b, i, k] * K[b, j, k]
        for b, z, i in grid(H, 1, N):
            top = f32(LOWEST)
            for j in range(M):
                P[b, z, i, j] = where(j <= i, S[z, b, i, j] * 0.25, f32(LOWEST))
                top = max(top, P[b, z, i, j])
            total = 0.0
            for j in range(M):
                P[b, z, i, j] = exp(P[b, z, i, j] - top)
                total += P[b, z, i, j]
            for j in range(M):
                P[b, z, i, j] = P[b, z, i, j] / total
        for b, i, j in grid(H, N, E):
            O[b, i, j] = 0.0
            for k in range(M):
                O[b, i, j] += P[b, 0, i, k] * V[b, k, j]
        return O

    return ones_between


def written_out(sizes: Sizes) -> Any:
    """A nest for each step, as nodes of a graph have them; the division by the sum is a product with its reciprocal."""
    H, N, M, D, E = sizes

    @op
    def written_out(Q: f32[H, N, D], K: f32[H, D, M], V: f32[H, M, E]) -> f32[H, N, E]:
        S = empty((H, N, M), f32)
        U = empty((H, N, M), f32)
        X = empty((H, N, M), f32)
        P = empty((H, N, M), f32)
        T = empty((H, N, 1), f32)
        R = empty((H, N, 1), f32)
        G = empty((H, N, 1), f32)
        O = empty((H, N, E), f32)
        for b, i, j in grid(H, N, M):
            S[b, i, j] = 0.0
            for k in range(D):
                S[b, i, j] += Q[b, i, k] * K[b, k, j]
        for b, i, j in grid(H, N, M):
            U[b, i, j] = where(j <= i, S[b, i, j] * 0.25, f32(LOWEST))
        for b, i, z in grid(H, N, 1):
            T[b, i, z] = f32(LOWEST)
            for j in range(M):
                T[b, i, z] = max(T[b, i, z], U[b, i, j])
        for b, i, j in grid(H, N, M):
            X[b, i, j] = exp(U[b, i, j] - T[b, i, 0])
        for b, i, z in grid(H, N, 1):
            R[b, i, z] = 0.0
            for j in range(M):
                R[b, i, z] += X[b, i, j]
        for b, i, z in grid(H, N, 1):
            G[b, i, z] = 1.0 / R[b, i, z]
        for b, i, j in grid(H, N, M):
            P[b, i, j] = X[b, i, j] * G[b, i, 0]
        for b, i, j in grid(H, N, E):
            O[b, i, j] = 0.0
            for k in range(M):
                O[b, i, j] += P[b, i, k] * V[b, k, j]
        return O

    return written_out


SPELLINGS = [heads_first, heads_between, divided_last, ones_between, written_out]


def data(spelling: Any, sizes: Sizes) -> tuple[list[np.ndarray], np.ndarray]:
    """Random arguments in the operator's layouts, and the result in f64."""
    H, N, M, D, E = sizes
    rng = np.random.default_rng()
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((H, N, D), (H, M, D), (H, M, E)))
    scores = np.einsum("bik,bjk->bij", q.astype(np.float64), k) * 0.25
    scores[:, np.arange(M)[None, :] > np.arange(N)[:, None]] = LOWEST
    p = np.exp(scores - scores.max(2, keepdims=True))
    out = np.einsum("bij,bjk->bik", p / p.sum(2, keepdims=True), v)
    if spelling in (heads_first, ones_between, written_out):
        k = np.ascontiguousarray(k.transpose(0, 2, 1)) if spelling is written_out else k
        return [q[None] if spelling is ones_between else q, k, v], out
    k = k.transpose(0, 2, 1) if spelling is divided_last else k.transpose(1, 0, 2)
    return [np.ascontiguousarray(a) for a in (q.transpose(1, 0, 2), k, v.transpose(1, 0, 2))], out.transpose(1, 0, 2)


def one_nest(schedule: Schedule) -> bool:
    return any(d.stage == "chains" and d.outcome == "done" and "rows" in d.figures for d in schedule.decisions)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: s.__name__)
@pytest.mark.parametrize("threads", [1, 2])
def test_on_a_cpu(spelling: Any, threads: int) -> None:
    schedule = automatic(spelling(ON_CPU).scop(), get("x86-64-v3"), threads)
    assert one_nest(schedule), schedule.notes
    args, expected = data(spelling, ON_CPU)
    (got,) = execute(schedule.scop, schedule.tree, args, "llvm")
    np.testing.assert_allclose(got, expected, 1e-4, 1e-5)


ON_A_GPU = in_part(SPELLINGS, lambda s: s in list(SPELLINGS)[::6], ids=lambda s: s.__name__)


@pytest.mark.parametrize("spelling", ON_A_GPU)
def test_on_a_gpu(spelling: Any) -> None:
    assert one_nest(automatic(spelling(ON_GPU).scop(), get_gpu("sm_80")))
    schedule = automatic(spelling(ON_GPU).scop(), simt.TARGET)
    assert one_nest(schedule), schedule.notes
    args, expected = data(spelling, ON_GPU)
    assert simt.agree(schedule, args, [expected.astype(np.float32)], 1e-4) == ""


def said(sizes: Sizes, scale: str, mask: str, softmax: str) -> Any:
    """Attention of some heads in the words of several authors; arrays are named by the words, too."""
    H, N, M, D, E = sizes

    def scaled(x: Any) -> Any:
        return x * 0.25 if scale == "product" else x / 4.0

    def masked(x: Any, at: Any, allowed: Any) -> Any:
        return x + at if mask == "sum" else where(allowed, x, f32(LOWEST))

    @op
    def said(Q: f32[H, N, D], K: f32[H, M, D], V: f32[H, M, E], B: f32[N, M]) -> f32[H, N, E]:
        S = zeros((H, N, M), f32)
        P = empty((H, N, M), f32)
        T = empty((H, N), f32)
        O = zeros((H, N, E), f32)
        for b, i, j, k in grid(H, N, M, D):
            S[b, i, j] += Q[b, i, k] * K[b, j, k]
        for b, i in grid(H, N):
            T[b, i] = f32(LOWEST)
            for j in range(M):
                P[b, i, j] = masked(scaled(S[b, i, j]), B[i, j], j <= i)
                T[b, i] = max(T[b, i], P[b, i, j])
            for j in range(M):
                P[b, i, j] = exp(P[b, i, j] - T[b, i])
            T[b, i] = 0.0
            for j in range(M):
                T[b, i] += P[b, i, j]
            T[b, i] = 1.0 / T[b, i] if softmax == "product" else T[b, i] / 1.0
            for j in range(M):
                P[b, i, j] = P[b, i, j] * T[b, i] if softmax == "product" else P[b, i, j] / T[b, i]
        for b, i, j, k in grid(H, N, E, M):
            O[b, i, j] += P[b, i, k] * V[b, k, j]
        return O

    return said


def in_numbers(program: str) -> str:
    """A program of steps with loops, arrays and statements called by the order in which they appear."""
    names: dict[str, str] = {}
    return re.sub(r'"([^"]*)"', lambda m: names.setdefault(m[1], f"name {len(names)}"), program)


@pytest.mark.parametrize("machine", ["x86-64-v3", "sm_80"])
def test_one_program_whatever_the_words(machine: str) -> None:
    """Products with a reciprocal, masks that are chosen or added."""
    sizes, target = (ON_GPU, get_gpu(machine)) if machine == "sm_80" else (ON_CPU, get(machine))
    words = product(("product", "quotient"), ("sum", "choice"), ("product", "quotient"))
    schedules = [automatic(said(sizes, *w).scop(), target) for w in words]
    assert all(map(one_nest, schedules))
    assert len({in_numbers(s.program()) for s in schedules}) == 1


def several_numbers(sizes: Sizes) -> Any:
    """Each thread of a row would run a loop over others: no pass of the GPU's kernel."""
    H, N, M, D, E = sizes

    @op
    def several_numbers(Q: f32[H, N, D], K: f32[H, M, D], V: f32[H, M, E]) -> f32[H, N, E]:
        S = zeros((H, N, M), f32)
        P = zeros((H, N, M), f32)
        O = zeros((H, N, E), f32)
        for b, i, j, k in grid(H, N, M, D):
            S[b, i, j] += Q[b, i, k] * K[b, j, k]
        for b, i in grid(H, N):
            for j in range(M // 2):
                for c in range(2):
                    P[b, i, 2 * j + c] = max(S[b, i, 2 * j + c], 0.0)
                for c in range(2):
                    P[b, i, 2 * j + c] += S[b, i, 2 * j + 1 - c]
        for b, i, j, k in grid(H, N, E, M):
            O[b, i, j] += P[b, i, k] * V[b, k, j]
        return O

    return several_numbers


def test_what_has_no_kernel_stays_three() -> None:
    """A refusal leaves the nests to the other strategies: none of them is taken for a chain's."""
    schedule = automatic(several_numbers(ON_GPU).scop(), get_gpu("sm_80"))
    assert not one_nest(schedule)
    assert any(d.stage == "chains" and d.outcome == "declined" for d in schedule.decisions), schedule.notes
    outermost = [locate(schedule.tree, n).member for n in first_loops(schedule.tree)]
    assert len(outermost) > 1 and all(m.kind.startswith("block") for m in outermost)


def layers(rows: int, inner: int, hidden: int, columns: int, in_place: bool) -> Any:
    """Two layers of a perceptron; the activation is written over what it reads, or into an array of its own."""

    @op
    def layers(
        X: f32[rows, inner], W: f32[inner, hidden], B: f32[hidden], V: f32[hidden, columns]
    ) -> f32[rows, columns]:
        H = empty((rows, hidden), f32)
        A = empty((rows, hidden), f32)
        Y = zeros((rows, columns), f32)
        for i, j in grid(rows, hidden):
            H[i, j] = B[j]
            for k in range(inner):
                H[i, j] += X[i, k] * W[k, j]
        for i, j in grid(rows, hidden):
            if in_place:
                H[i, j] = max(H[i, j], 0.0)
            else:
                A[i, j] = max(H[i, j], 0.0)
        for i, j, k in grid(rows, columns, hidden):
            Y[i, j] += (H if in_place else A)[i, k] * V[k, j]
        return Y

    return layers


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_layers_whose_values_leave_l2(in_place: bool, threads: int) -> None:
    machine = get("x86-64-v3")
    rng = np.random.default_rng()
    inner, hidden, columns = (int(n) for n in rng.integers((8, 64, 16), (40, 130, 70)))
    rows = machine.l2 // (4 * hidden) + int(rng.integers(1, 300))
    schedule = automatic(layers(rows, inner, hidden, columns, in_place).scop(), machine, threads)
    assert one_nest(schedule), schedule.notes
    shapes = ((rows, inner), (inner, hidden), (hidden,), (hidden, columns))
    args = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    x, w, b, v = (a.astype(np.float64) for a in args)
    (got,) = execute(schedule.scop, schedule.tree, args, "llvm")
    np.testing.assert_allclose(got, np.maximum(x @ w + b, 0) @ v, 1e-3, 1e-3)


@pytest.mark.parametrize("sizes, reason", [((64, 32, 96, 32), "stay in L2 anyway"), ((3000, 64, 2000, 64), "again")])
def test_layers_that_gain_nothing(sizes: tuple[int, ...], reason: str) -> None:
    schedule = automatic(layers(*sizes, True).scop(), get("x86-64-v3"))
    assert not one_nest(schedule)
    assert any(d.stage == "chains" and reason in d.reason for d in schedule.decisions), schedule.notes
