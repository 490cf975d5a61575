"""The page of results: figures with the machine, the versions and the date beside them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive numbers; NaN when there are none."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def page(rows: Sequence[dict[str, Any]], peers: Sequence[str], rounds: int) -> str:
    """Markdown for a list of result rows."""
    from graph_driver.doctor import examine

    found = examine()
    versions = ", ".join(f"{p} {version(p)}" for p in ("polyc", "llvmlite", "islpy", "numpy", *peers))
    lines = [
        "# Timings on the CPU, one thread",
        "",
        f"Date {datetime.date.today()}; CPU {found['cpu']} ({found['vector_bits']}-bit vectors, "
        f"{found['threads']} cores, L2 {found['caches']['l2'] >> 10} KiB, L3 {found['caches']['l3'] >> 20} MiB); "
        f"Python {found['python']}; {versions}.",
        "",
        f"Milliseconds: minimum (median) of {rounds} interleaved rounds in one process pinned to one core, a call "
        "from Python included. Ratio = the best peer's minimum / polyc's minimum; above 1 polyc is faster. No tuning; "
        "compile times are with a cold cache. The difference is to ONNX Runtime, relative to the output's scale.",
    ]
    for family in dict.fromkeys(r["family"] for r in rows):
        chosen = [r for r in rows if r["family"] == family]
        heads = ["case", "polyc", *peers, "ratio", "GFLOP/s", "GB/s", "difference", "compile"]
        lines += ["", f"## {family}", "", f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
        for r in chosen:
            times = [f"{r['ms'][who][0]:.3f} ({r['ms'][who][1]:.3f})" for who in ("polyc", *peers)]
            rates = [str(r["gflops"] or ""), str(r["gbytes"] or "")]
            ratio, difference, compiled = f"{r['ratio']:.2f}", f"{r['difference']:.1e}", f"{r['compile_s']:.2f} s"
            cells = [r["case"], *times, ratio, *rates, difference, compiled]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", f"Geometric mean of the ratios: {geometric_mean(r['ratio'] for r in chosen):.2f}."]
    lines += [
        "",
        "3x3 convolutions of stride 1 run as Winograd's (their rates count the operations of the definition). The "
        "light models repeat one number in every weight, so their differences say little; `tests/test_models.py` "
        "checks them with random weights.",
        "",
        "Repeat with `python -m benchmarks --json FILE --page FILE`.",
        "",
    ]
    return "\n".join(lines)
