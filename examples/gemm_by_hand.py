"""A matrix product from three loops to the speed of a BLAS, by hand, each step of the way counted and measured.

    python examples/gemm_by_hand.py                      each step's result at small sizes, held against NumPy's
    python examples/gemm_by_hand.py --measure            1024 and 1000 cubed beside NumPy's BLAS, as tables
    python examples/gemm_by_hand.py --measure --page docs/gemm-by-hand.md     the tables and a plot into that page

docs/gemm-by-hand.md says why each step is made, and what it brings.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # started as a script, `examples` is not found else

import numpy as np  # after the number of threads of its BLAS

from benchmarks.plots import bars
from benchmarks.report import machine_line
from examples.matmul import matmul
from polyc import Schedule
from polyc.emit import targets
from polyc.graph_driver.bench.calibration import this_machine
from polyc.poly.target import Target
from polyc.scheduler.cost.model import Machine
from polyc.scheduler.programs import tile_product
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.texts.addressing import matching

FLOAT = 4  # bytes
MARKS = "<!-- measured -->\n", "<!-- end -->\n"  # in the page, around what was measured


@dataclass(frozen=True)
class Blocks:
    """`rows` x `columns` sums in registers, `block` rows of A in L2; where the sum is cut, `depth` of its steps at a
    time, for `height` rows."""

    rows: int
    columns: int
    block: int
    depth: int
    height: int


def blocks_for(target: Target) -> Blocks:
    """As many sums as there are registers, less two vectors of B, one value of A and one to spare; blocks of ten tiles.

    Where the sum is cut, a panel of B (depth x columns) takes half of L1, a block of A (height x depth) half of L2.
    """
    columns = 2 * target.lanes(32)
    rows = (target.vector_registers - 4) // 2
    depth = target.l1 // 2 // (columns * FLOAT)
    return Blocks(rows, columns, 10 * rows, depth, target.l2 // 2 // (depth * FLOAT) // rows * rows)


# ---- the steps ----


def order(s: Schedule, b: Blocks) -> Schedule:
    """Rows of B and C in the innermost loop, so that it goes along memory."""
    return s.distribute("i").permute("i_1", "k", "j_1").vectorize("j*")


def sum_cut(s: Schedule, b: Blocks) -> Schedule:
    """Blocks of A in L2 and panels of B in L1 around the tiles, both packed, by single steps: a tile of C comes back
    for each part of the sum, which `tile_product` does not do."""
    s = s.distribute("i").vectorize("j").tile(["i_1", "j_1"], [b.rows, b.columns])
    s = s.split("k", b.depth).split("i_1.out", b.height // b.rows)
    s = s.permute("k.out", "i_1.out.out", "j_1.out", "i_1.out.in", "k.in", "i_1.in", "j_1.in")
    s = s.promote("C", "i_1.out.in", "register").unroll("i_1.in").vectorize("j_1.in")
    s = s.promote("B", "k.out", "heap", layout=[(1, b.columns, 0), (0, 1, 0), (1, 1, b.columns)])
    return s.promote("A", "i_1.out.out", "heap", layout=[(0, b.rows, 0), (1, 1, 0), (0, 1, b.rows)])


STEPS: Mapping[str, Callable[[Schedule, Blocks], Schedule]] = {
    "three loops": lambda s, b: s,
    "rows of B innermost": order,
    "register tiles": lambda s, b: tile_product(s, rows=b.rows, columns=b.columns),
    "pack B": lambda s, b: tile_product(s, rows=b.rows, columns=b.columns, pack="B"),
    "blocks of rows": lambda s, b: tile_product(s, rows=b.rows, columns=b.columns, block=b.block, pack="B"),
    "pack A": lambda s, b: tile_product(s, rows=b.rows, columns=b.columns, block=b.block, pack=["B", "A"]),
    "cut the sum": sum_cut,
}


# ---- what should come of them ----


@dataclass(frozen=True)
class Counted:
    """Bytes that go in and out of registers, L1 and L2 for one product."""

    registers: float
    l1: float
    l2: float

    def seconds(self, machine: Machine, target: Target, flops: float) -> float:
        """The least time: arithmetic, L1 (two vectors a cycle), L2 and L3 all work at the same time."""
        delivered = 2 * target.vector_bits / 8, machine.read["l2"], machine.read["l3"]
        cycles = (b / rate for b, rate in zip((self.registers, self.l1, self.l2), delivered, strict=True))
        return max(flops / machine.fma_flops, *cycles) / machine.hertz


def counted(s: Schedule, target: Target) -> Counted:
    """What must move, from footprints: lines that the caches miss (`Schedule.misses`), and elements of registers.

    What is written (C) moves twice.
    """
    caches = (s.misses(capacity, target.line) for capacity in (target.l1, target.l2))
    l1, l2 = (float(target.line * (sum(lines.values()) + lines["C"])) for lines in caches)
    return Counted(_into_registers(s, target), l1, l2)


def _into_registers(s: Schedule, target: Target) -> float:
    """Bytes loaded and stored. Of the loops around the update the outermost counts of which one iteration touches no
    more than the registers hold: what it touches comes in anew in each iteration, an array of which iterations further
    out touch the same part once for all of them."""
    loops = matching(s.scop, s.tree, "S1.*")
    whole = {x: s.footprint(x).largest() for x in s.scop.arrays}
    touched = [whole, *({x: s.footprint(x, at=n).largest() for x in whole} for n in loops)]
    work = s.count("instances", statements="S1").largest()
    times = [1.0, *(work / s.count("instances", at=n, statements="S1").largest() for n in loops)]
    room = target.vector_registers * target.vector_bits // 8
    at = next(k for k, t in enumerate(touched) if FLOAT * sum(t.values()) <= room)
    total = 0.0
    for x in whole:
        since = at
        while since > 0 and touched[since - 1][x] == touched[at][x]:
            since -= 1
        total += (2 if x == "C" else 1) * FLOAT * touched[at][x] * times[since]
    return total


# ---- what came of them ----


def checked(sizes: Sequence[int], b: Blocks) -> Iterator[str]:
    """A line for each step whose result on fresh random matrices is NumPy's.

    Raises:
        SystemExit: a step's result is another one.
    """
    m, n, k = sizes
    rng = np.random.default_rng()
    x, y = rng.standard_normal((m, k)).astype("f"), rng.standard_normal((k, n)).astype("f")
    exact, bound = x.astype("d") @ y.astype("d"), 2e-7 * k * (np.abs(x).astype("d") @ np.abs(y))
    for name, step in STEPS.items():
        made = matmul.compile(schedule=step(matmul.scop(M=m, N=n, K=k).schedule(), b))(x, y)
        if not np.all(np.abs(made - exact) <= bound):
            raise SystemExit(f"{name}: wrong by {np.abs(made - exact).max():.1e} for {m} x {n} x {k}")
        yield f"{name}: as NumPy, to {np.abs(made - exact).max():.1e}"


def measured(n: int, rounds: int, target: Target) -> list[dict[str, Any]]:
    """Each step, and the BLAS, in turn: the least processor time (of all threads) of `rounds` runs."""
    rng = np.random.default_rng()
    x, y = (rng.standard_normal((n, n)).astype("f") for _ in "AB")
    program, machine, flops = matmul.scop(M=n, N=n, K=n).schedule(), this_machine(target), 2.0 * n**3
    schedules = {name: step(program, blocks_for(target)) for name, step in STEPS.items()}
    schedules["the automatic schedule"] = automatic(program.scop, target)
    runs: dict[str, Callable[[], object]] = {"BLAS": lambda: x @ y}
    for name, schedule in schedules.items():
        runs[name] = partial(matmul.compile(schedule=schedule), x, y)
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(rounds):
        for name, run in runs.items():
            if turn > 1 and best[name] > 20 * best["BLAS"]:
                continue  # seconds each: twice is enough
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    rows = []
    for name, seconds in best.items():
        moved = counted(schedules[name], target) if name in STEPS else None
        rows.append({
            "step": name, "gflops": flops / seconds / 1e9, "peak": flops / seconds / machine.flops_per_second,
            "blas": best["BLAS"] / seconds, "moved": moved,
            "most": None if moved is None else flops / moved.seconds(machine, target, flops) / 1e9,
        })  # fmt: skip
    return [*rows[1:], rows[0]]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = [
        "| step | MB into registers | into L1 | into L2 | at most GFLOP/s | measured GFLOP/s | % of peak | % of BLAS |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in rows:
        m = r["moved"]
        counts = ["", "", "", ""] if m is None else [f"{v / 1e6:,.0f}" for v in (m.registers, m.l1, m.l2)]
        counts = counts if m is None else [*counts, f"{r['most']:.0f}"]
        figures = f"{r['gflops']:.1f}", f"{100 * r['peak']:.0f}", f"{100 * r['blas']:.0f}"
        lines.append(f"| {' | '.join([r['step'], *counts, *figures])} |")
    return "\n".join(lines) + "\n"


def write_page(page: Path, text: str, plot: str) -> None:
    """Put the tables between the page's marks and the plot beside its pictures."""
    begin, end = MARKS
    head, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(f"{head}{begin}{text}{end}{rest.split(end)[1]}", encoding="utf-8")
    (page.parent / "pictures" / f"{page.stem}.svg").write_text(plot, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="A matrix product by hand, step by step.")
    parser.add_argument("--measure", action="store_true", help="time each step beside NumPy's BLAS, on one thread")
    parser.add_argument("--size", type=int, nargs="+", default=[1024, 1000], metavar="N", help="N x N x N (1024 1000)")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--page", type=Path, help="write tables and plot into this page")
    options = parser.parse_args()
    if not options.measure:
        for sizes in ((64, 64, 64), (61, 45, 53)):
            print(" x ".join(map(str, sizes)))
            for line in checked(sizes, Blocks(rows=3, columns=16, block=12, depth=20, height=12)):
                print(" ", line)
        return
    target = targets.host()
    peak = this_machine(target).flops_per_second / 1e9
    results = {n: measured(n, options.rounds, target) for n in options.size}
    parts = [f"{n} x {n} x {n}:\n\n{table(rows)}\n" for n, rows in results.items()]
    text = f"{machine_line()} FMA peak of a core {peak:.0f} GFLOP/s.\n\n{''.join(parts)}"
    print(text)
    if options.page:
        first = results[options.size[0]]
        lines = {"BLAS": first[-1]["gflops"], "peak": peak}
        write_page(options.page, text, bars({r["step"]: r["gflops"] for r in first[:-1]}, lines, "GFLOP/s"))


if __name__ == "__main__":
    main()
