"""`python -m benchmarks.tiles [--family F]... [--results FOLDER]`: the model's tile beside the best of a whole grid.

For products and convolutions the grid has every register tile that the vector registers can hold (rows x vectors), and
blocks of rows for half of L2, a quarter of it and all of it; for jacobi-2d sweeps in a block and rows in a block, and
no blocks. The model's choice is the automatic schedule, without tuning. All kernels of a size are timed in turns, then
the fastest and the model's again, for longer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from unittest.mock import patch

from rich.console import Console
from rich.progress import track

from benchmarks.busy import Run, kernel_run, least_seconds, one_after_another
from benchmarks.cases import Case, gemms_of
from benchmarks.cliffs import Shape, convolution
from benchmarks.dated_page import add_outputs, publish
from benchmarks.report import geometric_mean, machine_line
from examples.polybench.jacobi_2d import jacobi_2d
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compiling.from_source import import_with
from polyc.graph_driver.compiling.stages import formed, optimise
from polyc.graph_driver.options import CompileOptions
from polyc.poly.errors import PolycError
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.target import Target
from polyc.scheduler.cost import tile_plan
from polyc.scheduler.cost.register_tile import RegisterTile, efficiency
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

OPTIONS = CompileOptions(threads=1, disable=("winograd",))  # the contraction's tile is in question
ROWS, VECTORS = 14, 6
L2_SHARES = (1.0, 0.5, 2.0)  # times half of L2
SWEEPS, LINES = (4, 8, 16, 32), (4, 8, 16, 32, 64)
SWEPT = 32  # steps in time
GEMMS = [(128, 768, 768), (512, 512, 512), (197, 768, 3072), (63, 997, 200)]
CONVOLUTIONS = [
    Shape(64, 64, (56, 56), (3,)), Shape(128, 128, (28, 28), (3,), (2,)), Shape(64, 256, (56, 56), (1,)),
    Shape(3, 64, (112, 112), (7,), (2,)),
]  # fmt: skip
IMAGES = [300, 700, 1000, 1600]
FAMILIES = ("gemm", "conv", "jacobi-2d")
FIRST, AGAIN, KEPT = 1.5, 1.5, 4  # seconds for the grid, for the best once more, and how many those are
LIMIT = 1.2


@dataclass(frozen=True)
class Row:
    """Least seconds: of the model's tile and of the grid's best; points of the grid that have code."""

    family: str
    case: str
    model: str
    seconds: float
    best: str
    least: float
    points: int

    @property
    def ratio(self) -> float:
        return self.seconds / self.least

    def __str__(self) -> str:
        return (
            f"| {self.case} | {self.model} | {1e3 * self.seconds:.3f} | {self.best} | {1e3 * self.least:.3f} | "
            f"{self.ratio:.2f} | {self.points} |"
        )


def compared(family: str, case: str, model: str, runs: dict[str, Run]) -> Row:
    """The grid (by name, the model's among it as `model`) in turns; the best of it and the model's once more."""
    coarse = least_seconds(runs, FIRST)
    best = sorted((n for n in runs if n != "model"), key=lambda n: coarse[n])[:KEPT]
    fine = least_seconds({n: runs[n] for n in ("model", *best)}, AGAIN)
    times = {n: min(coarse[n], fine[n]) for n in fine}
    least = min(best, key=lambda n: times[n])
    # The model's own tile is a point of the grid, too: then one kernel has two times, and the lesser one counts.
    seconds = min(times["model"], times.get(model, times["model"]))
    if seconds <= times[least]:
        return Row(family, case, model, seconds, model, seconds, len(runs) - 1)
    return Row(family, case, model, seconds, least, times[least], len(runs) - 1)


# ---- products and convolutions -------------------------------------------------------------------


def contraction(family: str, case: Case) -> Row:
    platform = platform_of("cpu", 1)
    machine = platform.machine
    assert isinstance(machine, Target)
    runs = {"model": _runs(case, machine, machine)}
    chosen = _chosen(case, machine)
    for rows in range(1, ROWS + 1):
        for vectors in range(1, VECTORS + 1):
            if rows * vectors + vectors + 1 > machine.vector_registers:
                continue
            with patch.object(tile_plan, "choose", _forced(rows, vectors)):
                for share in L2_SHARES:
                    try:
                        runs[f"{rows}x{vectors}, {share:g}"] = _runs(case, machine, _with_l2(machine, share))
                    except PolycError:
                        continue
                    if not _blocks(case, machine):
                        break
    return compared(family, case.name, f"{chosen}, 1", runs)


def _with_l2(machine: Target, share: float) -> Target:
    return replace(machine, l2=int(machine.l2 * share))


def _forced(rows: int, vectors: int) -> Callable[..., RegisterTile]:
    """In place of the model's choice: the same tile for everything."""

    def choose(
        height: int | None, columns: int | None, lanes: int, target: Target, depth: int = 0, apart: int = 1,
        most_rows: int | None = None,
    ) -> RegisterTile:  # fmt: skip
        share = efficiency(height, columns, (rows, vectors, lanes), target, depth, apart)
        return RegisterTile(rows, vectors, lanes, share)

    return choose


def _schedules(case: Case, machine: Target, blocks: Target) -> Iterator[Schedule]:
    """Of the case's kernels: layouts for `machine`, blocks for the caches of `blocks`."""
    platform = platform_of("cpu", 1)
    graph = import_with(case.model, platform, OPTIONS)
    optimise(graph, platform, OPTIONS)
    _, groups, _ = formed(graph, platform, OPTIONS)
    for g in groups:
        if g.scop is not None:
            yield automatic(g.scop, blocks, 1)


def _runs(case: Case, machine: Target, blocks: Target) -> Run:
    return one_after_another(kernel_run(s.scop, machine, s) for s in _schedules(case, machine, blocks))


def _figures(case: Case, machine: Target) -> dict[str, object]:
    for s in _schedules(case, machine, machine):
        for d in s.decisions:
            if d.stage == "contraction" and d.outcome == "done":
                return dict(d.figures) | {"blocks": any(".blk" in name for name in s.loops)}
    return {}


def _chosen(case: Case, machine: Target) -> str:
    """The model's tile, as `ROWSxVECTORS`."""
    found = _figures(case, machine)
    return f"{found['rows']}x{int(str(found['columns'])) // machine.lanes(32)}" if found else "none"


def _blocks(case: Case, machine: Target) -> bool:
    """Whether the kernel has blocks of rows, for which the size of L2 matters."""
    return bool(_figures(case, _with_l2(machine, 0.5)).get("blocks"))


# ---- jacobi-2d -----------------------------------------------------------------------------------


def jacobi(n: int) -> Row:
    machine = platform_of("cpu", 1).machine
    assert isinstance(machine, Target)
    scop = specialise(jacobi_2d.scop(tsteps=SWEPT), {"N": n})
    chosen = automatic(scop, machine, 1)
    done = [d.figures for d in chosen.decisions if d.stage == "sweeps" and d.outcome == "done"]
    plain = Schedule.start(scop).vectorize("j", machine.lanes(64)).vectorize("j_1", machine.lanes(64))
    joined = plain.fuse("i", "i_1", shift=1).skew("i", "t", 2)
    grid = {"none": plain} | {f"{s}x{r}": joined.tile(["t", "i"], [s, r]) for s in SWEEPS for r in LINES}
    runs = {"model": kernel_run(scop, machine, chosen)}
    runs |= {name: kernel_run(scop, machine, s) for name, s in grid.items()}
    model = f"{done[0]['sweeps']}x{done[0]['rows']}" if done else "none"
    return compared("jacobi-2d", f"jacobi-2d {n}x{n}, {SWEPT} steps", model, runs)


# ---- the page ------------------------------------------------------------------------------------


def rows(families: list[str]) -> Iterator[Row]:
    jobs: list[Callable[[], Row]] = []
    if "gemm" in families:
        jobs += [lambda c=c: contraction("gemm", c) for c in gemms_of("tiles", GEMMS)]
    if "conv" in families:
        jobs += [lambda s=s: contraction("conv", convolution(s)) for s in CONVOLUTIONS]
    if "jacobi-2d" in families:
        jobs += [lambda n=n: jacobi(n) for n in IMAGES]
    for job in track(jobs, "grids", console=Console(stderr=True)):
        yield job()


def page(found: list[Row]) -> str:
    """The rows as Markdown."""
    return "\n".join([
        "# The model's tile and the best of a grid, one thread", "", machine_line(), "",
        "`python -m benchmarks.tiles`: every register tile (rows x vectors) that fits the registers, with blocks of "
        "rows for 1, 1/2 and 2 times half of L2; for jacobi-2d blocks of sweeps x rows, or none. The model chooses "
        "without any measurement. Milliseconds of the thread (the machine had other work), the least of many runs in "
        "turns. Convolutions with bias and ReLU, not as Winograd's.", "",
        "| case | the model's | ms | the grid's best | ms | ratio | points |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: |",
        *map(str, found), "",
        f"Worst ratio {max(r.ratio for r in found):.2f}, geometric mean {geometric_mean(r.ratio for r in found):.2f}; "
        f"{sum(r.ratio <= LIMIT for r in found)} of {len(found)} within 20 %.", "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiles", description=__doc__)
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these (default: all)")
    add_outputs(parser)
    options = parser.parse_args()
    found = list(rows(options.family or list(FAMILIES)))
    publish(options, "tiles", page(found), [vars(r) | {"ratio": round(r.ratio, 4)} for r in found])


if __name__ == "__main__":
    main()
