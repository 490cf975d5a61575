"""Which nodes have the type that is asked for: fewest deviations, then fewest casts, then least that is moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from tiny_models import model_of

import polyc
from polyc.graph_driver.choosing.mixed_types import MOVING, choose_types, typed_problem
from polyc.graph_driver.choosing.solve import brute_force, score_of, solve
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.naming import is_named
from polyc.graph_driver.passes.precision import TYPE_TEXTS, WIDE, assign_precision, ports_of
from polyc.poly.dtypes import f16, f32

STAY_SQUARE = ("Relu", "Exp", "Softplus", "Neg", "Transpose", "Identity", "Add", "Mul", "MatMul", "Halves", "Sum")
SIZE = 4


def drawn(rng: np.random.Generator, most: int = 8) -> Any:
    """A model of at most `most` nodes on squares; it splits and joins them, too, and has several outputs."""
    tensors, nodes = ["x0", "x1"], []
    for k in range(int(rng.integers(2, most + 1))):
        kind, (a, b) = str(rng.choice(STAY_SQUARE)), (str(t) for t in rng.choice(tensors, 2))
        y = f"t{k}"
        if kind == "Halves":  # one node, two results
            nodes.append(helper.make_node("Split", [a], [f"{y}a", f"{y}b"], y, axis=0))
            nodes.append(helper.make_node("Concat", [f"{y}b", f"{y}a"], [y], f"{y} joined", axis=0))
        else:
            pair = kind in ("Add", "Mul", "MatMul", "Sum")
            nodes.append(helper.make_node(kind, [a, b] if pair else [a], [y], y))
        tensors.append(y)
        if len(nodes) >= most - 1:
            break
    read = {i for n in nodes for i in n.input}
    outputs = [o for n in nodes for o in n.output if o not in read]
    outputs += [str(t) for t in rng.choice([t for t in tensors[2:] if t in read] or outputs, 1) if t not in outputs]
    return model_of(nodes, {"x0": [SIZE, SIZE], "x1": [SIZE, SIZE]}, dict.fromkeys(outputs), {}, opset=17)


def asked(graph: Graph, keep: list[str]) -> tuple[list[list[str]], list[bool]]:
    may = [[] if n.op_type in WIDE else ports_of(graph, n, f32, TYPE_TEXTS["f16"]) for n in graph.nodes]
    return may, [is_named(n, keep) for n in graph.nodes]


def in_f32(graph: Graph) -> list[str]:
    """The nodes that compute in f32."""
    return [
        n.name
        for n in graph.nodes
        if n.op_type not in (*MOVING, "Cast") and any(graph.tensors[o].dtype == f32 for o in n.writes())
    ]


@pytest.mark.parametrize("part", range(4))
def test_real_choices_are_as_good_as_trying_everything(part: int) -> None:
    """Random models: the score is that of all combinations of types, and the graph that is made has just so many
    nodes in f32 and casts."""
    rng = np.random.default_rng()
    scores, fewer = [], 0
    for _ in range(40):
        proto = drawn(rng)
        keep = [str(n.name) for n in proto.graph.node if rng.random() < 0.2]
        graph = import_model(proto)
        assert len(graph.nodes) <= 8
        problem = typed_problem(graph, f32, f16, *asked(graph, keep))
        narrow, found = choose_types(graph, f32, f16, *asked(graph, keep))
        best = brute_force(problem)
        assert found.proved and found.score == best.score == solve(problem).score, (proto, keep)
        fewer += score_of(problem, {t.name: t.options[0] for t in problem.tasks})[:2] > found.score[:2]
        held = [n for n in graph.nodes if n.op_type in MOVING and is_named(n, keep)]
        counts = assign_precision(graph, "f16", keep)
        assert counts == {"nodes": sum(narrow), "casts": found.score[1]}
        assert len(in_f32(graph)) + len(held) == found.score[0]
        scores.append(found.score)
    assert any(d for d, _, _ in scores) and any(c > 1 for _, c, _ in scores)
    assert fewer  # what has the type that is asked for wherever it may has more casts


def chain() -> Any:
    """Exp and Softplus stay in f32; what lies between them is only moved. Three parts are joined before a product."""
    node = helper.make_node
    nodes = [
        node("Exp", ["x"], ["e"], "e"),
        node("Transpose", ["e"], ["t"], "t", perm=[1, 0]),
        node("Identity", ["t"], ["i"], "i"),
        node("Softplus", ["i"], ["s"], "s"),
        node("Concat", ["a", "b", "s"], ["c"], "c", axis=0),
        node("MatMul", ["c", "w"], ["y"], "y"),
    ]
    w = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
    shapes = {"x": [SIZE, SIZE], "a": [3, SIZE], "b": [5, SIZE]}
    return model_of(nodes, shapes, {"y": None}, {"w": w}, opset=17)


def test_what_is_moved_between_nodes_in_f32_stays_so() -> None:
    graph = import_model(chain())
    counts = assign_precision(graph, "f16")
    made = {n.name: graph.tensors[n.outputs[0]].dtype for n in graph.nodes}
    assert made["t"] == made["i"] == made["c"] == f32 and made["y"] == f16
    assert counts == {"nodes": 1, "casts": 2}  # the joined parts once, and the result
    assert graph.notes[-1].startswith("f16: 1 nodes, 2 casts; in f32: Concat, Exp, ")


def test_results() -> None:
    rng = np.random.default_rng(2)
    given = {"x": (SIZE, SIZE), "a": (3, SIZE), "b": (5, SIZE)}
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in given.items()}
    want = polyc.compile_model(chain())(feeds)["y"]
    for name, error in (("f16", 4e-3), ("bf16", 3e-2)):
        got = polyc.compile_model(chain(), precision=name)(feeds)["y"]
        assert got.dtype == np.float32 and np.abs(got - want).max() < error * np.abs(want).max()


def test_the_user_holds_what_only_moves() -> None:
    graph = import_model(chain())
    counts = assign_precision(graph, "f16", ["MatMul"])
    assert counts == {"nodes": 0, "casts": 0} and {t.dtype for t in graph.tensors.values()} == {f32}


@pytest.mark.parametrize("layers", [3, 60])
def test_many_caches_at_once(layers: int) -> None:
    """Each layer joins old rows (an input) and new ones, and shows them (an output): parts that do not touch."""
    node, nodes, shapes = helper.make_node, [], {"x": [1, SIZE]}
    last = "x"
    for k in range(layers):
        shapes[f"old{k}"] = [9, SIZE]
        nodes += [
            node("Relu", [last], [f"new{k}"], f"new{k}"),
            node("Concat", [f"old{k}", f"new{k}"], [f"all{k}"], f"all{k}", axis=0),
            node("ReduceMean", [f"all{k}"], [f"m{k}"], f"m{k}", axes=[0]),
        ]
        last = f"m{k}"
    shown = [last, *(f"all{k}" for k in range(layers))]
    graph = import_model(model_of(nodes, shapes, dict.fromkeys(shown), {}, opset=17))
    found = choose_types(graph, f32, f16, *asked(graph, []))[1]
    assert found.proved and found.score[:2] == (0, 2 * layers + 2)
