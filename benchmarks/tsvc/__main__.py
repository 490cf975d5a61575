"""`python -m benchmarks.tsvc FOLDER [--loop NAME]... [--rounds N] [--json FILE] [--results FOLDER]`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.dated_page import add_outputs, publish
from benchmarks.tsvc.compare import page, prepared, rows
from examples.tsvc import MODULES


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and print the page; 1 when polyc is wrong somewhere."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks --family tsvc", description=__doc__)
    parser.add_argument("--tsvc-source", type=Path, required=True, metavar="FOLDER", help="a checkout of TSVC_2")
    parser.add_argument("--loop", action="append", choices=list(MODULES), help="only these (default: all)")
    parser.add_argument("--rounds", type=int, default=7)
    add_outputs(parser)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = list(rows(prepared(options.tsvc_source, Path(folder), options.loop or ()), options.rounds))
    publish(options, "tsvc", page(found), found)
    return int(not all(r["right"] for r in found))


if __name__ == "__main__":
    raise SystemExit(main())
