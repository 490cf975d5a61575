"""Simulated times, and the example of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from polyc import Network, parallelise
from polyc.graph_driver.parallel.machines import Curve, Inside, Machines, curve
from polyc.graph_driver.parallel.rehearsal import Step, Timeline
from polyc.graph_driver.parallel.simulate import messages_of, overlap, pipeline_seconds, simulate, simulated_call
from tests.parallel.mpi_runs import launch
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


def test_a_curve_goes_through_what_was_measured() -> None:
    found = curve([1000, 10, 100], [5.0, 1.0, 2.0])
    assert [found.time(n) for n in (0, 10, 100, 550, 1000, 1900)] == pytest.approx([1.0, 1.0, 2.0, 3.5, 5.0, 8.0])
    assert curve([10, 20], [3.0, 2.0]).time(10) == 2.0  # less time for more bytes is noise
    assert Curve(((8, 1.0),)).time(1e9) == 1.0


def test_ranks_of_one_machine_have_its_carriers_and_others_send_messages() -> None:
    curves = {
        ("AllReduce", "shared memory"): Curve(((1 << 12, 1.0), (1 << 20, 2.0))),
        ("AllReduce", "messages"): Curve(((8, 0.5),)),
        ("AllGather", "messages"): Curve(((8, 4.0),)),
    }
    machines = Machines(Network(1.0, 0.0), 2, Inside(curves, Network(1e9, 0.0)))
    assert machines.carrier("AllReduce", 1 << 20, 2) == "shared memory"
    assert machines.carrier("AllReduce", 1 << 20, 4) == machines.carrier("AllReduce", 8, 2) == "messages"
    assert machines.time("AllReduce", 1 << 20, 2, 2, 1 << 20) == pytest.approx(2.0)
    assert machines.time("AllReduce", 8, 2, 2, 8) == 0.5
    assert machines.time("AllReduce", 1 << 20, 6, 4, 1 << 20) > 1e5  # at one byte a second


@pytest.mark.parametrize("spare", [True, False])
def test_a_message_waits_for_the_last_rank_and_takes_cores_that_are_not_to_spare(spare: bool) -> None:
    plan = parallelise(mlp(rows=64)[0], 2, "1 GB/s, 1 ns")
    (message,) = messages_of(plan)
    link = Network(1e9, 0.0)
    curves = {(message.move.kind, "messages"): Curve(((8, 2.0),))}
    machines = Machines(link, 2, Inside(curves, link, spare))
    if message.begun:
        lines = [Timeline((Step(0, t, begun=True), Step(0, 0.5, waits=True)), 1.0) for t in (1.0, 3.0)]
    else:
        lines = [Timeline((Step(0, t),), 1.0) for t in (1.0, 3.0)]
    alone = 3.0 + 2.0 + 1.0  # the last one's work, the message, the rest
    assert simulated_call(plan, machines, lines) == pytest.approx(alone + (0.5 if message.begun and not spare else 0.0))


@pytest.mark.long
def test_the_simulation_has_the_messages_bytes_and_carriers_of_real_ranks() -> None:
    for said in launch(2, "simulated", "mlp", "block", "images:1"):
        for name, found in said["found"].items():
            assert found["real"] == found["simulated"] != [], name
            assert found["same"] and found["least"], name
            assert sum(sent for _, _, sent, _ in found["real"]) == found["sent"], name
            messages = [(k, waits) for k, waits, _ in found["steps"]]
            begun = [k for k, waits, begun in found["steps"] if begun and not waits]
            assert messages == [*((k, False) for k in range(len(found["real"]))), *((k, True) for k in begun)], name
        assert {carried for f in said["found"].values() for _, carried, _, _ in f["real"]} == {
            "messages",
            "shared memory",
        }
        kinds = {key.partition(",")[0] for key in said["curves"]}
        assert kinds == {"AllReduce", "AllGather", "ReduceScatter", "Exchange"}


def test_a_pipeline_takes_its_slowest_stage_for_each_further_micro_batch() -> None:
    assert pipeline_seconds([1.0, 3.0, 2.0], 0.5, 1) == pytest.approx(7.0)
    assert pipeline_seconds([1.0, 3.0, 2.0], 0.5, 5) == pytest.approx(7.0 + 4 * 3.0)


def test_the_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "ranks.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "docs/ranks.md", "exec"), {})
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert said == [line.strip() for line in page.partition("```\n\n    ")[2].partition("\n\nIn a")[0].splitlines()]
