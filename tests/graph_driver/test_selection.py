"""Choosing implementations: as good as trying everything, within what each candidate supports."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from tiny_models import model_of, network

from polyc.emit import targets
from polyc.graph_driver.choosing.candidates import CANDIDATES
from polyc.graph_driver.choosing.select import select
from polyc.graph_driver.choosing.solve import Option, Problem, Task, brute_force, solve
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes import manager

FORMATS = [("f32", "row-major"), ("f32", "channels-last"), ("f16", "row-major")]


def random_problem(rng: np.random.Generator) -> Problem:
    tensors = ["x0", "x1"]
    tasks = []
    for k in range(int(rng.integers(1, 9))):
        inputs = tuple(rng.choice(tensors, int(rng.integers(1, min(3, len(tensors)) + 1)), replace=False))
        outputs = tuple(f"t{k}.{j}" for j in range(int(rng.integers(1, 3))))

        def draw(n: int) -> tuple[tuple[str, str], ...]:
            return tuple(FORMATS[int(rng.integers(len(FORMATS)))] for _ in range(n))

        options = tuple(
            Option(f"o{j}", draw(len(inputs)), draw(len(outputs)), int(rng.integers(0, 3)), float(rng.integers(1, 20)))
            for j in range(int(rng.integers(1, 4)))
        )
        tasks.append(Task(f"n{k}", inputs, outputs, options))
        tensors += outputs
    wanted = {t: FORMATS[0] for t in rng.choice(tensors[2:], min(2, len(tensors) - 2), replace=False)}
    costs = {t: float(rng.integers(0, 10)) for t in tensors}
    return Problem(tuple(tasks), {"x0": FORMATS[0], "x1": FORMATS[1]}, wanted, costs)


@pytest.mark.parametrize("part", range(4))
def test_as_good_as_trying_everything(part: int) -> None:
    rng = np.random.default_rng()
    for _ in range(60):
        problem = random_problem(rng)
        found, best = solve(problem), brute_force(problem)
        assert found.score == best.score and found.proved, problem
        again = Problem(
            tuple(Task(t.name, t.inputs, t.outputs, (found.chosen[t.name],)) for t in problem.tasks),
            problem.given, problem.wanted, problem.conversion,
        )  # fmt: skip
        assert brute_force(again).score == found.score  # the score is that of the choice


def test_many_tensors_that_live_at_once_are_no_matter() -> None:
    """As images between the forward and the backward part of training: two formats each, read again in the end."""
    many = 80
    formats = ("f32", "rows"), ("f32", "blocks")

    def options(inputs: int, cheap: int) -> tuple[Option, ...]:
        return tuple(Option(str(k), (f,) * inputs, (f,), cost=1.0 + (k != cheap % 2)) for k, f in enumerate(formats))

    forward = [Task(f"f{k}", (), (f"x{k}",), options(0, k)) for k in range(many)]
    backward = [Task(f"b{k}", (f"x{k}",), (f"y{k}",), options(1, k)) for k in reversed(range(many))]
    found = solve(Problem((*forward, *backward), {}, {}, {}))
    assert found.proved and found.score == (0, 0, 2.0 * many)


def test_a_conversion_is_shared_by_all_readers() -> None:
    nchw, nhwc = ("f32", "row-major"), ("f32", "channels-last")
    reader = [Task(f"r{k}", ("t",), (f"y{k}",), (Option("a", (nhwc,), (nhwc,)),)) for k in range(3)]
    make = Task("m", ("x",), ("t",), (Option("plain", (nchw,), (nchw,), 0, 1.0),))
    assert solve(Problem((make, *reader), {"x": nchw}, {}, {"t": 5.0})).score == (0, 1, 6.0)


def convolution(kernel: int = 3, stride: int = 1, channels: int = 64, size: int = 56) -> Graph:
    w = np.random.default_rng(0).standard_normal((channels, channels, kernel, kernel)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[kernel // 2] * 4, strides=[stride] * 2)]
    return import_model(model_of(nodes, {"x": [1, channels, size, size]}, {"y": None}, {"w": w}))


def test_candidates_say_what_they_need() -> None:
    host = targets.host()
    (chosen,) = select(convolution(), host)
    assert {c.name for c in chosen.candidates} == {"contraction", "winograd2", "winograd4", "host"}
    assert chosen.chosen == min((c for c in chosen.candidates if c.cost is not None), key=lambda c: c.cost or 0).name
    (strided,) = select(convolution(stride=2), host)
    refused = {c.name: c.refusal for c in strided.candidates if c.refusal}
    assert refused == {"winograd2": "it needs sh = 1", "winograd4": "it needs sh = 1"}
    assert strided.chosen == "contraction" and "winograd4: it needs sh = 1" in str(strided)
    (exact,) = select(convolution(), host, exact=True)
    assert exact.chosen == "contraction" and any("--exact" in c.refusal for c in exact.candidates)
    (naive,) = select(convolution(), host, naive=True)
    assert naive.chosen == "contraction"
    assert all(c.op_types and c.device in ("cpu", "host") for c in CANDIDATES)


@pytest.mark.parametrize(("channels", "size"), [(8, 8), (32, 28), (64, 56), (128, 28), (256, 14), (512, 7)])
def test_what_is_selected_is_what_is_built(channels: int, size: int) -> None:
    host = targets.host()
    (chosen,) = select(convolution(channels=channels, size=size), host)
    graph = convolution(channels=channels, size=size)
    manager.run(graph, manager.select(), host)
    built = [n.attrs["m"] for n in graph.nodes if n.op_type in ("WinogradInput", "WinogradBlocks")]
    assert chosen.chosen == (f"winograd{built[0]}" if built else "contraction")


def test_an_absent_first_output() -> None:
    w = {"w": np.ones((1, 12, 3), np.float32), "r": np.ones((1, 12, 4), np.float32)}
    nodes = [helper.make_node("GRU", ["x", "w", "r"], ["", "h"], "gru", hidden_size=4)]
    (found,) = select(import_model(model_of(nodes, {"x": [2, 1, 3]}, {"h": None}, w)), targets.host())
    assert found.chosen == "loops"


def test_every_node_has_exactly_one_implementation() -> None:
    graph = import_model(network(), {"N": 1})
    manager.run(graph)
    found = select(graph, targets.host())
    assert [s.node for s in found] == [n.name for n in graph.nodes if n.op_type != "View"]
    assert all(s.chosen in {c.name for c in s.candidates if c.cost is not None} for s in found)
