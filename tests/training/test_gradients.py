"""Gradients of graphs: every rule against finite differences in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.graph_driver.communication.operators import DOMAIN
from polyc.graph_driver.gradients import registry
from polyc.graph_driver.gradients.reverse import RULES, without_rules
from polyc.graph_driver.graph import control

Case = tuple[str, list[Any], dict[str, Any]]
ROWS = np.random.default_rng(1)


def around(*shape: int, low: float = -1.5, high: float = 1.5) -> np.ndarray:
    """Distinct values between two, none close to another or to a kink at a multiple of 1/2."""
    n = int(np.prod(shape)) if shape else 1
    grid = np.linspace(low, high, n + 2)[1:-1]
    kinks = np.round(grid * 2) / 2
    grid = np.where(abs(grid - kinks) < 0.02, kinks + 0.02, grid)
    return ROWS.permutation(grid).reshape(shape)


def unary(kind: str, low: float = -1.5, high: float = 1.5, **attrs: Any) -> Case:
    return kind, [around(2, 5, low=low, high=high)], attrs


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


CASES: list[Case] = [
    *(unary(k) for k in (
        "Neg", "Abs", "Exp", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Asinh", "Erf", "Sigmoid", "Softplus",
        "Softsign", "Relu", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "HardSwish", "Mish", "Shrink",
        "Identity", "Atan",
    )),
    *(unary(k, 0.3, 2.0) for k in ("Log", "Sqrt", "Reciprocal")),
    *(unary(k, -0.8, 0.8) for k in ("Asin", "Acos", "Atanh")),
    unary("Acosh", 1.3, 3.0), unary("ThresholdedRelu", alpha=0.7), unary("Gelu"), unary("Gelu", approximate="tanh"),
    unary("HardSigmoid", -4.0, 4.0), unary("HardSwish", -4.0, 4.0), unary("Shrink", lambd=0.7),
    *((k, [around(2, 3, 4), around(3, 1, low=0.4, high=2.0)], {}) for k in ("Add", "Sub", "Mul", "Div")),
    ("Add", [around(4), around(3, 4)], {}),
    ("Sum", [around(2, 3), around(3), around(1, 1)], {}), ("Mean", [around(2, 3), around(3)], {}),
    ("Max", [around(2, 3), around(3) + 0.01], {}), ("Min", [around(2, 3), around(3) + 0.01, around(1) + 0.02], {}),
    ("Pow", [around(3, 4, low=0.3, high=2.0), np.array(2.0)], {}), ("Pow", [around(3, 4, low=0.3), around(4)], {}),
    ("Clip", [around(3, 4), np.array(-0.7), np.array(0.9)], {}), ("PRelu", [around(2, 3, 4), around(3, 1)], {}),
    ("Where", [np.array([[True, False, True]]), around(2, 3), around(2, 1)], {}),
    ("MatMul", [around(3, 4), around(4, 5)], {}), ("MatMul", [around(2, 3, 4), around(4, 5)], {}),
    ("MatMul", [around(2, 1, 3, 4), around(5, 4, 2)], {}), ("MatMul", [around(4), around(4, 5)], {}),
    ("MatMul", [around(2, 3, 4), around(4)], {}), ("MatMul", [around(4), around(4)], {}),
    *(("Gemm", [around(*((4, 3) if a else (3, 4))), around(*((5, 4) if b else (4, 5))), around(5)],
       {"transA": a, "transB": b, "alpha": 0.7, "beta": 1.3}) for a in (0, 1) for b in (0, 1)),
    ("Einsum", [around(2, 3, 4), around(4, 5)], {"equation": "bij,jk->bik"}),
    ("Einsum", [around(3, 4)], {"equation": "ij->j"}),
    ("Conv", [around(2, 3, 6, 5), around(4, 3, 3, 3), around(4)], {"pads": [1, 1, 1, 1]}),
    ("Conv", [around(2, 3, 7, 6), around(4, 3, 3, 2)], {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    ("Conv", [around(1, 4, 7, 7), around(6, 2, 3, 3)], {"group": 2, "dilations": [2, 2], "strides": [2, 1]}),
    ("Conv", [around(2, 3, 6, 6), around(3, 1, 3, 3), around(3)], {"group": 3, "auto_pad": "SAME_UPPER"}),
    ("Conv", [around(2, 3, 9), around(4, 3, 4)], {"strides": [2], "pads": [1, 2]}),
    ("Conv", [around(2, 3, 5, 5), around(4, 3, 1, 1)], {"strides": [2, 2]}),
    ("MaxPool", [around(2, 2, 6, 6)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}),
    ("MaxPool", [around(2, 2, 9)], {"kernel_shape": [3], "strides": [1]}),
    ("AveragePool", [around(2, 2, 6, 6)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}),
    ("AveragePool", [around(1, 2, 5, 5)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("GlobalAveragePool", [around(2, 3, 4, 2)], {}), ("GlobalMaxPool", [around(2, 3, 4, 2)], {}),
    *((k, [around(2, 3, 4, low=0.4, high=2.0), ints(0, 2)], {"keepdims": d}) for d in (0, 1) for k in (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
        "ReduceLogSumExp")),
    ("CumSum", [around(3, 4), np.array(1)], {"exclusive": 1}), ("CumSum", [around(3, 4), np.array(0)], {"reverse": 1}),
    ("Softmax", [around(3, 5)], {}), ("Softmax", [around(3, 5, 2)], {"axis": 1}),
    ("LogSoftmax", [around(3, 5)], {}), ("LogSoftmax", [around(3, 5, 2)], {"axis": 0}),
    ("LayerNormalization", [around(2, 3, 5), around(5), around(5)], {}),
    ("LayerNormalization", [around(2, 3, 5), around(3, 5)], {"axis": 1}),
    ("InstanceNormalization", [around(2, 3, 5, 2), around(3), around(3)], {}),
    ("BatchNormalization", [around(4, 3, 2, 5), around(3), around(3), around(3), around(3, low=0.5)], {}),
    ("LpNormalization", [around(3, 4)], {"p": 2, "axis": 1}),
    ("Reshape", [around(3, 4), ints(2, 6)], {}), ("Flatten", [around(3, 4, 2)], {}), ("Squeeze", [around(3, 1, 2)], {}),
    ("Unsqueeze", [around(3, 2), ints(1)], {}), ("Transpose", [around(3, 4, 2)], {"perm": [2, 0, 1]}),
    ("Transpose", [around(3, 4)], {}), ("Expand", [around(3, 1), ints(2, 3, 4)], {}),
    ("Tile", [around(3, 2), ints(2, 3)], {}), ("Concat", [around(2, 3), around(2, 1), around(2, 2)], {"axis": 1}),
    ("Pad", [around(3, 4), ints(1, 0, 2, 3)], {}), ("Slice", [around(5, 6), ints(1, 0), ints(4, 5)], {}),
    ("Slice", [around(5, 6), ints(4, 1), ints(-9, 6), ints(0, 1), ints(-2, 2)], {}),
    ("Gather", [around(4, 3), ints([1, 1], [3, -1])], {}), ("Gather", [around(4, 3, 2), ints(2, 0, 2)], {"axis": 1}),
    ("GatherElements", [around(3, 4), ints([0, 1, 2, 0], [1, 1, 0, -1])], {"axis": 0}),
    ("GatherND", [around(3, 4), ints([0, 1], [2, 2], [0, 1])], {}),
    ("DepthToSpace", [around(1, 8, 2, 3)], {"blocksize": 2}), ("SpaceToDepth", [around(1, 2, 4, 6)], {"blocksize": 2}),
    ("Trilu", [around(3, 4)], {"upper": 0}), ("Dropout", [around(3, 4)], {}), ("Cast", [around(3, 4)], {"to": 11}),
]  # fmt: skip


def model_of(kind: str, operands: list[np.ndarray], attrs: dict[str, Any], results: int = 1) -> onnx.ModelProto:
    """`loss = sum(weights * kind(a0, a1, ...))`, all operands being initializers."""
    names = [f"a{k}" for k in range(len(operands))]
    outputs = [f"y{k}" for k in range(results)]
    weights = [numpy_helper.from_array(v, n) for n, v in zip(names, operands, strict=True)]
    nodes, terms = [helper.make_node(kind, names, outputs, name="tested", **attrs)], []
    for k, y in enumerate(outputs):  # each element has a weight of its own: cos(place + 1)
        nodes += [
            helper.make_node("Shape", [y], [f"{y}.shape"]),
            helper.make_node("Size", [y], [f"{y}.size"]),
            helper.make_node("Range", ["zero", f"{y}.size", "one"], [f"{y}.place"]),
            helper.make_node("Cast", [f"{y}.place"], [f"{y}.number"], to=TensorProto.DOUBLE),
            helper.make_node("Add", [f"{y}.number", "offset"], [f"{y}.angle"]),
            helper.make_node("Cos", [f"{y}.angle"], [f"{y}.cos"]),
            helper.make_node("Reshape", [f"{y}.cos", f"{y}.shape"], [f"{y}.weights"]),
            helper.make_node("Mul", [y, f"{y}.weights"], [f"{y}.terms"]),
            helper.make_node("ReduceSum", [f"{y}.terms"], [f"{y}.sum"], keepdims=0),
        ]
        terms.append(f"{y}.sum")
    nodes.append(helper.make_node("Sum", terms, ["loss"]))
    weights += [numpy_helper.from_array(np.array(v), n) for n, v in (("zero", 0), ("one", 1), ("offset", 1.0))]
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("loss", TensorProto.DOUBLE, [])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def checked(kind: str, operands: list[np.ndarray], attrs: dict[str, Any], results: int = 1, steps: int = 6) -> None:
    """Gradients against central differences at up to `steps` elements of each operand."""
    floats = [k for k, v in enumerate(operands) if v.dtype == np.float64]
    model, names = model_of(kind, operands, attrs, results), [f"a{k}" for k in floats]
    trained = polyc.training(model, "loss", names, statistics="running", tier="fast", threads=1)
    _, found = trained.gradients({})
    found = {n: g.copy() for n, g in found.items()}
    for name, g in found.items():
        flat = trained.parameters[name].reshape(-1)
        for at in ROWS.permutation(flat.size)[:steps]:
            here, h = flat[at], 1e-5
            flat[at] = here + h
            above, _ = trained.gradients({})
            flat[at] = here - h
            below, _ = trained.gradients({})
            flat[at] = here
            expected = (above - below) / (2 * h)
            assert abs(g.reshape(-1)[at] - expected) <= 1e-7 * max(1, abs(expected), abs(above) * 10), (name, at)


def _mark(k: int) -> Any:
    """Every third in each run of the tests, all in the long ones."""
    return () if k % 3 == 0 else pytest.mark.long


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c[0]}-{k}", marks=_mark(k)) for k, c in enumerate(CASES)])
def test_gradients_equal_finite_differences(case: Case) -> None:
    checked(*case)


DERIVED: list[Case] = [
    ("ReduceProd", [around(3, 4), ints(1)], {}), ("MeanVarianceNormalization", [around(2, 3, 2, 4)], {}),
    ("ConvTranspose", [around(1, 3, 4, 4), around(3, 2, 3, 3)], {"strides": [2, 2]}),
    ("Conv", [around(1, 2, 3, 4, 3), around(2, 2, 2, 2, 2)], {}),
    ("LRN", [around(1, 4, 3, 2)], {"size": 3}), ("AveragePool", [around(1, 2, 3, 4, 3)], {"kernel_shape": [2, 2, 2]}),
    ("ScatterElements", [around(3, 4), ints([0, 2, 1, 0]), around(1, 4)], {"axis": 0}),
    ("Pad", [around(3, 4), ints(1, 2, 1, 0)], {"mode": "reflect"}),
    ("LpPool", [around(1, 2, 5, 5, low=0.3)], {"kernel_shape": [2, 2]}),
    ("Resize", [around(1, 1, 3, 4), np.zeros(0), np.array([1, 1, 2, 1.5], "f")], {"mode": "linear"}),
]  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c[0]}-{k}", marks=_mark(k)) for k, c in enumerate(DERIVED)])
def test_without_a_rule_they_are_derived_from_loops(case: Case) -> None:
    checked(*case)


AS_LOOPS = frozenset((
    "MatMul", "Gemm", "Conv", "MaxPool", "AveragePool", "Softmax", "LogSoftmax", "LayerNormalization", "Gelu",
    "InstanceNormalization", "BatchNormalization", "Mul", "Gather", "ReduceMean", "Sigmoid", "Concat",
))  # fmt: skip
"""Operators whose rules are compared with what is derived from their loops."""


@pytest.mark.long
@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c[0]}-{k}") for k, c in enumerate(CASES) if c[0] in AS_LOOPS])
def test_rules_are_what_is_derived_from_the_loops(case: Case) -> None:
    kind, operands, attrs = case
    names = [f"a{k}" for k, v in enumerate(operands) if v.dtype == np.float64]
    model = model_of(kind, operands, attrs)
    by_rule = polyc.training(model, "loss", names, statistics="running", tier="fast", threads=1).gradients({})[1]
    with without_rules():
        trained = polyc.training(model, "loss", names, statistics="running", tier="fast", threads=1)
        found = trained.gradients({})[1]
    for name, g in found.items():
        np.testing.assert_allclose(by_rule[name], g, rtol=1e-9, atol=1e-10)


def test_split_has_a_gradient() -> None:
    checked("Split", [around(2, 6), ints(1, 2, 3)], {"axis": 1}, results=3)


def test_every_rule_has_a_case() -> None:
    assert RULES
    tested = {c[0] for c in CASES} | {"Split"}
    flow = {*control.KINDS, *(f"{control.DOMAIN}::{k}" for k in control.KINDS)}  # test_loops_in_training.py
    messages = {k for k in registry.kinds() if k.startswith(f"{DOMAIN}::")}  # tests/parallel/test_message_gradients.py
    assert set(registry.kinds()) - tested - messages - flow <= {
        "RMSNormalization",
        "GroupNormalization",
        "Swish",
        "CastLike",
        "Celu",
    }  # no f64
