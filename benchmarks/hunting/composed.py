"""Random operators with products inside: einsum, recurrent layers, attention."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.cases import Case
from benchmarks.hunting.arrays import by, case_of, node, one_of, shape_of, size, total, values
from benchmarks.hunting.draws import MOST_BYTES

EINSUMS = (
    "bhqd,bhkd->bhqk",
    "bhqk,bhkd->bhqd",
    "bqhd,bkhd->bhqk",
    "ij,jk->ik",
    "ij,ij->i",
    "ij,ij->",
    "i,j->ij",
    "bij,bjk->bik",
    "bnc,mc->bnm",
    "abc,cd->abd",
    "abc,bcd->ad",
    "ij->ji",
    "ii->i",
    "ij->j",
    "abcd,ad->abc",
    "bchw,bc->bhw",
    "nctv,vw->nctw",
    "bi,bj->bij",
    "bij,bij->b",
    "hwc,hkc->hwk",
)


def einsum(rng: Generator) -> Case | None:
    equation = one_of(rng, *EINSUMS)
    letters = sorted(set(equation) - set(",->"))
    sizes = dict(zip(letters, shape_of(rng, len(letters), total(rng, 1 << 21)), strict=True))
    operands = equation.split("->")[0].split(",")
    if max(4 * prod(sizes[c] for c in o) for o in (*operands, equation.split("->")[1])) > MOST_BYTES:
        return None
    inputs = {f"X{k}": values(rng, [sizes[c] for c in o]) for k, o in enumerate(operands)}
    return case_of(
        f"Einsum {equation} {' '.join(by(v.shape) for v in inputs.values())}",
        "einsum",
        [node("Einsum", list(inputs), equation=equation)],
        inputs,
    )


def recurrent(rng: Generator) -> Case:
    what, gates = one_of(rng, ("LSTM", 4), ("LSTM", 4), ("GRU", 3), ("RNN", 1))
    steps, batch = int(one_of(rng, 1, 3, 10, 25, 64)), int(one_of(rng, 1, 1, 2, 3, 4, 8))
    inner, hidden = int(one_of(rng, 7, 16, 40, 64, 128, 200)), int(one_of(rng, 5, 16, 31, 64, 100, 128, 256))
    direction = one_of(rng, "forward", "reverse", "bidirectional")
    d = 2 if direction == "bidirectional" else 1
    constants = {
        "W": values(rng, (d, gates * hidden, inner)) / np.float32(inner**0.5),
        "R": values(rng, (d, gates * hidden, hidden)) / np.float32(hidden**0.5),
        "B": values(rng, (d, 2 * gates * hidden)),
    }
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if what == "GRU":
        attributes["linear_before_reset"] = int(rng.integers(2))
    name = f"{what} {direction} {steps}x{batch}x{inner} hidden {hidden}"
    return case_of(
        name,
        "recurrent",
        [node(what, ["X", "W", "R", "B"], **attributes)],
        {"X": values(rng, (steps, batch, inner))},
        constants,
        2.0 * d * gates * hidden * (inner + hidden) / inner,
    )


def attention(rng: Generator) -> Case:
    heads, width = int(one_of(rng, 1, 2, 3, 4, 8, 12)), int(one_of(rng, 8, 16, 17, 32, 63, 64, 80))
    queries, keys = size(rng, 300), size(rng, 300)
    if rng.random() < 0.6:
        keys = queries
    nodes = [
        node("MatMul", ["Q", "K"], ["s"]),
        node("Mul", ["s", "scale"], ["t"]),
        node("Softmax", ["t"], ["p"], axis=-1),
        node("MatMul", ["p", "V"]),
    ]
    inputs = {
        "Q": values(rng, (heads, queries, width)),
        "K": values(rng, (heads, width, keys)),
        "V": values(rng, (heads, keys, width)),
    }
    constants = {"scale": np.array(width**-0.5, np.float32)}
    if rng.random() < 0.4:
        nodes[2:3] = [node("Add", ["t", "M"], ["u"]), node("Softmax", ["u"], ["p"], axis=-1)]
        inputs["M"] = values(rng, (queries, keys))
    return case_of(
        f"attention {heads}x{queries}x{keys}x{width}{' mask' if 'M' in inputs else ''}",
        "attention",
        nodes,
        inputs,
        constants,
    )
