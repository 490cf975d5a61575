"""`python -m tests.goldens`: compare what the automatic strategies make with what is frozen, or freeze it anew.

    python -m tests.goldens                                  # everything: some 15 minutes on one core
    python -m tests.goldens --slice                          # what CI does: a minute
    python -m tests.goldens --family library --target sm_80  # a part
    python -m tests.goldens --match '^matmul'                # programs, or networks, by name
    python -m tests.goldens --update                         # freeze what is made today
    python -m tests.goldens --dump FOLDER                    # texts of trees and loops, to compare two checkouts

Without `--match` these are the programs that are frozen. Trained networks that have not been fetched (`python -m
benchmarks` does) are left out. Exit code 1 where something differs from its golden.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from .comparing import FAMILIES, compared
from .frozen import TARGETS


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument(
        "--match", default="", help="regular expression: only programs (networks) whose name it matches"
    )
    parser.add_argument("--slice", action="store_true", help="only the programs that CI makes")
    parser.add_argument("--update", action="store_true", help="freeze what is made today")
    parser.add_argument("--dump", type=Path, help="write the texts into this folder")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    given = parser.parse_args()
    tasks = [(f, t) for f in given.family or FAMILIES for t in given.target or TARGETS]
    work = partial(compared, pattern=given.match, only_slice=given.slice, update=given.update, dump=given.dump)
    with ProcessPoolExecutor(given.jobs) as pool:
        results = {pool.submit(work, family, target): (family, target) for family, target in tasks}
        differing: list[str] = []
        for future, (family, target) in results.items():
            lines = future.result()
            differing += lines
            print(f"{family} {target}: {'frozen' if given.update else f'{len(lines)} differ'}", flush=True)
    print(*differing, sep="\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
