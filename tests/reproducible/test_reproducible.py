"""`reproducible=True`: the same bits on every number of threads, size of batch, CPU and back end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc import dims, empty, exp, f32, max, op
from polyc.emit.lowering.lower import lower
from polyc.emit.targets import get
from polyc.graph_driver.graph.ir import Node, Tensor
from polyc.graph_driver.host.same_everywhere import NotReproducible, same_everywhere
from polyc.poly.dependences import conflicts
from polyc.poly.errors import OptionError, ScopError
from polyc.poly.reduction import contracts, fixed_order
from polyc.poly.rewriting.forward import forward

IMAGES = 4
N = dims("N")


def network(rng: np.random.Generator, channels: int, side: int) -> onnx.ModelProto:
    """Two convolutions, a mean, a product and a softmax, of any number of images."""
    weights: dict[str, np.ndarray] = {
        "w0": rng.standard_normal((channels, 3, 3, 3)), "b0": rng.standard_normal(channels),
        "w1": rng.standard_normal((channels, channels, 3, 3)), "w2": rng.standard_normal((channels, 7)),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], strides=[2, 2]),
        helper.make_node("Sigmoid", ["c1"], ["s"]),
        helper.make_node("Mul", ["c1", "s"], ["m"]),
        helper.make_node("GlobalAveragePool", ["m"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["p"]),
        helper.make_node("Softmax", ["p"], ["y"]),
    ]
    return _model(nodes, ["N", 3, side, side], ["N", 7], weights)


def _model(
    nodes: Sequence[onnx.NodeProto], x: Sequence[int | str], y: Sequence[int | str], weights: dict[str, np.ndarray]
) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in (("x", x), ("y", y))]
    graph = helper.make_graph(nodes, "network", [ends[0]], [ends[1]], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_bits_are_the_same_everywhere() -> None:
    rng = np.random.default_rng()
    side = int(rng.integers(9, 14))
    model, x = network(rng, 16, side), rng.standard_normal((IMAGES, 3, side, side)).astype(np.float32)
    found = {}
    for target, threads, batch in (("cpu", 1, 4), ("cpu", 2, 1), ("c", 1, 4), ("x86-64-v3", 2, 2)):
        compiled = polyc.compile_model(model, target=target, threads=threads, dims={"N": batch}, reproducible=True)
        assert not compiled.plan.host_steps
        parts = [compiled({"x": x[k : k + batch]})["y"] for k in range(0, IMAGES, batch)]
        found[target, threads, batch] = np.concatenate(parts).tobytes()
    assert len(set(found.values())) == 1, [k for k, v in found.items() if v != found["cpu", 1, 4]]


def test_constants_are_computed_as_a_run_would() -> None:
    """NumPy's functions and products round as its build and the machine do: they are no constants of the model."""
    rng = np.random.default_rng()
    weights = {"a": rng.standard_normal((3, 50)), "b": rng.standard_normal((50, 8)), "k": rng.standard_normal(8)}
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Exp", ["k"], ["e"]),
        helper.make_node("Mul", ["k", "k"], ["twice"]),
        helper.make_node("Div", ["p", "e"], ["q"]),
        helper.make_node("Sub", ["q", "twice"], ["d"]),
        helper.make_node("Add", ["x", "d"], ["y"]),
    ]
    model = _model(nodes, [3, 8], [3, 8], weights)
    given = _model(nodes, [3, 8], [3, 8], {})
    for name, w in weights.items():
        given.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, w.shape))
    x = rng.standard_normal((3, 8)).astype(np.float32)
    feeds = {"x": x} | {name: w.astype(np.float32) for name, w in weights.items()}
    as_constants = polyc.compile_model(model, reproducible=True)
    assert as_constants({"x": x})["y"].tobytes() == polyc.compile_model(given, reproducible=True)(feeds)["y"].tobytes()
    assert any("1 nodes computed at import" in n for n in as_constants.report().notes)  # the square


