"""A script for ONNX Runtime with one line changed: `from onnxruntime import InferenceSession` became polyc's.

The model is made here: its batch and length are free, and `Squeeze` without axes makes batch 1 a case of its own,
which is compiled when a call has it. Prints what ONNX Runtime's script would print, and how each shape was run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from polyc import InferenceSession


def scores() -> bytes:
    """Soft-max over the length of `x[batch, 1, length]`, serialised."""
    nodes = [helper.make_node("Squeeze", ["x"], ["rows"]), helper.make_node("Softmax", ["rows"], ["y"], axis=-1)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, "length"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "scores", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def main() -> None:
    session = InferenceSession(scores(), providers=["CPUExecutionProvider"])
    (x,) = session.get_inputs()
    print(f"{x.name}: {x.type} {x.shape}")
    for batch, length in ((3, 5), (8, 100), (1, 7)):
        (y,) = session.run(None, {x.name: np.ones((batch, 1, length), np.float32)})
        print(f"batch {batch}, length {length}: {y.shape}, rows add up to {y.sum(axis=-1).max():.3f}")
    for made in session.model.specialisations():
        print(made)


if __name__ == "__main__":
    main()
