"""Random programs: the enumerated Scop equals plain Python, with symbolic and with known sizes."""

import warnings

import numpy as np
import pytest
from brute_force import run
from random_source import load

from polyc.frontend_dsl import DslError


def compare(seed: int) -> str:
    """`equal`, or `refused` for a program that may use a local before it is assigned."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(3, 6)), int(rng.integers(3, 5))
    a, b, indices = rng.standard_normal(n), rng.standard_normal((n, m)), rng.integers(0, n, n)
    op = load(seed)
    after = a.copy()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # overflow: both sides compute the same infinities
            expected = op.python(after, b, indices)
    except NameError:
        expected = None
    for given in ({}, {"A": a.shape, "B": b.shape, "I": indices.shape}):
        try:
            scop = op.scop(**given)
        except DslError as error:
            assert "before it is assigned" in error.reason or "unknown name" in error.reason
            return "refused"
        assert expected is not None, "Python finds a name without a value"
        got = run(scop, a, b, indices, sizes={} if given else {"N": n, "M": m})
        np.testing.assert_array_equal(got[scop.results[0]], expected)
        np.testing.assert_array_equal(got["A"], after)
    return "equal"


def test_random_programs() -> None:
    outcomes = [compare(seed) for seed in range(20)]
    assert outcomes.count("equal") >= 10


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_many_random_programs(block: int) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        compare(seed)
