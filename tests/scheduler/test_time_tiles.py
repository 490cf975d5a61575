"""Blocks of several sweeps: where they are made, and that the results keep every bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from examples.polybench import heat_3d, jacobi_2d
from polyc import dims, f64, inout, op
from polyc.emit import targets
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

N = dims("N")
SMALL = replace(targets.get("x86-64-v3"), l2=2048)  # so that small arrays do not fit


@op
def both_ways(A: inout(f64[N, N]), B: inout(f64[N, N])):
    """The second nest reads rows from the other end of the first: no delay makes one loop of them."""
    for t in range(8):
        for i in range(N):
            for j in range(N):
                B[i, j] = A[i, j] + 1.0
        for k in range(N):
            for l in range(N):
                A[k, l] = 0.5 * B[N - 1 - k, l]


def scheduled(operator: Any, target: Any, threads: int = 1, **sizes: int) -> Schedule:
    scop = operator.scop(**{k: v for k, v in sizes.items() if k == "tsteps"})
    return automatic(specialise(scop, {k: v for k, v in sizes.items() if k in scop.params}), target, threads)


def outcome(s: Schedule) -> list[str]:
    return [d.outcome for d in s.decisions if d.stage == "sweeps"]


@pytest.mark.parametrize("module, n, tsteps", [(jacobi_2d, 29, 21), (jacobi_2d, 40, 16), (heat_3d, 13, 5)])
def test_every_bit_is_kept(module: Any, n: int, tsteps: int) -> None:
    operator = module.jacobi_2d if module is jacobi_2d else module.heat_3d
    s = scheduled(operator, SMALL, N=n, tsteps=tsteps)
    assert outcome(s) == ["done"] and s.loops[0] == "t.out"
    rng = np.random.default_rng(n)
    ours = [rng.standard_normal((n,) * (2 if module is jacobi_2d else 3)) for _ in range(2)]
    theirs = [x.copy() for x in ours]
    compile_operator(s.scop, targets.host(), s, threads=1)(*ours)
    operator.python(*theirs, tsteps=tsteps)
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_where_arrays_fit_the_cache_sweeps_stay_whole() -> None:
    assert outcome(scheduled(jacobi_2d.jacobi_2d, targets.get("x86-64-v3"), N=40, tsteps=16)) == ["declined"]


def test_several_threads_share_each_sweep() -> None:
    assert outcome(scheduled(jacobi_2d.jacobi_2d, SMALL, threads=2, N=40, tsteps=16)) == []


def test_few_sweeps_are_not_worth_it() -> None:
    assert outcome(scheduled(jacobi_2d.jacobi_2d, SMALL, N=40, tsteps=3)) == []


def test_nests_that_run_against_each_other_stay_apart() -> None:
    assert outcome(scheduled(both_ways, SMALL, N=40)) == ["declined"]
