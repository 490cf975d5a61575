"""`python -m benchmarks.farms [--workers 4] [--kill 20] [--trials 6]`: tuning on a farm whose workers are killed.

Twenty operators are tuned on one process, then by worker processes of which one is killed every `--kill` seconds, each
with a database of its own. Choices that differ are run against each other. Then two more farms tune the same operators
at the same time, with an empty cache that they share: how often each kernel is compiled is counted. `--json` keeps all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.convolution import convolution
from examples.matmul import matmul
from polyc import f32
from polyc.emit import targets
from polyc.frontend_dsl.library import matrix, movement, normalization
from polyc.graph_driver.farm.cluster import connected
from polyc.graph_driver.farm.farm import Farm
from polyc.graph_driver.farm.trials import tune_on
from polyc.graph_driver.tuning.kernels import Kernel
from polyc.graph_driver.tuning.trial import DIED, LATE, Job, run_apart
from polyc.graph_driver.tuning.tune import FINAL_SECONDS, LEAST_GAIN, tune_kernel
from polyc.graph_driver.worker.database import Record
from polyc.poly import json_io
from polyc.poly.rewriting.specialise import specialise

LIMIT = 60.0  # seconds a trial may take
REPEATS = 3


def operators() -> list[Kernel]:
    """Twenty operators of small sizes."""
    products = [(64, 64, 64), (128, 96, 64), (33, 65, 97), (1, 512, 256), (197, 64, 197), (8, 1024, 32)]
    found = {f"matmul {m}x{n}x{k}": specialise(matmul.scop(), {"M": m, "N": n, "K": k}) for m, n, k in products}
    for c, k, h, r in ((8, 16, 28, 3), (16, 16, 14, 3), (3, 16, 32, 5)):
        sizes = {"C": c, "K": k, "H": h, "W": h, "R": r, "S": r}
        found[f"convolution {c}>{k} {h}x{h} {r}x{r}"] = specialise(convolution.scop(), sizes)
    more: dict[str, Any] = {
        "library matmul 96x80x48": matrix.make_matmul(f32, 96, 80, 48),
        "softmax 64x128": normalization.make_softmax_rows(f32, (64,), 128),
        "softmax 7x1000": normalization.make_softmax_rows(f32, (7,), 1000),
        "softmax of an inner axis": normalization.make_softmax(f32, 8, 32, 24),
        "layer norm 32x384": normalization.make_layer_norm(f32, 32, 384, 1e-5, True),
        "layer norm 100x64": normalization.make_layer_norm(f32, 100, 64, 1e-5, False),
        "rms norm 16x512": normalization.make_rms_norm(f32, 16, 512, 1e-5),
        "transpose 128x96": movement.make_transpose(f32, (128, 96), (1, 0)),
        "transpose 8x16x24x4": movement.make_transpose(f32, (8, 16, 24, 4), (0, 2, 1, 3)),
        "p-norm 16x64x8": normalization.make_lp_norm(f32, 16, 64, 8, 2),
        "batched matmul 4x32x32x32": matrix.make_batched_matmul(f32, (4,), (4,), (4,), 32, 32, 32),
    }
    return [Kernel(name, 1, scop) for name, scop in (found | {n: o.scop() for n, o in more.items()}).items()]


@contextlib.contextmanager
def cache_at(folder: Path) -> Iterator[None]:
    """A cache of its own for the block, also for processes that are started in it."""
    before = {name: os.environ.get(name) for name in ("POLYC_CACHE",)}
    os.environ["POLYC_CACHE"] = str(folder)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class Killer(threading.Thread):
    """Kills one worker of a local cluster every so many seconds."""

    def __init__(self, client: Any, seconds: float) -> None:
        super().__init__(daemon=True)
        self.client, self.seconds, self.killed = client, seconds, 0
        self.done = threading.Event()

    def run(self) -> None:
        """Until `done` is set."""
        while not self.done.wait(self.seconds):
            pids = [nanny.pid for nanny in list(self.client.cluster.workers.values()) if nanny.pid]
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(pids), signal.SIGKILL)
                    self.killed += 1


def on_farm(kernels: Sequence[Kernel], workers: int, trials: int, kill: float) -> tuple[list[Record], int]:
    """The records, and how many workers were killed."""
    target = targets.host()
    with connected(f"local:{workers}") as client:
        killer = Killer(client, kill)
        if kill:
            killer.start()
        farm = Farm(client, f"local:{workers}")
        try:
            records = tune_on(farm, kernels, target, 1, trials, LIMIT)
        finally:
            killer.done.set()
    return records, killer.killed


def against(kernel: Kernel, first: str, second: str) -> tuple[list[float], float]:
    """The gains over untuned of two schedules (traces; empty: untuned), the median of several processes each; and how
    far these are apart, relative to them."""
    gains, spread = [], 0.0
    for trace in (first, second):
        job = Job(json_io.dumps(kernel.scop), trace, targets.host(), 1, FINAL_SECONDS)
        found = sorted(run_apart(job, LIMIT).ratio for _ in range(REPEATS)) if trace else [1.0]
        gains.append(found[len(found) // 2])
        spread = max(spread, found[-1] / found[0] - 1.0)
    return gains, spread


def row(kernel: Kernel, here: Record, there: Record) -> dict[str, Any]:
    """One operator: choices and trials of both. Another choice is as good if it is as fast, up to what counts as a gain
    (twice: each of both was chosen by it) and the noise."""
    lost = sum(o.error.startswith((DIED, LATE)) for o in there.trials.values())
    same = here.trace == there.trace
    gains, spread = ([1.0, 1.0], 0.0) if same else against(kernel, here.trace, there.trace)
    return {
        "operator": kernel.label, "one": here.chosen or "untuned", "other": there.chosen or "untuned", "same": same,
        "gains": [round(g, 3) for g in gains], "spread": round(spread, 3),
        "within": same or abs(gains[0] / gains[1] - 1) <= 2 * LEAST_GAIN + spread,
        "trials": [here.ran, there.ran], "lost": lost,
    }  # fmt: skip


def compared(kernels: Sequence[Kernel], here: Sequence[Record], there: Sequence[Record]) -> list[dict[str, Any]]:
    """Rows of two searches of the same operators."""
    return [row(*three) for three in zip(kernels, here, there, strict=True)]


def said(rows: Sequence[dict[str, Any]]) -> str:
    """One line of them."""
    same, within = sum(r["same"] for r in rows), sum(r["within"] for r in rows)
    counts = sum(r["trials"][0] != r["trials"][1] for r in rows)
    lost = sum(r["lost"] for r in rows)
    return (
        f"{same} choices the same, {within} the same or as fast; {lost} trials lost, {counts} counts of trials differ"
    )


def sharing(kernels: Sequence[Kernel], folder: Path, workers: int, trials: int) -> dict[str, int]:
    """Two farms that tune the same at the same time, with databases of their own and one shared cache: how many objects
    were built, and how many of them more than once."""
    log = folder / "built"
    farms = []
    for k in range(2):
        command = [
            sys.executable, "-m", "benchmarks.farms", "--only-farm", "--workers", str(workers), "--trials", str(trials),
            "--operators", str(len(kernels)), "--kill", "0",
        ]  # fmt: skip
        place = {"POLYC_CACHE": f"{folder}/farm{k},file://{folder}/shared", "POLYC_CACHE_LOG": str(log)}
        farms.append(subprocess.Popen(command, env=os.environ | place))
    if any([farm.wait() for farm in farms]):
        raise SystemExit("a farm failed")
    built = Counter(line.split()[1] for line in log.read_text(encoding="utf-8").splitlines())
    return {"built": len(built), "twice": sum(n > 1 for n in built.values())}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.farms", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kill", type=float, default=20.0, metavar="S", help="seconds between two kills (0: none)")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--operators", type=int, default=20, metavar="N", help="only the first N")
    parser.add_argument("--again", action="store_true", help="also one process a second time: what noise alone changes")
    parser.add_argument("--only-farm", action="store_true", help="tune on a farm, with the cache that is set")
    parser.add_argument("--only-sharing", action="store_true", help="only the two farms that share a cache")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, kernels = Console(), operators()[: options.operators]
    if options.only_farm:
        on_farm(kernels, options.workers, options.trials, options.kill)
        return
    data: dict[str, Any] = {"workers": options.workers}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not options.only_sharing:

            def alone(place: str) -> list[Record]:
                with cache_at(folder / place):
                    return [tune_kernel(k.scop, targets.host(), 1, options.trials, LIMIT) for k in kernels]

            start = time.perf_counter()
            here = alone("one")
            middle = time.perf_counter()
            with cache_at(folder / "farm"):
                there, killed = on_farm(kernels, options.workers, options.trials, options.kill)
            seconds = [round(middle - start, 1), round(time.perf_counter() - middle, 1)]
            rows = compared(kernels, here, there)
            data |= {"killed": killed, "seconds": seconds, "rows": rows}
            for r in rows:
                console.print(json.dumps(r), soft_wrap=True, highlight=False, markup=False)
            console.print(
                f"{len(rows)} operators on one process ({seconds[0]:.0f} s) and {options.workers} workers "
                f"({seconds[1]:.0f} s), {killed} killed: {said(rows)}"
            )
            if options.again:
                data["again"] = compared(kernels, here, alone("again"))
                console.print(f"one process twice: {said(data['again'])}")
        data["sharing"] = sharing(kernels, folder, options.workers // 2, options.trials)
        console.print(f"two farms with one cache: {data['sharing']}")
    if options.json:
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
