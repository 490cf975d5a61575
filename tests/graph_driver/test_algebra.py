"""Every algebraic rule: it fires, and the result keeps its bits on special values (exact rules) or its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_graph_passes import evaluate
from tiny_models import model_of

from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.algebra import RULES
from polyc.graph_driver.passes.rewriting import rewrite

SHAPE = (24, 15)
F, I, B, D = TensorProto.FLOAT, TensorProto.INT32, TensorProto.BOOL, TensorProto.DOUBLE
node = helper.make_node
f32, i32 = np.float32, np.int32
# Rule -> (nodes from x (and z) to y, element types of x and y, constants)
Example = tuple[list[Any], int, int, dict[str, Any]]


def one(op: str, value: Any = None, swap: bool = False, kind: int = F, out: int | None = None, **attrs: Any) -> Example:
    """`y = op(x, value)`, or `op(value, x)`."""
    weights = {} if value is None else {"c": np.asarray(value)}
    operands = ["x"] if value is None else ["c", "x"] if swap else ["x", "c"]
    return [node(op, operands, ["y"], **attrs)], kind, kind if out is None else out, weights


def two(outer: str, inner: str, kind: int = F, out: int | None = None) -> Example:
    """`y = outer(inner(x))`."""
    return [node(inner, ["x"], ["t"]), node(outer, ["t"], ["y"])], kind, kind if out is None else out, {}


def twice(op: str, kind: int = F, out: int | None = None) -> Example:
    """`y = op(x, x)`."""
    return [node(op, ["x", "x"], ["y"])], kind, kind if out is None else out, {}


def chain(*nodes: Any, kind: int = F, out: int | None = None, **weights: Any) -> Example:
    return list(nodes), kind, kind if out is None else out, {k: np.asarray(v) for k, v in weights.items()}


EXAMPLES: dict[str, list[Callable[[], Example]]] = {
    "x*1": [lambda: one("Mul", f32(1)), lambda: one("Mul", np.ones(SHAPE[1], i32), True, I)],
    "x/1": [lambda: one("Div", f32(1))],
    "x-0": [lambda: one("Sub", f32(0)), lambda: one("Sub", i32(0), kind=I)],
    "x+(-0)": [lambda: one("Add", f32(-0.0), True), lambda: one("Add", i32(0), kind=I)],
    "x**1": [lambda: one("Pow", f32(1))],
    "x and true": [lambda: one("And", True, kind=B)],
    "x or false": [lambda: one("Or", False, True, B)],
    "x xor false": [lambda: one("Xor", False, kind=B)],
    "x & ~0": [lambda: one("BitwiseAnd", i32(-1), kind=I)],
    "x | 0": [lambda: one("BitwiseOr", i32(0), True, I), lambda: one("BitwiseXor", i32(0), kind=I)],
    "x shifted by 0": [
        lambda: one("BitShift", np.uint32(0), kind=TensorProto.UINT32, direction="LEFT"),
    ],
    "x and false": [lambda: one("And", False, kind=B)],
    "x or true": [lambda: one("Or", True, True, B)],
    "x*0, integers": [lambda: one("Mul", i32(0), kind=I)],
    "x & 0": [lambda: one("BitwiseAnd", i32(0), kind=I)],
    "x | ~0": [lambda: one("BitwiseOr", i32(-1), kind=I)],
    "x*-1": [lambda: one("Mul", f32(-1), True), lambda: one("Div", f32(-1)), lambda: one("Mul", i32(-1), kind=I)],
    "x/2^k": [
        lambda: one("Div", f32(8)), lambda: one("Div", f32(-0.25)), lambda: one("Div", np.float64(2**40), kind=D),
    ],
    "(x+a)+b, integers": [
        lambda: chain(node("Add", ["x", "a"], ["t"]), node("Add", ["b", "t"], ["y"]), kind=I, a=i32(5),
                      b=i32(2**31 - 1)),
        lambda: chain(node("Mul", ["a", "x"], ["t"]), node("Mul", ["t", "b"], ["y"]), kind=I, a=i32(5), b=i32(-7)),
    ],
    "x op x": [lambda: twice("Max"), lambda: twice("Min"), lambda: twice("And", B), lambda: twice("BitwiseOr", I)],
    "x-x, integers": [lambda: twice("Sub", I), lambda: twice("BitwiseXor", I)],
    "x xor x": [lambda: twice("Xor", B)],
    "x==x, integers": [lambda: twice("Equal", I, B), lambda: twice("GreaterOrEqual", I, B)],
    "x<x": [lambda: twice("Less", F, B), lambda: twice("Greater", I, B)],
    "-(-x)": [lambda: two("Neg", "Neg"), lambda: two("Neg", "Neg", I)],
    "not not x": [lambda: two("Not", "Not", B)],
    "~~x": [lambda: two("BitwiseNot", "BitwiseNot", I)],
    "|f(x)|, f not negative": [lambda: two("Abs", "Abs"), lambda: two("Abs", "Exp"), lambda: two("Abs", "Sigmoid")],
    "|-x|": [lambda: two("Abs", "Neg"), lambda: two("Abs", "Neg", I)],
    "relu(f(x)), f not negative": [lambda: two("Relu", "Relu"), lambda: two("Relu", "Exp")],
    "rounding twice": [lambda: two("Floor", "Ceil"), lambda: two("Round", "Round"), lambda: two("Ceil", "Floor")],
    "sign twice": [lambda: two("Sign", "Sign"), lambda: two("Sign", "Sign", I)],
    "(-a)*(-b)": [
        lambda op=op: chain(node("Neg", ["x"], ["a"]), node("Neg", ["z"], ["b"]), node(op, ["a", "b"], ["y"]))
        for op in ("Mul", "Div")
    ],
    "a+(-b)": [lambda: chain(node("Neg", ["x"], ["a"]), node("Add", ["a", "z"], ["y"]))],
    "a-(-b)": [lambda: chain(node("Neg", ["x"], ["a"]), node("Sub", ["z", "a"], ["y"]))],
    "not a<b, integers": [
        lambda op=op: chain(node(op, ["x", "z"], ["a"]), node("Not", ["a"], ["y"]), kind=I, out=B)
        for op in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual")
    ],
    "where(constant)": [
        lambda: chain(node("Where", ["c", "x", "z"], ["y"]), c=True),
        lambda: chain(node("Where", ["c", "x", "z"], ["y"]), c=np.zeros(SHAPE, bool)),
    ],
    "where(c, a, a)": [lambda: chain(node("IsNaN", ["z"], ["c"]), node("Where", ["c", "x", "x"], ["y"]))],
    "where(not c)": [
        lambda: chain(node("IsNaN", ["x"], ["c"]), node("Not", ["c"], ["n"]), node("Where", ["n", "x", "z"], ["y"]))
    ],
    "cast of a wider cast": [
        lambda: chain(node("Cast", ["x"], ["t"], to=D), node("Cast", ["t"], ["y"], to=F)),
        lambda: chain(node("Cast", ["x"], ["t"], to=D), node("Cast", ["t"], ["y"], to=TensorProto.FLOAT16), kind=I,
                      out=TensorProto.FLOAT16),
    ],
    "transpose of transpose": [
        lambda: chain(node("Transpose", ["x"], ["t"]), node("Transpose", ["t"], ["y"], perm=[1, 0])),
        lambda: chain(node("Transpose", ["x"], ["y"], perm=[0, 1])),
    ],
    "reshape of reshape": [
        lambda: chain(node("Flatten", ["x"], ["t"], axis=0), node("Reshape", ["t", "s"], ["y"]), s=np.array([12, -1])),
    ],
    "nothing repeated": [
        lambda: one("Expand", np.array([1, 1])), lambda: one("Tile", np.array([1, 1])),
        lambda: one("Reshape", np.array([0, -1])),
    ],
    "slice of all": [lambda: chain(node("Slice", ["x", "b", "e"], ["y"]), b=np.array([0, 0]), e=np.array([99, 99]))],
    "nothing padded": [lambda: one("Pad", np.array([0, 0, 0, 0]))],
    "window of one": [
        # onnx.reference's MaxPool fails on NaN
        lambda: chain(node("IsNaN", ["x"], ["n"]), node("Where", ["n", "zero", "x"], ["w"]),
                      node("Reshape", ["w", "s"], ["t"]), node("MaxPool", ["t"], ["y"], kernel_shape=[1, 1]),
                      zero=f32(0), s=np.array([2, 3, 12, 5])),
    ],
    "concat of split": [
        lambda: chain(node("Split", ["x"], ["p", "q"], axis=-2, num_outputs=2),
                      node("Concat", ["p", "q"], ["y"], axis=0)),
    ],
    "split in one": [lambda: chain(node("Split", ["x"], ["y"], num_outputs=1))],
    "clip without bounds": [lambda: one("Clip")],
    "x+0": [lambda: one("Add", f32(0))],
    "x-(-0)": [lambda: one("Sub", f32(-0.0))],
    "x*0": [lambda: one("Mul", f32(0))],
    "x-x": [lambda: twice("Sub")],
    "x/x": [lambda: twice("Div")],
    "-(a-b)": [lambda: chain(node("Sub", ["x", "z"], ["t"]), node("Neg", ["t"], ["y"]))],
    "x/c": [lambda: one("Div", np.linspace(1, 3, SHAPE[1], dtype=f32))],
    "(x+a)+b": [
        lambda: chain(node("Add", ["x", "a"], ["t"]), node("Add", ["t", "b"], ["y"]), a=f32(0.3), b=f32(1.7)),
    ],
    "x**2": [lambda: one("Pow", f32(2))],
    "x**0.5": [lambda: one("Pow", f32(0.5))],
    "x**-1": [lambda: one("Pow", f32(-1))],
    "sqrt(x*x)": [lambda: chain(node("Mul", ["x", "x"], ["t"]), node("Sqrt", ["t"], ["y"]))],
    "log(exp(x))": [lambda: two("Log", "Exp")],
    "exp(log(x))": [lambda: two("Exp", "Log")],
    "1/(1/x)": [lambda: two("Reciprocal", "Reciprocal")],
}  # fmt: skip

SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, -0.5, 2.5, 1e-45, -1e-40, 3.4e38, 1e30], f32)


def operand(kind: int, exact: bool, rng: np.random.Generator) -> np.ndarray:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if dtype.kind == "f" and exact:
        drawn = rng.standard_normal(SHAPE) * np.exp(rng.normal(0, 20, SHAPE))
        return np.where(rng.random(SHAPE) < 0.5, rng.choice(SPECIAL, SHAPE), drawn).astype(dtype)
    if dtype.kind == "f":
        return rng.uniform(0.5, 2, SHAPE).astype(dtype)
    if dtype.kind == "b":
        return rng.random(SHAPE) < 0.5
    info = np.iinfo(dtype)
    return np.where(rng.random(SHAPE) < 0.2, 7, rng.integers(info.min, info.max, SHAPE)).astype(dtype)


def wiring(graph: Graph) -> list[Any]:
    return [(n.kind, n.inputs) for n in graph.nodes]


def test_every_rule_has_an_example() -> None:
    assert [r.name for r in RULES] == list(EXAMPLES) and len({r.name for r in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
@pytest.mark.filterwarnings("ignore")
def test_rule(rule: Any) -> None:
    rng = np.random.default_rng()
    for make in EXAMPLES[rule.name]:
        nodes, kind, out, weights = make()
        model = model_of(nodes, {"x": (kind, list(SHAPE)), "z": (kind, list(SHAPE))}, {"y": (out, None)}, weights, 18)
        before, after = import_model(model), import_model(model)
        rewrite(after, [rule])
        assert wiring(after) != wiring(before), "the rule does nothing here"
        feeds = {"x": operand(kind, rule.exact, rng), "z": operand(kind, rule.exact, rng)}
        expected, found = np.asarray(evaluate(before, feeds)["y"]), np.asarray(evaluate(after, feeds)["y"])
        assert found.dtype == expected.dtype and found.shape == expected.shape
        if not rule.exact:
            np.testing.assert_allclose(found, expected, rtol=1e-5)
            continue
        np.testing.assert_array_equal(found, expected)
        if expected.dtype.kind == "f":
            number = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(expected)[number])


def test_a_result_that_loses_a_broadcast_is_kept() -> None:
    graph = import_model(
        model_of([node("Mul", ["x", "c"], ["y"])], {"x": [1, 3]}, {"y": None}, {"c": np.ones((4, 3), f32)})
    )
    rewrite(graph, RULES)
    assert [n.op_type for n in graph.nodes] == ["Mul"]
