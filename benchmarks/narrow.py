"""`python -m benchmarks --family narrow`: 8 and 4 bits beside ONNX Runtime (and OpenVINO), and the read bandwidth.

Products read their weights from memory: a model has as many of them as fill L3 four times. Each contender runs in
processes of its own, in turn with the other, lest the waiting threads of one take the cores of the other; the least
time of all rounds counts, and the median is beside it. Networks of 8 bits (`benchmarks.narrow_models`) are beside their
f32 forms; of these the bandwidth says little.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks import narrow_models
from examples.decoder import Sizes, build, empty_caches
from polyc import dims, empty, f32, op
from polyc.emit import targets
from polyc.graph_driver.bench import peers

BLOCK, BITS, PAST = 32, 4, 512
SHAPES = ((4096, 4096), (4096, 11008))  # summed, columns
LEVELS = (0, 4)
F32 = "f32"  # a decoder without narrow weights
TIMES_L3 = 4
CONTENDERS = ("polyc", *peers.installed())
NOT_OPENVINO = "product|decoder|-operators"  # cases whose operators OpenVINO does not read
SECONDS = 0.6  # of timed runs in each process
DECODER = Sizes(vocabulary=4096, hidden=2048, layers=2, heads=32, groups=8, inner=5632)

N, M = dims("N M")


@op
def sums(X: f32[N, M]) -> f32[N]:
    """What a machine can read: one addition for each element."""
    Y = empty(N, f32)
    for i in range(N):
        Y[i] = 0.0
        for j in range(M):
            Y[i] += X[i, j]
    return Y


def products(
    inner: int, columns: int, rows: int, level: int, count: int
) -> tuple[onnx.ModelProto, dict[str, Any], int]:
    """`count` products of one operand, its value, and the bytes of one's weights."""
    rng, blocks = np.random.default_rng(0), inner // BLOCK
    nodes, constants, results = [], [], []
    size = 0
    for k in range(count):
        codes = rng.integers(0, 256, (columns, blocks, BLOCK * BITS // 8), np.uint8)
        scales = rng.random((columns, blocks), np.float32)
        size = codes.nbytes + scales.nbytes
        constants += [numpy_helper.from_array(codes, f"codes{k}"), numpy_helper.from_array(scales, f"scales{k}")]
        attrs = {"N": columns, "K": inner, "bits": BITS, "block_size": BLOCK, "accuracy_level": level}
        operands = ["a", f"codes{k}", f"scales{k}"]
        nodes.append(helper.make_node("MatMulNBits", operands, [f"y{k}"], domain="com.microsoft", **attrs))
        results.append(helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [rows, columns]))
    given = [helper.make_tensor_value_info("a", TensorProto.FLOAT, [rows, inner])]
    graph = helper.make_graph(nodes, "products", given, results, constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    feeds = {"a": rng.standard_normal((rows, inner)).astype(np.float32)}
    return helper.make_model(graph, opset_imports=imports, ir_version=10), feeds, size


def case(name: str) -> tuple[onnx.ModelProto, dict[str, Any], int, int]:
    """A model, operands, bytes of weights that one unit of work reads, and how many units a run has."""
    kind, *numbers = name.split("-")
    if kind == "network":
        network, operands = narrow_models.network(*numbers)
        return network, operands, narrow_models.weight_bytes(network), 1
    if kind == "decoder":
        sizes = Sizes(**{**DECODER.__dict__, "level": None if numbers[0] == F32 else int(numbers[0])})
        made = build(sizes)
        caches = empty_caches(sizes, 1, PAST + 1)
        rng = np.random.default_rng(1)
        caches = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in caches.items()}
        mask = np.ones((1, PAST + 1), np.int64)
        feeds = {"ids": np.array([[5]]), "last": np.array([PAST], np.int32), "mask": mask, **caches}
        return made.model, feeds, made.weight_bytes, 1
    inner, columns, rows, level = map(int, numbers)
    size = inner * columns * BITS // 8 + inner // BLOCK * columns * 4
    count = -(-TIMES_L3 * targets.host().l3 // size) if rows == 1 else 1
    model, feeds, size = products(inner, columns, rows, level, count)
    return model, feeds, size, count


def cases() -> list[str]:
    """All, by name: inner size, columns, rows, level; a decoder's level, or f32; a network and its form."""
    found = [f"product-{k}-{n}-{rows}-{level}" for rows in (1, 128) for k, n in SHAPES for level in LEVELS]
    networks = [f"network-{name}-{form}" for name, forms in narrow_models.FORMS.items() for form in forms]
    return [*found, *(f"decoder-{level}" for level in (*LEVELS, F32)), *networks]


def contender(who: str, name: str, threads: int) -> dict[str, float]:
    """Least and median seconds of a unit of work in this process; of `bandwidth` bytes a second."""
    if name == "bandwidth":
        return _bandwidth(threads)
    model, feeds, size, count = case(name)
    run: Callable[[], Any]
    if who == "polyc":
        import polyc

        precision = narrow_models.INT8 if name.endswith(f"-{narrow_models.INT8}") else None
        compiled = polyc.compile_model(model, threads=threads, precision=precision)

        def run() -> Any:
            return compiled(feeds)
    else:
        run = peers.PEERS[who](model, feeds, threads)

    seconds = [s / count for s in _timed(run)]
    return {"least": min(seconds), "median": statistics.median(seconds), "bytes": size}


def _timed(run: Callable[[], Any]) -> list[float]:
    for _ in range(2):
        run()
    seconds: list[float] = []
    while sum(seconds) < SECONDS or len(seconds) < 5:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def _bandwidth(threads: int) -> dict[str, float]:
    data = np.ones((4096, TIMES_L3 * targets.host().l3 // 4096 // 4), np.float32)
    kernel = sums.compile(threads=threads, N=data.shape[0], M=data.shape[1])
    seconds = _timed(lambda: kernel(data))
    return {"least": min(seconds), "median": statistics.median(seconds), "bytes": data.nbytes}


def contenders(name: str) -> tuple[str, ...]:
    """Those that can run a case."""
    return tuple(c for c in CONTENDERS if c != "openvino" or not re.search(NOT_OPENVINO, name))


def measured(name: str, threads: int, rounds: int) -> dict[str, Any]:
    """Each contender in `rounds` processes, in turn, and the bandwidth between them."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for who, what in (("bandwidth", "bandwidth"), *((c, name) for c in contenders(name))):
            command = [sys.executable, "-m", "benchmarks.narrow", "--contender", who, what, "--threads", str(threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.setdefault(who, []).append(json.loads(done.stdout.splitlines()[-1]))
    best = {who: min(r["least"] for r in runs) for who, runs in found.items()}
    size, read = found["polyc"][0]["bytes"], found["bandwidth"][0]["bytes"] / best["bandwidth"]
    median = {who: statistics.median(r["median"] for r in runs) for who, runs in found.items()}
    return {
        "case": name, "threads": threads, "ms": {w: best[w] * 1e3 for w in contenders(name)},
        "median ms": {w: median[w] * 1e3 for w in contenders(name)}, "ratio": best["onnxruntime"] / best["polyc"],
        "GB/s": size / best["polyc"] / 1e9, "read GB/s": read / 1e9, "share": size / best["polyc"] / read,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """The table, or one contender's times as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks --family narrow", description=__doc__)
    parser.add_argument("--case", action="append", choices=cases(), help="only these (default: all)")
    parser.add_argument("--threads", type=int, action="append", help="how many (default: 1 and 2)")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each contender")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--contender", nargs=2, metavar=("WHO", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    threads = options.threads or [1, 2]
    if options.contender:
        print(json.dumps(contender(*options.contender, threads[0])))
        return
    rows = [measured(name, t, options.rounds) for name in options.case or cases() for t in threads]
    table = Table("case", "threads", *(f"{w} ms" for w in CONTENDERS), "ratio", "GB/s", "read GB/s", "share")
    for r in rows:
        times = (f"{r['ms'][w]:.3f} ({r['median ms'][w]:.3f})" if w in r["ms"] else "" for w in CONTENDERS)
        numbers = (f"{r['ratio']:.2f}", f"{r['GB/s']:.1f}", f"{r['read GB/s']:.1f}", f"{r['share']:.2f}")
        table.add_row(r["case"], str(r["threads"]), *times, *numbers)
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
