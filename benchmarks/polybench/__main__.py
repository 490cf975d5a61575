"""`python -m benchmarks --family polybench`: PolyBench/C's kernels beside gcc, clang, Polly and Pluto.

The peers are built from PolyBench's own C (`--polybench-source`), Pluto's when its output is given: a folder with
KERNEL.c files made by `polycc`. With `--json` the rows of kernels that were not asked for are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from platformdirs import user_cache_dir

from benchmarks.dated_page import add_outputs, publish
from benchmarks.polybench.page import page
from benchmarks.polybench.rows import Setting, known_times, row
from benchmarks.polybench.sources import WHERE, Folders
from benchmarks.polybench.subjects import INTEGERS, NEAR, SIZES
from examples.polybench import MODULES


def main(arguments: Sequence[str] | None = None) -> int:
    """The run that the options describe; 1 when polyc is wrong somewhere."""
    options = _parser().parse_args(arguments)
    if options.polybench_source is None:
        print(WHERE, file=sys.stderr)
        return 2
    folders = Folders(options.polybench_source.resolve(), options.pluto and options.pluto.resolve(), options.cache)
    size = f"{options.size}-{options.near}" if options.near else options.size
    known = known_times(options.peers, size, options.single)
    names = [n for n in options.only or MODULES if not (options.single and n in INTEGERS)]
    kept = json.loads(options.json.read_text(encoding="utf-8")) if options.json and options.json.exists() else []
    rows = {r["kernel"]: r for r in kept}
    for name in names:
        setting = Setting(folders, size, options.single, options.threads, options.symbolic, options.seed,
                          options.seconds, options.limit, known.get(name, {}), options.alone)  # fmt: skip
        rows[name] = row(name, setting)
        print(name, rows[name]["ms"], rows[name]["wrong"], file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(list(rows.values()), indent=1) + "\n", encoding="utf-8")
    ordered = [rows[n] for n in MODULES if n in rows]
    subject = f"polybench-{size.lower()}{'-f32' * options.single}{'-symbolic' * options.symbolic}"
    publish(options, f"{subject}-{options.threads}t", page(ordered), ordered)
    return int(any(n.startswith("polyc") for r in ordered for n in (*r["wrong"], *r["failed"])))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks --family polybench", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    made.add_argument("--polybench-source", type=Path, metavar="DIR", help=f"PolyBench/C's folder. {WHERE}")
    made.add_argument("--pluto", type=Path, metavar="DIR", help="Pluto's output: KERNEL.c files")
    made.add_argument("--peers", type=Path, metavar="CSV",
                      help="times measured elsewhere (kernel, peer, dtype, size, threads, seconds), for peers that are "
                      "not built here: gcc's time of this run times their ratio")  # fmt: skip
    made.add_argument("--only", action="append", choices=list(MODULES), metavar="KERNEL", help="these (default: all)")
    made.add_argument("--size", choices=SIZES, default="LARGE")
    made.add_argument("--near", choices=NEAR, help="powers of two in the place of all sizes, or prime numbers, which "
                      "nothing divides")  # fmt: skip
    made.add_argument("--f32", dest="single", action="store_true", help="f32 in the place of f64")
    made.add_argument("--threads", type=int, choices=(1, 2), default=1)
    made.add_argument("--symbolic", action="store_true", help="polyc's kernels for all sizes, and beside "
                      "them those for these sizes")  # fmt: skip
    made.add_argument("--alone", action="store_true", help="without peers")
    made.add_argument("--seed", type=int, default=0, help="of the random inputs")
    made.add_argument("--seconds", type=float, default=10.0, help="of turns, for a kernel (10)")
    made.add_argument("--limit", type=float, default=60.0, help="seconds of one call; who takes longer is out (60)")
    made.add_argument("--cache", type=Path, default=Path(user_cache_dir("polyc")) / "polybench",
                      metavar="DIR", help="where built peers and float64 results are kept")  # fmt: skip
    add_outputs(made)
    return made


if __name__ == "__main__":
    sys.exit(main())
