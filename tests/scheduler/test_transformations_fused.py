"""Transformations of operators that call operators: several nests, local arrays, symbolic sizes."""

from __future__ import annotations

from typing import Any

import back_ends
import numpy as np
import pytest

from examples import polybench
from polyc import dims, empty, f64, grid, op
from polyc.poly.json_io import dumps, loads
from polyc.poly.verify import verify
from polyc.scheduler.schedule import Schedule

M, N, K = dims("M N K")


@op
def product(A: f64[M, K], B: f64[K, N]) -> f64[M, N]:
    C = empty((M, N), f64)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op
def affine(X: f64[M, N], b: f64[N]) -> f64[M, N]:
    Y = empty((M, N), f64)
    for i, j in grid(M, N):
        Y[i, j] = X[i, j] + b[j]
    return Y


@op
def layer(A: f64[M, K], B: f64[K, N], b: f64[N]) -> f64[M]:
    Y = affine(product(A, B), b)
    s = empty((M,), f64)
    for i in range(M):
        s[i] = 0.0
        for j in range(N):
            s[i] += max(Y[i, j], 0.0)
    return s


SCHEDULES = {
    "inline the bias": lambda s: s.inline(local(s, 1)),
    "one nest": lambda s: s.inline(local(s, 1)).split("j*", 4).parallel("i*"),
    "sums in parts": lambda s: s.split(reductions(s)[1], 3).rfactor(reductions(s)[1] + ".in").vectorize("*.in", 3),
    "products in parts": lambda s: s.rfactor(reductions(s)[0]).parallel(reductions(s)[0]),
    "both": lambda s: s.inline(local(s, 1)).rfactor(reductions(s)[0]).rfactor(reductions(s)[-1]),
    "register blocking": lambda s: s.tile(f"{statement(s, '*')}.*", [2, 3, 2]).unroll_and_jam("i.in", 2),
    "peeled and cut": lambda s: s.peel(s.loops[0], 1, 1).index_split(reductions(s)[-1], "N // 2"),
    "buffers": lambda s: s.tile(f"{statement(s, '*')}.*", [4, 2, 3]).promote("B", "k.out", layout=[1, 0]),
    "grid": lambda s: s.tile(f"{statement(s, '*')}.*", 2).bind("i.out", "block.x").bind("j.out", "block.y")
    .bind("i.in", "thread.y"),
}  # fmt: skip


def local(s: Schedule, position: int) -> str:
    return [a.name for a in s.scop.arrays.values() if a.kind == "local"][position]


def reductions(s: Schedule) -> list[str]:
    """The innermost loop of each reduction."""
    names = [x.name for x in s.scop.statements.values() if x.reduction == "+"]
    return [around(s, n)[-1] for n in names]


def around(s: Schedule, statement: str) -> list[str]:
    from polyc.poly.tree import loops_around

    return [m.name for m in loops_around(s.tree, statement)]


def statement(s: Schedule, op: str) -> str:
    """The update of the matrix product."""
    from polyc.poly.expr import Binary

    return next(
        x.name for x in s.scop.statements.values()
        if x.reduction and isinstance(x.value, Binary) and isinstance(x.value.b, Binary) and x.value.b.op == op
    )  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("sizes", [(5, 7, 6), (1, 2, 3)], ids=str)
def test_results_and_replay(name: str, sizes: tuple[int, int, int]) -> None:
    scop = layer.scop()
    s = SCHEDULES[name](Schedule.start(scop))
    verify(s.scop)
    m, n, k = sizes
    rng = np.random.default_rng()
    args = [rng.integers(-4, 5, shape).astype("d") for shape in ((m, k), (k, n), (n,))]
    expected = layer.python(*args)
    assert not back_ends.difference(back_ends.interpret(s.scop, s.tree, args, shuffle=1), [expected]), s
    assert Schedule.replay(s.original, s.save()) == s and s.original is scop
    assert dumps(loads(dumps(s.scop))) == dumps(s.scop)


def test_compiled_with_a_schedule_that_replaced_the_scop() -> None:
    s = layer.scop().schedule()
    s = s.inline(local(s, 1)).rfactor(reductions(s)[0])
    args = [np.random.default_rng().integers(-4, 5, shape).astype("d") for shape in ((9, 8), (8, 5), (5,))]
    assert np.array_equal(layer.compile(schedule=s)(*args), layer.python(*args))


STENCILS: dict[str, Any] = {
    "jacobi-1d": lambda s: s.fuse("i", "i_1", shift="auto").skew("i", "t", 2).tile(["t", "i"], [3, 5]),
    "seidel-2d": lambda s: s.skew("i", "t", 1).skew("j", "t", 1).skew("j", "i", 1).tile(["t", "i", "j"], [3, 4, 6]),
    "jacobi-2d": lambda s: s.fuse(["i", "j"], ["i_1", "j_1"], shift=[1, 1]).skew("i", "t", 2).skew("j", "t", 2)
    .tile(["t", "i", "j"], [2, 4, 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", STENCILS)
def test_tiled_after_skewing(name: str) -> None:
    kernel = polybench.load(name)
    args, constants = kernel.arguments("MINI")
    constants = dict.fromkeys(constants, 5)  # time steps
    s = STENCILS[name](kernel.exact.scop(**constants).schedule())
    expected = polybench.run(kernel.exact.python, kernel.exact, args, **constants)
    got = back_ends.interpret(s.scop, s.tree, [a for a in args if isinstance(a, np.ndarray)])
    assert not back_ends.difference(got, list(expected))
