"""Random softmaxes, norms, reductions and orders over any axes."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from benchmarks.cases import Case
from benchmarks.hunting.arrays import Values, by, case_of, image, node, one_of, shape_of, size, total, values


def softmax(rng: Generator) -> Case:
    what = one_of(rng, "Softmax", "Softmax", "LogSoftmax")
    shape = shape_of(rng, int(rng.integers(1, 5)), total(rng))
    axis = int(rng.integers(len(shape))) if rng.random() < 0.5 else len(shape) - 1
    return case_of(f"{what} axis {axis} {by(shape)}", "softmax", [node(what, axis=axis)], {"X": values(rng, shape)})


def layer_norm(rng: Generator) -> Case:
    rank = int(rng.integers(2, 5))
    shape = shape_of(rng, rank, total(rng))
    axis = rank - 1 if rng.random() < 0.7 else int(rng.integers(1, rank))
    constants = {"S": values(rng, shape[axis:]), "B": values(rng, shape[axis:])}
    return case_of(
        f"LayerNorm axis {axis} {by(shape)}",
        "norm",
        [node("LayerNormalization", ["X", "S", "B"], axis=axis)],
        {"X": values(rng, shape)},
        constants,
    )


def image_norm(rng: Generator) -> Case:
    """Norms over images: of instances, groups, batches, across channels."""
    shape = image(rng, int(rng.integers(1, 4)), total(rng, 1 << 21))
    what = one_of(
        rng,
        "InstanceNormalization",
        "groups",
        "BatchNormalization",
        "LRN",
        "LpNormalization",
        "MeanVarianceNormalization",
    )
    x = {"X": values(rng, shape)}
    c = shape[1]
    if what == "InstanceNormalization":
        constants = {"S": values(rng, (c,)), "B": values(rng, (c,))}
        return case_of(f"{what} {by(shape)}", "norm", [node(what, ["X", "S", "B"])], x, constants)
    if what == "BatchNormalization":
        constants = {
            "S": values(rng, (c,)),
            "B": values(rng, (c,)),
            "M": values(rng, (c,)),
            "V": np.abs(values(rng, (c,))),
        }
        return case_of(f"{what} {by(shape)}", "norm", [node(what, ["X", "S", "B", "M", "V"])], x, constants)
    if what == "LRN":
        n = one_of(rng, 3, 5, 7)
        return case_of(f"LRN {n} {by(shape)}", "norm", [node(what, size=n)], x)
    if what == "LpNormalization":
        axis = int(rng.integers(len(shape)))
        return case_of(f"{what} axis {axis} {by(shape)}", "norm", [node(what, axis=axis, p=one_of(rng, 1, 2))], x)
    if what == "MeanVarianceNormalization":
        axes = [0, *range(2, len(shape))]
        return case_of(f"{what} {by(shape)}", "norm", [node(what, axes=axes)], x)
    groups = int(one_of(rng, *[g for g in range(1, c + 1) if c % g == 0]))
    nodes = [
        node("Reshape", ["X", "grouped"], ["a"]),
        node("InstanceNormalization", ["a", "ones", "zeros"], ["b"]),
        node("Reshape", ["b", "whole"], ["c"]),
        node("Mul", ["c", "S"], ["d"]),
        node("Add", ["d", "B"], ["Y"]),
    ]
    flat = (c, *[1] * (len(shape) - 2))
    constants = {
        "grouped": np.array([0, groups, -1]),
        "ones": np.ones(groups, np.float32),
        "zeros": np.zeros(groups, np.float32),
        "whole": np.array(shape),
        "S": values(rng, flat),
        "B": values(rng, flat),
    }
    return case_of(f"group norm {groups} {by(shape)}", "norm", nodes, x, constants)


def rms_norm(rng: Generator) -> Case:
    """As exporters write it: `x * rsqrt(mean(x^2) + eps) * scale`, or the layer norm of single operators."""
    shape = shape_of(rng, int(rng.integers(2, 4)), total(rng))
    x = {"X": values(rng, shape)}
    constants = {"two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32), "S": values(rng, shape[-1:])}
    if rng.random() < 0.5:
        nodes = [
            node("Pow", ["X", "two"], ["s"]),
            node("ReduceMean", ["s", "axes"], ["m"]),
            node("Add", ["m", "eps"], ["a"]),
            node("Sqrt", ["a"], ["r"]),
            node("Div", ["X", "r"], ["n"]),
            node("Mul", ["n", "S"], ["Y"]),
        ]
        return case_of(f"RMS norm {by(shape)}", "norm", nodes, x, constants | {"axes": np.array([-1])})
    nodes = [
        node("ReduceMean", ["X", "axes"], ["m"]),
        node("Sub", ["X", "m"], ["c"]),
        node("Pow", ["c", "two"], ["s"]),
        node("ReduceMean", ["s", "axes"], ["v"]),
        node("Add", ["v", "eps"], ["a"]),
        node("Sqrt", ["a"], ["r"]),
        node("Div", ["c", "r"], ["n"]),
        node("Mul", ["n", "S"], ["o"]),
        node("Add", ["o", "S"], ["Y"]),
    ]
    return case_of(f"layer norm of parts {by(shape)}", "norm", nodes, x, constants | {"axes": np.array([-1])})


REDUCTIONS = (
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSumExp",
    "ReduceSumSquare",
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
)


def reduce(rng: Generator) -> Case:
    what = one_of(rng, *REDUCTIONS)
    rank = int(rng.integers(1, 6))
    shape = shape_of(rng, rank, total(rng))
    axes = [k for k in range(rank) if rng.random() < 0.5] or [int(rng.integers(rank))]
    dtype = np.float32
    if what in ("ReduceSum", "ReduceMax", "ReduceMin") and rng.random() < 0.3:
        dtype = one_of(rng, np.float64, np.int64, np.int32)
    if what == "ReduceProd":
        x = np.asarray(rng.uniform(0.9, 1.1, shape), np.float32)
    else:
        x = values(rng, shape, dtype)
    keep = int(rng.integers(2))
    return case_of(
        f"{what} {np.dtype(dtype).name} axes {by(axes)} of {by(shape)}",
        "reduce",
        [node(what, ["X", "axes"], keepdims=keep)],
        {"X": x},
        {"axes": np.array(axes)},
    )


def order(rng: Generator) -> Case:
    """Positions of extremes, sorting, running sums."""
    what = one_of(rng, "ArgMax", "ArgMin", "TopK", "CumSum", "CumSum")
    shape = shape_of(rng, int(rng.integers(1, 5)), total(rng, 1 << 20))
    axis = int(rng.integers(len(shape))) if rng.random() < 0.5 else len(shape) - 1
    x = {"X": values(rng, shape)}
    if what == "TopK":
        k = size(rng, shape[axis])
        return case_of(
            f"TopK {k} axis {axis} {by(shape)}",
            "order",
            [node("TopK", ["X", "k"], ["Y", "I"], axis=axis)],
            x,
            {"k": np.array([k])},
        )
    if what == "CumSum":
        flags: Values = {"exclusive": int(rng.integers(2)), "reverse": int(rng.integers(2))}
        return case_of(
            f"CumSum axis {axis} {by(shape)}",
            "order",
            [node("CumSum", ["X", "axis"], **flags)],
            x,
            {"axis": np.array(axis)},
        )
    return case_of(
        f"{what} axis {axis} {by(shape)}", "order", [node(what, axis=axis, keepdims=int(rng.integers(2)))], x
    )
