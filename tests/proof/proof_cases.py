"""Programs with schedules, for the proof of their loops: by hand, library, PolyBench, random."""

from __future__ import annotations

import importlib.util
import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from differential import exact_when_reordered, oracle
from loop_mutants import Mutant, mutants
from mutant_oracle import TARGET, Case, Run
from random_programs import generate
from random_schedules import random_schedule

from examples import polybench
from polyc import dims, empty, exp, f32, f64, grid, inout, op
from polyc.emit.interpreter.interp import poisoned
from polyc.emit.lowering.lower import build_loops
from polyc.poly.binding import bind_sizes, evaluate
from polyc.poly.scop import Array
from polyc.poly.tree import Promote
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

M, N, K = dims("M N K")


@op(reassociate=True)
def matmul(A: f64[M, K], B: f64[K, N]) -> f64[M, N]:
    C = empty((M, N), f64)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op(reassociate=True)
def convolution(X: f64[M + 2, N + 2], F: f64[3, 3]) -> f64[M, N]:
    Y = empty((M, N), f64)
    for i, j in grid(M, N):
        s = 0.0
        for p, q in grid(3, 3):
            s += X[i + p, j + q] * F[p, q]
        Y[i, j] = max(s, 0.0)
    return Y


@op(reassociate=False)
def stencil(A: inout(f64[N]), B: inout(f64[N])):
    for t in range(4):
        for i in range(1, N - 1):
            B[i] = 0.25 * (A[i - 1] + A[i] + A[i + 1])
        for j in range(1, N - 1):
            A[j] = 0.25 * (B[j - 1] + B[j] + B[j + 1])


@op(reassociate=False)
def seidel(A: inout(f64[N])):
    for t, i in grid(3, (1, N - 1)):
        A[i] = 0.25 * (A[i - 1] + A[i] + A[i + 1]) + f64(t)


@op(reassociate=False)
def cholesky(A: inout(f64[N, N])):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for l in range(i):
            A[i, i] -= A[i, l] * A[i, l]
        A[i, i] = abs(A[i, i]) + 1.0


