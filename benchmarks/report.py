"""The page of results: figures with the machine, the versions and the date beside them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from typing import Any

from benchmarks.plots import ratio_bars, roofline


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive numbers; NaN when there are none."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def page(rows: Sequence[dict[str, Any]], peers: Sequence[str], rounds: int) -> str:
    """Markdown for a list of result rows."""
    from graph_driver.cli.doctor import examine

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
            times = [_time(r, who) for who in ("polyc", *peers)]
            rates = [str(r["gflops"] or ""), str(r["gbytes"] or "")]
            ratio, difference, compiled = f"{r['ratio']:.2f}", f"{r['difference']:.1e}", f"{r['compile_s']:.2f} s"
            cells = [r["case"], *times, ratio, *rates, difference, compiled]
            lines.append(f"| {' | '.join(cells)} |")
        for r in chosen:
            for who in r["ms"].keys() - {"polyc", *peers}:
                without = "peers without a figure compute it in another type"
                lines += ["", f"{r['case']}: {who} {_time(r, who)} ms; {without}."]
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


def _time(row: dict[str, Any], who: str) -> str:
    """Minimum and median; empty for who did not take part."""
    return "{:.3f} ({:.3f})".format(*row["ms"][who]) if who in row["ms"] else ""


def html_page(rows: Sequence[dict[str, Any]], peers: Sequence[str], rounds: int) -> str:
    """The same as one HTML file, with plots; rows of operators have their share of peak and of bandwidth."""
    from emit import targets
    from graph_driver.calibration import this_machine

    machine = this_machine(targets.host())
    head, _, _ = page(rows, peers, rounds).partition("\n## ")
    title, *about = [line for line in head.splitlines() if line]
    cells = ("case", "polyc ms", *(f"{p} ms" for p in peers), "ratio", "GFLOP/s", "% of peak", "GB/s", "% of bandwidth")
    body = [f"<h1>{escape(title.lstrip('# '))}</h1>", *(f"<p>{escape(line)}</p>" for line in about)]
    body += [
        f"<p>This core: {machine.flops_per_second / 1e9:.0f} GFLOP/s in multiply-adds, "
        f"{machine.copied_per_second / 1e9:.1f} GB/s copied (measured).</p>",
        "<h2>Ratio to the best peer</h2>", ratio_bars(rows),
        "<h2>Roofline</h2>", roofline(rows, machine.flops_per_second, machine.copied_per_second),
        "<h2>Figures</h2>", "<table><tr>", *(f"<th>{c}</th>" for c in cells), "</tr>",
    ]  # fmt: skip
    for r in rows:
        times = [f"{r['ms'][who][0]:.3f}" if who in r["ms"] else "" for who in ("polyc", *peers)]
        shares = [
            1e9 * (r["gflops"] or 0) / machine.flops_per_second,
            1e9 * (r["gbytes"] or 0) / machine.copied_per_second,
        ]
        rates = [x for rate, share in zip((r["gflops"], r["gbytes"]), shares, strict=True)
                 for x in ((f"{rate}", f"{100 * share:.0f}") if rate else ("", ""))]  # fmt: skip
        row = [r["case"], *times, f"{r['ratio']:.2f}", *rates]
        body.append(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>")
    style = (
        "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}"
        "td,th{padding:.2em .6em;text-align:right;border-bottom:1px solid #ddd}td:first-child{text-align:left}"
    )
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title.lstrip('# '))}</title>"
        f"<style>{style}</style>{''.join(body)}</table></html>\n"
    )
