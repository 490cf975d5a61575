"""What a hunt has found, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.report import Row, geometric_mean, machine_line

LIMITS = (0.7, 0.8, 1.0)
MOST_DIFFERENCE = 1e-4  # relative to the output's scale; sums in other orders and Winograd's transforms stay below


def failed(rows: Sequence[Row]) -> list[Row]:
    """What could not be compiled or run, or is wrong."""
    return [r for r in rows if "error" in r or not r["difference"] <= MOST_DIFFERENCE]


def lowest(rows: Sequence[Row], count: int) -> list[Row]:
    """Of those that have a rival."""
    return sorted(_timed(rows), key=lambda r: float(r["ratio"]))[:count]


def distribution(rows: Sequence[Row]) -> list[str]:
    """A Markdown table: how the ratios of each kind, and of all, are distributed."""
    lines = [f"| kind | cases | geometric mean | {' | '.join(f'below {x}' for x in LIMITS)} | lowest | failed |",
             f"| --- |{' ---: |' * (len(LIMITS) + 4)}"]  # fmt: skip
    kinds = {k: [r for r in rows if r["family"] == k] for k in dict.fromkeys(r["family"] for r in rows)}
    for kind, found in [*kinds.items(), ("all", list(rows))]:
        ratios = [float(r["ratio"]) for r in _timed(found)]
        below = [str(sum(x < limit for x in ratios)) for limit in LIMITS]
        worst = f"{min(ratios):.2f}" if ratios else ""
        cells = [kind, str(len(found)), f"{geometric_mean(ratios):.2f}", *below, worst, str(len(failed(found)))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def page(rows: Sequence[Row], peers: Sequence[str], rounds: int, seconds: float, shown: int) -> str:
    """The Markdown page of a hunt."""
    lines = ["# A hunt for cliffs, one thread", "", machine_line(peers), "",
             f"Ratio = the best peer's minimum / polyc's over {rounds} interleaved rounds in one process on one core "
             f"(four times as many where it is low); no tuning. {seconds / 60:.0f} minutes.", "",
             *distribution(rows), "", f"## The lowest {shown}", "",
             f"| case | drawn as | {' | '.join(('polyc', *peers))} | ratio | GFLOP/s | GB/s |",
             f"| --- | --- |{' ---: |' * (len(peers) + 4)}"]  # fmt: skip
    for r in lowest(rows, shown):
        times = [f"{r['ms'][who][0]:.3f}" if who in r["ms"] else "" for who in ("polyc", *peers)]
        cells = [r["case"], f"`{r['key']}`", *times, f"{r['ratio']:.2f}", str(r["gflops"]), str(r["gbytes"])]
        lines.append(f"| {' | '.join(cells)} |")
    for r in failed(rows):
        lines += ["", f"Failed: {r['case']} (`{r['key']}`): {r.get('error') or r['difference']}"]
    return "\n".join([*lines, "", "One alone: `python -m benchmarks.hunt --case KEY`.", ""])


def _timed(rows: Sequence[Row]) -> list[Row]:
    return [r for r in rows if "ratio" in r and not math.isnan(r["ratio"])]
