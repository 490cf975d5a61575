"""`python -m benchmarks.zero_blocks`: the time of a product by the share of its blocks that are zero.

`polyc prune` with one share after another, each model beside the whole one in one process, in turns.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import polyc
from polyc.graph_driver.narrowing.prune import ROWS, without_blocks

SHARES = (0.25, 0.5, 0.75, 0.875)
SECONDS = 0.5  # of each pair


def product(rows: int, weights: np.ndarray) -> polyc.Model:
    """`x @ weights`, compiled for one thread."""
    inner, columns = weights.shape
    shape, result = ([rows, n] for n in (inner, columns))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return polyc.compile_model(model, threads=1)


def measured(rows: int, inner: int, columns: int, share: float) -> tuple[float, float]:
    """Least milliseconds of the whole product and of the pruned one."""
    rng = np.random.default_rng(0)
    weights, x = (rng.standard_normal(s).astype(np.float32) for s in ((inner, columns), (rows, inner)))
    models = product(rows, weights), product(rows, without_blocks(weights, share, ROWS)[0])
    best = [float("inf")] * 2
    for model in models:
        model({"x": x})
    begun = time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        for k, model in enumerate(models):
            start = time.perf_counter()
            model({"x": x})
            best[k] = min(best[k], time.perf_counter() - start)
    return best[0] * 1e3, best[1] * 1e3


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zero_blocks", description=__doc__)
    parser.add_argument("--size", default="128x512x512", help="rows x summed x columns")
    rows, inner, columns = map(int, parser.parse_args().size.split("x"))
    table = Table("zero blocks", "whole ms", "pruned ms", "share of the time")
    for share in SHARES:
        whole, pruned = measured(rows, inner, columns, share)
        table.add_row(f"{share:.1%}", f"{whole:.3f}", f"{pruned:.3f}", f"{pruned / whole:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
