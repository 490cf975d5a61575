"""`python -m benchmarks.hunt --seed S --count N [--kind conv,gemm]... `: random cases beside the peers, on one thread.

Every case is named KIND:SEED:NUMBER and can be drawn again alone (`--case`). What is below CONFIRM is measured again
with more rounds. Compile times are no part of the ratios. Fails where a case is wrong or cannot be compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.hunting.kinds import KINDS
from benchmarks.hunting.page import distribution, failed, lowest, page
from benchmarks.hunting.row import Key, row_of
from polyc.graph_driver.bench.peers import installed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hunt", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, metavar="N", help="cases, shared out among the kinds")
    parser.add_argument("--kind", type=_kinds, default=list(KINDS), metavar="KIND,...", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--case", type=_key, action="append", metavar="KIND:SEED:NUMBER", help="only this one")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--busy", action="store_true", help="count processor time: others use this machine, too")
    parser.add_argument("--dask", metavar="ADDRESS|local:N", help="on the workers of a Dask cluster (docs/clusters.md)")
    parser.add_argument("--shown", type=int, default=25, metavar="N", help="how many of the lowest are shown")
    parser.add_argument("--json", type=Path, help="write the rows here, after every case")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    options = parser.parse_args()
    kinds, seed = options.kind, options.seed
    keys = options.case or [(kinds[i % len(kinds)], seed, i // len(kinds)) for i in range(options.count)]
    peers, start, console = installed(), time.perf_counter(), Console()
    with tempfile.TemporaryDirectory() as cold:
        os.environ["POLYC_CACHE"] = cold
        hunted = _hunted if options.dask is None else partial(_on_farm, options.dask)
        rows = hunted(keys, peers, options.rounds, options.busy, options.json)
    for line in (*_lines(lowest(rows, options.shown), peers), "", *distribution(rows)):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for row in failed(rows):
        line = f"failed: {row['key']} {row['case']}: {row.get('error') or row['difference']}"
        console.print(line, soft_wrap=True, style="bold red", markup=False)
    if rows:
        console.print(f"one alone: python -m benchmarks.hunt --case {(lowest(rows, 1) or rows)[0]['key']}")
    if options.page:
        seconds = time.perf_counter() - start
        options.page.write_text(page(rows, peers, options.rounds, seconds, options.shown), encoding="utf-8")
    if failed(rows):
        sys.exit(1)


def _kinds(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [n for n in names if n not in KINDS]:
        raise argparse.ArgumentTypeError(f"no kind is called {unknown[0]}; there are {', '.join(KINDS)}")
    return names


def _key(text: str) -> Key:
    kind, seed, number = (*text.split(":"), "", "")[:3]
    if kind not in KINDS or not (seed.isdigit() and number.isdigit()):
        raise argparse.ArgumentTypeError(f"{text} is not KIND:SEED:NUMBER; kinds are {', '.join(KINDS)}")
    return kind, int(seed), int(number)


def _hunted(
    keys: Sequence[Key], peers: list[str], rounds: int, busy: bool, path: Path | None
) -> list[dict[str, Any]]:  # fmt: skip
    """A row for each case, under a bar that shows the worst one so far."""
    rows: list[dict[str, Any]] = []
    with _bar(len(keys)) as seen:
        for key in keys:
            rows.append(row_of(key, peers, rounds, busy))
            _keep(rows, path)
            seen(key, rows)
    return rows


def _on_farm(
    where: str, keys: Sequence[Key], peers: list[str], rounds: int, busy: bool, path: Path | None
) -> list[dict[str, Any]]:  # fmt: skip
    """The same by the workers of a Dask cluster that have this CPU; rows that are in `path` already are not done
    again."""
    from polyc.emit import targets
    from polyc.graph_driver.farm.opening import farm_at
    from polyc.graph_driver.farm.rows import rows_on

    names = {":".join(map(str, key)): key for key in keys}
    known = json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else []
    rows = {r["key"]: r for r in known if r["key"] in names and "error" not in r}
    left = [name for name in names if name not in rows]

    def failed(k: int, why: str) -> dict[str, Any]:
        return {"key": left[k], "case": left[k], "family": names[left[k]][0], "error": why}

    with farm_at(where) as farm, _bar(len(keys)) as bar:

        def seen(k: int, row: dict[str, Any]) -> None:
            rows[left[k]] = row
            _keep(list(rows.values()), path)
            bar(names[left[k]], list(rows.values()))

        asked = [{"key": names[name], "peers": peers, "rounds": rounds, "busy": busy} for name in left]
        rows_on(farm, "benchmarks.hunting.row", asked, targets.host(), 1, failed, seen)
    return [rows[name] for name in names]


def _keep(rows: Sequence[dict[str, Any]], path: Path | None) -> None:
    if path:
        path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _bar(total: int) -> Iterator[Callable[[Key, Sequence[dict[str, Any]]], None]]:
    """A bar that shows the worst row so far."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("hunting", total=total)

        def seen(key: Key, rows: Sequence[dict[str, Any]]) -> None:
            worst = min((r["ratio"] for r in rows if "ratio" in r), default=float("nan"))
            progress.update(task, completed=len(rows), description=f"{key[0]}, lowest ratio {worst:.2f}")

        yield seen


def _lines(rows: Sequence[dict[str, Any]], peers: Sequence[str]) -> list[str]:
    """The rows as aligned text."""
    heads = ["ratio", *(f"{who} ms" for who in ("polyc", *peers)), "GFLOP/s", "GB/s", "drawn as", "case"]
    cells = [heads]
    for r in rows:
        times = [f"{r['ms'][who][0]:.3f}" if who in r["ms"] else "" for who in ("polyc", *peers)]
        cells.append([f"{r['ratio']:.2f}", *times, f"{r['gflops']}", f"{r['gbytes']}", r["key"], r["case"]])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    named = len(heads) - 2  # the columns of text
    return [
        "  ".join(c.ljust(w) if k >= named else c.rjust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in cells
    ]


if __name__ == "__main__":
    main()
