"""`python -m benchmarks --family gradients`: gradients of twelve operators beside PyTorch's backward.

polyc's `backward` (`op.vjp`) finds what its forward part has kept, as PyTorch's does; its `gradient` (`op.grad`) is one
kernel that is given the arguments and the results' adjoints alone, and runs again what it needs of the forward part.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
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
        "f32, contenders in processes of their own. *keeping*: the forward part that keeps what *backward* needs",
        "(`op.vjp`); *gradient*: one kernel that runs it again (`op.grad`). PyTorch's backward uses what its forward",
        "has kept. *per flop*: time of the gradient over that of polyc's forward, each by the operations that it",
        "executes. Ratios of PyTorch's time to polyc's, above 1 polyc is faster: backward to *backward*; both parts",
        "to *keeping* and *backward*; backward to *gradient*. In both processes malloc keeps what is freed.",
        "",
    ]
    for threads in sorted({r["threads"] for r in rows}):
        here = [r for r in rows if r["threads"] == threads]
        lines += [
            f"## {threads} thread{'s' if threads > 1 else ''}", "",
            f"| operator | {' | '.join((*COLUMNS[:4], 'per flop', *COLUMNS[4:], *RATIOS))} |",
            f"|---{'|---:' * (len(COLUMNS) + 1 + len(RATIOS))}|",
        ]  # fmt: skip
        lines += [_line(r) for r in here]
        for name, ratio in RATIOS.items():
            lines += ["", f"{name}: geometric mean {geometric_mean([ratio(r) for r in here]):.2f}"]
        lines.append("")
    return "\n".join(lines)


def _least(row: dict[str, Any], *keys: str) -> float:
    return float(sum(row["ms"][key][0] for key in keys))


COLUMNS = ("forward", "keeping", "backward", "gradient", "torch backward", "torch both")
RATIOS: dict[str, Callable[[dict[str, Any]], float]] = {
    "backward ratio": lambda r: _least(r, "torch backward") / _least(r, "backward"),
    "both ratio": lambda r: _least(r, "torch both") / _least(r, "keeping", "backward"),
    "gradient ratio": lambda r: _least(r, "torch backward") / _least(r, "gradient"),
}


def _line(row: dict[str, Any]) -> str:
    times = ["{:.3f} ({:.3f})".format(*row["ms"][key]) for key in COLUMNS]
    ratios = [f"{ratio(row):.2f}" for ratio in RATIOS.values()]
    cells = [row["operator"], *times[:4], f"{per_flop(row):.2f}", *times[4:], *ratios]
    return f"| {' | '.join(cells)} |"


def per_flop(row: dict[str, Any]) -> float:
    """Time of the gradient for each executed operation over that of the forward part."""
    ms, flops = row["ms"], row["flops"]
    return float(ms["gradient"][0] / flops["gradient"] * flops["forward"] / ms["forward"][0])


if __name__ == "__main__":
    raise SystemExit(main())
