"""Bytes of messages as formulas of sizes and ranks: element by element, and at other sizes than they were made at."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from polyc import parallelise
from polyc.graph_driver.parallel.layouts import WHOLE, Layout, Partial, Split, balanced, box
from polyc.graph_driver.parallel.moves import move
from polyc.graph_driver.parallel.parallelise import Parallel
from polyc.graph_driver.parallel.volumes import Volume
from tests.parallel.on_ranks import along
from tests.parallel.rank_models import Builder, mlp


def lacking(have: Layout, want: Layout, shape: Sequence[int], ranks: int) -> int:
    """Elements that ranks want and have not, one by one; of a partial sum all that others have of a rank's part, and,
    where all of it is wanted, the parts that others have made."""

    def mask(layout: Layout, rank: int) -> np.ndarray:
        found = np.zeros(shape, bool)
        found[tuple(slice(a, b) for a, b in box(layout, shape, rank))] = True
        return found

    if isinstance(have, Partial):
        made = balanced(0, int(np.prod(shape)), ranks) if want == WHOLE else want
        flat = [int(np.prod(shape))] if want == WHOLE else shape
        sums = sum((ranks - 1) * int(np.prod([b - a for a, b in box(made, flat, r)])) for r in range(ranks))
        return 2 * sums if want == WHOLE else sums
    return sum(int((mask(want, r) & ~mask(have, r)).sum()) for r in range(ranks))


def halo(layout: Split, extent: int, below: int, above: int) -> Split:
    return Split(layout.axis, tuple((max(0, a - below), min(extent, b + above)) for a, b in layout.bounds))


def test_formulas_are_what_is_counted_one_by_one() -> None:
    rng, kinds = random.Random(0), set()
    for _ in range(300):
        ranks = rng.randint(2, 5)
        shape = tuple(rng.randint(ranks, 13) for _ in range(rng.randint(1, 3)))
        first, second = (rng.randrange(len(shape)) for _ in range(2))
        plain, other = balanced(first, shape[first], ranks), balanced(second, shape[second], ranks)
        wide = halo(other, shape[second], rng.randint(-1, 3), rng.randint(-1, 3))
        uneven = sorted(rng.sample(range(1, shape[first]), ranks - 1))
        cut = Split(first, tuple(zip((0, *uneven), (*uneven, shape[first]), strict=True)))
        have = rng.choice([plain, cut, Partial("sum")])
        want = rng.choice([WHOLE, plain, other] if isinstance(have, Partial) else [WHOLE, plain, other, wide, cut])
        found = move(have, want, shape, 4, ranks)
        if found is None or any(a >= b for r in range(ranks) for a, b in box(want, shape, r)):
            continue
        counted = 4 * lacking(have, want, shape, ranks)
        assert found.volume(ranks, shape) == found.total == counted, (have, want, shape, ranks)
        kinds.add((found.kind, found.volume.others, bool(found.volume.rows), found.volume.shared))
    assert len(kinds) == 7, kinds  # no move, three collectives, halos alike and not, another axis with equal parts


def volumes(plan: Parallel) -> list[tuple[str, Volume, tuple[int, ...], int]]:
    """The messages of a plan: tensor, formula, shape, bytes."""
    moves = [s for some in plan.sendings for s in some if s.move.kind not in ("", "Slice")]
    return [(s.tensor, s.move.volume, plan.costs.nodes.shape(s.tensor), s.move.total) for s in moves]


def convolved(ranks: int, batch: int, size: int) -> Parallel:
    """Two convolutions over parts of the rows of images."""
    b = Builder("convolved")
    x = b.add("Conv", b.input("x", batch, 2, size, size), b.weight(3, 2, 3, 3), pads=[1] * 4)
    x = b.add("Conv", b.add("Relu", x), b.weight(4, 3, 5, 5), pads=[2] * 4)
    return parallelise(b.model(b.add("Conv", x, b.weight(2, 4, 3, 3), pads=[1] * 4)), ranks, only=along(2))


def test_a_formula_holds_for_other_sizes_and_other_ranks() -> None:
    small, large = volumes(convolved(2, 1, 12)), volumes(convolved(4, 3, 24))
    assert len(small) == 3
    for (name, volume, shape, total), (again, other, wider, more) in zip(small, large, strict=True):
        assert name == again and volume == other
        assert volume(2, shape) == total and volume(4, wider) == more > total
    assert [str(volume) for _, volume, *_ in small[:2]] == [
        "(p - 1) * 4 * n0 * n1 * n3 * 4",
        "(p - 1) * 2 * n0 * n1 * n3 * 4",
    ]


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_explanation_has_them(ranks: int) -> None:
    plan = parallelise(mlp()[0], ranks, "100 GB/s, 1 ns")
    total = (ranks - 1) * 64 * 4
    assert f"(p - 1) * n0 * n1 * 4 with n0 = 1, n1 = 64 = {total:,} bytes" in plan.explain()
    assert plan.sent() == sum(plan.sent(r) for r in range(ranks))
