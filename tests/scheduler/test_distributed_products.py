"""Products that are written out, `a * c - b * c` for `(a - b) * c`, are several products in the loops of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import op
from polyc.emit import targets
from polyc.scheduler.strategies.auto import automatic

TEXT = """
from polyc import *
N, M, D = dims("N M D")

@op(reassociate={reassociate})
def covariance(X: {kind}[N, D], m: {kind}[D], w: {kind}[N]) -> {kind}[D, D]:
    R = zeros((D, D), {kind})
    for i in range(N):
        for a in range(D):
            for b in range(D):
                {update}
    return R
"""
UPDATES = {
    "the first": "R[a, b] += X[i, a] * (X[i, b] - m[b]) - m[a] * (X[i, b] - m[b])",
    "the second": "R[a, b] += (X[i, a] - m[a]) * X[i, b] - (X[i, a] - m[a]) * m[b]",
    "in full": "R[a, b] = X[i, b] * X[i, a] - m[b] * X[i, a] + R[a, b]",
    "subtracted": "R[a, b] -= m[a] * X[i, b] - X[i, a] * X[i, b]",
    "with weights": "R[a, b] += w[i] * X[i, a] * X[i, b] + m[a] * w[i] * X[i, b]",
}
UNMOVED = "R[a, b] += X[i, a] * X[i, b] - m[a] * m[b]"


def made(update: str, kind: str = "f32", reassociate: bool = True) -> Any:
    """The operator."""
    return op.from_source(TEXT.format(update=update, kind=kind, reassociate=reassociate))


def tiles(f: Any) -> list[str]:
    """Its contractions."""
    done = automatic(f.scop(N=200, D=96), targets.get("x86-64-v3"))
    return [d.what for d in done.decisions if d.what.startswith("contraction") and "register tile" in d.what]


@pytest.mark.parametrize("name", UPDATES)
def test_products_get_tiles(name: str) -> None:
    assert len(tiles(made(UPDATES[name]))) == 2
    assert not tiles(made(UPDATES[name], reassociate=False))


def test_a_summand_that_the_sum_does_not_move_stays() -> None:
    assert not tiles(made(UNMOVED))


@pytest.mark.parametrize("kind", ["f32", "i32"])
@pytest.mark.parametrize("name", UPDATES)
def test_results(name: str, kind: str) -> None:
    f, rng = made(UPDATES[name], kind), np.random.default_rng()
    for n, d in ((37, 29), (64, 32)):
        values = [rng.integers(-9, 9, shape).astype("f4" if kind == "f32" else "i4") for shape in ((n, d), d, n)]
        expected = f.python(*values)
        for scop in (f.scop(N=n, D=d), f.scop()):
            schedule = automatic(scop, targets.host())
            for found in (
                interpret(schedule.scop, schedule.tree, values)[0],
                *(native(schedule.scop, schedule.tree, values, b)[0] for b in NATIVE),
            ):
                np.testing.assert_allclose(found, expected, rtol=1e-5)
