"""`python -m benchmarks.ranking [--set first|second] [--results FOLDER]`: does the cost model order candidates rightly?

For every shape each implementation of its node is built and timed (one thread): `contraction` (register tiles),
`winograd2` and `winograd4` (3x3 of stride 1), `loops` (the same operator without a register tile) and `host` (NumPy).
Predicted are the costs that selection compares (`graph_driver/choosing/candidates.py`); for `loops` those of its
operations and of the lines that miss each cache. All are by `scheduler/cost`. Spearman's rank correlation of predicted
and measured times is given for every shape (over its candidates), and over all pairs of a shape and a candidate
together. The second set of shapes was chosen before the model was compared with it, and nothing was changed for it.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmarks.busy import Run, kernel_run, least_seconds, one_after_another
from benchmarks.cases import Case, gemms_of
from benchmarks.cliffs import Shape, convolution
from benchmarks.dated_page import add_outputs, publish
from benchmarks.report import machine_line
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.choosing.candidates import considered
from polyc.graph_driver.choosing.winograd import use_winograd
from polyc.graph_driver.compiling.from_source import import_with
from polyc.graph_driver.compiling.stages import formed, optimise
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.host.reference import HostNode
from polyc.graph_driver.options import CompileOptions
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.model import nominal, predict
from polyc.scheduler.cost.work import work_of
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import STRATEGIES
from polyc.scheduler.strategies.planner import Planner

OPTIONS = CompileOptions(threads=1, disable=("winograd",))
SECONDS = 0.4  # for all candidates of a shape
WANTED = 0.8

FIRST = (
    [(1, 1024, 1024), (7, 768, 768), (16, 768, 3072), (64, 256, 256), (128, 768, 768), (197, 768, 768), (63, 17, 997),
     (997, 63, 17), (256, 256, 256)],
    [
        Shape(64, 64, (56, 56), (3,)), Shape(128, 128, (28, 28), (3,)), Shape(256, 256, (14, 14), (3,)),
        Shape(512, 512, (7, 7), (3,)), Shape(16, 16, (56, 56), (3,)), Shape(32, 32, (28, 28), (3,)),
        Shape(3, 64, (112, 112), (3,)), Shape(64, 128, (17, 17), (3,)), Shape(96, 24, (35, 35), (3,)),
        Shape(8, 8, (112, 112), (3,)), Shape(256, 64, (13, 13), (3,)), Shape(24, 96, (33, 33), (3,)),
        Shape(64, 256, (56, 56), (1,)), Shape(256, 64, (56, 56), (1,)), Shape(320, 1280, (7, 7), (1,)),
        Shape(128, 128, (28, 28), (3,), (2,)), Shape(3, 64, (224, 224), (7,), (2,)),
        Shape(3, 32, (112, 112), (3,), (2,)), Shape(96, 96, (56, 56), (3,), groups=96),
        Shape(240, 240, (14, 14), (5,), groups=240), Shape(64, 64, (28, 28), (3,), groups=8),
        Shape(64, 64, (28, 28), (5,)), Shape(64, 64, (28, 28), (3,), dilation=(2,)),
    ],
)  # fmt: skip
SECOND = (
    [(3, 512, 2048), (32, 1000, 1280), (50, 2304, 768), (100, 100, 100), (200, 512, 128), (384, 384, 384),
     (17, 997, 63), (1, 4096, 512), (500, 40, 300)],
    [
        Shape(48, 48, (64, 64), (3,)), Shape(192, 192, (13, 13), (3,)), Shape(384, 256, (13, 13), (3,)),
        Shape(20, 40, (47, 47), (3,)), Shape(128, 256, (10, 10), (3,)), Shape(160, 160, (20, 20), (3,)),
        Shape(1, 32, (96, 96), (3,)), Shape(32, 3, (80, 80), (3,)), Shape(12, 60, (31, 31), (3,)),
        Shape(80, 80, (40, 40), (3,)), Shape(512, 128, (5, 5), (3,)), Shape(40, 40, (21, 63), (3,)),
        Shape(112, 672, (14, 14), (1,)), Shape(480, 80, (14, 14), (1,)), Shape(32, 16, (112, 112), (1,)),
        Shape(64, 128, (40, 40), (3,), (2,)), Shape(1, 16, (160, 160), (5,), (2,)),
        Shape(3, 96, (112, 112), (4,), (4,)), Shape(144, 144, (28, 28), (3,), groups=144),
        Shape(72, 72, (28, 28), (5,), (2,), groups=72), Shape(96, 96, (20, 20), (3,), groups=4),
        Shape(48, 64, (25, 25), (5,)), Shape(32, 64, (30, 30), (3,), dilation=(3,)),
    ],
)  # fmt: skip
SETS = {"first": FIRST, "second": SECOND}


@dataclass(frozen=True)
class Row:
    """Predicted cycles and measured seconds of the candidates of a shape, in the same order."""

    case: str
    names: tuple[str, ...]
    predicted: tuple[float, ...]
    measured: tuple[float, ...]

    @property
    def correlation(self) -> float:
        return spearman(self.predicted, self.measured)

    @property
    def loss(self) -> float:
        """The time of what the model likes best over that of the fastest."""
        return self.measured[int(np.argmin(self.predicted))] / min(self.measured)

    def __str__(self) -> str:
        order = sorted(range(len(self.names)), key=lambda k: self.measured[k])
        parts = [f"{self.names[k]} {1e3 * self.measured[k]:.3f} ({self.predicted[k] / 1e6:.3f})" for k in order]
        return f"| {self.case} | {self.correlation:.2f} | {self.loss:.2f} | {', '.join(parts)} |"


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The rank correlation of two rows of numbers (equal ones share the mean of their ranks)."""
    x, y = (_ranks(v) - (len(v) + 1) / 2 for v in (a, b))
    scale = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return float((x * y).sum()) / scale if scale else 1.0


