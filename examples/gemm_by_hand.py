"""A matrix product from three loops to the speed of a BLAS, by hand: steps of `Schedule`, each of them measured, and
the schedule program that makes them in one call.

    python examples/gemm_by_hand.py                      each step's result at small sizes, held against NumPy's
    python examples/gemm_by_hand.py --measure            1024 and 1000 cubed beside NumPy's BLAS, as tables
    python examples/gemm_by_hand.py --measure --page docs/gemm-by-hand.md     the tables and a plot into that page
    python examples/gemm_by_hand.py --programs           one call of `tile_product` each, beside the BLAS, as tables

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
PROGRAM_MARKS = "<!-- programs -->\n", "<!-- end of programs -->\n"


@dataclass(frozen=True)
class Blocks:
    """`rows` x `columns` sums in registers; `depth` steps of the sum and `height` rows at a time in the caches."""

    rows: int
    columns: int
    depth: int
    height: int


def blocks_for(target: Target) -> Blocks:
    """As many sums as there are registers, less two vectors of B, one value of A and one to spare; a panel of B
    (depth x columns) in half of L1, a block of A (height x depth) in half of L2."""
    columns = 2 * target.lanes(32)
    rows = (target.vector_registers - 4) // 2
    depth = target.l1 // 2 // (columns * FLOAT)
    return Blocks(rows, columns, depth, target.l2 // 2 // (depth * FLOAT) // rows * rows)


# ---- the steps ----


def order(s: Schedule, b: Blocks) -> Schedule:
    """Rows of B and C in the innermost loop, so that it goes along memory."""
    return s.distribute("i").permute("i_1", "k", "j_1").vectorize("j*")


def tiles(s: Schedule, b: Blocks) -> Schedule:
    """Tiles of C, with the whole sum inside each."""
    s = s.distribute("i").vectorize("j").tile(["i_1", "j_1"], [b.rows, b.columns])
    return s.permute("k", "i_1.in", "j_1.in")


def in_registers(s: Schedule, at: str) -> Schedule:
    """A tile's sums stay in vector registers: its loops become straight lines of vector instructions."""
    return s.promote("C", at, "register").unroll("i_1.in").vectorize("j_1.in")


def cache_blocks(s: Schedule, b: Blocks) -> Schedule:
    """A block of A for L2 and a panel of B for L1 around the tiles."""
    s = tiles(s, b).split("k", b.depth).split("i_1.out", b.height // b.rows)
    return s.permute("k.out", "i_1.out.out", "j_1.out", "i_1.out.in", "k.in", "i_1.in", "j_1.in")


def packed_b(s: Schedule, b: Blocks) -> Schedule:
    """B in panels as wide as a tile, in the order in which the innermost loop reads them."""
    return s.promote("B", "k.out", "heap", layout=[(1, b.columns, 0), (0, 1, 0), (1, 1, b.columns)])


def packed_a(s: Schedule, b: Blocks) -> Schedule:
    """The block of A in strips as high as a tile."""
    return s.promote("A", "i_1.out.out", "heap", layout=[(0, b.rows, 0), (1, 1, 0), (0, 1, b.rows)])


def blocked(s: Schedule, b: Blocks) -> Schedule:
    """Cache blocks around register tiles."""
    return in_registers(cache_blocks(s, b), "i_1.out.in")


STEPS: Mapping[str, Callable[[Schedule, Blocks], Schedule]] = {
    "three loops": lambda s, b: s,
    "rows of B innermost": order,
    "register tiles": lambda s, b: in_registers(tiles(s, b), "j_1.out"),
    "cache blocks": blocked,
    "pack B": lambda s, b: packed_b(blocked(s, b), b),
    "pack A": lambda s, b: packed_a(packed_b(blocked(s, b), b), b),
}

PROGRAMS: Mapping[str, Callable[[Schedule, Blocks], Schedule]] = {
    "tiles": lambda s, b: tile_product(s, rows=b.rows, columns=b.columns),
    "tiles, B packed": lambda s, b: tile_product(s, rows=b.rows, columns=b.columns, pack="B"),
    "tiles in blocks of rows, B packed": lambda s, b: tile_product(
        s, rows=b.rows, columns=b.columns, block=10 * b.rows, pack="B"
    ),
    "tiles in blocks of rows, B and A packed": lambda s, b: tile_product(
        s, rows=b.rows, columns=b.columns, block=10 * b.rows, pack=["B", "A"]
    ),
}
"""The same by a schedule program, each in one call."""


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
    for name, step in {**STEPS, **PROGRAMS}.items():
        made = matmul.compile(schedule=step(matmul.scop(M=m, N=n, K=k).schedule(), b))(x, y)
        if not np.all(np.abs(made - exact) <= bound):
            raise SystemExit(f"{name}: wrong by {np.abs(made - exact).max():.1e} for {m} x {n} x {k}")
        yield f"{name}: as NumPy, to {np.abs(made - exact).max():.1e}"


def measured(
    n: int, rounds: int, target: Target, steps: Mapping[str, Callable[[Schedule, Blocks], Schedule]] = STEPS
) -> list[dict[str, Any]]:
    """Each step, and the BLAS, in turn: the least processor time (of all threads) of `rounds` runs."""
    rng = np.random.default_rng()
    x, y = (rng.standard_normal((n, n)).astype("f") for _ in "AB")
    program, machine, flops = matmul.scop(M=n, N=n, K=n).schedule(), this_machine(target), 2.0 * n**3
    schedules = {name: step(program, blocks_for(target)) for name, step in steps.items()}
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
        moved = counted(schedules[name], target) if name in steps and steps is STEPS else None
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


def short_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was measured only, in Markdown."""
    lines = ["| call | measured GFLOP/s | % of peak | % of BLAS |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {r['step']} | {r['gflops']:.1f} | {100 * r['peak']:.0f} | {100 * r['blas']:.0f} |" for r in rows]
    return "\n".join(lines) + "\n"


def write_between(page: Path, marks: tuple[str, str], text: str) -> None:
    """Put the tables between two marks of the page."""
    begin, end = marks
    head, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(f"{head}{begin}{text}{end}{rest.split(end)[1]}", encoding="utf-8")


def write_page(page: Path, text: str, plot: str) -> None:
    """Put the tables between the page's marks and the plot beside its pictures."""
    write_between(page, MARKS, text)
    (page.parent / "pictures" / f"{page.stem}.svg").write_text(plot, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="A matrix product by hand, step by step.")
    parser.add_argument("--measure", action="store_true", help="time each step beside NumPy's BLAS, on one thread")
    parser.add_argument("--programs", action="store_true", help="time the calls of `tile_product` instead")
    parser.add_argument("--size", type=int, nargs="+", default=[1024, 1000], metavar="N", help="N x N x N (1024 1000)")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--page", type=Path, help="write tables and plot into this page")
    options = parser.parse_args()
    if not options.measure and not options.programs:
        for sizes in ((64, 64, 64), (61, 45, 53)):
            print(" x ".join(map(str, sizes)))
            for line in checked(sizes, Blocks(rows=3, columns=16, depth=20, height=12)):
                print(" ", line)
        return
    target = targets.host()
    peak = this_machine(target).flops_per_second / 1e9
    if options.programs:
        rows = {n: measured(n, options.rounds, target, PROGRAMS) for n in options.size}
        text = "".join(f"{n} x {n} x {n}:\n\n{short_table(r)}\n" for n, r in rows.items())
        text = f"{machine_line()} FMA peak of a core {peak:.0f} GFLOP/s.\n\n{text}"
        print(text)
        if options.page:
            write_between(options.page, PROGRAM_MARKS, text)
        return
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
