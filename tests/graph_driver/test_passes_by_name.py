"""Passes by name: chosen, left out, in any order; the differential mode names the one that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_hash import structure
from onnx import TensorProto, helper
from test_graph_passes import evaluate
from tiny_models import model_of, network, recurrent

from polyc.graph_driver import cli
from polyc.graph_driver.checking.differential import differential
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes import manager
from polyc.graph_driver.passes.common import share_common
from polyc.graph_driver.passes.manager import BY_NAME, PASSES, Pass, select
from polyc.graph_driver.passes.transforms import cancel_transforms
from polyc.poly.errors import ArgumentError


def test_names_and_tags() -> None:
    assert len(BY_NAME) == len(PASSES)
    specific = [
        "byte-images",
        "byte-products",
        "siblings",
        "external",
        "winograd",
        "quantised-convolutions",
        "reciprocals",
        "integer-pairs",
        "bf16-pairs",
        "weight-panels",
    ]
    assert [p.name for p in PASSES if p.specific] == specific
    assert "fast-math" not in [p.name for p in select()] and "fast-math" in [p.name for p in select(fast_math=True)]
    assert [p.name for p in select(["algebra", "common"])] == ["algebra", "common"]
    assert [p.name for p in select(["parts", "views", "algebra"])] == ["algebra", "views", "parts"]
    assert all(p.exact for p in select(exact=True))
    assert [p.name for p in select(reproducible=True) if not p.exact] == ["affine"]
    with pytest.raises(ArgumentError, match="'affine' rounds elsewhere.*not with exact"):
        select(["affine"], exact=True)
    assert "common" not in [p.name for p in select(disable=["common"])]
    with pytest.raises(ArgumentError, match="no pass 'nonsense'; passes are identities"):
        select(["nonsense"])


def test_command(capfd: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())

    def polyc(*argv: str) -> tuple[int, str, str]:
        code = cli.main(list(argv))
        return code, *capfd.readouterr()

    assert [row["name"] for row in json.loads(polyc("passes", "--json")[1])] == list(BY_NAME)
    run = ("run", str(path), "--threads", "1", "--json")
    passes = json.loads(polyc(*run)[1])["report"]["passes"]
    assert [p.partition(":")[0] for p in passes] == [p.name for p in select()]
    code, out, _ = polyc(*run, "--check", "--disable", "affine,views,winograd")
    assert code == 0 and not any(p.startswith(("affine", "views")) for p in json.loads(out)["report"]["passes"])
    code, out, _ = polyc(*run, "--check", "--passes", "dead-code")
    assert code == 0 and len(json.loads(out)["report"]["passes"]) == 1
    assert polyc(*run, "--disable", "nothing")[0] == 2
    code, out, _ = polyc("run", str(path), "--differential")
    assert code == 0 and "no pass changes the outputs" in out and "affine" in out


def test_the_guilty_pass_is_named() -> None:
    def wrong(graph: Graph) -> dict[str, int]:
        for n in graph.nodes:
            if n.op_type == "Relu":
                n.op_type, n.proto = "Abs", None
                return {"broken": 1}
        return {}

    def dangling(graph: Graph) -> dict[str, int]:
        graph.nodes[0].inputs[0] = "nowhere"
        return {}

    def verdict(step: Callable[[Graph], dict[str, int]]) -> Any:
        bad = Pass("bad", "", lambda graph, target: step(graph))
        graph = import_model(network(), {"N": 1})
        feeds = {"x": np.random.default_rng().standard_normal((1, 3, 10, 12)).astype(np.float32)}
        passes = (*select(["identities", "dead-code"]), bad, *select(["affine", "common"]))
        return differential(graph, passes, None, lambda g: evaluate(g, feeds), 1e-4)

    assert verdict(wrong).guilty == "bad"
    assert verdict(dangling).guilty == "bad" and "breaks the graph" in str(verdict(dangling))
    assert verdict(lambda graph: {}).guilty is None


@pytest.mark.parametrize("make", [network, recurrent])
def test_shuffled_orders_lead_to_the_same_graph(make: Any) -> None:
    rng = np.random.default_rng()
    names = [p.name for p in select(fast_math=True) if p.name != "winograd"]
    found = set()
    for _ in range(8):
        order = [names[k] for k in rng.permutation(len(names))]
        graph = import_model(make(), {"N": 1} if make is network else None)
        manager.run(graph, select(order))
        found.add(structure(graph))
    assert len(found) == 1


def graph_of(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], weights: Any = None) -> Graph:
    return import_model(model_of(nodes, inputs, outputs, weights or {}, opset=18))


def same(before: Graph, after: Graph, feeds: dict[str, np.ndarray]) -> None:
    expected, found = evaluate(before, feeds), evaluate(after, feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


def test_equal_nodes_and_constants_are_shared() -> None:
    w = np.arange(6, dtype=np.float32)
    nodes = [
        helper.make_node("Add", ["x", "a"], ["p"]), helper.make_node("Add", ["x", "b"], ["q"]),
        helper.make_node("Exp", ["p"], ["ep"]), helper.make_node("Exp", ["q"], ["eq"]),
        helper.make_node("Mul", ["ep", "eq"], ["y"]),
        helper.make_node("LeakyRelu", ["x"], ["l0"], alpha=0.0),
        helper.make_node("LeakyRelu", ["x"], ["l1"], alpha=-0.0),
        helper.make_node("RandomNormalLike", ["x"], ["r0"]), helper.make_node("RandomNormalLike", ["x"], ["r1"]),
        helper.make_node("Sub", ["r0", "r1"], ["r"]), helper.make_node("Exp", ["x"], ["out0"]),
        helper.make_node("Exp", ["x"], ["out1"]),
    ]  # fmt: skip
    outputs = {n: [6] for n in ("y", "l0", "l1", "r", "out0", "out1")}
    graph = graph_of(nodes, {"x": [6]}, outputs, {"a": w, "b": w.copy()})
    counts = share_common(graph)
    assert counts == {"nodes": 2, "constants": 1}
    kinds = [n.op_type for n in graph.nodes]
    assert kinds.count("RandomNormalLike") == 2 and kinds.count("LeakyRelu") == 2 and kinds.count("Exp") == 3


@pytest.mark.parametrize(
    ("chain", "left"),
    [
        ([("Transpose", {"perm": [0, 2, 3, 1]}), ("Transpose", {"perm": [0, 3, 1, 2]})], []),
        ([("Transpose", {"perm": [0, 2, 3, 1]}), ("Transpose", {"perm": [0, 2, 3, 1]})], ["Transpose", "Transpose"]),
        ([("SpaceToDepth", {"blocksize": 2}), ("DepthToSpace", {"blocksize": 2})], []),
        ([("SpaceToDepth", {"blocksize": 2}), ("DepthToSpace", {"blocksize": 2, "mode": "CRD"})],
         ["SpaceToDepth", "DepthToSpace"]),
        ([("Transpose", {"perm": [0, 2, 3, 1]}), ("Reshape", [1, 24, 4]), ("Transpose", {"perm": [0, 2, 1]}),
          ("Reshape", [1, 4, 4, 6])], []),
        ([("Transpose", {"perm": [1, 0, 2, 3]}), ("Transpose", {"perm": [0, 2, 3, 1]})], ["Reshape"]),
    ],
)  # fmt: skip
def test_moves_that_cancel(chain: list[Any], left: list[str]) -> None:
    at, nodes, weights = "x", [], {}
    for k, (op_type, how) in enumerate(chain):
        inputs, attrs = [at], how
        if op_type == "Reshape":
            weights[f"shape{k}"] = np.array(how)
            inputs, attrs = [at, f"shape{k}"], {}
        nodes.append(helper.make_node(op_type, inputs, [f"t{k}"], **attrs))
        at = f"t{k}"
    nodes.append(helper.make_node("Exp", [at], ["y"]))
    before, graph = (graph_of(nodes, {"x": [1, 4, 4, 6]}, {"y": None}, weights) for _ in range(2))
    cancel_transforms(graph)
    manager.run(graph, select(["dead-code"]))
    if left == ["Reshape"]:
        # [1, 4, 4, 6] -> [4, 1, 4, 6] -> [4, 4, 6, 1]: the order of the elements never changes
        assert all(n.op_type in ("Reshape", "Transpose", "Exp") for n in graph.nodes)
        assert [n.op_type for n in graph.nodes[:-1]] in (["Reshape"], ["Transpose"])
    else:
        assert [n.op_type for n in graph.nodes[:-1]] == left
    same(before, graph, {"x": np.random.default_rng().standard_normal((1, 4, 4, 6)).astype(np.float32)})


@pytest.mark.parametrize(("block", "kept", "stays"), [(4, 3, False), (16, 5, False), (4, 4, True)])
def test_padded_pairs_cancel(block: int, kept: int, stays: bool) -> None:
    """NCHW -> NC1HWC0 -> NCHW of channels that fill no block: nothing is left, unless another part comes back."""
    channels = 3 if stays else kept
    blocks = -(-channels // block)
    whole, inner = blocks * block, [1, blocks, block, 4, 6]
    weights = {
        "pads": np.array([0, 0, 0, 0, 0, whole - channels, 0, 0]), "inner": np.array(inner),
        "outer": np.array([1, whole, 4, 6]), "first": np.array([0]), "last": np.array([kept]),
        "axes": np.array([1]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["t0"]), helper.make_node("Reshape", ["t0", "inner"], ["t1"]),
        helper.make_node("Transpose", ["t1"], ["t2"], perm=[0, 1, 3, 4, 2]),
        helper.make_node("Transpose", ["t2"], ["t3"], perm=[0, 1, 4, 2, 3]),
        helper.make_node("Reshape", ["t3", "outer"], ["t4"]),
        helper.make_node("Slice", ["t4", "first", "last", "axes"], ["t5"]), helper.make_node("Exp", ["t5"], ["y"]),
    ]  # fmt: skip
    before, graph = (graph_of(nodes, {"x": [1, channels, 4, 6]}, {"y": None}, weights) for _ in range(2))
    manager.run(graph, select(["transforms", "identities", "dead-code"]))
    kinds = [n.op_type for n in graph.nodes]
    assert ("Pad" in kinds) if stays else kinds == ["Exp"]
    same(before, graph, {"x": np.random.default_rng().standard_normal((1, channels, 4, 6)).astype(np.float32)})


def test_a_move_with_another_reader_stays() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Transpose", ["t"], ["u"], perm=[1, 0]),
        helper.make_node("Relu", ["u"], ["y"]), helper.make_node("Exp", ["t"], ["z"]),
        helper.make_node("Cast", ["t"], ["i"], to=TensorProto.INT32),
    ]  # fmt: skip
    graph = graph_of(nodes, {"x": [3, 5]}, {"y": None, "z": None, "i": (TensorProto.INT32, None)})
    manager.run(graph, select(["transforms", "dead-code"]))
    assert [n.op_type for n in graph.nodes] == ["Transpose", "Relu", "Exp", "Cast"]


def test_planner_and_selection_on_the_command_line(capfd: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())

    def report(*argv: str) -> dict[str, Any]:
        assert cli.main(["run", str(path), "--threads", "1", "--json", "--check", *argv]) == 0
        found: dict[str, Any] = json.loads(capfd.readouterr()[0])["report"]
        return found

    assert report("--planner", "two-cursor")["peak"] >= report("--planner", "exact")["peak"] == report()["peak"]
    naive = report("--select", "naive")
    assert naive["kernels"] > report()["kernels"] and not any(p.startswith("winograd") for p in naive["passes"])
    code = cli.main(["compile", str(path), "-o", str(tmp_path / "o"), "--dim", "N=1", "--memory-limit", "64"])
    assert code == 1 and "alive at step" in capfd.readouterr()[1]
