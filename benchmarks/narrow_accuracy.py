"""`python -m benchmarks.narrow_accuracy`: what quantisation changes of a convolutional network's answers on real data.

The data are the 1,797 digits of scikit-learn (extra `digits`): 1,000 train the network, 797 are asked, 64 calibrate.
Filters are random, the layer behind them is trained (logistic regression over the features), so that no long training
is needed; what is measured is how many answers of the f32 network the narrow ones keep.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import polyc
from polyc.graph_driver.narrowing import quantize

TRAINED, CALIBRATING, SEED = 1000, 64, 0
WAYS = (
    ("static", 8, "minmax"), ("static", 8, "percentile"), ("static", 8, "entropy"), ("dynamic", 8, "minmax"),
    ("static", 4, "minmax"),
)  # fmt: skip


def network(readout: tuple[np.ndarray, np.ndarray] | None) -> onnx.ModelProto:
    """Two convolutions, a pool and a trained layer; without that one the features."""
    rng = np.random.default_rng(SEED)
    constants = {
        "w1": rng.standard_normal((32, 1, 3, 3)) / 3, "w2": rng.standard_normal((64, 32, 3, 3)) / 17,
        "b1": 0.1 * rng.standard_normal(32), "b2": 0.1 * rng.standard_normal(64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="first", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], name="second", pads=[1] * 4),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
    ]
    if readout is not None:
        constants |= {"w3": readout[0], "b3": readout[1]}
        nodes.append(helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="answers", transB=1))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])
    result = helper.make_tensor_value_info("f" if readout is None else "y", TensorProto.FLOAT, ["n", None])
    stored = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "digits", [given], [result], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    """The table: answers kept, accuracy, bytes."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    x = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    features = polyc.compile_model(network(None), threads=1)({"x": x})["f"]
    fitted = LogisticRegression(max_iter=300).fit(features[:TRAINED], labels[:TRAINED])
    model = network((fitted.coef_, fitted.intercept_))
    asked, truth = x[TRAINED:], labels[TRAINED:]
    exact = polyc.compile_model(model, threads=1)({"x": asked})["y"].argmax(1)
    table = Table("", "answers kept %", "right %", "bytes of weights", "times less")
    table.add_row("f32", "", f"{100 * np.mean(exact == truth):.2f}", "", "")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.onnx"
        onnx.save(model, path)
        for way, bits, method in WAYS:
            made = quantize(path, {"x": x[:CALIBRATING]}, way, bits, method, threads=1)
            got = polyc.compile_model(made.model, threads=1)({"x": asked})["y"].argmax(1)
            kept, right = 100 * np.mean(got == exact), 100 * np.mean(got == truth)
            share = made.bytes_before / made.bytes_after
            rows.append({"way": way, "bits": bits, "calibration": method, "kept": kept, "right": right, "less": share})
            name = f"{bits} bits, {way}" + (f", {method}" if (way, bits) == ("static", 8) else "")
            table.add_row(name, f"{kept:.2f}", f"{right:.2f}", f"{made.bytes_after:,}", f"{share:.2f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
