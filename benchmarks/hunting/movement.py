"""Random operators that only move data."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.random import Generator

from benchmarks.cases import Case
from benchmarks.hunting.arrays import Values, by, case_of, image, node, one_of, shape_of, size, total, values
from benchmarks.hunting.pointwise import fitting

TYPES = (np.float32, np.float32, np.float32, np.float32, np.float64, np.int64, np.int32, np.uint8)


def transpose(rng: Generator) -> Case:
    rank = int(rng.integers(2, 6))
    dtype = one_of(rng, *TYPES)
    shape = shape_of(rng, rank, total(rng))
    perm = [int(p) for p in rng.permutation(rank)]
    return case_of(
        f"Transpose {np.dtype(dtype).name} {by(shape)} {perm}",
        "transpose",
        [node("Transpose", perm=perm)],
        {"X": values(rng, shape, dtype)},
    )


def concat(rng: Generator) -> Case:
    rank = int(rng.integers(1, 5))
    shape = shape_of(rng, rank, total(rng, 1 << 20))
    axis, dtype = int(rng.integers(rank)), one_of(rng, *TYPES)
    inputs = {}
    for k in range(int(rng.integers(2, 5))):
        n = shape[axis] if rng.random() < 0.5 else size(rng, 2 * shape[axis])
        inputs[f"X{k}"] = values(rng, (*shape[:axis], n, *shape[axis + 1 :]), dtype)
    return case_of(
        f"Concat {np.dtype(dtype).name} axis {axis} {' '.join(by(v.shape) for v in inputs.values())}",
        "movement",
        [node("Concat", list(inputs), axis=axis)],
        inputs,
    )


def split(rng: Generator) -> Case:
    """Parts of one tensor, added up again in pairs where they are of one size, else the last one negated."""
    rank = int(rng.integers(1, 5))
    axis, parts = int(rng.integers(rank)), int(rng.integers(2, 4))
    shape = list(shape_of(rng, rank, total(rng, 1 << 20)))
    shape[axis] = max(1, shape[axis] // parts) * parts
    names = [f"p{k}" for k in range(parts)]
    nodes = [node("Split", ["X"], names, axis=axis, num_outputs=parts), node("Mul", names[:2], ["Y"])]
    return case_of(f"Split {parts} axis {axis} {by(shape)}", "movement", nodes, {"X": values(rng, shape)})


def slices(rng: Generator) -> Case:
    rank = int(rng.integers(1, 5))
    shape, dtype = shape_of(rng, rank, total(rng), 2), one_of(rng, *TYPES)
    axes = [k for k in range(rank) if rng.random() < 0.6] or [0]
    steps = [int(one_of(rng, 1, 1, 2, 3, -1, -2)) for _ in axes]
    starts = [int(rng.integers(0, max(1, shape[a] // 3))) for a in axes]
    ends = [int(rng.integers(2 * shape[a] // 3, shape[a] + 1)) for a in axes]
    turned = [
        (e - 1, b - 1 if b else -(1 << 30)) if s < 0 else (b, e) for b, e, s in zip(starts, ends, steps, strict=True)
    ]
    constants = {
        "b": np.array([t[0] for t in turned]),
        "e": np.array([t[1] for t in turned]),
        "a": np.array(axes),
        "s": np.array(steps),
    }
    words = ",".join(f"{a}:{b}:{e}:{s}" for a, (b, e), s in zip(axes, turned, steps, strict=True))
    return case_of(
        f"Slice {np.dtype(dtype).name} {by(shape)} [{words}]",
        "movement",
        [node("Slice", ["X", "b", "e", "a", "s"])],
        {"X": values(rng, shape, dtype)},
        constants,
    )


def pad(rng: Generator) -> Case:
    rank = int(rng.integers(1, 5))
    shape = shape_of(rng, rank, total(rng, 1 << 21), 4)
    mode = one_of(rng, "constant", "constant", "reflect", "edge", "wrap")
    dtype = one_of(rng, np.float32, np.float32, np.float32, np.int64, np.uint8)
    pads = [int(rng.integers(0, 4)) if rng.random() < 0.6 else 0 for _ in range(2 * rank)]
    opset = 19 if mode == "wrap" else 18
    return case_of(
        f"Pad {mode} {np.dtype(dtype).name} {by(shape)} {pads}",
        "movement",
        [node("Pad", ["X", "pads"], mode=mode)],
        {"X": values(rng, shape, dtype)},
        {"pads": np.array(pads)},
        opset=opset,
    )


def repeat(rng: Generator) -> Case:
    """Tile and Expand."""
    rank, dtype = int(rng.integers(1, 5)), one_of(rng, *TYPES)
    shape = shape_of(rng, rank, total(rng, 1 << 17))
    times = [int(one_of(rng, 1, 1, 2, 3, 7)) for _ in range(rank)]
    if rng.random() < 0.5:
        return case_of(
            f"Tile {np.dtype(dtype).name} {by(shape)} by {by(times)}",
            "movement",
            [node("Tile", ["X", "r"])],
            {"X": values(rng, shape, dtype)},
            {"r": np.array(times)},
        )
    small = fitting(rng, shape)
    out = tuple(t * 9 if n == 1 and t > 1 else n for n, t in zip(shape, times, strict=True))
    small = tuple(1 if n == 1 else n for n in small)
    return case_of(
        f"Expand {np.dtype(dtype).name} {by(small)} to {by(out)}",
        "movement",
        [node("Expand", ["X", "o"])],
        {"X": values(rng, small, dtype)},
        {"o": np.array(out)},
    )


def gather(rng: Generator) -> Case:
    rank, dtype = int(rng.integers(1, 4)), one_of(rng, *TYPES)
    shape = shape_of(rng, rank, total(rng, 1 << 20))
    axis = 0 if rng.random() < 0.5 else int(rng.integers(rank))
    what = one_of(rng, "Gather", "Gather", "GatherElements", "GatherND")
    kind = one_of(rng, np.int64, np.int64, np.int32) if what != "GatherND" else np.int64
    x = values(rng, shape, dtype)
    if what == "Gather":
        most = max(1, (1 << 21) // max(1, prod(shape) // shape[axis]))
        count = shape_of(rng, int(rng.integers(1, 3)), size(rng, min(most, 1 << 17)))
        indices = np.asarray(rng.integers(0, shape[axis], count), kind)
        nodes = [node("Gather", ["X", "I"], axis=axis)]
    elif what == "GatherElements":
        count = tuple(size(rng, 2 * n) if k == axis else size(rng, n) for k, n in enumerate(shape))
        indices = np.asarray(rng.integers(0, shape[axis], count), kind)
        nodes = [node("GatherElements", ["X", "I"], axis=axis)]
    else:
        depth = int(rng.integers(1, rank + 1))
        rows = size(rng, min(1 << 15, max(1, (1 << 21) // max(1, prod(shape[depth:])))))
        indices = np.stack([rng.integers(0, n, rows) for n in shape[:depth]], -1)
        nodes = [node("GatherND", ["X", "I"])]
    name = f"{what} {x.dtype.name} axis {axis} {by(shape)} at {indices.dtype.name} {by(indices.shape)}"
    if rng.random() < 0.25:
        return case_of(name + " constant", "gather", nodes, {"X": x}, {"I": indices})
    return case_of(name, "gather", nodes, {"X": x, "I": indices})


def scatter(rng: Generator) -> Case:
    rank = int(rng.integers(1, 4))
    shape = shape_of(rng, rank, total(rng, 1 << 18))
    x = values(rng, shape)
    attributes: Values = {}
    if rng.random() < 0.5:
        depth = int(rng.integers(1, rank + 1))
        rows = min(size(rng, 1 << 12), prod(shape[:depth]))
        places = rng.permutation(prod(shape[:depth]))[:rows]
        indices = np.stack(np.unravel_index(places, shape[:depth]), -1).astype(np.int64)
        updates = values(rng, (rows, *shape[depth:]))
        what = "ScatterND"
    else:
        axis = int(rng.integers(rank))
        count = tuple(size(rng, n) for n in shape)
        indices = np.asarray(rng.integers(0, shape[axis], count)).astype(np.int64)
        if count[axis] <= shape[axis]:  # every element once
            order = rng.random((*count[:axis], shape[axis], *count[axis + 1 :])).argsort(axis)
            indices = np.ascontiguousarray(order.take(range(count[axis]), axis)).astype(np.int64)
        updates, what, attributes = values(rng, count), "ScatterElements", {"axis": axis}
    return case_of(
        f"{what} {by(shape)} at {by(indices.shape)}",
        "gather",
        [node(what, ["X", "I", "U"], **attributes)],
        {"X": x, "I": indices, "U": updates},
    )


def one_hot(rng: Generator) -> Case:
    shape, depth = shape_of(rng, int(rng.integers(1, 3)), size(rng, 1 << 12)), size(rng, 1000)
    axis = one_of(rng, -1, 0)
    return case_of(
        f"OneHot {depth} axis {axis} {by(shape)}",
        "gather",
        [node("OneHot", ["X", "d", "v"], axis=axis)],
        {"X": rng.integers(0, depth, shape)},
        {"d": np.array(depth), "v": np.array([0, 1], np.float32)},
    )


def blocks(rng: Generator) -> Case:
    block = one_of(rng, 2, 2, 3, 4)
    n, c, h, w = image(rng, 2, total(rng, 1 << 20))
    if rng.random() < 0.5:
        c = max(1, c // block**2) * block**2
        mode = one_of(rng, "DCR", "CRD")
        return case_of(
            f"DepthToSpace {block} {mode} {n}x{c}x{h}x{w}",
            "movement",
            [node("DepthToSpace", blocksize=block, mode=mode)],
            {"X": values(rng, (n, c, h, w))},
        )
    h, w = max(1, h // block) * block, max(1, w // block) * block
    return case_of(
        f"SpaceToDepth {block} {n}x{c}x{h}x{w}",
        "movement",
        [node("SpaceToDepth", blocksize=block)],
        {"X": values(rng, (n, c, h, w))},
    )
