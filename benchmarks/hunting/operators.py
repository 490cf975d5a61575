"""Random cases of the operators that are neither convolutions nor matrix products, each from a generator.

Operator, type, attributes and sizes (odd and round ones, from one element to some millions) all come from there, so
that the same generator draws the same case.
"""

from __future__ import annotations

from random import Random

import numpy as np

from benchmarks.cases import Case
from benchmarks.hunting.arrays import Drawn, one_of
from benchmarks.hunting.composed import attention, einsum, recurrent
from benchmarks.hunting.draws import Draw
from benchmarks.hunting.movement import blocks, concat, gather, one_hot, pad, repeat, scatter, slices, split, transpose
from benchmarks.hunting.pointwise import binary, chain, logic, positive, unary, where
from benchmarks.hunting.rows import image_norm, layer_norm, order, reduce, rms_norm, softmax
from benchmarks.hunting.windows import pool, resize

DRAWS: dict[str, tuple[Drawn, ...]] = {
    "unary": (unary, unary, positive),
    "broadcast": (binary, binary, where),
    "chain": (chain,),
    "logic": (logic,),
    "softmax": (softmax,),
    "norm": (layer_norm, image_norm, image_norm, rms_norm),
    "reduce": (reduce,),
    "order": (order,),
    "pool": (pool,),
    "resize": (resize,),
    "transpose": (transpose,),
    "movement": (concat, split, slices, pad, repeat, blocks),
    "gather": (gather, gather, scatter, one_hot),
    "einsum": (einsum,),
    "recurrent": (recurrent,),
    "attention": (attention,),
}


def _kind(draws: tuple[Drawn, ...]) -> Draw:
    """One of the draws, by a generator of arrays that the given one seeds."""

    def drawn(rng: Random) -> Case | None:
        arrays = np.random.default_rng(rng.getrandbits(64))
        found: Case | None = one_of(arrays, *draws)(arrays)
        return found

    return drawn


KINDS: dict[str, Draw] = {name: _kind(draws) for name, draws in DRAWS.items()}
