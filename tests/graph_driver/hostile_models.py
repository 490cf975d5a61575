"""Small models that have what `tiny_models` lack: loops of the host, functions, contrib operators, all types."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper
from tiny_models import F, model_of


def products() -> onnx.ModelProto:
    """Two products with a free size of rows, `h` between them."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], "again"),
    ]
    rng = np.random.default_rng(1)
    weights = {"w": rng.standard_normal((4, 5)).astype(np.float32), "v": rng.standard_normal((5, 3)).astype(np.float32)}
    return model_of(nodes, {"x": ["N", 4]}, {"h": ["N", 5], "y": ["N", 3]}, weights)


def looping() -> onnx.ModelProto:
    """A loop whose count is an input, an `If` on data, a `Scan`, a sequence: bodies inside bodies."""
    info = helper.make_tensor_value_info
    inner_then = helper.make_graph([helper.make_node("Neg", ["s"], ["n1"])], "yes", [], [info("n1", F, None)])
    inner_else = helper.make_graph([helper.make_node("Exp", ["s"], ["n2"])], "no", [], [info("n2", F, None)])
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "x"], ["s"]),
            helper.make_node("ReduceSum", ["s"], ["total"], keepdims=0),
            helper.make_node("Greater", ["total", "zero"], ["up"]),
            helper.make_node("If", ["up"], ["w"], then_branch=inner_then, else_branch=inner_else),
            helper.make_node("Identity", ["c"], ["c2"]),
            helper.make_node("Identity", ["w"], ["scan"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", F, [3])],
        [info("c2", TensorProto.BOOL, []), info("w", F, [3]), info("scan", F, [3])],
    )
    step = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["a2"]), helper.make_node("Mul", ["a2", "a2"], ["sq"])], "step",
        [info("a", F, [3]), info("b", F, [3])], [info("a2", F, [3]), info("sq", F, [3])],
    )  # fmt: skip
    nodes = [
        helper.make_node("Loop", ["count", "yes", "x"], ["last", "all"], "loop", body=body),
        helper.make_node("Scan", ["x", "rows"], ["end", "squares"], "scan", body=step, num_scan_inputs=1),
        helper.make_node("SplitToSequence", ["rows"], ["parts"], "parts", axis=0),
        helper.make_node("SequenceAt", ["parts", "first"], ["part"], "part"),
        helper.make_node("Tile", ["part", "times"], ["tiled"], "tile"),
        helper.make_node("Expand", ["tiled", "wide"], ["y"], "expand"),
        helper.make_node("ConstantOfShape", ["wide"], ["zeros"], "zeros"),
        helper.make_node("Pad", ["end", "pads"], ["padded"], "pad"),
        helper.make_node("Range", ["start", "stop", "start1"], ["range"], "range"),
        helper.make_node("OneHot", ["range", "depth", "values"], ["hot"], "hot"),
    ]
    weights = {
        "yes": np.array(True), "zero": np.array(0, np.float32), "first": np.array(0), "times": np.array([2, 2]),
        "wide": np.array([3, 2, 6]), "pads": np.array([1, 2]), "start": np.array(0), "stop": np.array(4),
        "start1": np.array(1), "depth": np.array(5), "values": np.array([0, 1], np.float32), "count": np.array(20),
    }  # fmt: skip
    outputs = {n: None for n in ("last", "all", "end", "squares", "y", "zeros", "padded", "hot")}
    return model_of(nodes, {"x": [3], "rows": [4, 3]}, outputs, weights, opset=18)


def contributed() -> onnx.ModelProto:
    """Operators of com.microsoft."""
    rng = np.random.default_rng(4)
    weights = {
        n: rng.standard_normal(s).astype(np.float32)
        for n, s in {"gamma": (8,), "beta": (8,), "bias": (8,), "w": (8, 8)}.items()
    }
    ms = "com.microsoft"
    nodes = [
        helper.make_node("SkipLayerNormalization", ["x", "x", "gamma", "beta"], ["n"], "norm", domain=ms, epsilon=1e-5),
        helper.make_node("FusedMatMul", ["n", "w"], ["m"], "mm", domain=ms, alpha=0.5),
        helper.make_node("BiasGelu", ["m", "bias"], ["y"], "gelu", domain=ms),
    ]
    model = model_of(nodes, {"x": [2, 3, 8]}, {"y": [2, 3, 8]}, weights)
    model.opset_import.append(helper.make_opsetid(ms, 1))
    return model