def _ranks(values: Sequence[float]) -> np.ndarray:
    v = np.asarray(values, float)
    return np.array([(v < x).sum() + ((v == x).sum() + 1) / 2 for x in v])


def cases(which: str) -> Iterator[Case]:
    products, convolutions = SETS[which]
    yield from gemms_of("ranking", products)
    yield from map(convolution, convolutions)


def measured(case: Case) -> Row:
    """Every candidate of the case's convolution or product, built and timed in turns."""
    platform = platform_of("cpu", 1)
    machine = platform.machine
    assert isinstance(machine, Target)
    graph = import_with(case.model, platform, OPTIONS)
    optimise(graph, platform, OPTIONS)
    node = next(n for n in graph.nodes if n.op_type in ("Conv", "Gemm", "MatMul"))
    costs = {c.name: c.cost for c in considered(graph, node, machine, False, {}) if c.cost is not None}
    plain = _scops(copy.deepcopy(graph), platform)
    runs: dict[str, Run] = {}
    for name in list(costs):
        if name == "contraction":
            runs[name] = _kernels(plain, machine)
        elif name.startswith("winograd"):
            other = copy.deepcopy(graph)
            use_winograd(other, {tuple(node.outputs): int(name.removeprefix("winograd"))}, machine)
            runs[name] = _kernels(_scops(other, platform), machine)
        elif name == "host":
            runs[name] = _on_host(graph, node, case)
    schedules = [without_tiles(s, machine) for s in plain]
    costs["loops"] = sum(_cycles(s, machine) for s in schedules)
    runs["loops"] = one_after_another(kernel_run(s.scop, machine, s) for s in schedules)
    host = runs.pop("host")
    times = least_seconds(runs, SECONDS) | least_seconds({"host": host}, SECONDS / 4)
    runs["host"] = host
    names = tuple(runs)
    return Row(case.name, names, tuple(costs[n] for n in names), tuple(times[n] for n in names))


def _scops(graph: Graph, platform: Platform) -> list[Scop]:
    _, groups, _ = formed(graph, platform, OPTIONS)
    return [g.scop for g in groups if g.scop is not None]


def _kernels(scops: Sequence[Scop], machine: Target) -> Run:
    return one_after_another(kernel_run(s, machine) for s in scops)


def _on_host(graph: Graph, node: Node, case: Case) -> Run:
    host = HostNode.of(node, graph.opsets, graph.tensors)
    values = [case.inputs.get(n, graph.tensors[n].const) for n in node.inputs if n]
    return lambda: host(values, {})


