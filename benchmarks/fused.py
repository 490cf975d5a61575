"""`python -m benchmarks.fused [--json FILE]`: convolution, bias, normalisation and ReLU in one kernel, and one by one.

Each block is compiled as by default and without fusion (`fuse=False`; batch normalisation goes into the weights both
times, as that is a matter of the graph). One thread, seconds of the thread, the least of many runs in turns, of each
form of a block in three places of memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from onnx import helper
from rich.console import Console
from rich.progress import track

from benchmarks.busy import least_seconds
from benchmarks.cases import Case, make_case, normal
from benchmarks.dated_page import add_outputs, publish
from benchmarks.report import geometric_mean, machine_line
from polyc.graph_driver.compile_model import compile_model

SHAPES = [  # channels, channels of the result, image, kernel, stride, groups
    (64, 64, 56, 3, 1, 1), (256, 256, 14, 3, 1, 1), (64, 256, 56, 1, 1, 1), (256, 64, 56, 1, 1, 1),
    (3, 64, 112, 7, 2, 1), (96, 96, 56, 3, 1, 96), (128, 128, 28, 3, 2, 1), (32, 32, 56, 5, 2, 32),
]  # fmt: skip
SECONDS = 1.5
PLACES = 3  # each form so often: where its arena and its weights happen to lie, one may be several percent slower
BOTH = (True, False)


@dataclass(frozen=True)
class Row:
    """Least seconds of a block as one kernel and one by one, with the number of kernels."""

    case: str
    fused: float
    apart: float
    kernels: tuple[int, int]

    @property
    def gain(self) -> float:
        return self.apart / self.fused

    def __str__(self) -> str:
        one, several = self.kernels
        return (
            f"| {self.case} | {1e3 * self.fused:.3f} | {one} | {1e3 * self.apart:.3f} | {several} | {self.gain:.2f} |"
        )


def blocks() -> Iterator[Case]:
    """Convolution + bias, and the same with batch normalisation, each with ReLU."""
    for c, o, size, k, stride, groups in SHAPES:
        out = (size + 2 * (k // 2) - k) // stride + 1
        for normalised in (False, True):
            conv = helper.make_node(
                "Conv", ["X", "W", "B"], ["T"], kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4,
                group=groups,
            )  # fmt: skip
            constants = {"W": normal(o, c // groups, k, k), "B": normal(o)}
            nodes, last = [conv], "T"
            if normalised:
                constants |= {n: np.abs(normal(o)) + np.float32(0.5) for n in ("scale", "shift", "mean", "variance")}
                names = ["T", "scale", "shift", "mean", "variance"]
                nodes, last = [*nodes, helper.make_node("BatchNormalization", names, ["N"])], "N"
            nodes.append(helper.make_node("Relu", [last], ["Y"]))
            yield make_case(
                f"{k}x{k}/{stride} {c}->{o} {size}x{size}{f' in {groups} groups' * (groups > 1)}"
                f"{', normalised' * normalised}", "fused", nodes, {"X": normal(1, c, size, size)}, constants,
                (1, o, out, out), 2.0 * o * out * out * (c // groups) * k * k,
            )  # fmt: skip


def rows() -> Iterator[Row]:
    """Every block, timed."""
    for case in track(list(blocks()), "blocks", console=Console(stderr=True)):
        models = {(fuse, k): compile_model(case.model, threads=1, fuse=fuse) for k in range(PLACES) for fuse in BOTH}
        ours, theirs = (models[fuse, 0](case.inputs)["Y"] for fuse in BOTH)
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * float(np.abs(theirs).max()))
        runs = {f"{fuse} {k}": partial(model, case.inputs) for (fuse, k), model in models.items()}
        times = least_seconds(runs, SECONDS * PLACES)
        fused, apart = (min(times[f"{fuse} {k}"] for k in range(PLACES)) for fuse in BOTH)
        counts = (len(models[True, 0].plan.steps), len(models[False, 0].plan.steps))
        yield Row(case.name, fused, apart, counts)


def page(found: list[Row]) -> str:
    """The rows as Markdown."""
    return "\n".join([
        "# Blocks of a convolution as one kernel and one by one, one thread", "", machine_line(), "",
        "`python -m benchmarks.fused`: convolution, bias, batch normalisation where it says so, and ReLU. Milliseconds "
        "of the thread, the least of many runs in turns, a call from Python included; steps of the plan.", "",
        "| block | fused | steps | one by one | steps | times as fast |", "| --- | ---: | ---: | ---: | ---: | ---: |",
        *map(str, found), "",
        f"Geometric mean {geometric_mean(r.gain for r in found):.2f}, least {min(r.gain for r in found):.2f}.", "",
    ])  # fmt: skip


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fused", description=__doc__)
    add_outputs(parser)
    options = parser.parse_args()
    found = list(rows())
    publish(options, "fused", page(found), [vars(r) | {"gain": round(r.gain, 4)} for r in found])


if __name__ == "__main__":
    main()