def defined_in_functions() -> onnx.ModelProto:
    """Functions of the file's own, one calling the other."""
    own = "own.domain"
    ops = [helper.make_opsetid("", 18), helper.make_opsetid(own, 1)]
    inner = helper.make_function(own, "twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], ops)
    outer = helper.make_function(
        own, "layer", ["x", "w"], ["y"],
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("twice", ["h"], ["t"], domain=own),
         helper.make_node("Tanh", ["t"], ["y"])], ops,
    )  # fmt: skip
    weights = {"w": np.eye(4, dtype=np.float32), "s": np.array([2, -1])}
    nodes = [
        helper.make_node("layer", ["x", "w"], ["h"], "one", domain=own),
        helper.make_node("layer", ["h", "w"], ["g"], "two", domain=own),
        helper.make_node("Reshape", ["g", "s"], ["y"], "reshape"),
    ]
    model = model_of(nodes, {"x": [3, 4]}, {"y": [2, 6]}, weights, opset=18)
    model.opset_import.append(helper.make_opsetid(own, 1))
    model.functions.extend([inner, outer])
    return model


def of_every_type() -> onnx.ModelProto:
    """Element types one after another, gathers and scatters, strings, integer arithmetic."""
    T = TensorProto
    kinds = (
        T.DOUBLE,
        T.FLOAT16,
        T.BFLOAT16,
        T.INT8,
        T.UINT8,
        T.INT16,
        T.INT32,
        T.UINT32,
        T.INT64,
        T.UINT64,
        T.BOOL,
        T.FLOAT,
    )
    nodes, name = [], "x"
    for k, kind in enumerate(kinds):
        nodes.append(helper.make_node("Cast", [name], [f"c{k}"], f"cast{k}", to=kind))
        name = f"c{k}"
    nodes += [
        helper.make_node("Gather", ["x", "rows"], ["g"], "gather", axis=0),
        helper.make_node("GatherND", ["x", "pairs"], ["gn"], "gathernd"),
        helper.make_node("ScatterElements", ["x", "rows2", "upd"], ["s"], "scatter", axis=0),
        helper.make_node("TopK", ["x", "k"], ["top", "where"], "top"),
        helper.make_node("Slice", ["x", "from", "to", "axes", "steps"], ["cut"], "slice"),
        helper.make_node("CumSum", ["x", "axis"], ["sum"], "cumsum"),
        helper.make_node("BitShift", ["bits", "bits"], ["shifted"], "shift", direction="LEFT"),
        helper.make_node("Mod", ["ints", "ints2"], ["rest"], "mod"),
        helper.make_node("Div", ["ints", "ints2"], ["ratio"], "div"),
        helper.make_node("StringNormalizer", ["words"], ["upper"], "upper", case_change_action="UPPER"),
        helper.make_node("Einsum", ["x", "x"], ["e"], "einsum", equation="ij,kj->ik"),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"], "nms"),
    ]  # fmt: skip
    weights = {
        "rows": np.array([0, -1, 1]), "pairs": np.array([[0, 1], [2, 2]]), "rows2": np.array([[1, 0, 2]]),
        "upd": np.ones((1, 3), np.float32), "k": np.array([2]), "from": np.array([2]), "to": np.array([-9]),
        "axes": np.array([0]), "steps": np.array([-1]), "axis": np.array(1), "bits": np.array([1, 2], np.uint8),
        "ints2": np.array([3, 5, -2], np.int32), "most": np.array([2]),
    }  # fmt: skip
    outs = {n: (kind, None) for n, kind in {
        name: F, "g": F, "gn": F, "s": F, "top": F, "where": T.INT64, "cut": F, "sum": F, "shifted": T.UINT8,
        "rest": T.INT32,
        "ratio": T.INT32, "upper": T.STRING, "e": F, "kept": T.INT64}.items()}  # fmt: skip
    weights["words"] = np.array(["a", "b"], object)
    inputs = {"x": [3, 3], "ints": (T.INT32, [3]), "boxes": [1, 5, 4], "scores": [1, 1, 5]}
    return model_of(nodes, inputs, outs, weights, opset=18)
