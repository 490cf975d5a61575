"""What checks of accesses cost: `python -m benchmarks.bounds [--repeats N] [--results FOLDER]`.

Each operator is compiled with its checks and without, for one thread; calls of both take turns, and the quickest of
each count. `--results FOLDER` writes a dated page.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from benchmarks.dated_page import add_outputs, publish
from benchmarks.report import machine_line
from examples.indirection import embedding, gather_at_sums, spmv
from polyc.graph_driver.bench.timing import interleave


def cases(rng: np.random.Generator) -> dict[str, tuple[Any, tuple[Any, ...], str]]:
    """Operator, arguments and where its checks are, by name."""
    rows, each, columns = 20_000, 50, 100_000
    ptr = np.arange(rows + 1, dtype=np.int32) * each
    col = rng.integers(0, columns, rows * each).astype(np.int32)
    val, x = rng.random(rows * each, np.float32), rng.random(columns, np.float32)
    short = np.arange(rows * 5 + 1, dtype=np.int32) * 10
    table, ids = rng.random((50_000, 256), np.float32), rng.integers(0, 50_000, 2048)
    steps = rng.integers(-3, 4, 100_000).astype(np.int32)
    steps[0] = 5_000
    return {
        "CSR SpMV, 1,000,000 non-zeros, 50 a row": (spmv, (ptr, col, val, x), "before, in the loop"),
        "CSR SpMV, 1,000,000 non-zeros, 10 a row": (spmv, (short, col, val, x), "before, in the loop"),
        "embedding, 2048 rows of 256": (embedding, (table, ids), "before"),
        "gather at computed positions, 100,000": (
            gather_at_sums,
            (rng.random(10_000, np.float32), steps),
            "in the loop",
        ),
    }


def measured(name: str, operator: Any, arguments: tuple[Any, ...], where: str, repeats: int) -> dict[str, Any]:
    """The quickest calls of an operator without its checks and with them, in microseconds."""
    shapes = {p.name: a.shape for p, a in zip(operator.signature.params, arguments)}
    plain = operator.compile(threads=1, checks=False, **shapes)
    checked = operator.compile(threads=1, checks=True, **shapes)
    assert not plain.function.checks and checked.function.checks
    np.testing.assert_array_equal(plain(*arguments), checked(*arguments))
    times = interleave({"without": partial(plain, *arguments), "with": partial(checked, *arguments)}, repeats)
    return {"operator": name, "checks": where} | {way: 1e3 * t.minimum for way, t in times.items()}


def page(rows: list[dict[str, Any]], repeats: int) -> str:
    """The rows as Markdown."""
    lines = [
        "# What checks of accesses cost", "", machine_line(), "",
        f"Made by `python -m benchmarks.bounds --repeats {repeats}`: one thread, calls with and without checks take",
        "turns, the quickest of each.", "",
        "| operator | checks | without | with | cost |", "| --- | --- | ---: | ---: | ---: |",
    ]  # fmt: skip
    for r in rows:
        cost = r["with"] / r["without"] - 1.0
        lines.append(f"| {r['operator']} | {r['checks']} | {r['without']:.0f} µs | {r['with']:.0f} µs | {cost:+.1%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds", description=__doc__)
    parser.add_argument("--repeats", type=int, default=400)
    add_outputs(parser)
    options = parser.parse_args()
    rows = [measured(name, *case, options.repeats) for name, case in cases(np.random.default_rng(0)).items()]
    publish(options, "bounds", page(rows, options.repeats), rows)


if __name__ == "__main__":
    main()
