"""`python -m benchmarks.overlapping [NETWORK ...]`: arenas in which tensors overlap, and what they cost.

Each network three times, on one thread: with the exact planner of whole tensors and without Winograd's method, the same
with `memory="minimal"`, and as by default. Peaks of the arena, least milliseconds of runs in turns, seconds of
compiling."""

from __future__ import annotations

import argparse
import time
from math import exp, log
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import polyc

from .models import LIGHT, light_model, random_inputs
from .reproducible import times

WAYS: tuple[dict[str, Any], ...] = ({"planner": "exact", "disable": ["winograd"]}, {"memory": "minimal"}, {})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="*", default=LIGHT)
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
        measured = [f"{t:.1f}" for t in times(models, feeds)]
        table.add_row(name, f"{whole:,}", f"{small:,}", f"{small / whole:.3f}", *measured, f"{seconds[1]:.0f} s")
    table.add_row("geometric mean", "", "", f"{exp(sum(map(log, ratios)) / len(ratios)):.3f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
