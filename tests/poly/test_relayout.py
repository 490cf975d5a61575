"""Layouts as access maps: data and subscripts move together."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyc.poly.binding import evaluate
from polyc.poly.expr import Var
from polyc.poly.rewriting.relayout import laid_out_index
from polyc.poly.rewriting.stored import lay_out


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=3), st.data())
def test_every_element_is_where_the_subscripts_say(shape: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(shape) - 1))
    block = data.draw(st.sampled_from([2, 3, 4]))
    rest = data.draw(st.permutations([d for d in range(len(shape)) if d != cut]))
    layout = ((cut, block, 0), *((d, 1, 0) for d in rest), (cut, 1, block))
    source = np.random.default_rng(len(shape)).standard_normal(shape)
    stored = lay_out(source, layout)
    names = [f"x{d}" for d in range(len(shape))]
    index = laid_out_index(tuple(Var(n) for n in names), layout)
    seen = set()
    for point in itertools.product(*(range(n) for n in shape)):
        there = tuple(evaluate(e, dict(zip(names, point))) for e in index)
        assert stored[there] == source[point]
        seen.add(there)
    assert len(seen) == source.size
    padding = [stored[p] for p in itertools.product(*(range(n) for n in stored.shape)) if p not in seen]
    assert not np.any(padding)


def test_a_plain_permutation_is_a_transpose() -> None:
    source = np.random.default_rng(0).standard_normal((3, 5))
    assert np.array_equal(lay_out(source, ((1, 1, 0), (0, 1, 0))), source.T)


def test_an_unknown_layout_dimension_is_refused() -> None:
    with pytest.raises(IndexError):
        lay_out(np.ones((2, 2)), ((2, 1, 0),))
