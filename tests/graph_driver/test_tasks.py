"""Independent steps on several threads: the same bits in every order that is allowed, and in every run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tiny_models import branching, model_of, recurrent, with_host_steps

from polyc.graph_driver.artifacts.package import load
from polyc.graph_driver.checking.check import random_input
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.execution.control import ControlNode
from polyc.graph_driver.execution.execute import NativeExecutor
from polyc.graph_driver.memory import PlanError
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.tasks import dependences, width
from polyc.graph_driver.planning.verify_plan import check_plan, check_tasks
from polyc.graph_driver.running.model import Model


def feeds_of(model: Model, seed: int = 1) -> dict[str, Any]:
    return {n: random_input(n, d, s, seed) for n, (d, s) in model.inputs.items()}


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(np.array_equal(found[n], v) for n, v in expected.items())


def check_runs(proto: onnx.ModelProto, threads: int, runs: int = 10) -> Model:
    """Compiled for tasks and compared with one thread in order, on poisoned memory."""
    plain, model = compile_model(proto, threads=1), compile_model(proto, threads=threads, tasks=True)
    for seed in range(runs):
        feeds = feeds_of(plain, seed)
        expected = {n: np.array(v) for n, v in plain(feeds).items()}
        model.executor().arena[:] = 0xFF
        assert same(model(feeds), expected) and same(model.eager(feeds), expected)
    return model


@pytest.mark.parametrize("part", range(2))
def test_drawn_graphs(part: int) -> None:
    check_runs(branching(np.random.default_rng(), 10), 2 + part)


@pytest.mark.long
@pytest.mark.parametrize("part", range(40))
def test_many_drawn_graphs(part: int) -> None:
    check_runs(branching(np.random.default_rng(), 10 + part), 2 + part % 4)


@pytest.mark.parametrize("make", [with_host_steps, recurrent])
def test_steps_that_need_python_come_in_between(make: Any) -> None:
    check_runs(make(), 2)


def orders(after: tuple[tuple[int, ...], ...]) -> Iterator[tuple[int, ...]]:
    """All orders of the steps in which each comes after those that it waits for."""
    for order in itertools.permutations(range(len(after))):
        place = {k: n for n, k in enumerate(order)}
        if all(place[e] < place[k] for k, earlier in enumerate(after) for e in earlier):
            yield order


def small() -> onnx.ModelProto:
    """Two branches of two products, a third reading both inputs of the sum: six steps, several orders."""
    rng = np.random.default_rng(5)
    weights = {f"w{k}": rng.standard_normal((8, 8)).astype(np.float32) for k in range(5)}
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("Softmax", ["x"], ["b"], axis=0),
        helper.make_node("MatMul", ["a", "w1"], ["c"]),
        helper.make_node("MatMul", ["b", "w2"], ["d"]),
        helper.make_node("MatMul", ["c", "w3"], ["e"]),
        helper.make_node("Concat", ["d", "e"], ["f"], axis=0),
        helper.make_node("Softmax", ["f"], ["y"], axis=0),
    ]
    return model_of(nodes, {"x": [8, 8]}, {"y": [16, 8]}, weights)


def test_every_allowed_order_gives_the_same_bits() -> None:
    model = compile_model(small(), threads=2, tasks=True)
    plan, symbols = model.plan, model.code.link()
    assert 5 <= len(plan.steps) <= 7 and width(plan.after) == 2
    feeds, tried = feeds_of(model), 0
    expected = {n: np.array(v) for n, v in compile_model(small(), threads=1)(feeds).items()}
    for order in orders(plan.after):
        turned = replace(plan, steps=tuple(plan.steps[k] for k in order), after=())
        executor = NativeExecutor(turned, model.weights, model.hosts, symbols, 0)
        executor.arena[:] = 0xFF
        assert same(executor.run_eager(feeds), expected), order
        tried += 1
    assert tried >= 4


def test_without_an_order_there_are_wrong_results() -> None:
    """The check above can fail: of all orders some give other bits."""
    model = compile_model(small(), threads=2, tasks=True)
    feeds, wrong = feeds_of(model), 0
    expected = {n: np.array(v) for n, v in model(feeds).items()}
    allowed, symbols = set(orders(model.plan.after)), model.code.link()
    for order in itertools.permutations(range(len(model.plan.steps))):
        if order in allowed or wrong:
            continue
        turned = replace(model.plan, steps=tuple(model.plan.steps[k] for k in order), after=())
        executor = NativeExecutor(turned, model.weights, model.hosts, symbols, 0)
        executor.arena[:] = 0xFF
        wrong += not same(executor.run_eager(feeds), expected)
    assert wrong


def test_no_dependence_can_be_left_out() -> None:
    """Each of the listed ones is needed (the rest follow from them), and the check of a plan finds it missing."""
    rng = np.random.default_rng()
    for _ in range(4):
        plan = compile_model(branching(rng, 12), threads=2, tasks=True).plan
        check_tasks(plan)
        for k, earlier in enumerate(plan.after):
            for e in earlier:
                less = tuple(x for x in earlier if x != e)
                with pytest.raises(PlanError, match=f"and {k} may run together"):
                    check_tasks(replace(plan, after=(*plan.after[:k], less, *plan.after[k + 1 :])))


@pytest.mark.parametrize("after", [((),), ((0,), (), (), (), (), ()), ((), (9,), (), (), (), ()), ((), (0, 0))])
def test_orders_that_make_no_sense_are_refused(after: Any) -> None:
    plan: Plan = compile_model(small(), threads=2, tasks=True).plan
    with pytest.raises(PlanError):
        check_plan(replace(plan, after=after), {s.symbol for s in plan.steps}, 0)


def test_a_compiled_directory_keeps_the_order(tmp_path: Path) -> None:
    proto = branching(np.random.default_rng(), 16)
    model = compile_model(proto, threads=2, tasks=True)
    model.save(tmp_path / "out")
    again = load(tmp_path / "out")
    feeds = feeds_of(model)
    assert again.plan == model.plan and again.plan.after == dependences(again.plan)
    assert same(again(feeds), compile_model(proto, threads=1)(feeds))


def test_only_where_asked_for_and_within_the_memory_limit() -> None:
    proto = branching(np.random.default_rng(3), 12, rows=200)
    asked, plain = compile_model(proto, threads=2, tasks=True), compile_model(proto, threads=2)
    assert asked.plan.after and not plain.plan.after
    limited = compile_model(proto, threads=2, tasks=True, memory_limit=plain.plan.peak)
    assert limited.plan.peak <= plain.plan.peak
    if not limited.plan.after:
        assert any("steps run in order" in n for n in limited.report().notes)


UNTIL = """<ir_version: 8, opset_import: ["" : 18]>
g (float[1, 4, 12, 12] x, float limit) => (float[1, 4, 12, 12] y, int64 rounds) {
    go = Constant <value = bool {1}> ()
    zero = Constant <value = int64 {0}> ()
    first = Relu(x)
    last, rounds = Loop ("", go, first, zero) <
        body = b (int64 i, bool going, float[1, 4, 12, 12] s, int64 r) =>
                 (bool more, float[1, 4, 12, 12] t, int64 u) {
            p1 = Conv <kernel_shape = [1, 1]> (s, w1)
            p3 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (s, w3)
            p5 = Conv <kernel_shape = [5, 5], pads = [2, 2, 2, 2]> (s, w5)
            pool = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (s)
            a = Add(p1, p3)  b = Add(p5, pool)  sum = Add(a, b)
            t = Tanh(sum)
            one = Constant <value = int64 {1}> ()
            u = Add(r, one)
            most = ReduceMax <keepdims = 0> (t)
            small = Less(most, limit)
            many = Constant <value = int64 {9}> ()
            few = Less(u, many)
            more = And(small, few)
        }
    >
    y = Neg(last)
}"""


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_a_loop_that_data_end_is_a_task_with_tasks_inside(threads: int) -> None:
    """A conditional task (Huang et al., Taskflow, 2020): how often its branches run, data say; a hundred runs each."""
    proto = onnx.parser.parse_model(UNTIL)
    rng = np.random.default_rng()
    for k in (1, 3, 5):
        weight = (rng.standard_normal((4, 4, k, k)) / k).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"w{k}"))
    plain, model = compile_model(proto, threads=1), compile_model(proto, threads=threads, tasks=True)
    (loop,) = [n for n in model.hosts if isinstance(n, ControlNode)]
    (body,) = loop.bodies
    assert isinstance(body, Model)
    assert width(body.plan.after) > 1  # branches of the body may run side by side
    rounds = set()
    for run in range(100):
        x = rng.standard_normal((1, 4, 12, 12)).astype(np.float32)
        feeds = {"x": x, "limit": np.float32(rng.uniform(0.3, 1.1))}
        expected = {n: np.array(v) for n, v in plain(feeds).items()}
        assert same(model(feeds), expected), run
        rounds.add(int(expected["rounds"]))
    assert len(rounds) > 1