@op(reassociate=True)
def softmax(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        top = X[i, 0]
        for j in range(1, N):
            top = max(top, X[i, j])
        total = 0.0
        for k in range(N):
            Y[i, k] = exp(X[i, k] - top)
            total += Y[i, k]
        for l in range(N):
            Y[i, l] = Y[i, l] / total
    return Y


@op(reassociate=False)
def guarded(A: f64[N], B: inout(f64[N]), C: inout(f64[N])):
    for i in range(N):
        if A[i] > 0.0:
            B[i] = A[i] + (C[i + 1] if A[i] > 0.5 and i < N - 1 else 0.0)
        if i > 1:
            C[i - 2] = B[i] * 2.0


def whole(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small whole numbers, so that sums have no rounding."""
    return rng.integers(-4, 5, shape).astype(np.float64)


def real(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape)


def _tiled(s: Schedule) -> Schedule:
    return s.tile(["i", "j"], [3, 4])


def _all_of(s: Schedule, array: str) -> Schedule:
    """The whole array in one more buffer, around the one that there is."""
    return replace(s, tree=Promote(array, f"all_{array}", "heap", s.tree))


BY_HAND: dict[str, tuple[Any, Callable[[Schedule], Schedule], Callable[..., list[Any]], list[tuple[int, ...]], bool]]
BY_HAND = {
    "guarded: may-writes": (
        guarded,
        lambda s: s.split("i", 3).promote("B", "i.out", "local"),
        lambda g, n: [real(g, n), real(g, n), real(g, n)], [(7,), (3,), (8,)], True,
    ),
    "seidel: blocks of time": (
        seidel,
        lambda s: s.split("t", 2),
        lambda g, n: [real(g, n)], [(8,), (3,), (2,)], True,
    ),
    "matmul: tile of C in registers": (
        matmul,
        lambda s: _tiled(s).promote("C", "j.out", "local").parallel("i.out").vectorize("j.in", 4),
        lambda g, m, n, k: [whole(g, m, k), whole(g, k, n)], [(4, 5, 3), (3, 4, 1), (1, 1, 2)], True,
    ),
    "matmul: packed panels": (
        matmul,
        lambda s: _tiled(s).promote("B", "j.out", "heap").promote("A", "i.out", "local").parallel("j.out"),
        lambda g, m, n, k: [whole(g, m, k), whole(g, k, n)], [(4, 5, 3), (2, 9, 2)], True,
    ),
    "matmul: buffers inside buffers": (
        matmul,
        lambda s: _all_of(_all_of(_tiled(s).promote("C", "j.out", "local").promote("B", "j.out", "local"), "C"), "B"),
        lambda g, m, n, k: [whole(g, m, k), whole(g, k, n)], [(4, 5, 3), (7, 4, 2)], True,
    ),
    "convolution: staged image": (
        convolution,
        lambda s: _tiled(s).contract("s").promote("X", "j.out", "local").parallel("i.out"),
        lambda g, m, n: [whole(g, m + 2, n + 2), whole(g, 3, 3)], [(4, 5), (3, 4), (1, 2)], True,
    ),
    "stencil: a buffer for each step": (
        stencil,
        lambda s: s.vectorize("i", 4).promote("B", "t", "local"),
        lambda g, n: [real(g, n), real(g, n)], [(7,), (4,), (3,)], True,
    ),
    "cholesky: row in a buffer": (
        cholesky,
        lambda s: s.promote("A", "i", "local"),
        lambda g, n: [real(g, n, n)], [(5,), (2,)], True,
    ),
    "softmax: contracted": (
        softmax,
        lambda s: s.contract("top").contract("total").parallel("i").vectorize("l", 4),
        lambda g, m, n: [real(g, m, n).astype(np.float32)], [(3, 5), (2, 1)], False,
    ),
}  # fmt: skip


def by_hand() -> Iterator[Case]:
    """Small operators under schedules that use every kind of buffer and mark."""
    for name, (operator, steps, draw, sizes, exact) in BY_HAND.items():
        schedule = steps(Schedule.start(operator.scop()))
        rng = np.random.default_rng(1)
        yield case(name, operator, schedule, [draw(rng, *n) for n in sizes for _ in range(2)], exact)


POLYBENCH_SIZES = (5, 4, 6, 7, 3)


def of_polybench(names: Iterator[str] | list[str], seed: int) -> Iterator[Case]:
    """PolyBench at tiny sizes under the automatic and under random schedules."""
    for name in names:
        kernel = polybench.load(name)
        sizes = dict(zip(kernel.sizes["MINI"], POLYBENCH_SIZES, strict=False))
        inputs = [kernel.inputs(sizes, np.random.default_rng(seed + k)) for k in range(2)]
        constants = {k: v for k, v in inputs[0].items() if isinstance(v, int)}
        args = [[v for k, v in i.items() if k not in constants] for i in inputs]
        start = Schedule.start(kernel.operator.scop(**constants))
        for kind, schedule in (
            ("automatic", automatic(kernel.operator.scop(**constants), TARGET, threads=2)),
            ("random", random_schedule(start, seed, tries=8)),
        ):
            yield case(f"{name} {kind}", kernel.operator, schedule, args, False, constants)


def of_random_programs(seeds: range) -> Iterator[Case]:
    """Random programs under random schedules; those with data-dependent loops left out."""
    for seed in seeds:
        program = generate(seed)
        if any(s.dynamic for s in program.operator().scop().statements.values()):
            continue
        args = program.arguments()
        with warnings.catch_warnings():  # small integers wrap
            warnings.simplefilter("ignore")
            free = exact_when_reordered(program, oracle(program.operator(), args))
        operator = program.operator(reassociate=free)
        schedule = random_schedule(Schedule.start(operator.scop()), seed, tries=10)
        yield case(f"random program {seed}", operator, schedule, [args], not program.inexact)


def library() -> dict[str, Callable[[], Any]]:
    """The operators that `tests/library` checks."""
    path = Path(__file__).parents[1] / "library" / "test_library_python.py"
    spec = importlib.util.spec_from_file_location("library_operators", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CASES


def of_library() -> Iterator[Case]:
    """Library operators under the automatic schedule."""
    for name, make in library().items():
        operator = make()
        scop = operator.scop()
        if any(s.dynamic for s in scop.statements.values()):
            continue
        rng = np.random.default_rng(2)
        args = [_drawn(rng, scop.arrays[a]) for a in scop.args]
        yield case(name, operator, automatic(scop, TARGET, threads=2), [args], False)


def _drawn(rng: np.random.Generator, array: Array) -> np.ndarray:
    shape = tuple(int(e.value) for e in array.shape)
    if array.dtype.is_float:
        return np.asarray(rng.random(shape) + 0.25, array.dtype.np)
    low = 0 if array.dtype.kind == "uint" else -1
    return rng.integers(low, 2, shape).astype(array.dtype.np)  # indices among them: no axis has fewer than two elements


def case(
    name: str, operator: Any, schedule: Schedule, inputs: list[list[Any]], exact: bool,
    constants: dict[str, Any] | None = None,
) -> Case:  # fmt: skip
    """The generated loops with what plain Python computes."""
    scop, tree = schedule.scop, schedule.tree
    fn = build_loops(scop, tree, "f")
    return Case(name, scop, tree, fn, [_run(scop, operator, args, constants or {}) for args in inputs], exact)


def _run(scop: Any, operator: Any, args: list[Any], constants: dict[str, Any]) -> Run:
    arrays = {n: np.array(a, scop.arrays[n].dtype.np) for n, a in zip(scop.args, args, strict=True)}
    sizes = bind_sizes(scop, {n: a.shape for n, a in arrays.items()})
    updated = [n for n in scop.args if scop.arrays[n].kind == "inout"]
    copies = {n: a.copy() for n, a in arrays.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = operator.python(*(c if scop.arrays[n].shape else c[()] for n, c in copies.items()), **constants)
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    expected = {n: copies[n] for n in updated} | dict(zip(scop.results, map(np.asarray, results), strict=True))
    for n in scop.results:
        array = scop.arrays[n]
        arrays[n] = poisoned(tuple(evaluate(e, sizes) for e in array.shape), array.dtype)
    return Run(arrays, sizes, expected)


def sampled(case_: Case, count: int, seed: int, changes: int = 1) -> list[Mutant]:
    """Some mutants of a case, kinds in turn; each of so many changes."""
    r = random.Random(f"{case_.name} {seed}")
    by_kind: dict[str, list[Mutant]] = {}
    for m in mutants(case_.fn):
        by_kind.setdefault(m.kind, []).append(m)
    for group in by_kind.values():
        r.shuffle(group)
    rows = itertools.zip_longest(*by_kind.values())
    chosen = [m for row in rows for m in row if m is not None][:count]
    for _ in range(changes - 1):
        chosen = [_changed_again(m, r) for m in chosen]
    return chosen


def _changed_again(m: Mutant, r: random.Random) -> Mutant:
    again = r.choice(list(mutants(m.fn)))
    return replace(again, kind=f"{m.kind}, {again.kind}", what=f"{m.what}, {again.what}")
