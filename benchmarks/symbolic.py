"""Every network with symbolic sizes: compiled once, run at random sizes beside ONNX Runtime, as a table.

`python -m benchmarks.symbolic --table docs/symbolic-sizes.md` goes through the packaged networks
(`benchmarks.packaged`) and the exported ones that are there (`benchmarks.exports`); names restrict it. All sizes that
the file leaves open stay symbolic together. Where that is refused each of them is tried alone. A table that is there
keeps the rows of the networks that were not gone through; `--runs 0` only imports.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exports, packaged
from polyc.graph_driver.checking.check import TOLERANCE
from polyc.graph_driver.graph.symbols import Symbols

HEAD = """# Networks with symbolic sizes

Made by `python -m benchmarks.symbolic --table docs/symbolic-sizes.md`; do not edit. All sizes that a network's file
leaves open stay symbolic together; it is compiled once and run at random sizes within its ranges and guards, each
run in poisoned memory, beside ONNX Runtime. The error is the largest difference relative to the output's largest
magnitude; for networks of 8-bit codes the second number is the limit there (docs/models.md).
`docs/models.md` says what symbolic sizes are. Rows without runs were imported only.

| network | symbolic sizes | guards | host operators | runs | largest error |
| --- | --- | ---: | --- | ---: | ---: |
"""
LARGEST_BATCH = 4
LARGEST = 384
TRIES = 20_000


@dataclass(frozen=True)
class Case:
    """A network and how to make inputs that it takes; what is in `bind` is fixed at compile time."""

    name: str
    path: Path
    make: Callable[[np.random.Generator], Mapping[str, np.ndarray]]
    bind: Mapping[str, Any] = field(default_factory=dict)


def cases(names: list[str], folder: Path, root: Path) -> Iterator[Case]:
    """The named networks (all without names). Exported ones that are not in `folder` are left out."""
    for name, model in packaged.MODELS.items():
        if not names or name in names:
            yield Case(name, model.path(root), partial(_first_set, model.make), model.bind)
    for name, network in exports.NETWORKS.items():
        path = folder / f"{name}.onnx"
        if path.exists() and (not names or name in names):
            yield Case(name, path, partial(_first, network.feeds))


def _first(make: Callable[[np.random.Generator], tuple[Any, Any]], rng: np.random.Generator) -> Any:
    return make(rng)[0]


def _first_set(make: Callable[[np.random.Generator, int], Any], rng: np.random.Generator) -> Any:
    return make(rng, 0)


def resized(sample: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The sample, cut or repeated along its axes: drawn text stays text."""
    where = [np.arange(n) % m for n, m in zip(shape, sample.shape, strict=True)]
    return np.ascontiguousarray(sample[np.ix_(*where)]) if shape else sample


