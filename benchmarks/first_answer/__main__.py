"""`python -m benchmarks.first_answer [NETWORKS] [--models DIR] [--runs N]`: what a new process takes to a first answer.

    python -m benchmarks.first_answer light_resnet50 magika --runs 3
    python -m benchmarks.first_answer --against ../other-checkout       # both in turns, with ratios

NETWORKS are light ones inside the `onnx` package (`light_resnet50`, ...) and those of `benchmarks.packaged` (fetched
into DIR once), default all. Each figure is the least of N runs, each run in new processes: cold (empty cache), warm
(the same cache again), load (the compiled directory), ONNX Runtime's session. Seconds are those of the clock and those
of processors, summed over all processes; imports of polyc count, Python's own start and the import of ONNX Runtime do
not. A run more looks at the memory: the proportional set sizes of all processes together, every 10 ms.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.dated_page import add_outputs, publish
from benchmarks.first_answer.measure import Subject, measured
from benchmarks.first_answer.page import line, table
from benchmarks.first_answer.processes import write_byte_code
from benchmarks.models import light_model, random_inputs
from benchmarks.packaged import DEFAULT_ROOT, MODELS
from benchmarks.report import machine_line
from benchmarks.same_code.versions import described
from polyc.graph_driver.worker.jobs import COMPILER_PACKAGES

HERE = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_answer", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument(
        "--models", type=Path, default=DEFAULT_ROOT, metavar="DIR", help="where packages are fetched to"
    )
    parser.add_argument("--runs", type=int, default=2, metavar="N")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another version, in turns with this one")
    parser.add_argument("--bound", action="store_true", help="compile for the sizes of the inputs")
    parser.add_argument("--no-memory", action="store_true", help="without the run that looks at the memory")
    add_outputs(parser)
    given = parser.parse_args()
    names = given.networks or [*light(), *MODELS]
    if unknown := set(names) - {*light(), *MODELS}:
        parser.error(f"no network {', '.join(sorted(unknown))}: there are {', '.join((*light(), *MODELS))}")
    roots = [root.resolve() for root in (given.against, HERE) if root is not None]
    versions = [described(root) for root in roots]
    for root in roots:
        write_byte_code(root, ("polyc", *COMPILER_PACKAGES))
    rows = []
    for subject in subjects(names, given.models):
        rows.append(measured(subject, roots, given.runs, given.bound, not given.no_memory))
        print(line(rows[-1]), file=sys.stderr, flush=True)
    publish(given, "first-answer", page(table(rows, versions), versions, given.runs, given.bound), rows)


def light() -> list[str]:
    """The light models' names."""
    return [p.stem for p in sorted(light_model("resnet50").parent.glob("light_*.onnx"))]


def subjects(names: Sequence[str], folder: Path) -> Iterator[Subject]:
    """The networks of these names, each with its first set of inputs."""
    for name in names:
        if name in MODELS:
            packaged = MODELS[name]
            inputs = packaged.make(np.random.default_rng(0), 0)
            yield Subject(name, "packaged", packaged.path(folder), inputs, packaged.bind)
        else:
            path = light_model(name.removeprefix("light_"))
            yield Subject(name, "model", path, random_inputs(path))


def page(lines: Sequence[str], versions: Sequence[str], runs: int, bound: bool) -> str:
    """The page: how it was measured, and the table."""
    sizes = "sizes are those of the inputs" if bound else "sizes that a file leaves free stay free"
    beside = f", {versions[0]} (old) beside {versions[1]} (new) in turns" if len(versions) > 1 else f", {versions[0]}"
    head = [
        "# How long a first answer takes", "", machine_line(("onnxruntime",)), "",
        f"Made by `python -m benchmarks.first_answer`{beside}; the least of {runs} runs, each in new processes;",
        f"{sizes}. Cold is compiling with an empty cache, warm once more with what the cache then has, load is",
        "`polyc.load` of the compiled directory (of one for the sizes of the inputs, where that for all sizes excludes",
        "them); imports of polyc count, Python's start does not. First result: cold with the first call. Seconds of",
        "processors are summed over all processes. Memory: proportional set sizes of all processes together at the",
        "peak, in a run of its own. ONNX Runtime: its session's creation, no import.",
        "",
    ]  # fmt: skip
    return "\n".join([*head, *lines]) + "\n"


if __name__ == "__main__":
    main()
