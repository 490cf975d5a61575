"""Single operators against ONNX Runtime, one thread."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.timing import free_all_cores, interleave, pin_to_one_core


def matmul_case(m: int, n: int, k: int, rounds: int = 20) -> dict[str, Any]:
    """f32 `A[m, k] @ B[k, n]` written in the DSL, automatic schedule, no tuning."""
    import onnxruntime
    from onnx import TensorProto, helper

    from examples.matmul import matmul

    rng = np.random.default_rng(3)
    a = rng.standard_normal((m, k)).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)
    f = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])],
        "matmul",
        [helper.make_tensor_value_info("a", f, (m, k)), helper.make_tensor_value_info("b", f, (k, n))],
        [helper.make_tensor_value_info("c", f, (m, n))],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    start = time.perf_counter()
    kernel = matmul.compile(M=m, N=n, K=k, threads=1)
    compile_s = time.perf_counter() - start
    pin_to_one_core()
    exact = a.astype(np.float64) @ b.astype(np.float64)
    difference = float(np.abs(kernel(a, b) - exact).max() / np.abs(exact).max())
    feeds = {"a": a, "b": b}
    times = interleave({"polyc": lambda: kernel(a, b), "onnxruntime": lambda: peer.run(None, feeds)}, rounds)
    free_all_cores()
    return {
        "case": f"matmul {m}x{n}x{k}",
        "polyc_ms": round(times["polyc"].minimum, 3),
        "polyc_median_ms": round(times["polyc"].median, 3),
        "onnxruntime_ms": round(times["onnxruntime"].minimum, 3),
        "onnxruntime_median_ms": round(times["onnxruntime"].median, 3),
        "ratio": round(times["onnxruntime"].minimum / times["polyc"].minimum, 3),
        "polyc_gflops": round(2e-6 * m * n * k / times["polyc"].minimum, 1),
        "largest_relative_difference": difference,
        "compile_s": round(compile_s, 2),
    }
