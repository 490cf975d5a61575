"""Independent steps at the same time, in models compiled for all sizes: the same bits in any allowed order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_models import branching

from polyc.graph_driver.artifacts.package import load
from polyc.graph_driver.checking.poison import differs
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.execution.entry import entry_text
from polyc.graph_driver.execution.execute import NativeExecutor
from polyc.graph_driver.memory import PlanError
from polyc.graph_driver.planning.formulas import check_formulas
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.table import Table
from polyc.graph_driver.planning.tasks import width
from polyc.graph_driver.planning.verify_plan import check_tasks
from polyc.graph_driver.running.all_sizes import AllSizes
from polyc.graph_driver.running.model import Model

Drawn = tuple[Model, Model]


def drawn(rng: np.random.Generator, steps: int, threads: int) -> Drawn:
    """A random graph of any number of rows: in order on one thread, and as tasks on several."""
    proto = branching(rng, steps, "rows")
    plain = compile_model(proto, threads=1, symbolic=True)
    model = compile_model(proto, threads=threads, symbolic=True, tasks=True)
    assert isinstance(plain.running, AllSizes) and isinstance(model.running, AllSizes)
    return plain, model


@pytest.fixture(scope="module")
def pair() -> Drawn:
    rng = np.random.default_rng()
    while True:
        plain, model = drawn(rng, 10, 2)
        if width(model.plan.after) > 1:
            return plain, model


def rows_of(count: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng().standard_normal((count, 16)).astype(np.float32)}


def check(plain: Model, model: Model, sizes: list[int]) -> None:
    for rows in sizes:
        x = rows_of(rows)
        model.for_inputs(x).arena[...] = 0xFF  # NaN: what is read was written by this run
        expected = plain(x)
        assert not differs(model(x), expected), rows
        assert not differs(model.eager(x), expected), rows
        check_tasks(model.running.formulas.at({"rows": rows}))


SIZES = [1, 2, 7, 16, 33, 100]


def test_runs_give_the_same_bits_at_any_size(pair: Drawn) -> None:
    check(*pair, SIZES)
    assert "polyc_segment_0.task" in _program(pair[1])


def _program(model: Model) -> str:
    return entry_text(model.running.formulas, model.code.target.triple)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_many_drawn_graphs_of_any_size(part: int) -> None:
    check(*drawn(np.random.default_rng(), 8 + part, 2 + part % 3), SIZES)


def in_order(model: Model, rows: int, order: list[int]) -> NativeExecutor:
    """The program at a size with its steps in another order."""
    formulas = model.running.formulas
    plan = formulas.at({"rows": rows})
    table = Table(formulas).filled(plan, {"rows": rows})
    turned = replace(plan, steps=tuple(plan.steps[k] for k in order), after=())
    made = NativeExecutor(turned, model.weights, model.hosts, model.code.link(), 0, table)
    made.arena[...] = 0xFF
    return made


def drawn_order(plan: Plan, rng: np.random.Generator) -> list[int]:
    """A random order in which each step comes after those that it waits for."""
    done: list[int] = []
    while len(done) < len(plan.steps):
        ready = [k for k, e in enumerate(plan.after) if k not in done and set(e) <= {*done}]
        done.append(int(rng.choice(ready)))
    return done


def test_every_drawn_order_gives_the_same_bits(pair: Drawn) -> None:
    plain, model = pair
    rng = np.random.default_rng()
    for rows in (3, 40):
        x = rows_of(rows)
        expected = plain(x)
        orders = [drawn_order(model.plan, rng) for _ in range(4)]
        for order in orders:
            assert not differs(in_order(model, rows, order).run_eager(x), expected), (rows, order)


def without(plan: Plan, step: int, waits_for: int) -> Plan:
    """The plan with one dependence left out."""
    after = list(plan.after)
    after[step] = tuple(e for e in after[step] if e != waits_for)
    return replace(plan, after=tuple(after))


def test_no_dependence_can_be_left_out(pair: Drawn) -> None:
    plan = pair[1].running.formulas
    check_formulas(plan)
    for k, earlier in enumerate(plan.after):
        for e in earlier:
            with pytest.raises(PlanError, match=f"steps {e} and {k} may run together, but share memory at some sizes"):
                check_formulas(without(plan, k, e))


def test_a_directory_keeps_the_tasks(pair: Drawn, tmp_path: Path) -> None:
    plain, model = pair
    model.save(tmp_path / "net")
    loaded = load(tmp_path / "net")
    assert loaded.plan.after == model.plan.after
    x = rows_of(29)
    assert not differs(loaded(x), plain(x))


def test_tasks_keep_the_memory_limit(pair: Drawn) -> None:
    """As tasks the arena may need more: not beyond the limit at the largest sizes."""
    proto = branching(np.random.default_rng(3), 12, "rows")
    dims = {"rows": (1, 64)}
    plain = compile_model(proto, threads=2, dims=dims)
    assert isinstance(plain.running, AllSizes)
    least = plain.running.formulas.at({"rows": 64}).peak
    model = compile_model(proto, threads=2, dims=dims, tasks=True, memory_limit=least)
    assert isinstance(model.running, AllSizes)
    assert model.running.formulas.at({"rows": 64}).peak <= least
    if not model.plan.after:
        assert any("steps run in order: as tasks" in n for n in model.report().notes)
