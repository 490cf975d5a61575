"""Runs in which chosen steps run one at a time: the same bits as natively, and only the chosen steps are seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import test_control_flow as control_flow
from onnx import helper
from symbolic_models import attention, perceptron
from tiny_models import branching, model_of, network, recurrent, with_host_steps

import polyc
from polyc.graph_driver import cli
from polyc.graph_driver.artifacts.package import load
from polyc.graph_driver.checking.check import random_input
from polyc.graph_driver.checking.poison import differs
from polyc.graph_driver.execution.parts import cut
from polyc.graph_driver.execution.watching import Watch
from polyc.graph_driver.running.model import KEPT_PARTS, Model
from polyc.poly.errors import ArgumentError

Feeds = dict[str, Any]


def random_feeds(model: Model, seed: int = 0, **sizes: int) -> Feeds:
    found = model.inputs_for({}, sizes).items()
    return {n: random_input(n, d, s, seed, model.plan.index_limits.get(n)) for n, (d, s) in found}


def in_control() -> tuple[Model, Feeds]:
    """An `If` that a run decides, between a kernel and a kernel."""
    model = polyc.compile_model(control_flow.BRANCHES, threads=1)
    return model, random_feeds(model) | {"c": np.array(True)}


def plain(make: Callable[[], onnx.ModelProto], **options: Any) -> Callable[[], tuple[Model, Feeds]]:
    def made() -> tuple[Model, Feeds]:
        model = polyc.compile_model(make(), **{"threads": 1} | options)
        return model, random_feeds(model)

    return made


def symbolic(make: Callable[[], onnx.ModelProto], threads: int = 1, **sizes: int) -> Callable[[], tuple[Model, Feeds]]:
    """Compiled for all sizes, run at others than the representative ones; with several threads as tasks."""

    def made() -> tuple[Model, Feeds]:
        model = polyc.compile_model(make(), threads=threads, tasks=threads > 1, symbolic=True)
        return model, random_feeds(model, **sizes)

    return made


MODELS = {
    "network": plain(network, dims={"N": 2}),
    "host steps": plain(with_host_steps),
    "recurrent": plain(recurrent),
    "tasks": plain(lambda: branching(np.random.default_rng(8), 14), threads=2, tasks=True),
    "control flow": in_control,
    "symbolic tasks": symbolic(lambda: branching(np.random.default_rng(8), 14, "rows"), threads=2, rows=13),
    "symbolic": symbolic(perceptron, batch=9),
    "symbolic, sizes as data": symbolic(attention, batch=3, length=7),
}


@pytest.fixture(scope="module", params=MODELS)
def made(request: pytest.FixtureRequest) -> tuple[Model, Feeds]:
    return MODELS[request.param]()


def test_any_choice_of_steps_gives_the_same_bits_and_sees_what_eager_sees(made: tuple[Model, Feeds]) -> None:
    model, inputs = made
    rng, count = np.random.default_rng(), len(model.plan.steps)
    expected, eager = model(inputs), Watch()
    assert not differs(model.run(inputs, "eager", observer=eager), expected)
    choices = [{k} for k in range(count)][:4] + [set(range(count))]
    choices += [{int(k) for k in np.flatnonzero(rng.random(count) < 0.4)} | {count // 2} for _ in range(3)]
    for chosen in choices:
        watch = Watch()
        if model.plan.peak:
            model.for_inputs(inputs).arena[...] = 0xFF  # NaN: what is read was written by this run
        got = model.run(inputs, "mixed", [str(k) for k in sorted(chosen)], watch)
        assert not differs(got, expected), chosen
        assert {s.step for s in watch.seen} == {k for k in chosen if model.plan.steps[k].results}
        seen = [s for s in eager.seen if s.step in chosen]
        assert [(s.step, s.name) for s in watch.seen] == [(s.step, s.name) for s in seen]
        named = [s.name for s in seen]
        assert not differs({n: watch.values[n] for n in named}, {n: eager.values[n] for n in named}), chosen
    assert len(model._cuts) <= KEPT_PARTS


def test_what_is_not_chosen_is_one_native_call_from_one_chosen_step_to_the_next(made: tuple[Model, Feeds]) -> None:
    plan = made[0].plan
    in_python = {k for k, s in enumerate(plan.steps) if s.kind in ("host", "control")}
    for k in range(len(plan.steps)):
        parts = cut(plan, frozenset({k}))
        steps = [s for what in parts.order for s in (parts.segments[what] if what >= 0 else (~what,))]
        assert steps == list(range(len(plan.steps)))
        apart = in_python | {k}
        natively = [s not in apart for s in range(len(plan.steps))]
        starts = [s for s, native in enumerate(natively) if native and (s == 0 or not natively[s - 1])]
        assert len(parts.segments) == len(starts)


def test_patterns_name_nodes_operators_tensors_and_numbers() -> None:
    model, inputs = MODELS["network"]()
    steps = {s.label: k for k, s in enumerate(model.plan.steps)}

    def chosen(*patterns: str) -> set[int]:
        watch = Watch(keep=False)
        model.run(inputs, "mixed", patterns, watch)
        assert not watch.values
        return {s.step for s in watch.seen}

    assert chosen("Softmax") == chosen("softmax") == chosen("y") == {steps["Softmax"]}
    assert chosen("Conv+Relu") == chosen("conv1") == chosen("relu1") == {steps["Conv+Relu"]}
    assert chosen("Conv") == chosen("conv*") == chosen("Conv+*") and len(chosen("Conv")) == 2
    assert chosen("Gem?", "0") == {steps["Gemm"], 0}
    assert chosen("*") == set(range(len(model.plan.steps)))


def test_a_name_with_brackets_of_its_own_is_that_name() -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a[0]"], "/m/[0]/s"),
        helper.make_node("Softmax", ["a[0]"], ["y"], axis=0),
    ]
    model = polyc.compile_model(model_of(nodes, {"x": [3, 4]}, {"y": [3, 4]}, {}), threads=1)
    watch = Watch()
    model.run(random_feeds(model), "mixed", ["/m/[0]/s"], watch)
    assert [s.name for s in watch.seen] == ["a[0]"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"mode": "slow"}, "no mode 'slow'; modes are graph, eager, mixed"),
        ({"mode": "mixed"}, "needs to know which steps"),
        ({"mode": "mixed", "eager": ["Relu", "Nothing*"]}, "no step is, and no step makes, 'Nothing\\*'"),
        ({"mode": "eager", "eager": ["Conv"]}, "in mixed mode, not in eager mode"),
        ({"mode": "graph", "eager": ["Conv"]}, "in mixed mode, not in graph mode"),
        ({"mode": "graph", "observer": Watch()}, "nothing to observe"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments: dict[str, Any], said: str) -> None:
    model, inputs = MODELS["host steps"]()
    with pytest.raises(ArgumentError, match=said):
        model.run(inputs, **arguments)


def test_the_first_step_that_makes_nans_is_found() -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], "first"),
        helper.make_node("Log", ["a"], ["b"], "log"),
        helper.make_node("Softmax", ["b"], ["c"], "second", axis=0),
        helper.make_node("Softmax", ["c"], ["y"], "third"),
    ]
    model = polyc.compile_model(model_of(nodes, {"x": [3, 4]}, {"y": [3, 4]}, {}), threads=1)
    x = np.zeros((3, 4), np.float32)
    x[:, 1] = 1e4  # the other probabilities become 0, their logarithms -inf
    watch = Watch()
    assert np.isnan(model.run({"x": x}, "mixed", ["*"], watch)["y"]).any()
    first = watch.first_not_finite
    assert first is not None and first.name == "b" and (first.nans, first.infinities) == (0, 9)
    assert "NOT FINITE: 0 NaN, 9 infinite" in str(first)
    assert (first.low, first.high) == (0.0, 0.0)


def test_a_loaded_directory_runs_mixed(tmp_path: Path) -> None:
    for name in ("network", "host steps", "symbolic"):
        model, inputs = MODELS[name]()
        model.save(tmp_path / name)
        loaded, watch = load(tmp_path / name), Watch()
        assert not differs(loaded.run(inputs, "mixed", ["0", "1"], watch), model(inputs))
        assert {s.step for s in watch.seen} == {0, 1}


def test_tensors_are_inspected_at_the_sizes_of_the_inputs() -> None:
    for name in ("symbolic", "symbolic, sizes as data"):
        model, inputs = MODELS[name]()
        eager = Watch()
        model.eager(inputs, eager)
        assert not differs(model.inspect(inputs, list(eager.values)), eager.values)


def test_mixed_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(with_host_steps().SerializeToString())

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["run", str(path), "--threads", "1", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    code, out, _ = run("--mode", "mixed", "--eager", "Relu", "--check", "--tensor", "r")
    assert code == 0 and "watched  step 0 Relu" in out and "output   r:" in out and ": ok" in out
    code, out, _ = run("--mode", "mixed", "--eager", "Rel*", "--json")
    (seen,) = json.loads(out)["watched"]
    assert code == 0 and seen["name"] == "r" and seen["nans"] == 0 and seen["low"] == 0.0
    assert run("--mode", "mixed")[::2] == (
        2,
        "polyc: --mode mixed needs --eager PATTERN: which steps run one at a time\n",
    )
    assert run("--eager", "Relu")[::2] == (2, "polyc: --eager needs --mode mixed\n")
    code, _, err = run("--mode", "mixed", "--eager", "Conv")
    assert code == 1 and "makes, 'Conv'" in err and err.count("\n") == 1
