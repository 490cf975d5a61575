"""One model against all peers, interleaved in one process on one core."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from benchmarks.peers import PEERS, Inputs, polyc_runner
from benchmarks.timing import free_all_cores, interleave, pin_to_one_core


def compare(
    name: str, family: str, model: ModelProto | str, inputs: Inputs, peers: Sequence[str], rounds: int,
    flops: float = 0.0, moved: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """A row of results: milliseconds (minimum and median) of polyc and of each peer.

    `ratio` is the best peer's minimum over polyc's; `difference` the largest error against the
    first peer, relative to the output's scale. `flops` and `moved` (bytes) of one run give rates.
    """
    start = time.perf_counter()
    runners = {"polyc": polyc_runner(model, inputs)}
    compile_s = time.perf_counter() - start
    runners |= {p: PEERS[p](model, inputs) for p in peers}
    difference = _difference(runners["polyc"](), runners[peers[0]]()) if peers else 0.0
    pin_to_one_core()  # after compiling, which may use both
    times = interleave(runners, rounds)
    free_all_cores()
    ours = times["polyc"]
    best = min((times[p].minimum for p in peers), default=float("nan"))
    return {
        "case": name,
        "family": family,
        "ms": {who: [round(t.minimum, 4), round(t.median, 4)] for who, t in times.items()},
        "ratio": round(best / ours.minimum, 3),
        "gflops": round(1e-6 * flops / ours.minimum, 1),
        "gbytes": round(1e-6 * moved / ours.minimum, 1),
        "difference": difference,
        "compile_s": round(compile_s, 2),
    }


def _difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        scale = float(np.abs(b).max()) or 1.0
        worst = max(worst, float(np.abs(a - b).max()) / scale)
    return worst
