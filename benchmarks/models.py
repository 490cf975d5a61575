"""Whole models against ONNX Runtime, one thread."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import free_all_cores, interleave, pin_to_one_core


def light_model(name: str) -> Path:
    """One of the nine light models inside the `onnx` package."""
    import onnx.backend.test

    return Path(onnx.backend.test.__file__).parent / "data" / "light" / f"light_{name}.onnx"


def against_onnxruntime(path: Path, rounds: int = 15) -> dict[str, Any]:
    """Times and largest relative difference of one model on random inputs."""
    import onnxruntime

    import polyc

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(7)
    feeds = {
        i.name: rng.standard_normal([d if isinstance(d, int) else 1 for d in i.shape]).astype(np.float32)
        for i in peer.get_inputs()
    }
    start = time.perf_counter()
    model = polyc.compile_model(str(path), threads=1)
    compile_s = time.perf_counter() - start
    pin_to_one_core()  # after compiling, which may use both
    ours, theirs = model(feeds), peer.run(None, feeds)
    worst = 0.0
    for info, expected in zip(peer.get_outputs(), theirs, strict=True):
        scale = float(np.abs(expected).max()) or 1.0
        worst = max(worst, float(np.abs(ours[info.name] - expected).max()) / scale)
    times = interleave({"polyc": lambda: model(feeds), "onnxruntime": lambda: peer.run(None, feeds)}, rounds)
    free_all_cores()
    return {
        "case": path.stem,
        "polyc_ms": round(times["polyc"].minimum, 3),
        "polyc_median_ms": round(times["polyc"].median, 3),
        "onnxruntime_ms": round(times["onnxruntime"].minimum, 3),
        "onnxruntime_median_ms": round(times["onnxruntime"].median, 3),
        "ratio": round(times["onnxruntime"].minimum / times["polyc"].minimum, 3),
        "largest_relative_difference": worst,
        "compile_s": round(compile_s, 2),
    }
