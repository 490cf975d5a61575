"""Shapes over the same memory, against NumPy broadcasting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polyc.graph_driver.fusion.reshaping import blocks, operand_shape
from polyc.graph_driver.graph.symbols import Symbols


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((1, 8, 5, 6), (1, 8, 30), [((0,), (0,)), ((1,), (1,)), ((2, 3), (2,))]),
        ((2, 12, 5), (2, 3, 4, 5), [((0,), (0,)), ((1,), (1, 2)), ((2,), (3,))]),
        ((6,), (2, 3), [((0,), (0, 1))]),
        ((4, 6), (6, 4), [((0, 1), (0, 1))]),
        ((4,), (5,), None),
        ((2, 3), (2, 3, 1), [((0,), (0,)), ((1,), (1,)), ((), (2,))]),
    ],
)
def test_blocks(old: tuple[int, ...], new: tuple[int, ...], expected: object) -> None:
    assert blocks(old, new) == expected


def random_shapes(seed: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A shape, an operand broadcasting to it, and another shape of the same memory."""
    rng = np.random.default_rng(seed)
    old = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 6], rng.integers(1, 5)))
    operand = tuple(n if rng.random() < 0.6 else 1 for n in old)[int(rng.integers(0, len(old) + 1)) :]
    new: list[int] = []
    for n in old:  # merge with the one before, split, or keep
        choice = rng.random()
        if new and choice < 0.35:
            new[-1] *= n
        elif n % 2 == 0 and choice < 0.6:
            new += [n // 2, 2]
        else:
            new.append(n)
    return old, operand, tuple(new)


@pytest.mark.parametrize("seed", range(200))
def test_a_stored_operand_broadcasts_to_the_same_values(seed: int) -> None:
    old, operand, new = random_shapes(seed)
    values = np.random.default_rng(seed).standard_normal(operand)
    stored = operand_shape(operand, old, new)
    full = np.broadcast_to(values, old)
    if stored is None:  # refused: then really none of the possible shapes does it
        for shape in itertools.product(*({1, n} for n in new)):
            if int(np.prod(shape)) == values.size:
                assert not np.array_equal(np.broadcast_to(values.reshape(shape), new), full.reshape(new))
        return
    assert int(np.prod(stored)) == values.size
    np.testing.assert_array_equal(np.broadcast_to(values.reshape(stored), new), full.reshape(new))


def test_most_operands_can_be_stored() -> None:
    found = [operand_shape(o, s, n) is not None for s, o, n in map(random_shapes, range(200))]
    assert sum(found) > 120


def test_ones_match_beside_sizes_that_are_symbols() -> None:
    n = Symbols().new("n", 1, None, 4)
    assert operand_shape((n, 8, 1, 1), (n, 8, 1, 1), (n, 8, 1)) == (n, 8, 1)
    assert operand_shape((8, 1, 1), (n, 8, 1, 1), (n, 8)) == (1, 8)
    assert operand_shape((n, 8), (n, 8), (n, 8, 1)) == (n, 8, 1)
    assert operand_shape((n, 8), (n, 8), (n, 9)) is None
