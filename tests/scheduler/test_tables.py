"""Tables of dynamic programming with a loop for each element, in blocks: where they are, and that bits are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from examples.polybench import nussinov
from polyc import dims, f64, inout, op
from polyc.emit import targets
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from tests.parts import in_part

N = dims("N")
SMALL = replace(targets.get("x86-64-v3"), l2=2048)  # so that small arrays do not fit


@op
def chain(C: f64[N, N], D: inout(f64[N, N])):
    """The cheapest way to bring a chain of matrices together."""
    for i in range(N - 2, -1, -1):
        for j in range(i + 1, N):
            D[i, j] = D[i, j] + C[i, j]
            for k in range(i, j):
                D[i, j] = min(D[i, j], D[i, k] + D[k + 1, j])


@op
def gaps(S: f64[N, N], D: inout(f64[N, N])):
    """Alignment with gaps of any length: an element reads its whole row and its whole column."""
    for i in range(1, N):
        for j in range(1, N):
            D[i, j] = max(D[i, j], D[i - 1, j - 1] + S[i, j])
            for k in range(j):
                D[i, j] = max(D[i, j], D[i, k] - S[k, j])
            for l in range(i):
                D[i, j] = max(D[i, j], D[l, j] - S[i, l])


@op
def backwards(S: f64[N, N], D: inout(f64[N, N])):
    """An element also reads what is right of it in the row before: square blocks would wait for each other."""
    for i in range(1, N):
        for j in range(1, N - 1):
            D[i, j] = max(D[i - 1, j + 1], D[i, j - 1])
            for k in range(j):
                D[i, j] = max(D[i, j], D[i, k] - S[k, j])


@op
def rows(S: f64[N, N], D: inout(f64[N, N])):
    """Rows know nothing of each other: they are shared as they are."""
    for i in range(N):
        for j in range(1, N):
            for k in range(j):
                D[i, j] = max(D[i, j], D[i, k] - S[k, j])


def scheduled(operator: Any, n: int | None, threads: int, target: Any = SMALL) -> Schedule:
    scop = operator.scop()
    return automatic(scop if n is None else specialise(scop, {"N": n}), target, threads)


def said(s: Schedule) -> list[str]:
    return [d.outcome for d in s.decisions if d.stage == "sweeps" and d.subject.startswith("table")]


def shared(s: Schedule) -> bool:
    """Whether threads share the blocks of a diagonal."""
    return any("share blocks" in d.what for d in s.decisions if d.subject.startswith("table"))


def bits_are_kept(operator: Any, s: Schedule, threads: int, n: int) -> None:
    rng = np.random.default_rng()
    ours = [rng.standard_normal((n, n)) for _ in range(2)]
    theirs = [x.copy() for x in ours]
    compile_operator(s.scop, targets.host(), s, threads=threads)(*ours)
    operator.python(*theirs)
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("operator", "n"),  # (plain Python takes ten seconds for the large gaps)
    in_part(
        [(o, n) for o in (chain, gaps) for n in (67, 128)],
        lambda o, n: o is chain or n == 67,
        ids=lambda o, n: f"{o.name}-{n}",
    ),
)
def test_every_bit_is_kept(operator: Any, n: int, threads: int) -> None:
    s = scheduled(operator, n, threads)
    assert said(s) == ["done"] and len([name for name in s.loops if name.endswith(".out")]) == 2
    assert shared(s) == (threads == 2)
    bits_are_kept(operator, s, threads, n)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_kernel_for_all_sizes(threads: int) -> None:
    s = scheduled(chain, None, threads)
    assert said(s) == ["done"]
    for n in (1, 2, 33, 70):
        bits_are_kept(chain, s, threads, n)


@pytest.mark.parametrize("threads", [1, 2])
def test_several_statements_of_an_element(threads: int) -> None:
    n = 71
    s = scheduled(nussinov.nussinov, n, threads)
    assert said(s) == ["done"]
    given = nussinov.inputs({"N": n}, np.random.default_rng())
    got = compile_operator(s.scop, targets.host(), s, threads=threads)(**given)
    assert np.array_equal(got, nussinov.reference(**given)[0])


@pytest.mark.parametrize("operator, n, why", [(chain, 12, "fits the cache"), (backwards, 67, "")], ids=lambda v: str(v))
def test_tables_that_stay_as_they_are(operator: Any, n: int, why: str) -> None:
    s = scheduled(operator, n, 1)
    assert said(s) == ["declined"] and "i.out" not in s.loops
    assert why in next(d.reason for d in s.decisions if d.subject.startswith("table"))
    bits_are_kept(operator, s, 1, n)


def test_rows_that_carry_nothing_are_no_table() -> None:
    assert said(scheduled(rows, 67, 2)) == []