def _cycles(schedule: Schedule, machine: Target) -> float:
    """Of loops without register tiles: from each level comes what misses the smaller caches, each half full."""
    work = work_of(schedule.scop, machine, tiles=False)
    assert work is not None
    fetched = [
        machine.line * sum(schedule.misses(size // 2, machine.line).values())
        for size in (machine.l1, machine.l2, machine.l3)
    ]
    read = {"l2": fetched[0] - fetched[1], "l3": fetched[1] - fetched[2], "memory": fetched[2]}
    figures = nominal(machine)
    return predict(replace(work, read=read, write={}), figures).seconds * figures.hertz


def without_tiles(scop: Scop, machine: Target) -> Schedule:
    """The automatic schedule without the strategy for contractions."""
    plan = Planner(replace(Schedule.start(scop), terse=True), machine, 1)
    for stage, strategy in STRATEGIES.items():
        if stage != "contraction":
            plan.stage = stage
            strategy(plan)
    return replace(plan.schedule, terse=False)


def summary(rows: Sequence[Row]) -> list[str]:
    """What holds over all shapes."""
    each = [r.correlation for r in rows]
    apart = [Row(r.case, *_without_host(r)) for r in rows]
    several = [r for r in apart if len(r.names) > 1]
    return [
        f"{len(rows)} shapes, {sum(len(r.names) for r in rows)} candidates.",
        "",
        f"* Over all pairs of shape and candidate: {_over_all(rows):.3f}; without the host: {_over_all(apart):.3f}.",
        f"* Within a shape: mean {np.mean(each):.2f}, {sum(x >= WANTED for x in each)} of {len(each)} at least "
        f"{WANTED}; without the host: mean {np.mean([r.correlation for r in several]):.2f}.",
        f"* The candidate with the least predicted cost takes {_mean(r.loss for r in rows):.3f} of the fastest one's "
        f"time (geometric mean), at most {max(r.loss for r in rows):.2f}.",
    ]  # fmt: skip


def _without_host(row: Row) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    kept = [k for k, n in enumerate(row.names) if n != "host"]
    return (
        tuple(row.names[k] for k in kept), tuple(row.predicted[k] for k in kept), tuple(row.measured[k] for k in kept),
    )  # fmt: skip


def _over_all(rows: Sequence[Row]) -> float:
    return spearman([p for r in rows for p in r.predicted], [m for r in rows for m in r.measured])


def _mean(values: Iterator[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def page(found: dict[str, list[Row]]) -> str:
    """The rows as Markdown."""
    lines = [
        "# Predicted and measured order of implementations, one thread", "", machine_line(), "",
        "`python -m benchmarks.ranking`: every implementation of a convolution or product (`contraction`, `winograd2`, "
        "`winograd4`, `loops` without register tiles, `host`) by its predicted cost and its measured time; "
        "Spearman's rank correlation. Milliseconds are the least of many runs in turns, in seconds of the thread (the "
        "machine had other work); predicted millions of cycles of a nominal machine are in parentheses; candidates "
        "are in the order of their times. Loss: the time of the candidate with the least predicted cost over the "
        "fastest's. "
        "No figure of the model was fitted to the second set.", "",
    ]  # fmt: skip
    for which, rows in found.items():
        lines += [f"## The {which} set of shapes", "", *summary(rows), ""]
        lines += ["| shape | correlation | loss | measured ms (predicted Mcycles) |", "| --- | ---: | ---: | --- |"]
        lines += [*map(str, rows), ""]
    return "\n".join(lines)


def data(found: dict[str, list[Row]]) -> list[dict[str, object]]:
    """As JSON values."""
    return [
        {"set": which, "case": r.case, "correlation": round(r.correlation, 4), "loss": round(r.loss, 4),
         "candidates": {n: {"cycles": round(p, 1), "seconds": s}
                        for n, p, s in zip(r.names, r.predicted, r.measured, strict=True)}}
        for which, rows in found.items() for r in rows
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranking", description=__doc__)
    parser.add_argument("--set", action="append", choices=tuple(SETS), help="only this (default: both)")
    add_outputs(parser)
    options = parser.parse_args()
    found = {
        which: [measured(c) for c in track(list(cases(which)), which, console=Console(stderr=True))]
        for which in options.set or SETS
    }
    publish(options, "ranking", page(found), data(found))


if __name__ == "__main__":
    main()
