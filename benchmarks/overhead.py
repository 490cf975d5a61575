"""`python -m benchmarks.overhead [--threads N] [--rounds N] [--json FILE]`: what a run costs beside its kernels.

A call of a network of seven tiny nodes from Python, loading the compiled ResNet-50, both as CPU time of the calling
thread (the minimum); and networks with branches on one thread and on N in order and as tasks, in turn, as wall time
(the minimum; on busy cores it says little). `--json` has the rows of these networks, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models import light_model, random_inputs
from polyc.graph_driver.artifacts.package import load
from polyc.graph_driver.compile_model import compile_model

BRANCHING = ("squeezenet", "inception_v1")


def mlp() -> onnx.ModelProto:
    """Four layers of 16 with ReLU between: seven nodes."""
    rng = np.random.default_rng(0)
    nodes, weights, at = [], [], "x"
    for k in range(4):
        weights += [numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32), f"w{k}")]
        weights += [numpy_helper.from_array(np.ones(16, np.float32), f"b{k}")]
        nodes.append(helper.make_node("Gemm", [at, f"w{k}", f"b{k}"], [f"g{k}"]))
        at = f"g{k}"
        if k < 3:
            nodes.append(helper.make_node("Relu", [at], [f"r{k}"]))
            at = f"r{k}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 16]) for n in ("x", at)]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def least(work: Callable[[], Any], rounds: int, clock: Callable[[], float], repeat: int = 1) -> float:
    """Seconds of one of `repeat` goes, the least of all rounds."""
    found = []
    for _ in range(rounds):
        start = clock()
        for _ in range(repeat):
            work()
        found.append((clock() - start) / repeat)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path, help="write the rows of networks with branches here")
    options = parser.parse_args()
    if options.threads < 2:
        parser.error("--threads: branches run beside each other on 2 or more")
    small = compile_model(mlp(), threads=1)
    feeds = {"x": np.ones((1, 16), np.float32)}
    small(feeds)
    call = least(lambda: small(feeds), options.rounds, time.thread_time, 200)
    print(f"call of a network of 7 nodes   {call * 1e6:8.1f} us")
    with tempfile.TemporaryDirectory() as folder:
        compile_model(str(light_model("resnet50")), threads=1).save(Path(folder, "out"))
        seconds = least(lambda: load(Path(folder, "out")), 5, time.thread_time)
    print(f"load of the compiled ResNet-50 {seconds:8.3f} s")
    rows = []
    for name in BRANCHING:
        row = branching(name, options.threads, options.rounds)
        one, order, tasks = (row[how] for how in ("one", "order", "tasks"))
        rows.append(row)
        print(
            f"{name:13s} 1 thread: {one:7.2f} ms, {options.threads}: in order {order:7.2f} ms, as tasks {tasks:7.2f} ms"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def branching(name: str, threads: int, rounds: int) -> dict[str, Any]:
    """Least milliseconds of a light network on one thread, and on `threads` in order and as tasks."""
    path = light_model(name)
    inputs = random_inputs(path)
    ways: dict[str, dict[str, Any]] = {
        "one": {"threads": 1}, "order": {"threads": threads}, "tasks": {"threads": threads, "tasks": True},
    }  # fmt: skip
    models = {how: compile_model(str(path), **given) for how, given in ways.items()}
    times: dict[str, list[float]] = {how: [] for how in models}
    for _ in range(rounds):
        for how, model in models.items():
            times[how].append(least(partial(model, inputs), 1, time.perf_counter))
    return {"network": name, "threads": threads} | {how: 1e3 * min(t) for how, t in times.items()}


if __name__ == "__main__":
    main()
