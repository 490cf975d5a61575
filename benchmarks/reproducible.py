"""`python -m benchmarks.reproducible [NETWORK ...]`: what the same bits everywhere cost, and whether they are the same.

Each network three times in one process, in turns: as by default, with `--exact` (the graph of the definitions), and
with `--reproducible` (sums in the program's order, too). Bits: 1 and 2 threads, this CPU and x86-64-v3 (AVX2).
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

import polyc

from .models import LIGHT, light_model, random_inputs

SECONDS = 1.5  # of each network


def times(models: list[polyc.Model], feeds: dict[str, np.ndarray]) -> list[float]:
    """Least milliseconds of each, run in turns."""
    best = [float("inf")] * len(models)
    for model in models:
        model(feeds)
    begun = time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        for k, model in enumerate(models):
            start = time.perf_counter()
            model(feeds)
            best[k] = min(best[k], (time.perf_counter() - start) * 1e3)
    return best


def differing(path: str, feeds: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> list[str]:
    """Where the bits are others."""
    found = []
    for target, threads in (("cpu", 2), ("x86-64-v3", 1)):
        made = polyc.compile_model(path, target=target, threads=threads, reproducible=True)(feeds)
        if any(made[n].tobytes() != a.tobytes() for n, a in wanted.items()):
            found.append(f"{target}, {threads} threads")
    return found


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproducible", description=__doc__)
    parser.add_argument("networks", nargs="*", default=LIGHT, help="light networks of the onnx package")
    table = Table("network", "default ms", "exact ms", "reproducible ms", "of default", "of exact", "bits")
    costs = []
    for name in parser.parse_args().networks:
        path = light_model(name)
        feeds = random_inputs(path)
        options = ({}, {"exact": True}, {"reproducible": True})
        models = [polyc.compile_model(str(path), threads=1, **o) for o in options]
        default, exact, ours = times(models, feeds)
        others = differing(str(path), feeds, models[2](feeds))
        costs.append((ours / default, ours / exact))
        ratios = (f"{ours / default:.2f}", f"{ours / exact:.2f}")
        table.add_row(name, *(f"{t:.2f}" for t in (default, exact, ours)), *ratios, ", ".join(others) or "the same")
    Console().print(table)
    print(f"median: {median(a for a, _ in costs):.2f} of default, {median(b for _, b in costs):.2f} of exact")


if __name__ == "__main__":
    main()
