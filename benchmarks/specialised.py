"""`python -m benchmarks.specialised [--results FOLDER]`: products of known sizes beside the same with symbolic sizes.

Small matrix products `Y = X W + b`, compiled twice: for their numbers, and once for all sizes (rows, columns and depth
stay symbolic: X, W and b are inputs of the run). Both run on the same inputs in turns, one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from onnx import ModelProto, TensorProto, helper
from rich.console import Console
from rich.progress import track

from benchmarks.busy import least_seconds
from benchmarks.dated_page import add_outputs, publish
from benchmarks.report import geometric_mean, machine_line
from polyc.graph_driver.compile_model import compile_model

SIZES = [  # rows, columns, depth
    (4, 4, 4), (8, 8, 8), (16, 16, 16), (24, 24, 24), (32, 32, 32), (48, 48, 48), (64, 64, 64), (96, 96, 96),
    (128, 128, 128), (17, 23, 31), (63, 17, 40), (1, 64, 64), (1, 256, 128), (7, 100, 60), (100, 7, 60), (100, 100, 3),
    (33, 65, 129), (12, 200, 16), (200, 12, 16), (50, 50, 200),
]  # fmt: skip
SECONDS = 0.6
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Row:
    """Least seconds of a product whose sizes are known, and with symbolic sizes."""

    sizes: tuple[int, int, int]
    fixed: float
    symbolic: float

    @property
    def gain(self) -> float:
        return self.symbolic / self.fixed

    def __str__(self) -> str:
        name = "x".join(map(str, self.sizes))
        return f"| {name} | {1e6 * self.fixed:.2f} | {1e6 * self.symbolic:.2f} | {self.gain:.2f} |"


def product() -> ModelProto:
    """`Y = X W + b` of matrices of any sizes."""
    inputs = {"X": ("m", "k"), "W": ("k", "n"), "B": ("n",)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["X", "W", "B"], ["Y"])], "product",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ("m", "n"))],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def rows() -> Iterator[Row]:
    model = product()
    free = compile_model(model, threads=1, symbolic=True)
    rng = np.random.default_rng(3)
    for m, n, k in track(SIZES, "products", console=Console(stderr=True)):
        inputs = {
            "X": rng.standard_normal((m, k)).astype(np.float32), "W": rng.standard_normal((k, n)).astype(np.float32),
            "B": rng.standard_normal(n).astype(np.float32),
        }  # fmt: skip
        fixed = compile_model(model, threads=1, symbolic=False, shapes={name: x.shape for name, x in inputs.items()})
        wanted = inputs["X"].astype(np.float64) @ inputs["W"] + inputs["B"]
        for who in (fixed, free):
            difference = float(np.abs(who(inputs)["Y"] - wanted).max())
            if difference > TOLERANCE * float(np.abs(wanted).max()):
                raise AssertionError(f"{m}x{n}x{k}: results differ by {difference:.1e}")
        times = least_seconds({"fixed": partial(fixed, inputs), "symbolic": partial(free, inputs)}, SECONDS)
        yield Row((m, n, k), times["fixed"], times["symbolic"])


def page(found: list[Row]) -> str:
    """The rows as Markdown."""
    faster = sum(r.gain > 1 for r in found)
    return "\n".join([
        "# Known sizes and symbolic ones, one thread", "", machine_line(), "",
        "`python -m benchmarks.specialised`: small products compiled for their sizes, and once for all sizes. "
        "Microseconds of the thread (the machine had other work), the least of many runs in turns, a call from Python "
        "included.", "",
        "| rows x columns x depth | known | symbolic | symbolic / known |", "| --- | ---: | ---: | ---: |",
        *map(str, found), "",
        f"Known sizes are faster in {faster} of {len(found)}; "
        f"geometric mean {geometric_mean(r.gain for r in found):.2f}.",
        "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.specialised", description=__doc__)
    add_outputs(parser)
    options = parser.parse_args()
    found = list(rows())
    publish(options, "specialised", page(found), [vars(r) | {"gain": round(r.gain, 4)} for r in found])


if __name__ == "__main__":
    main()
