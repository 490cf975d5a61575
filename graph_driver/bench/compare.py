"""One model against all peers, interleaved in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from polyc.graph_driver.bench.peers import PEERS, Inputs, Runner, readers
from polyc.graph_driver.bench.timing import free_all_cores, interleave, pin_to_one_core
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.running.model import Model


def compare(
    name: str, family: str, model: ModelProto | str, inputs: Inputs, peers: Sequence[str], rounds: int,
    flops: float = 0.0, moved: float = 0.0, also: Mapping[str, Runner] | None = None, bind: Inputs | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:  # fmt: skip
    """A row of results: `measure` of the model compiled here for one thread and the shapes of the inputs.

    `bind` are inputs that polyc gets when it compiles, and the others at every run. `host`: how many operators polyc
    leaves to the host; `refused`: peers that cannot read the model.
    """
    fixed = bind or {}
    rivals, refused = readers(model, {**inputs, **fixed}, peers)
    start = time.perf_counter()
    compiled = compile_model(model, threads=1, shapes={n: x.shape for n, x in inputs.items()}, bind=fixed)
    compile_s = time.perf_counter() - start
    row = measure(compiled, model, inputs, (), rounds, also=rivals | dict(also or {}), clock=clock)
    minimum = row["ms"]["polyc"][0]
    return {
        "case": name,
        "family": family,
        **row,
        "gflops": round(1e-6 * flops / minimum, 1),
        "gbytes": round(1e-6 * moved / minimum, 1),
        "compile_s": round(compile_s, 2),
        "host": len(compiled.report().host),
        "refused": refused,
    }


def measure(
    compiled: Model, model: ModelProto | str, inputs: Inputs, peers: Sequence[str], rounds: int, threads: int = 1,
    also: Mapping[str, Runner] | None = None, clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:  # fmt: skip
    """Milliseconds (minimum and median; the 99th of 100) of polyc and of each peer, which reads `model` itself, and
    runs a second, one after the other.

    `also` are further rivals, which read no ONNX file. `ratio` is the best rival's minimum over polyc's (NaN
    without one); `difference` the largest error against the first, relative to the output's scale. With one
    thread all run on one core.
    """
    feeds = dict(inputs)
    runners = {"polyc": lambda: list(compiled(feeds).values())}
    runners |= {p: PEERS[p](model, inputs, threads) for p in peers} | dict(also or {})
    rivals = [who for who in runners if who != "polyc"]
    difference = _difference(runners["polyc"](), runners[rivals[0]]()) if rivals else 0.0
    if threads == 1:
        pin_to_one_core()  # after compiling, which may use all
    try:
        times = interleave(runners, rounds, clock=clock)
    finally:
        free_all_cores()
    ours = times["polyc"]
    best = min((times[p].minimum for p in rivals), default=float("nan"))
    return {
        "ms": {who: [round(t.minimum, 4), round(t.median, 4)] for who, t in times.items()},
        "p99_ms": {who: round(t.p99, 4) for who, t in times.items()},
        "runs_per_second": {who: round(1e3 / t.median, 2) for who, t in times.items()},
        "ratio": round(best / ours.minimum, 3),
        "difference": difference,
    }


def _difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """The largest error relative to the scale; infinite for another shape or type, or NaN and infinities elsewhere."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        wide = np.float64 if a.dtype.itemsize > 4 else np.float32
        x, y = a.astype(wide), b.astype(wide)
        finite = np.isfinite(y)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            return float("inf")
        x, y = x[finite], y[finite]
        if y.size:
            scale = float(np.abs(y).max()) or 1.0
            worst = max(worst, float(np.abs(x - y).max()) / scale)
    return worst
