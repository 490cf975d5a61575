"""`python -m benchmarks --family torch [NAME...] [--threads 1 2] [--results FOLDER]`: polyc behind `torch.compile`,
against eager mode and Inductor.

Each network of `torch_networks.py` runs in a process of its own for each number of threads, with empty caches: the time
of the first call (forward, and forward with backward), then rounds in which the three take turns; minimum and median.
A training step is forward, loss and backward.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PEERS = ("eager", "inductor", "polyc")
LEAST = 0.002
"""Seconds that one timing takes at least: short calls are repeated."""
PAUSE = 0.01
"""Seconds before each timing, in which the threads of the contender before, which wait busily for more work, go to
sleep. Without it two of them share a core with those that are timed."""


def measured(name: str, threads: int, rounds: int, before: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """First calls and rounds of one network, in seconds. `before` is called when all is compiled."""
    import torch

    import polyc.torch
    from benchmarks.torch_networks import NETWORKS, loss_of

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    module, inputs = NETWORKS[name]()
    row: dict[str, Any] = {"name": name, "threads": threads, "first": {}, "forward": {}, "training": {}}
    calls: dict[str, dict[str, Callable[[], None]]] = {"forward": {}, "training": {}}
    for peer in PEERS:
        torch._dynamo.reset()
        own = copy.deepcopy(module)
        backend = {"inductor": "inductor", "polyc": polyc.torch.polyc_backend}.get(peer)
        evaluated = copy.deepcopy(module).eval()
        run, still = (
            (own, evaluated) if peer == "eager" else (torch.compile(m, backend=backend) for m in (own, evaluated))
        )

        def forward(still: Any = still) -> None:
            with torch.no_grad():
                still(*inputs)

        def training(run: Any = run, own: Any = own) -> None:
            for p in own.parameters():
                p.grad = None
            loss_of(run(*inputs)).backward()

        start = time.perf_counter()
        forward()
        middle = time.perf_counter()
        training()
        row["first"][peer] = [middle - start, time.perf_counter() - middle]
        calls["forward"][peer], calls["training"][peer] = forward, training
    before()
    for mode, each in calls.items():
        times = _interleaved(each, rounds)
        row[mode] = {p: [min(t), statistics.median(t)] for p, t in times.items()}
    row["eager operators"] = sorted({e.operator for c in polyc.torch.compilations() for e in c.eager})
    return row


def _interleaved(calls: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    many = {}
    for peer, call in calls.items():
        for _ in range(3):
            call()
        start = time.perf_counter()
        call()
        many[peer] = max(1, math.ceil(LEAST / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {p: [] for p in calls}
    for _ in range(rounds):
        for peer, call in calls.items():
            time.sleep(PAUSE)
            call()  # its own threads are awake
            start = time.perf_counter()
            for _ in range(many[peer]):
                call()
            times[peer].append((time.perf_counter() - start) / many[peer])
    return times


def in_a_process(name: str, threads: int, rounds: int) -> dict[str, Any]:
    """`measured` in a process with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        number = str(threads)
        env = {
            **os.environ, "POLYC_CACHE": f"{folder}/polyc", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number, "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.torch_speed", "--one", name, number, str(rounds)]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown: ratios of minimum times (above 1: polyc is quicker), and times of first calls."""
    import torch

    lines = [
        "# polyc behind torch.compile", "",
        f"`python -m benchmarks --family torch`, {datetime.date.today()}, torch {torch.__version__}. Ratios of minimum",
        "times in one process, in turns; above 1 polyc is quicker. First calls: seconds with empty caches, forward and",
        "training step together.", "",
        "| network | threads | forward, ms | / Inductor | / eager | step, ms | / Inductor | / eager | first call, s |"
        " Inductor's | in eager mode |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for r in rows:
        cells = [r["name"], str(r["threads"])]
        for mode in ("forward", "training"):
            own = r[mode]["polyc"][0]
            cells += [f"{own * 1e3:.3f}", *(f"{r[mode][p][0] / own:.2f}" for p in ("inductor", "eager"))]
        cells += [f"{sum(r['first'][p]):.1f}" for p in ("polyc", "inductor")]
        lines.append(f"| {' | '.join([*cells, ', '.join(r['eager operators'])])} |")
    for threads in sorted({r["threads"] for r in rows}):
        for mode in ("forward", "training"):
            some = [r[mode] for r in rows if r["threads"] == threads]
            means = []
            for p in ("inductor", "eager"):
                means.append(math.exp(statistics.fmean(math.log(r[p][0] / r["polyc"][0]) for r in some)))
            of = f"{means[0]:.2f} of Inductor, {means[1]:.2f} of eager"
            lines += ["", f"{mode}, threads {threads}: {of} (geometric mean)"]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    """The family's command."""
    if arguments[:1] == ["--one"]:
        print(json.dumps(measured(arguments[1], int(arguments[2]), int(arguments[3]))))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks --family torch", description=__doc__)
    parser.add_argument("names", nargs="*", help="networks (default: all)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write a dated page and JSON there")
    options = parser.parse_args(arguments)
    from benchmarks.torch_networks import NETWORKS

    rows = []
    for name in options.names or NETWORKS:
        for threads in options.threads:
            rows.append(in_a_process(name, threads, options.rounds))
            print(*page(rows[-1:]).splitlines()[7:9], sep="\n", flush=True)
    text = page(rows)
    print(text)
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        stem = options.results / f"{datetime.date.today()}-torch"
        stem.with_suffix(".md").write_text(text, encoding="utf-8")
        stem.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
