"""`python -m tests.onnx_suite`: run the node suite, print counts, write the table and the raw results.

All cases take about ten minutes on one core. The results of the compiler go into polyc's
cache folder (`POLYC_CACHE`), so that a second run is fast.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from .cases import CLASSES, all_cases, class_of, operator_of
from .running import LIMIT, Outcome, run_all
from .table import by_class, page

WIDTH = 300


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_suite", description=__doc__)
    parser.add_argument("--pattern", default="", help="regular expression: only cases whose name it matches")
    parser.add_argument("--operator", default="", help="regular expression: only cases of operators that it matches")
    parser.add_argument("--class", dest="kind", choices=CLASSES, help="only cases of this class")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one case")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    parser.add_argument("--table", type=Path, help="write the table by operator to this file")
    parser.add_argument("--quiet", action="store_true", help="no line for each case")
    parser.add_argument("--all", action="store_true", help="a line also for cases that pass without the host")
    given = parser.parse_args()
    cases = [
        c for c in all_cases()
        if re.search(given.pattern, c.name) and re.search(given.operator, operator_of(c))
        and (given.kind is None or class_of(c) == given.kind)
    ]  # fmt: skip

    def tell(o: Outcome) -> None:
        if given.quiet or (o.compiled and not given.all):
            return
        host = "; ".join(f"{kind}: {why}" for kind, why in o.host)
        print(f"{o.state:8}{o.seconds:6.2f} {o.name}  {o.reason}{'  host ' + host if host else ''}"[:WIDTH], flush=True)

    outcomes = run_all(cases, given.jobs, given.limit, tell)
    classes = {c.name: class_of(c) for c in cases}
    print(by_class(outcomes, classes))
    print(f"{sum(o.seconds for o in outcomes):.0f} s of thread time; {dict(Counter(o.state for o in outcomes))}")
    if given.json:
        given.json.write_text(json.dumps([asdict(o) | {"class": classes[o.name]} for o in outcomes], indent=0))
    if given.table:
        given.table.write_text(page(outcomes, classes, {c.name: operator_of(c) for c in cases}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
