"""Programs of products, chains and convolutions, step by step: each prefix is legal, and some are run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import test_blocks_of_pairs as pairs
from back_ends import interpret

from polyc.emit.gpu.targets import get as get_gpu
from polyc.emit.targets import get
from polyc.poly.binding import evaluate
from polyc.poly.scop import Scop
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
import test_attention as chains
from library_cases import CASES

RUNS = 3  # prefixes that are run

PAIR = pairs.Case(6, 5, (8, 9), 4)


def attention(h: int, n: int, m: int, d: int, e: int) -> Scop:
    scop: Scop = chains.attention(h, n, m, d, e).scop()
    return scop


PROGRAMS: dict[str, tuple[str, Callable[[], Scop]]] = {
    "attention": ("x86-64-v3", lambda: attention(2, 40, 24, 8, 16)),
    "pair": ("x86-64-v3", PAIR.scop),
    "gpu product": ("sm_80", lambda: CASES["matmul"](37, 33, 41).scop()),
    "gpu attention": ("sm_80", lambda: attention(2, 20, 24, 8, 16)),
    "gpu convolution": ("opencl", lambda: CASES["conv"](8, 9, 10).scop()),
}


def arguments(scop: Scop) -> list[np.ndarray]:
    rng = np.random.default_rng()
    shapes = ([evaluate(e, {}) for e in scop.arrays[name].shape] for name in scop.args)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_prefix_is_legal_and_some_are_run(name: str) -> None:
    target, make = PROGRAMS[name]
    scop = make()
    made = automatic(scop, get(target)) if target.startswith("x86") else automatic(scop, get_gpu(target))
    assert any(step.name == "promote" for step in made.trace), "\n".join(["the strategy did not take it", *made.notes])
    s = Schedule.start(scop)
    args = arguments(scop)
    (wanted,) = interpret(scop, s.tree, args)
    run = {round(k * (len(made.trace) - 1) / RUNS) for k in range(1, RUNS + 1)}
    for k, step in enumerate(made.trace):
        s = getattr(s, step.name)(**step.args)
        if k in run and s.scop is scop:
            (got,) = interpret(s.scop, s.tree, args)
            assert np.allclose(got, wanted, rtol=1e-4, atol=1e-5), step
    assert str(s.tree) == str(made.tree)
