"""What forbids sharing a loop of a gradient is shown, as two instances that a judge of its own finds to be right."""

from __future__ import annotations

from typing import Any

import pytest
from gpu.library_cases import CASES
from parallelism import all_pairs, analyse, forbids, gathered, serial, unwitnessed

from polyc import dims, empty, f64, op
from polyc.poly.tree import loops_around, loops_below
from polyc.scheduler.schedule import Schedule

N = dims("N")


@op
def products(X: f64[N]) -> f64[N]:
    Y = empty(N, f64)
    Y[0] = X[0]
    for i in range(1, N):
        Y[i] = Y[i - 1] * X[i]
    return Y


@pytest.mark.parametrize("name", ["where", "max_unpool", "one_hot", "softmax_rows"])
def test_every_loop_that_stays_serial_has_a_witness(name: str) -> None:
    """Around statements that no loop makes parallel."""
    assert not unwitnessed(CASES[name](5, 6, 7).grad().scop())


def test_a_recurrence_has_a_witness_and_others_are_refused() -> None:
    """The adjoint of running products is one; instances of one iteration, or of two elements, forbid nothing."""
    scop = products.grad().scop()
    assert not unwitnessed(scop)
    tree = Schedule.of(scop).tree
    alone = serial(scop, tree)
    loop = next(m for m in loops_below(tree) if "S1_dY" in m.schedule)
    assert "S1_dY" in alone and not analyse(tree, all_pairs(scop))[loop.name].parallel

    def shown(source: int, sink: int) -> dict[str, Any]:
        return {"source": ["S1_dY", source], "sink": ["S1_dY", sink], "sizes": {"N": 6}}

    assert forbids(scop, tree, loop, shown(3, 2))
    assert not forbids(scop, tree, loop, shown(3, 3))
    assert not forbids(scop, tree, loop, shown(5, 2))
    assert not forbids(scop, tree, loop, shown(9, 8))


def test_what_rows_carry_runs_apart_from_the_rows() -> None:
    """The gradient of a layer normalisation on two threads: one loop over rows for all but the sums of columns."""
    scop = CASES["layer_norm"](5, 6, 7).grad().scop()
    made = gathered(scop)
    heads: dict[str, set[str]] = {}
    for n, s in made.scop.statements.items():
        heads.setdefault(loops_around(made.tree, n)[0].name, set()).add(s.array)
    assert not serial(made.scop, made.tree)
    assert any({"grad_X", "adj_inverse", "adj_variance"} <= arrays for arrays in heads.values())
    assert not any({"grad_X", "grad_S"} <= arrays for arrays in heads.values())
