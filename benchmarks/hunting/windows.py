"""Random pools and resizings."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.cases import Case
from benchmarks.hunting.arrays import by, case_of, image, node, one_of, total, values


def pool(rng: Generator) -> Case:
    what = one_of(
        rng, "MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"
    )
    rank = one_of(rng, 1, 2, 2, 2, 2, 3)
    if what.startswith("Global"):
        shape = image(rng, rank, total(rng, 1 << 21))
        return case_of(f"{what} {by(shape)}", "pool", [node(what)], {"X": values(rng, shape)})
    kernel = tuple(int(one_of(rng, 1, 2, 2, 3, 3, 3, 4, 5, 7)) for _ in range(rank))
    kernel = kernel[:1] * rank if rng.random() < 0.7 else kernel
    stride = (int(one_of(rng, 1, 2, 2, 3)),) * rank if rng.random() < 0.8 else kernel
    pads = [min(int(rng.integers(0, 3)), (k - 1) // 2 if k > 2 else k - 1) for k in kernel]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": pads * 2}
    if what != "LpPool" and rng.random() < 0.25:
        attributes["ceil_mode"] = 1
    if what == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(2))
    if what == "MaxPool" and rng.random() < 0.15:
        attributes["dilations"] = [2] * rank
    shape = image(rng, rank, total(rng, 1 << 21), least=2 * max(kernel))
    words = " ".join(f"{n} {v}" for n, v in attributes.items() if n not in ("kernel_shape", "strides", "pads"))
    name = f"{what} {by(kernel)}/{by(stride)} p{by(pads)} {by(shape)} {words}".strip()
    return case_of(name, "pool", [node(what, **attributes)], {"X": values(rng, shape)}, None, prod(kernel))


def resize(rng: Generator) -> Case:
    mode = one_of(rng, "nearest", "nearest", "linear", "linear", "cubic")
    way = one_of(rng, "half_pixel", "asymmetric", "align_corners", "half_pixel")
    shape = image(rng, 2, total(rng, 1 << 19), least=2)
    scales = [float(one_of(rng, 2, 2, 0.5, 3, 1.5, 4))] * 2
    if rng.random() < 0.2:
        scales[1] = 1.0
    attributes = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attributes["nearest_mode"] = one_of(rng, "floor", "round_prefer_floor")
    out = (*shape[:2], *(max(1, int(n * s)) for n, s in zip(shape[2:], scales, strict=True)))
    return case_of(
        f"Resize {mode} {way} {by(shape)} to {by(out)}",
        "resize",
        [node("Resize", ["X", "", "", "sizes"], **attributes)],
        {"X": values(rng, shape)},
        {"sizes": np.array(out)},
    )
