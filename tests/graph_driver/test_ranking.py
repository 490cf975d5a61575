"""The rank correlation of the benchmark of candidates, and that every candidate of its shapes is among them."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from benchmarks.cliffs import Shape, convolution
from benchmarks.ranking import SETS, Row, measured, spearman


def test_spearman_of_orders() -> None:
    assert spearman([1, 2, 3], [10, 20, 30]) == 1.0 and spearman([1, 2, 3], [3, 2, 1]) == -1.0
    for order in itertools.permutations(range(5)):  # 1 - 6 sum d^2 / (n (n^2 - 1)) where no two are equal
        distance = sum((a - b) ** 2 for a, b in enumerate(order))
        assert spearman(range(5), order) == pytest.approx(1 - 6 * distance / (5 * 24))


def test_spearman_of_equal_numbers_is_the_correlation_of_mean_ranks() -> None:
    rng = random.Random(5)
    a, b = ([rng.randrange(4) for _ in range(30)] for _ in range(2))
    ranks = [[sum(y < x for y in v) + (sum(y == x for y in v) + 1) / 2 for x in v] for v in (a, b)]
    assert spearman(a, b) == pytest.approx(float(np.corrcoef(ranks[0], ranks[1])[0, 1]))
    assert spearman([1, 1], [2, 3]) == 1.0  # nothing is ordered, so nothing is wrong


def test_loss_is_against_the_fastest() -> None:
    row = Row("x", ("a", "b"), (1.0, 2.0), (0.3, 0.2))
    assert row.loss == pytest.approx(1.5) and row.correlation == -1.0


def test_the_sets_are_large_and_apart() -> None:
    both = [{*map(str, products), *(s.name for s in shapes)} for products, shapes in SETS.values()]
    assert all(len(s) >= 30 for s in both) and not both[0] & both[1]


@pytest.mark.long
def test_every_implementation_is_measured() -> None:
    row = measured(convolution(Shape(8, 8, (12, 12), (3,))))
    assert sorted(row.names) == ["contraction", "host", "loops", "winograd2", "winograd4"]
    assert all(t > 0 for t in (*row.predicted, *row.measured))
