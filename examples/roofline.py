"""A model from a file to its roofline: compiled, checked, and each kernel's time beside what the machine could do.

python examples/roofline.py --picture roofline.svg     the kernels below the machine's roofs
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import polyc
from benchmarks.plots import roofline
from examples.pictures import picture

IMAGE = (1, 3, 64, 64)
FAMILIES = {"Conv": "conv", "Gemm": "gemm"}  # of the plot's colours; others are "memory"


def write_model(file: Path) -> None:
    """A small network with random weights: two convolutions, a depthwise one, soft-max, pooling, a product."""
    rng = np.random.default_rng()
    shapes = {"w1": (32, 3, 3, 3), "w2": (64, 32, 3, 3), "w3": (64, 1, 3, 3), "w4": (10, 64)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32), name)
        for name, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "w3"], ["e"], pads=[1] * 4, group=64),
        helper.make_node("Softmax", ["e"], ["f"], axis=1),
        helper.make_node("GlobalAveragePool", ["f"], ["g"]),
        helper.make_node("Flatten", ["g"], ["h"]),
        helper.make_node("Gemm", ["h", "w4"], ["scores"], transB=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, IMAGE)
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, 10))
    graph = helper.make_graph(nodes, "net", [image], [scores], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def measured(file: Path) -> dict[str, Any]:
    """What `polyc inspect --measure --json` says of the model."""
    command = [sys.executable, "-m", "polyc", "inspect", str(file), "--measure", "--threads", "1", "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def rows_of(page: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each kernel: what it is, its speed, the bytes that it must move in a second, the predicted time."""
    rows = []
    for step in (s for s in page["steps"] if s["kind"] == "kernel"):
        kernel, seconds = page["kernels"][step["kernel"]], step["seconds"]
        first = step["label"].split("+")[0]
        rows.append({
            "case": step["label"], "family": FAMILIES.get(first, "memory"), "seconds": seconds,
            "predicted": step["predicted"]["seconds"], "bound": step["predicted"]["bound"],
            "gflops": kernel["flops"] / seconds / 1e9, "gbytes": kernel["bytes"] / seconds / 1e9,
        })  # fmt: skip
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "net.onnx"
        write_model(file)
        model = polyc.compile_model(file, threads=1)
        image = np.random.default_rng().standard_normal(IMAGE).astype(np.float32)
        found = model({"image": image})["scores"]
        expected = onnx.reference.ReferenceEvaluator(str(file)).run(None, {"image": image})[0]
        print(f"largest difference from ONNX's own definition: {np.abs(found - expected).max():.1e}")
        assert np.allclose(found, expected, atol=1e-6)
        page = measured(file)
    rows, roofs = rows_of(page), page["roofs"]
    print(f"{'kernel':20} {'us':>7} {'predicted':>9} {'GFLOP/s':>8} {'GB/s':>6}  waits for")
    for r in rows:
        times = f"{1e6 * r['seconds']:7.1f} {1e6 * r['predicted']:9.1f}"
        print(f"{r['case']:20} {times} {r['gflops']:8.1f} {r['gbytes']:6.1f}  {r['bound']}")
    picture(lambda: roofline(rows, roofs["flops"], roofs["bytes"]["l3"]), __doc__)


if __name__ == "__main__":
    main()
