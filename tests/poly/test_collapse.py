"""Merging neighbouring loops: the same memory, the same values, and no merge where an access needs the loops apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import polyc  # noqa: F401  (wires the packages)
from polyc.emit.compile import compile_kernel
from polyc.frontend_dsl.library.elementwise import make_binary, make_unary
from polyc.frontend_dsl.library.movement import make_transpose
from polyc.frontend_dsl.library.reduction import make_reduce
from polyc.frontend_dsl.library.scalar import add, negative
from polyc.poly.dtypes import f32
from polyc.poly.expr import Const
from polyc.poly.rewriting.collapse import collapse
from polyc.poly.scop import Scop
from polyc.poly.verify import verify

rng = np.random.default_rng(5)


def shape(scop: Scop, array: str) -> tuple[int, ...]:
    return tuple(int(e.value) for e in scop.arrays[array].shape if isinstance(e, Const))


def run(scop: Scop, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The result, flat; inputs are viewed as the Scop declares them."""
    verify(scop)
    found = compile_kernel(scop, scop.tree)(
        *[x.reshape(shape(scop, n)) for n, x in zip(scop.args, inputs, strict=True)]
    )
    return np.asarray(found).reshape(-1)


def merged(made: Any) -> Scop:
    """The collapsed Scop, checked against the one that it is made of."""
    scop = made.scop()
    inputs = [rng.standard_normal(shape(scop, n)).astype(np.float32) for n in scop.args]
    out = collapse(scop)
    np.testing.assert_array_equal(run(out, inputs), run(scop, inputs))
    return out


def test_all_of_one_shape_becomes_one_loop() -> None:
    out = merged(make_unary(negative, f32, f32, (5, 3, 7)))
    assert shape(out, "X") == (105,)


@pytest.mark.parametrize(
    ("second", "left"),
    [
        ((4, 3, 5), (2, 60)),
        ((5,), (24, 5)),
        ((2, 1, 1, 1), (2, 60)),
        ((4, 1, 5), (2, 4, 3, 5)),
        ((2, 4, 1, 1), (8, 15)),
    ],
)
def test_broadcasting_keeps_what_is_not_shared(second: tuple[int, ...], left: tuple[int, ...]) -> None:
    out = merged(make_binary(add, (f32, f32), f32, ((2, 4, 3, 5), second), (2, 4, 3, 5)))
    assert shape(out, "A") == left


@pytest.mark.parametrize("kind", ["sum", "mean", "max"])
@pytest.mark.parametrize("axes", [(1, 2), (0, 1), (2,), (0, 2), (1,)])
def test_reductions(kind: str, axes: tuple[int, ...]) -> None:
    scop = make_reduce(kind, f32, (3, 4, 5), axes, True).scop()
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(collapse(scop), [x]), run(scop, [x]))


@pytest.mark.parametrize(
    ("perm", "left"), [((1, 0, 2), 3), ((1, 2, 0), 2), ((2, 0, 1), 2), ((2, 1, 0), 3), ((0, 1, 2), 1)]
)
def test_transposes(perm: tuple[int, ...], left: int) -> None:
    out = merged(make_transpose(f32, (3, 4, 5), perm))
    assert len(shape(out, out.args[0])) == left