def test_what_the_host_rounds_is_refused_by_name() -> None:
    """Of sizes that only a run knows: what moves elements or rounds them once is the same everywhere."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Transpose", ["where"], ["places"]),
        helper.make_node("GatherND", ["x", "places"], ["g"]),
        helper.make_node("Mul", ["g", "g"], ["m"]),
        helper.make_node("Exp", ["m"], ["e"], "the exponential"),
        helper.make_node("ReduceSum", ["m"], ["y"], "the sum", keepdims=0),
    ]
    fine = _model(nodes[:4], [3, 4], ["K"], {})
    fine.graph.output[0].name = "m"
    x = np.random.default_rng().standard_normal((3, 4)).astype(np.float32)
    model = polyc.compile_model(fine, reproducible=True)
    assert model.plan.host_steps and np.array_equal(model({"x": x})["m"], x.reshape(-1) ** 2)
    assert any(n.startswith("reproducible on the host, too") for n in model.report().notes)
    with pytest.raises(NotReproducible, match=r"Exp 'the exponential' \(the shape.*ReduceSum 'the sum'"):
        polyc.compile_model(_model(nodes, [3, 4], [], {}), reproducible=True, disable=["dead-code"])


@pytest.mark.parametrize("op_type, fixed", [("Neg", True), ("Exp", False)])
def test_bodies_on_the_host_are_looked_into(op_type: str, fixed: bool) -> None:
    body = helper.make_graph([helper.make_node(op_type, ["v"], ["w"])], "body", [], [])
    proto = helper.make_node("SequenceMap", ["s"], ["t"], body=body)
    node = Node("map", "SequenceMap", ["s"], ["t"], {}, "", (), proto)
    tensors = {n: Tensor(n, None, None) for n in "st"}
    assert same_everywhere(node, tensors) == fixed


def test_functions_are_those_of_the_program() -> None:
    """A shorter exponential where nothing is positive rounds otherwise, and not every back end has it."""
    scop = exponentials.scop()
    for program, expected in ((scop, True), (fixed_order(scop), False)):
        loops = str(lower(program, program.tree, "f", get("cpu")))
        assert ("exp_nonpositive" in loops) == expected


def test_what_is_joined_rounds_as_what_is_apart() -> None:
    """A product that a node rounds before a sum is no fused multiply-add where the two become one kernel."""
    rng = np.random.default_rng()
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0)]
    model = _model(nodes, [3, 501], [], {"w": rng.standard_normal((3, 501))})
    x = rng.standard_normal((3, 501)).astype(np.float32)
    ways = [polyc.compile_model(model, reproducible=True, fuse=fuse)({"x": x})["y"].tobytes() for fuse in (True, False)]
    assert ways[0] == ways[1]


@op
def exponentials(x: f32[N]) -> f32[N]:
    y = empty((N,), f32)
    top = empty((1,), f32)
    top[0] = x[0]
    for i in range(N):
        top[0] = max(top[0], x[i])
    for i in range(N):
        y[i] = exp(x[i] - top[0])
    return y


@op
def scaled_sum(a: f32[N], b: f32[N]) -> f32[1]:
    t = empty((N,), f32)
    s = empty((1,), f32)
    for i in range(N):
        t[i] = a[i] * b[i]
    s[0] = 0.0
    for i in range(N):
        s[0] += t[i]
    return s


def test_the_order_of_sums_is_a_conflict_like_any_other() -> None:
    free = scaled_sum.scop()
    fixed = fixed_order(free)
    assert conflicts(free).relaxed
    assert not conflicts(fixed).relaxed
    assert contracts(fixed)
    forward(free, "t")
    with pytest.raises(ScopError, match="adds up rounded"):
        forward(fixed, "t")


def test_options_that_contradict_it() -> None:
    model = network(np.random.default_rng(0), 4, 6)
    for other in ({"tier": "progressive"}, {"fast_math": True}):
        with pytest.raises(OptionError, match="reproducible"):
            polyc.compile_model(model, reproducible=True, **other)
