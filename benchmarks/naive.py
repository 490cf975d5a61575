"""`python -m benchmarks.naive [NETWORK ...] [--json FILE]`: implementations by cost beside one kernel for each node
(`--select naive`).

Least milliseconds of runs in turns, of the one thread that runs them. Fails where choosing by cost is more than 5 %
slower, or nowhere faster."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import polyc

from .busy import least_seconds
from .models import light_model, random_inputs

NINE = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
)  # fmt: skip
NAIVE = ("siblings", "winograd", "external")
"""What `polyc compile --select naive` leaves out, beside fusion."""
SLOWER = 1.05
SECONDS = 3.0  # of each network


def main() -> int:
    """Print the table; 1 where the statement does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NINE)
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    table = Table("network", "by cost, ms", "naive, ms", "times as fast")
    for name in options.networks:
        path = light_model(name)
        by_cost = polyc.compile_model(path, threads=1)
        naive = polyc.compile_model(path, threads=1, fuse=False, disable=NAIVE)
        feeds = random_inputs(path)
        seconds = least_seconds({"by cost": partial(by_cost, feeds), "naive": partial(naive, feeds)}, SECONDS)
        ours, theirs = (1e3 * seconds[way] for way in ("by cost", "naive"))
        ratio = theirs / ours
        rows.append({"network": name, "by cost": ours, "naive": theirs, "ratio": ratio})
        table.add_row(name, f"{ours:.2f}", f"{theirs:.2f}", f"{ratio:.2f}")
        print(name, f"{ours:.2f} {theirs:.2f} {ratio:.2f}", file=sys.stderr, flush=True)
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    ratios = [float(r["ratio"]) for r in rows]
    return int(min(ratios) < 1 / SLOWER or max(ratios) <= 1.0)


if __name__ == "__main__":
    sys.exit(main())
