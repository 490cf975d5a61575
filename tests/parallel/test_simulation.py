"""Simulated times, and the example of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from polyc import Network, parallelise
from polyc.graph_driver.parallel.simulate import Machines, overlap, pipeline_seconds, simulate
from tests.parallel.rank_models import mlp


def test_the_simulation_of_the_plan_itself_is_its_prediction() -> None:
    plan = parallelise(mlp()[0], 4, "1 GB/s, 1 ns")
    found = simulate(plan, Machines(plan.costs.network))
    assert found.seconds == pytest.approx(plan.seconds)
    assert found.sent == plan.sent(0)


def test_more_ranks_send_more_and_machines_share_their_link() -> None:
    plan = parallelise(mlp(rows=64)[0], 8, "100 GB/s, 1 us")
    slow, fast = Network(1e9, 1e-6), Network(1e10, 1e-7)
    times = [simulate(plan, Machines(slow, 8, fast), 2**k).messages for k in range(1, 13)]
    assert times == sorted(times)
    assert simulate(plan, Machines(slow, 8, fast), 64).messages > simulate(plan, Machines(slow, 1), 64).messages


def test_messages_are_hidden_behind_the_work_that_follows() -> None:
    plan = parallelise(mlp(rows=64)[0], 2, "1 GB/s, 1 ns")
    assert len(plan.groups) <= 1  # of the only result: nothing follows
    link = Network(1e9, 1e-6)
    found = overlap(plan, link, work=1.0)
    assert found.waited == pytest.approx(found.messages) == pytest.approx(sum(g.move.time(link) for g in plan.groups))


def test_a_pipeline_takes_its_slowest_stage_for_each_further_micro_batch() -> None:
    assert pipeline_seconds([1.0, 3.0, 2.0], 0.5, 1) == pytest.approx(7.0)
    assert pipeline_seconds([1.0, 3.0, 2.0], 0.5, 5) == pytest.approx(7.0 + 4 * 3.0)


def test_the_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "ranks.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "docs/ranks.md", "exec"), {})
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert said == [line.strip() for line in page.partition("```\n\n    ")[2].partition("\n\nIn a")[0].splitlines()]
