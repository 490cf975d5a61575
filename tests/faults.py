"""`python -m tests.faults [--count 100] [--seconds 2400] [--seed S] [--json FILE]`: faults put into ranks and farms.

In turn a rank of a training fails (`tests.parallel.test_rank_faults`) and a part of a Dask cluster at work
(`tests.farm_faults`). None may hang, none may lose a finished result. No fault begins after `--seconds`; the file is
written after each, so that a run that is stopped has its rows. Exit code 1: one did harm, or there were too few.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from polyc.graph_driver.farm import farm as farms
from tests import farm_faults
from tests.parallel.test_rank_faults import AT_ONCE, LATER, check


def rank_fault(seed: int, number: int) -> dict[str, Any]:
    """A rank of two or three fails in one of the ways, each in its turn, at some step of a training."""
    rng, kinds = random.Random(f"{seed} {number}"), (*LATER, *AT_ONCE)
    ranks, kind = rng.choice([2, 3]), kinds[number % len(kinds)]
    start, harm = time.monotonic(), ""
    try:
        check(kind, ranks, rng.randrange(ranks), rng.randrange(30))
    except subprocess.TimeoutExpired:
        harm = "it hangs"
    except Exception as error:  # an assertion that fails among them
        harm = f"{type(error).__name__}: {str(error)[:2000]}"
    return {"fault": f"rank {kind}", "harm": harm, "seconds": round(time.monotonic() - start, 1)}


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2400.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    farms.SILENT = farm_faults.SILENT
    rows: list[dict[str, Any]] = []
    start = time.monotonic()
    while len(rows) < options.count and time.monotonic() - start < options.seconds:
        number, kind = len(rows) // 2, (rank_fault, farm_faults.one)[len(rows) % 2]
        rows.append(kind(options.seed, number))
        print(len(rows), rows[-1], flush=True)
        if options.json:
            said = {"seed": options.seed, "date": time.strftime("%Y-%m-%d"), "rows": rows}
            options.json.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    bad = [r for r in rows if r["harm"]]
    print(f"seed {options.seed}: {len(rows)} faults in {time.monotonic() - start:.0f} s, {len(bad)} did harm")
    sys.exit(bool(bad) or len(rows) < options.count)


if __name__ == "__main__":
    main()