def molecules(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Inputs of the graph network: bonds between atoms that there are, atoms of molecules that there are."""
    atoms, graphs = shapes["feat"][0], shapes["graph_slots"][0]
    made: dict[str, np.ndarray] = {n: rng.random(s, np.float32) for n, s in shapes.items()}
    made["edge_index"] = rng.integers(0, atoms, shapes["edge_index"])
    made["batch"] = np.sort(rng.integers(0, graphs, atoms))
    return made


def random_feeds(case: Case, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of these shapes."""
    if case.name == "minimol":
        return molecules(rng, shapes)
    return {n: resized(np.asarray(v), shapes[n]) for n, v in case.make(rng).items()}


def random_sizes(model: Any, case: Case, rng: np.random.Generator) -> dict[str, int] | None:
    """Sizes that the model takes, up to one and a half times those of a sample; None when none are found.

    Drawn from all numbers or from the multiples of 32, which the strides of networks like.
    """
    from polyc.poly.errors import ArgumentError

    symbols, most = model.running.symbols, largest_sizes(model, case.make(rng))
    for k in range(TRIES):
        step = 32 if k % 2 and rng.random() < 0.9 else 1
        values = {}
        for name, r in symbols.ranges.items():
            high = max(r.low, most[name] if r.high is None else min(most[name], r.high))
            n = int(rng.integers(r.low, high + 1))
            values[name] = min(max(n // step * step, r.low), high) if high > LARGEST_BATCH else n
        for a, b in equal_sizes(symbols):
            values[a] = values[b]
        try:
            symbols.check(values)
        except ArgumentError:
            continue
        return values
    return None


def equal_sizes(symbols: Any) -> list[tuple[str, str]]:
    """Pairs of symbols that a guard makes equal."""
    pairs = []
    for g in symbols.guards:
        names = sorted(g.size.symbols())
        if g.kind == "=" and len(names) == 2 and str(g) in (f"{names[0]} = {names[1]}", f"{names[1]} = {names[0]}"):
            pairs.append((names[1], names[0]))
    return pairs


def largest_sizes(model: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The largest size to try for each symbol."""
    most: dict[str, int] = {}
    for name, slot in model.running.formulas.slots.items():
        for axis, n in enumerate(slot.shape or () if name in feeds else ()):
            if not isinstance(n, int):
                seen = np.asarray(feeds[name]).shape[axis]
                limit = (
                    LARGEST_BATCH
                    if seen == 1 or (axis == 0 and seen <= LARGEST_BATCH)
                    else min(seen + seen // 2, LARGEST)
                )
                most[str(n)] = max(limit, most.get(str(n), 1))
    return most


@dataclass
class Outcome:
    """What became of a network."""

    case: Case
    sizes: str
    guards: int = 0
    host: tuple[str, ...] = ()
    runs: int = 0
    error: float = 0.0
    limit: float = TOLERANCE
    refusal: str = ""

    @property
    def passed(self) -> bool:
        """Whether every run agreed."""
        return self.error <= self.limit

    def row(self) -> str:
        """A line of the table."""
        error = f"{self.error:.1e}" + (f" ({self.limit:.0e})" if self.limit > TOLERANCE else "") if self.runs else ""
        verdict = ("" if self.passed else " FAILED") + (f"; a run was refused: {self.refusal}" if self.refusal else "")
        return (
            f"| {self.case.name} | {self.sizes} | {self.guards or ''} | {', '.join(self.host)} "
            f"| {self.runs or ''} | {error}{verdict} |"
        )


def open_sizes(case: Case) -> list[str]:
    """Names of the sizes that the file leaves open."""
    import onnx

    from polyc.graph_driver.importing.binding import symbol_of

    graph = onnx.load(case.path, load_external_data=False).graph
    known = {i.name for i in graph.initializer} | set(case.bind)
    found = (
        symbol_of(i.name, axis, d)
        for i in graph.input if i.name not in known
        for axis, d in enumerate(i.type.tensor_type.shape.dim)
    )  # fmt: skip
    return list(dict.fromkeys(n for n in found if isinstance(n, str)))


def alone(case: Case) -> str:
    """For each open size: whether it can stay symbolic when the others are those of the sample."""
    from polyc.graph_driver.importing.importer import import_model
    from polyc.poly.errors import PolycError

    lines = []
    shapes = {n: np.asarray(v).shape for n, v in case.make(np.random.default_rng(7)).items()}
    for name in open_sizes(case):
        try:
            import_model(case.path, dims={name: (1, None)}, shapes=shapes, bind=case.bind)
            lines.append(f"{name} alone: ok")
        except PolycError as error:
            lines.append(f"{name} alone: {error}")
    return "; ".join(lines)


def tried(case: Case, runs: int, rng: np.random.Generator) -> Outcome:
    """Import; with `runs` compile, too, and run at random sizes."""
    import polyc
    from polyc.graph_driver.importing.importer import import_model
    from polyc.graph_driver.running.all_sizes import AllSizes
    from polyc.poly.errors import PolycError

    if not open_sizes(case):
        return Outcome(case, "none: all sizes are numbers")
    try:
        symbols = import_model(case.path, symbolic=True, bind=case.bind).symbols
        if symbols is None or not runs:
            return Outcome(case, described(symbols), 0 if symbols is None else len(symbols.guards))
        model = polyc.compile_model(case.path, threads=1, symbolic=True, bind=case.bind)
    except PolycError as error:
        return Outcome(case, f"refused: {error}. {alone(case)}")
    assert isinstance(model.running, AllSizes)
    symbols = model.running.symbols
    outcome = Outcome(case, described(symbols), len(symbols.guards), tuple(sorted({h[0] for h in model.report().host})))
    for _ in range(runs):
        values = random_sizes(model, case, rng)
        if values is None:
            break
        plan = model.running.formulas.at(values)
        shapes = {n: plan.slots[n].shape or () for n in plan.inputs}
        try:
            check(outcome, model, random_feeds(case, shapes, rng))
        except PolycError as error:  # what runs on the host learns in a run which sizes it takes
            outcome.refusal = str(error)
    return outcome


def described(symbols: Symbols | None) -> str:
    """The ranges; None: every size turned out to be a number."""
    return "none are left" if symbols is None else ", ".join(symbols.range_text(n) for n in symbols.ranges)


def check(outcome: Outcome, model: Any, feeds: dict[str, np.ndarray]) -> None:
    """One run beside ONNX Runtime."""
    from polyc.graph_driver.checking import quantised_noise
    from polyc.graph_driver.checking.check import compare, reference_outputs

    case = outcome.case
    executor = model.for_inputs(feeds)
    executor.arena[...] = 0xFF  # NaN: what is read was written by this run
    ours = {n: np.array(v) for n, v in model(feeds).items()}
    theirs, _ = reference_outputs(case.path, feeds | {n: np.asarray(v) for n, v in case.bind.items()})
    worst = max(compare(ours, theirs), key=lambda d: d.relative)
    outcome.runs += 1
    if worst.relative > outcome.limit and quantised_noise.quantises(case.path):
        allowed = quantised_noise.allowances(case.path, feeds, theirs)
        outcome.limit = max(outcome.limit, allowed[worst.name])
    outcome.error = max(outcome.error, worst.relative)


def page(before: Path, rows: list[Outcome]) -> str:
    """The table with these rows, and those of other networks that it had."""
    found: dict[str, str] = {}
    if before.exists():
        found = {
            line.split("|")[1].strip(): line for line in before.read_text("utf-8").splitlines() if line[:2] == "| "
        }
    found |= {r.case.name: r.row() for r in rows}
    return HEAD + "".join(f"{found[name]}\n" for name in (*packaged.MODELS, *exports.NETWORKS) if name in found)


def main() -> int:
    """Print rows as they come; write the table; 1 when a run disagrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--exports", type=Path, default=None, help="folder of exported networks")
    parser.add_argument("--packages", type=Path, default=packaged.DEFAULT_ROOT, help="folder of packaged networks")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    rows = []
    for case in cases(arguments.names, arguments.exports or exports.default_folder(), arguments.packages):
        rows.append(tried(case, arguments.runs, rng))
        print(rows[-1].row(), flush=True)
    if arguments.table is not None:
        arguments.table.write_text(page(arguments.table, rows), encoding="utf-8")
    return 0 if all(r.passed for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
