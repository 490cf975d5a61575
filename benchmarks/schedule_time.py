"""`python -m benchmarks.schedule_time`: milliseconds that an automatic schedule takes, here and in another checkout.

    python -m benchmarks.schedule_time --match '^matmul|^conv/' --target x86-64-v3
    python -m benchmarks.schedule_time --against ../other-checkout      # each row: there, here, and the ratio
    python -m benchmarks.schedule_time --match '^3mm' --counts          # checks, steps, ... instead of times

Programs are those of the goldens (`tests/goldens/subjects.py`): operators of the library, PolyBench kernels, and
attention, a convolution, a product and a layer norm at the sizes of networks. Each checkout has a process that reads a
Scop as JSON and makes schedules of it by turns with the other: CPU time, the least of some rounds after one that warms
isl; every round has a Scop of its own, so no result of an earlier one is known.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGETS = ("x86-64-v3", "sm_80", "opencl")
SLOWER = 1.05
"""From this ratio on, a row is listed as slower."""

COUNTED = {
    "steps": ("scheduler/core.py", "_step"),
    "checks": ("poly/legality.py", "first_violation"),
    "mark checks": ("poly/legality.py", "check_parallel"),
    "conflicts": ("poly/ordering/order.py", "in_order"),
    "time maps": ("poly/tree.py", "time_map"),
    "flows": ("poly/dependences.py", "value_flow_among"),
}
"""What `--counts` counts: calls of functions."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedule_time", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--match", default="", help="regular expression: only programs whose name it matches")
    parser.add_argument("--target", action="append", help=f"default: {', '.join(TARGETS)}")
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--counts", action="store_true", help="count checks and steps, do not measure")
    given = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    workers = [_Worker(root) for root in (given.against, here) if root is not None]
    slower, sums = [], [0.0] * len(workers)
    for target in given.target or TARGETS:
        for name, text in programs(given.match):
            if given.counts:
                print(target, name, *(json.dumps(w.ask(target, text, counts=True)) for w in workers), flush=True)
                continue
            times = measured(workers, target, text, given.rounds)
            sums = [a + b for a, b in zip(sums, times, strict=True)]
            line = f"{target:10} {name:28} {'  '.join(f'{1000 * t:7.1f}' for t in times)}"
            if len(times) == 2:
                line += f"  {times[1] / times[0]:5.2f}"
                slower += [line] if times[1] >= SLOWER * times[0] else []
            print(line, flush=True)
    if not given.counts:
        print(f"{'all':39} {'  '.join(f'{1000 * t:7.1f}' for t in sums)}")
    if slower:
        print(f"\nslower by {SLOWER - 1:.0%} and more: {len(slower)}", *slower, sep="\n")


def measured(workers: list[_Worker], target: str, text: str, rounds: int) -> list[float]:
    """The least CPU seconds of each worker, after a round that does not count."""
    best = [float("inf")] * len(workers)
    for number in range(rounds + 1):
        for k, worker in enumerate(workers):
            spent = worker.ask(target, text)
            best[k] = min(best[k], spent) if number else best[k]
    return best


class _Worker:
    """A process that schedules with the compiler of a checkout."""

    def __init__(self, root: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root.resolve())}
        command = [sys.executable, "-c", WORKER, json.dumps(COUNTED)]
        self._process = subprocess.Popen(
            command, env=environment, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, target: str, text: str, counts: bool = False) -> Any:
        """Seconds of a schedule of the Scop `text`, or how often functions were called for it."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([target, text, counts]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise SystemExit("a process that schedules has ended")
        return json.loads(answer)


WORKER = """
import cProfile, json, pstats, sys, time
import polyc
from polyc.emit import targets
from polyc.emit.gpu import targets as gpu_targets
from polyc.poly import json_io
from polyc.scheduler.strategies.auto import automatic

def called(profile):
    found = [(file, name, seen[1]) for (file, _, name), seen in pstats.Stats(profile).stats.items()]
    return {k: sum(n for f, x, n in found if f.endswith(path) and x == name) for k, (path, name) in wanted.items()}

wanted = json.loads(sys.argv[1])
for line in sys.stdin:
    target, text, counts = json.loads(line)
    machine, _, threads = target.partition("/")
    machine = (gpu_targets if gpu_targets.is_gpu(machine) else targets).get(machine)
    scop = json_io.loads(text)
    if counts:
        profile = cProfile.Profile()
        profile.runcall(automatic, scop, machine, int(threads or 1))
        print(json.dumps(called(profile)), flush=True)
    else:
        start = time.process_time()
        automatic(scop, machine, int(threads or 1))
        print(time.process_time() - start, flush=True)
"""


def programs(match: str) -> Iterator[tuple[str, str]]:
    """Names and Scops as text."""
    from polyc.poly import json_io

    wanted = re.compile(match)
    for name, make in _subjects():
        if wanted.search(name):
            yield name, json_io.dumps(make())


def _subjects() -> Iterator[tuple[str, Any]]:
    from polyc.frontend_dsl.library import convolution, matrix, normalization
    from polyc.poly.dtypes import f32
    from tests.goldens.subjects import library, polybench

    def conv() -> Any:
        one = (1, 1)
        return convolution.make_conv2d(f32, 1, (64, 64), (56, 56), (3, 3), one, one, one, one, True).scop()

    yield "matmul/512", lambda: matrix.make_matmul(f32, 512, 512, 512).scop()
    yield (
        "conv/64x56",
        conv,
    )
    yield "layer_norm/512x768", lambda: normalization.make_layer_norm(f32, 512, 768, 1e-5, True).scop()
    yield "attention/12x197x64", _attention
    for subject in library():
        if not subject.name.endswith("/odd"):
            yield subject.name, subject.scop
    for subject in polybench():
        yield subject.name, subject.scop


def _attention() -> Any:
    """The scores, softmax and values of 12 heads as the one group that a model makes of them."""
    import tempfile

    from onnx import save

    from benchmarks.cases import _attention as case
    from tests.goldens.subjects import groups

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "attention.onnx"
        save(case("memory", 12, 197, 64).model, path)
        return next(iter(groups(path, "x86-64-v3"))).scop()


if __name__ == "__main__":
    main()
