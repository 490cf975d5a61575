"""What checks of accesses cost: `python -m benchmarks.bounds [--repeats N]`.

Each operator is compiled with its checks and without; calls of both take turns, and the quickest of each count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc import dims, empty, f32, grid, i32, i64, op

N, M, K, D = dims("N M K D")


@op
def spmv(ptr: i32[N + 1], col: i32[K], val: f32[K], x: f32[M]) -> f32[N]:
    """A sparse matrix in CSR times a vector."""
    y = empty(N, f32)
    for i in range(N):
        y[i] = 0.0
        for j in range(ptr[i], ptr[i + 1]):
            y[i] += val[j] * x[col[j]]
    return y


@op
def embedding(table: f32[N, D], ids: i64[M]) -> f32[M, D]:
    """Rows of a table."""
    y = empty((M, D), f32)
    for i, d in grid(M, D):
        y[i, d] = table[ids[i], d]
    return y


@op
def remapped(x: f32[N], steps: i32[M]) -> f32[M]:
    """Elements at running sums: positions that the program computes, so their checks stay in the loop."""
    at = empty(M, i32)
    y = empty(M, f32)
    at[0] = steps[0]
    for i in range(1, M):
        at[i] = at[i - 1] + steps[i]
    for i in range(M):
        y[i] = x[at[i]]
    return y


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
        "gather at computed positions, 100,000": (remapped, (rng.random(10_000, np.float32), steps), "in the loop"),
    }


def seconds(
    run: Callable[..., Any], other: Callable[..., Any], arguments: tuple[Any, ...], repeats: int
) -> tuple[float, float]:
    """The quickest call of each."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for k, call in enumerate((run, other)):
            start = time.perf_counter()
            call(*arguments)
            best[k] = min(best[k], time.perf_counter() - start)
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=400)
    repeats = parser.parse_args().repeats
    print("| operator | checks | without | with | cost |\n| --- | --- | ---: | ---: | ---: |")
    for name, (operator, arguments, where) in cases(np.random.default_rng(0)).items():
        shapes = {p.name: a.shape for p, a in zip(operator.signature.params, arguments)}
        plain = operator.compile(threads=1, checks=False, **shapes)
        checked = operator.compile(threads=1, checks=True, **shapes)
        assert not plain.function.checks and checked.function.checks
        for a, b in zip(np.atleast_1d(plain(*arguments)), np.atleast_1d(checked(*arguments))):
            assert np.array_equal(a, b)
        without, with_checks = seconds(plain, checked, arguments, repeats)
        cost = with_checks / without - 1.0
        print(f"| {name} | {where} | {without * 1e6:.0f} µs | {with_checks * 1e6:.0f} µs | {cost:+.1%} |", flush=True)


if __name__ == "__main__":
    main()
