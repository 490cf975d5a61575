"""`python -m benchmarks --family gradients`: gradients of twelve operators beside PyTorch's backward.

polyc's gradient is one kernel that is given the arguments and the results' adjoints, and runs again what it needs of
the forward part; PyTorch's backward alone finds that kept by its forward, so `torch both` is shown, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks.dated_page import add_outputs, publish
from benchmarks.gradients.race import race
from benchmarks.gradients.subjects import SUBJECTS
from benchmarks.report import geometric_mean, machine_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks --family gradients", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--only", action="append", choices=list(SUBJECTS), metavar="OPERATOR", help="default: all")
    parser.add_argument("--threads", type=int, action="append", choices=(1, 2), help="default: 1 and 2")
    parser.add_argument("--rounds", type=int, default=9)
    add_outputs(parser)
    options = parser.parse_args(arguments)
    rows = [
        race(name, threads, options.rounds)
        for threads in options.threads or (1, 2)
        for name in options.only or SUBJECTS
    ]
    publish(options, "gradients", page(rows), rows)
    return 0


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "# Gradients beside PyTorch's backward",
        "",
        machine_line(("torch",)),
        "",
        "`python -m benchmarks --family gradients`: milliseconds, least of interleaved rounds (median in brackets),",
        "f32, contenders in processes of their own. polyc's gradient is one kernel that runs again what it needs of",
        "the forward part; PyTorch's backward uses what its forward has kept. *per flop*: time of the gradient over",
        "that of polyc's forward, each by the operations that it executes. Ratios above 1: polyc is faster.",
        "In both processes malloc keeps what is freed.",
        "",
    ]
    for threads in sorted({r["threads"] for r in rows}):
        here = [r for r in rows if r["threads"] == threads]
        lines += [
            f"## {threads} thread{'s' if threads > 1 else ''}", "",
            "| operator | forward | gradient | per flop | torch backward | torch both | backward | both |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]  # fmt: skip
        lines += [_line(r) for r in here]
        for key in ("torch backward", "torch both"):
            lines.append("")
            lines.append(f"{key} / gradient: geometric mean {geometric_mean([_ratio(r, key) for r in here]):.2f}")
        lines.append("")
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    def shown(key: str) -> str:
        least, median = row["ms"][key]
        return f"{least:.3f} ({median:.3f})"

    backward, both = (f"{_ratio(row, f'torch {key}'):.2f}" for key in ("backward", "both"))
    cells = [row["operator"], shown("forward"), shown("gradient"), f"{per_flop(row):.2f}", shown("torch backward"),
             shown("torch both"), backward, both]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def per_flop(row: dict[str, Any]) -> float:
    """Time of the gradient for each executed operation over that of the forward part."""
    ms, flops = row["ms"], row["flops"]
    return float(ms["gradient"][0] / flops["gradient"] * flops["forward"] / ms["forward"][0])


def _ratio(row: dict[str, Any], key: str) -> float:
    return float(row["ms"][key][0] / row["ms"]["gradient"][0])


if __name__ == "__main__":
    raise SystemExit(main())
