"""Sizes as symbols: the values that strategies assume, the blocks they choose by them, and that those fit all sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import back_ends
import islpy as isl
import numpy as np
import pytest

from examples.polybench import doitgen, fdtd_2d, gramschmidt, heat_3d, jacobi_2d
from polyc import dims, empty, f64, inout, op
from polyc.emit import targets
from polyc.emit.compile import build
from polyc.emit.kernel import Kernel, Report
from polyc.poly.binding import evaluate
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Array
from polyc.poly.tree import loops_below
from polyc.scheduler.cost.assumed_sizes import ELEMENTS, assumed_sizes, likely_bytes, likely_values
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from tests.parts import in_part

H, M, N, T = dims("H M N T")
SMALL = replace(targets.host(), l2=2048)  # so that blocks are small


@op
def four_images(A: inout(f64[4, N, N]), B: f64[N + 1, 6]):
    for c in range(4):
        for i in range(N):
            for j in range(i, N):
                A[c, i, j] = A[c, i, j] + B[i + 1, 5]


@op
def row_sums(A: inout(f64[T, H, M]), W: f64[M, N]):
    """A local row larger than each image where N is large: no copy of it for each row."""
    total = empty(N, f64)
    for t in range(T):
        for h in range(H):
            for j in range(N):
                total[j] = 0.0
                for k in range(M):
                    total[j] += A[t, h, k] * W[k, j]
            for k in range(M):
                A[t, h, k] = total[0]


@op
def sweeps(A: inout(f64[M, N]), B: inout(f64[M, N]), F: f64[T]):
    """As many sweeps as an argument has elements, over rows of another length than columns."""
    for t in range(T):
        for i in range(1, M - 1):
            for j in range(1, N - 1):
                B[i, j] = A[i - 1, j] + A[i, j - 1] - A[i + 1, j + 1] + F[t]
        for i in range(1, M - 1):
            for j in range(1, N - 1):
                A[i, j] = 0.5 * B[i + 1, j] + 0.25 * B[i, j + 1]


def test_unknown_extents_of_an_array_are_alike() -> None:
    scop = four_images.scop()
    (n,) = assumed_sizes(scop).values()
    assert abs(4 * n * n - ELEMENTS) <= 8 * n
    assert likely_bytes(scop, "A") == 4 * n * n * 8 and likely_bytes(scop, "B") == (n + 1) * 6 * 8
    (stmt,) = scop.statements.values()
    assert [likely_values(scop, stmt, i) for i in stmt.iters] == [4, n, n]
    known = specialise(scop, {"N": 9})
    assert assumed_sizes(known) == {} and likely_bytes(known, "A") == 4 * 81 * 8


def test_assumed_sizes_are_in_the_context() -> None:
    scop = four_images.scop()
    n = assumed_sizes(scop)["N"]
    for text, wanted in (("N <= 100", 100), (f"N >= {2 * n}", 2 * n), (f"N = {n + 3}", n + 3)):
        context = scop.context.intersect(isl.Set(f"[N] -> {{ : {text} }}"))
        assert assumed_sizes(replace(scop, context=context)) == {"N": wanted}
    gaps = scop.context.intersect(isl.Set(f"[N] -> {{ : N mod 7 = {(n + 1) % 7} }}"))
    assert assumed_sizes(replace(scop, context=gaps)) == {} and likely_bytes(replace(scop, context=gaps), "A") is None


BLOCKED = [
    (jacobi_2d.jacobi_2d, {"tsteps": 21}, "t.out"),
    (heat_3d.heat_3d, {"tsteps": 18}, "t.out"),
    (fdtd_2d.fdtd_2d, {}, "t.out"),
    (sweeps, {}, "t.out"),
    (gramschmidt.gramschmidt, {}, "k.out"),
]
SIZES = (1, 2, 3, 7, 40)
INTERPRETED = 7


def schedule(operator: Any, constants: dict[str, int], threads: int) -> Schedule:
    target = targets.host() if operator is gramschmidt.gramschmidt else replace(SMALL, l2=SMALL.l2 // threads)
    return automatic(operator.scop(**constants), target, threads)


class Runs:
    """The loops of a schedule, made once: the interpreter, LLVM and C beside plain Python on random inputs."""

    def __init__(self, operator: Any, constants: dict[str, int], s: Schedule, threads: int = 1) -> None:
        self.operator, self.constants, self.scop, self.tree = operator, constants, s.scop, s.tree
        self.fn, report = back_ends.finished(s.scop, s.tree), Report()
        self.kernels = [
            Kernel(s.scop, self.fn, targets.host(), b, threads, build(self.fn, targets.host(), b, report), report)
            for b in back_ends.NATIVE
        ]

    def compared(self, sizes: dict[str, int]) -> None:
        """At these sizes; the interpreter where it does not take long."""
        rng = np.random.default_rng()
        arrays = [self.scop.arrays[n] for n in self.scop.args]
        args = [rng.standard_normal(tuple(evaluate(e, sizes) for e in a.shape)) for a in arrays]
        wanted = _outcome(self.operator.python, args, arrays, self.constants)
        found = [_outcome(k, args, arrays, {}) for k in self.kernels]
        if max(sizes.values()) <= INTERPRETED:
            found.append(back_ends.interpret(self.scop, self.tree, args, fn=self.fn))
        for one in found:
            for a, b in zip(one, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=str(sizes))


def _outcome(run: Any, args: list[np.ndarray], arrays: list[Array], constants: dict[str, int]) -> list[np.ndarray]:
    """The arguments that a run updates, and its results."""
    copies = [a.copy() for a in args]
    results = run(*copies, **constants)
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    return [c for c, a in zip(copies, arrays, strict=True) if a.kind == "inout"] + list(results)


EACH = [(*case, threads) for case in BLOCKED for threads in (1, 2)]


@pytest.mark.parametrize(
    "operator, constants, loop, threads",
    in_part(
        EACH, lambda *c: c[-1] == 1 + EACH.index(c) // 2 % 2, ids=lambda o, _, loop, threads: f"{o.name}-{threads}"
    ),
)
def test_blocks_chosen_for_all_sizes_serve_each(
    operator: Any, constants: dict[str, int], loop: str, threads: int
) -> None:
    s = schedule(operator, constants, threads)
    assert loop in s.loops
    runs = Runs(operator, constants, s, threads)
    for size in SIZES[: -1 if operator is heat_3d.heat_3d else None]:  # (plain Python takes half a minute for 40^3)
        runs.compared(dict.fromkeys(s.scop.params, size))
    runs.compared(dict(zip(s.scop.params, (19, 11, 5), strict=False)))


def test_a_product_in_a_local_row_has_its_tile_for_all_sizes() -> None:
    s = automatic(doitgen.doitgen.scop(), targets.host())
    assert any("register tile" in d.what and d.outcome == "done" for d in s.decisions)
    runs = Runs(doitgen.doitgen, {}, s)
    for size in SIZES:
        runs.compared({"NR": size, "NQ": 3, "NP": size + 1})


def test_no_copies_of_a_row_that_may_be_longer_than_the_arguments() -> None:
    s = automatic(row_sums.scop(), targets.host())
    assert not any("a copy of total" in d.what for d in s.decisions)
    assert any(m.kind == "vector" for m in loops_below(s.tree))
    Runs(row_sums, {}, s).compared({"T": 3, "H": 5, "M": 4, "N": 17})
