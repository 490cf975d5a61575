"""Graphs as exact text and back, and damage that is refused in one line."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import onnx
import pytest
import symbolic_models
import tiny_models
from onnx_suite.cases import all_cases

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compiling.stages import optimise
from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.exact_text import exact_graph, parse_graph, parts
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.verifying.verify import verify
from polyc.poly.dtypes import f32, i64
from polyc.poly.errors import PolycError


def same_value(a: Any, b: Any) -> bool:
    """Equality of what attributes and tensors hold, bits of arrays included."""
    if isinstance(a, np.ndarray):
        if not isinstance(b, np.ndarray) or a.dtype != b.dtype or a.shape != b.shape:
            return False
        return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
    if isinstance(a, float) and a != a:
        return isinstance(b, float) and b != b
    return type(a) is type(b) and bool(a == b)


def assert_same(a: Graph, b: Graph) -> None:
    """Field by field."""
    assert (a.name, dict(a.opsets), a.inputs, a.outputs, a.notes) == (b.name, b.opsets, b.inputs, b.outputs, b.notes)
    assert list(a.tensors) == list(b.tensors)
    for s, t in zip(a.tensors.values(), b.tensors.values(), strict=True):
        assert (s.name, s.dtype, s.layout, str(s.shape)) == (t.name, t.dtype, t.layout, str(t.shape))
        assert type(s.shape) is type(t.shape) and same_value(s.const, t.const) and s.onnx_type == t.onnx_type
        assert (s.sizes is None) == (t.sizes is None) and (s.codes is None) == (t.codes is None)
    assert len(a.nodes) == len(b.nodes)
    for m, n in zip(a.nodes, b.nodes, strict=True):
        assert (m.name, m.kind, m.inputs, m.outputs, m.captures) == (n.name, n.kind, n.inputs, n.outputs, n.captures)
        assert list(m.attrs) == list(n.attrs) and m.proto == n.proto
        assert all(same_value(v, n.attrs[k]) for k, v in m.attrs.items())
        assert [body is None for body in m.bodies] == [body is None for body in n.bodies]
        for x, y in zip(m.bodies, n.bodies, strict=True):
            if x is not None and y is not None:
                assert_same(x, y)


def assert_round_trip(graph: Graph) -> None:
    text = exact_graph(graph)
    back = parse_graph(text, parts(graph))
    assert_same(graph, back)
    assert exact_graph(back) == text


MODELS = {
    "network": lambda: import_model(tiny_models.network(), dims={"N": 2}),
    "host": lambda: import_model(tiny_models.with_host_steps()),
    "recurrent": lambda: import_model(tiny_models.recurrent()),
    "branching": lambda: import_model(tiny_models.branching(np.random.default_rng(0), 3)),
    "branching rows": lambda: import_model(tiny_models.branching(np.random.default_rng(0), 3, "rows"), symbolic=True),
    "network N": lambda: import_model(tiny_models.network(), symbolic=True),
    "perceptron": lambda: import_model(symbolic_models.perceptron(), symbolic=True),
    "convolutions": lambda: import_model(symbolic_models.convolutions(), symbolic=True),
    "table": lambda: import_model(symbolic_models.table(), symbolic=True),
    "attention": lambda: import_model(symbolic_models.attention(), symbolic=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    graph = MODELS[name]()
    assert_round_trip(graph)
    verify(parse_graph(exact_graph(graph), parts(graph)))


@pytest.mark.parametrize("name", ["network", "recurrent", "network N", "attention"])
def test_after_all_passes(name: str) -> None:
    graph = MODELS[name]()
    optimise(graph, platform_of("x86-64-v3", 1), CompileOptions())
    assert_round_trip(graph)


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.long)])
def test_cases_of_the_node_suite(count: int) -> None:
    found = 0
    for case in all_cases()[:: 1200 // count]:
        try:
            graph = import_model(case.model, warn=False)
        except PolycError:
            continue
        assert_round_trip(graph)
        found += 1
    assert found >= count


def odd() -> Graph:
    """Names, types and attributes that models have seldom."""
    tensors = [
        Tensor("a b:c", f32, (2, 3), np.arange(6, dtype=np.float32).reshape(2, 3)),
        Tensor("-", i64, (), np.array(2**62)),
        Tensor("s", None, (2,), np.array(["x", "ü\n"], object)),
        Tensor("h", None, None, onnx_type=onnx.TypeProto()),
        Tensor("y", f32, (2, 3)),
    ]
    proto = onnx.helper.make_tensor("t", 1, [2], [1.0, 2.0])
    attrs = {"f": float("nan"), "g": [1.0, float("-inf")], "text": "it's", "tensor": proto, "w=": [[1], []], "b": b"\0"}
    node = Node("n 1", "Odd op", ["a b:c", "", "-"], ["y", ""], attrs, "my domain", ("s",))
    known = {t.name: t for t in tensors}
    return Graph("odd one", {"": 17, "my domain": 1}, ["h"], ["y"], known, [node], ["two\nlines"])


def test_odd_names_and_values() -> None:
    assert_round_trip(odd())


def test_what_has_no_text() -> None:
    graph = odd()
    graph.nodes[0].attrs["x"] = object()
    with pytest.raises(GraphError, match="^a value of type object has no text$"):
        exact_graph(graph)


TEXT = exact_graph(MODELS["network"]())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (TEXT, "", "line 1: here the text has the form 'graph NAME', indented by 0"),
        ("  opset", "  opsett", "here the text has the form 'input NAMES', indented by 2"),
        ("tensor b1: f32[8]", "tensor b1: f33[8]", "line 5: there is no type 'f33'"),
        ("tensor x: f32[2, 3", "tensor x: f32[2, N", "'N' is no size"),
        ("(c1, scale", "(c9, scale", "no tensor 'c9' is declared"),
        ("strides = [2, 2]", "strides = [2, two]", "'two' is no value"),
        ("strides = [2, 2]", "strides = [2, 2", "'[2, 2' is no value"),
        ("array(f32, [8, 3, 3, 3]", "array(f32, [8, 3, 3]", "no f32 array of this shape and hash is given"),
        ("  tensor b1", "  tensor w1", "there is another tensor 'w1'"),
        ("  node conv2", "  knot conv2", "here the text has the form 'node NAME: RESULTS = OPERATOR(OPERANDS)'"),
    ],
)
def test_wrong_texts_end_in_one_line(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(GraphError) as caught:
        parse_graph(TEXT.replace(old, new, 1), parts(MODELS["network"]()))
    message = str(caught.value)
    assert said in message and "\n" not in message and re.match(r"graph, line \d+: ", message)


def test_400_damaged_texts() -> None:
    """A line lost, doubled or moved, a character changed: another graph, or one line."""
    graphs = [MODELS[name]() for name in ("network", "attention", "branching rows")]
    texts = [(exact_graph(g), parts(g)) for g in graphs]
    for seed in range(400):
        r = random.Random(seed)
        text, given = r.choice(texts)
        lines = text.splitlines()
        k, m = r.randrange(len(lines)), r.randrange(len(lines))
        if seed % 4 == 0:
            del lines[k]
        elif seed % 4 == 1:
            lines.insert(m, lines[k])
        elif seed % 4 == 2:
            lines[k], lines[m] = lines[m], lines[k]
        else:
            at = r.randrange(len(lines[k]) + 1)
            lines[k] = lines[k][:at] + r.choice("()[]{}:,='\"#0x-^*/ \té") + lines[k][at + 1 :]
        try:
            parse_graph("\n".join(lines), given)
        except GraphError as error:
            assert "\n" not in str(error) and re.match(r"graph, line \d+: ", str(error))
