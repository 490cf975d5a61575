"""The page of results: figures with the machine, the versions and the date beside them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.plots import ratio_bars, roofline

Row = dict[str, Any]
TITLES = {
    "gemm": "Matrix products",
    "conv": "Convolution + bias + ReLU",
    "memory": "Operators bound by memory",
    "odd": "Sizes that no tile divides",
    "transformer": "Round sizes: layers of transformers, convolutions of 256 to 1024 channels",
    "cliffs": "Where cliffs are likely: odd convolutions, sizes that nothing divides",
    "model": "Light models (those inside the `onnx` package)",
    "packaged": "Trained networks that ship inside packages",
    "exported": "Networks exported from torch",
}
NOTES = {
    "conv": "3x3 convolutions of stride 1 run as Winograd's; their rates count the operations of the definition.",
    "cliffs": "Taps in the padding count as operations.",
    "model": "Every weight of a light model is the same number, so their differences say little; "
    "`tests/test_models.py` checks them with random weights.",
    "packaged": "Each with two sets of inputs, named by the shape of the first one; `docs/checked-models.md` has the "
    "limits of their differences (networks of 8-bit codes round differently everywhere).",
    "exported": "Random weights (`python -m benchmarks.exports`); each with two sets of inputs, named by the shape of "
    "the first one; all systems are told the shapes beforehand.",
}


@dataclass(frozen=True)
class Results:
    """The rows of a run, with who took part, the rounds and the seconds that it took."""

    rows: Sequence[Row]
    peers: Sequence[str]
    rounds: int
    seconds: float

    def families(self) -> dict[str, list[Row]]:
        """The rows by family, in order."""
        return {f: [r for r in self.rows if r["family"] == f] for f in dict.fromkeys(r["family"] for r in self.rows)}


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive numbers; NaN when there are none."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def write_page(results: Results, path: Path) -> None:
    """The Markdown page, and its plots (SVG) beside it: `STEM-FAMILY.svg` and `STEM-roofline.svg`."""
    machine = _machine()
    plots = {f: ratio_bars(rows) for f, rows in results.families().items()}
    plots["roofline"] = roofline(results.rows, machine.flops_per_second, machine.copied_per_second)
    for name, svg in plots.items():
        if svg:
            path.with_name(f"{path.stem}-{name}.svg").write_text(svg + "\n", encoding="utf-8")
    path.write_text(page(results, {n: f"{path.stem}-{n}.svg" for n, svg in plots.items() if svg}), encoding="utf-8")


def page(results: Results, plots: dict[str, str]) -> str:
    """The Markdown text; `plots` are files by family (and `roofline`) to show."""
    machine = _machine()
    lines = ["# Timings on the CPU, one thread", "", *_about(results), "", *_summary(results)]
    if "roofline" in plots:
        lines += [
            "", "## Roofline", "",
            f"This core: {machine.flops_per_second / 1e9:.0f} GFLOP/s in multiply-adds, "
            f"{machine.copied_per_second / 1e9:.1f} GB/s copied from memory (measured). Points above the slope had "
            "their data in a cache; points above the ceiling are Winograd's, which computes less than the definition.",
            "", f"![Operators under the machine's roofs]({plots['roofline']})",
        ]  # fmt: skip
    for family, rows in results.families().items():
        lines += ["", f"## {TITLES.get(family, family)}", ""]
        if family in NOTES:
            lines += [NOTES[family], ""]
        if family in plots:
            lines += [f"![Ratios to the best peer]({plots[family]})", ""]
        lines += _figures(rows, results.peers)
    lines += ["", "Repeat with `python -m benchmarks --results benchmarks/results`.", ""]
    return "\n".join(lines)


def _machine() -> Any:
    """The measured figures of this machine."""
    from polyc.emit import targets
    from polyc.graph_driver.bench.calibration import this_machine

    return this_machine(targets.host())


def machine_line(peers: Sequence[str] = ()) -> str:
    """Date, machine and versions, also those of the peers."""
    from polyc.graph_driver.cli.doctor import examine

    found = examine()
    versions = ", ".join(f"{p} {version(p)}" for p in ("polyc", "llvmlite", "islpy", "numpy", *peers))
    return (
        f"Date {datetime.date.today()}; CPU {found['cpu']} ({found['vector_bits']}-bit vectors, "
        f"{found['threads']} cores, L2 {found['caches']['l2'] >> 10} KiB, L3 {found['caches']['l3'] >> 20} MiB); "
        f"Python {found['python']}; {versions}."
    )


def _about(results: Results) -> list[str]:
    """Where, with what and how it was measured."""
    return [
        machine_line(results.peers),
        "",
        f"Milliseconds: minimum (median) of {results.rounds} interleaved rounds in one process pinned to one core, a "
        "call from Python included. Ratio = the best peer's minimum / polyc's minimum; above 1 polyc is faster. No "
        "tuning; compile times are with a cold cache. The difference is to ONNX Runtime, relative to the output's "
        f"scale. The whole run took {results.seconds / 60:.1f} minutes.",
    ]


def _summary(results: Results) -> list[str]:
    """One line a family."""
    heads = ["family", "cases", "geometric mean", "faster than all peers", "below 0.8", "worst"]
    lines = [f"| {' | '.join(heads)} |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for family, rows in results.families().items():
        ratios = [r["ratio"] for r in rows]
        worst = min(rows, key=lambda r: float(r["ratio"]))
        cells = [
            TITLES.get(family, family), str(len(rows)), f"{geometric_mean(ratios):.2f}",
            str(sum(x > 1 for x in ratios)), str(sum(x < 0.8 for x in ratios)),
            f"{worst['ratio']:.2f} ({worst['case']})",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _figures(rows: Sequence[Row], peers: Sequence[str]) -> list[str]:
    """The table of a family; columns that are empty in all of its rows are left out."""
    columns = {
        "case": [r["case"] for r in rows],
        **{who: [_time(r, who) for r in rows] for who in ("polyc", *peers)},
        "ratio": [f"{r['ratio']:.2f}" for r in rows],
        "GFLOP/s": [str(r["gflops"] or "") for r in rows],
        "GB/s": [str(r["gbytes"] or "") for r in rows],
        "difference": [f"{r['difference']:.1e}" for r in rows],
        "compile": [f"{r['compile_s']:.2f} s" for r in rows],
        "on the host": [str(r.get("host") or "") for r in rows],
    }
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    lines = [f"| {' | '.join(shown)} |", f"| --- |{' ---: |' * (len(shown) - 1)}"]
    lines += [f"| {' | '.join(cells)} |" for cells in zip(*shown.values(), strict=True)]
    for r in rows:
        if r.get("refused"):
            lines += ["", f"{r['case']}: {', '.join(r['refused'])} cannot read the model."]
        for who in r["ms"].keys() - {"polyc", *peers}:
            without = "peers without a figure compute it in another type"
            lines += ["", f"{r['case']}: {who} {_time(r, who)} ms; {without}."]
    return [*lines, "", f"Geometric mean of the ratios: {geometric_mean(r['ratio'] for r in rows):.2f}."]


def _time(row: Row, who: str) -> str:
    """Minimum and median; empty for who did not take part."""
    return "{:.3f} ({:.3f})".format(*row["ms"][who]) if who in row["ms"] else ""


def html_page(results: Results) -> str:
    """The same as one HTML file, with plots; rows of operators have their share of peak and of bandwidth."""
    machine, rows, peers = _machine(), results.rows, results.peers
    title = "Timings on the CPU, one thread"
    cells = ("case", "polyc ms", *(f"{p} ms" for p in peers), "ratio", "GFLOP/s", "% of peak", "GB/s", "% of bandwidth")
    body = [f"<h1>{title}</h1>", *(f"<p>{escape(line)}</p>" for line in _about(results) if line)]
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
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>"
        f"<style>{style}</style>{''.join(body)}</table></html>\n"
    )
