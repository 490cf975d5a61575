"""`python -m benchmarks.gpu [--only TEXT]... [--json FILE] [--page FILE]`: all timings on the GPU that is here.

Each row is written as soon as it is known: a run that is stopped leaves what it has measured. A wrong result
or a row that failed makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu import network, operators
from benchmarks.gpu.cases import cases
from benchmarks.gpu.report import about, page
from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import Device, DeviceError, open_device
from polyc.poly.words import first_line

BATCHES = (1, 32)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--target", default="cuda", help="a GPU target (default: the CUDA device that is here)")
    parser.add_argument("--only", action="append", default=[], help="cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="small sizes and no networks: to try the program")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    try:
        device = open_device(targets.get(options.target).kind)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 1
    target = targets.get(options.target).name
    rows: list[dict[str, Any]] = []
    for name, make in _jobs(device, target, options.rounds, options.quick).items():
        if options.only and not any(text in name for text in options.only):
            continue
        start = time.perf_counter()
        try:
            rows.append(make())
        except Exception as error:  # the other rows are measured all the same
            rows.append({"case": name, "failed": f"{type(error).__name__}: {first_line(error)}"})
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        facts = about(device, target, options.rounds)
        if options.json:
            options.json.write_text(json.dumps({"about": facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        if options.page:
            options.page.write_text(page(rows, facts), encoding="utf-8")
    print(page(rows, about(device, target, options.rounds)))
    return 1 if any("failed" in r or not r["right"] for r in rows) else 0


def _jobs(device: Device, target: str, rounds: int, quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is measured, by name."""
    found: dict[str, Callable[[], dict[str, Any]]] = {
        c.name: lambda c=c: operators.measure(c, device, target, rounds) for c in cases(quick)
    }
    for batch in () if quick else BATCHES:
        found[f"ResNet-50 batch {batch}"] = lambda b=batch: network.measure(b, device, target, rounds)
    return found


if __name__ == "__main__":
    sys.exit(main())
