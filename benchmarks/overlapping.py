"""`python -m benchmarks.overlapping [NETWORK ...]`: arenas in which tensors overlap, and what they cost.

Each network three times, on one thread: with the exact planner of whole tensors and without Winograd's method, the same
with `memory="minimal"`, and as by default. Peaks of the arena, least milliseconds of runs in turns, seconds of
compiling."""

from __future__ import annotations

import argparse
import sys
import time
from math import exp, log
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import polyc

from .models import light_model, random_inputs
from .naive import NINE
from .reproducible import times

PROMISED = 0.85
"""Geometric mean over the nine light models."""
WAYS: tuple[dict[str, Any], ...] = ({"planner": "exact", "disable": ["winograd"]}, {"memory": "minimal"}, {})


def main() -> int:
    """Print the table; 1 where the mean is above what is promised."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NINE)
    table = Table(
        "network", "whole tensors", "by elements", "of it", "ms", "ms by elements", "ms by default", "compiled"
    )
    ratios = []
    for name in parser.parse_args().networks:
        path, models, seconds = light_model(name), [], []
        for options in WAYS:
            start = time.perf_counter()
            models.append(polyc.compile_model(path, threads=1, **options))
            seconds.append(time.perf_counter() - start)
        feeds = random_inputs(path)
        whole, small = (m.plan.peak for m in models[:2])
        ratios.append(small / whole)
        wanted, found = models[0](feeds), models[1](feeds)
        worst = max(float(np.abs(found[n] - v).max() / np.abs(v).max()) for n, v in wanted.items())
        assert worst < 1e-4, f"{name}: {worst}"
        print(name, f"{small / whole:.3f}", file=sys.stderr, flush=True)
        measured = [f"{t:.1f}" for t in times(models, feeds)]
        table.add_row(name, f"{whole:,}", f"{small:,}", f"{small / whole:.3f}", *measured, f"{seconds[1]:.0f} s")
    table.add_row("geometric mean", "", "", f"{exp(sum(map(log, ratios)) / len(ratios)):.3f}")
    Console(width=140).print(table)
    return int(exp(sum(map(log, ratios)) / len(ratios)) > PROMISED)


if __name__ == "__main__":
    sys.exit(main())
