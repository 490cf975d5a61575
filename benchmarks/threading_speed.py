"""What a second (third, ...) thread brings: the same models compiled for one and for several threads, interleaved."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.cases import gemms
from benchmarks.models import light_model, random_inputs
from benchmarks.report import machine_line
from polyc.graph_driver.bench.peers import PEERS
from polyc.graph_driver.bench.timing import interleave
from polyc.graph_driver.compile_model import compile_model

GEMM = "gemm 1000x1000x1000"
MODELS = ("resnet50", "squeezenet")


def rows(threads: int, peers: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """One row for each case: milliseconds (minimum and median) by system and threads, and the ratio of minima.

    Nothing is pinned. `load` is the machine's load average while it ran: above 0.5 somebody else had a core.
    """
    for c in gemms():
        if c.name == GEMM:
            yield _row(c.name, c.model, c.inputs, threads, peers, rounds)
    for name in MODELS:
        path = light_model(name)
        yield _row(name, str(path), random_inputs(path), threads, peers, rounds)


def page(rows: Sequence[dict[str, Any]], threads: int, systems: Sequence[str]) -> str:
    """The rows as a Markdown page: milliseconds with one thread and with several, and what these bring."""
    cells = [f"{p}: 1 | {threads} threads | ratio" for p in systems]
    lines = [
        f"# {threads} threads beside one", "", machine_line([p for p in systems if p != "polyc"]), "",
        "Milliseconds, the least of interleaved runs; the ratio is that of one thread to several. `load` is the",
        "machine's load average while it ran: above 0.5 somebody else had a core, and ratios say little.", "",
        f"| case | {' | '.join(cells)} | load |", f"| --- |{' ---: |' * (3 * len(systems) + 1)}",
    ]  # fmt: skip
    for r in rows:
        figures = [
            f"{r['ms'][f'{p} {n}'][0]:.2f}" if n else f"{r['ratio'][p]:.2f}" for p in systems for n in (1, threads, 0)
        ]
        lines.append(f"| {r['case']} | {' | '.join(figures)} | {r['load']} |")
    return "\n".join(lines) + "\n"


def _row(name: str, model: Any, inputs: Any, threads: int, peers: Sequence[str], rounds: int) -> dict[str, Any]:
    runs: dict[str, Any] = {}
    for n in (1, threads):
        compiled = compile_model(model, threads=n)
        runs[f"polyc {n}"] = lambda m=compiled: m(inputs)
        runs |= {f"{p} {n}": PEERS[p](model, inputs, n) for p in peers}
    times = interleave(runs, rounds)
    systems = ("polyc", *peers)
    return {
        "case": name,
        "threads": threads,
        "load": round(os.getloadavg()[0], 2),
        "ms": {who: [round(t.minimum, 4), round(t.median, 4)] for who, t in times.items()},
        "ratio": {p: round(times[f"{p} 1"].minimum / times[f"{p} {threads}"].minimum, 3) for p in systems},
    }
