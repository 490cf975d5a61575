"""Lazy arrays: equal to NumPy, one compilation for calls that are repeated, and what NumPy computes is counted."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import polyc


def layer(x: Any, w: Any, b: Any) -> Any:
    """A product, a Relu, a normalisation, and an index."""
    h = np.maximum(x @ w + b, 0)
    z = h - h.mean(axis=1, keepdims=True)
    z = z / np.sqrt((z**2).mean(axis=1, keepdims=True) + 1e-3)
    return np.exp(z[:, :3]).T.reshape(-1)


def arrays(seed: int, rows: int = 4) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype("f") for s in ((rows, 6), (6, 5), (5,))]


def test_repeated_calls_are_compiled_once() -> None:
    begin = polyc.lazy.compilations
    for seed, rows in enumerate((4, 4, 4, 7, 4, 7)):
        given = arrays(seed, rows)
        made = layer(*map(polyc.lazy, given))
        assert isinstance(made, polyc.LazyArray)
        np.testing.assert_allclose(np.asarray(made), layer(*given), rtol=1e-4, atol=1e-5)
    assert polyc.lazy.compilations - begin == 2  # one for each number of rows


def test_what_the_program_still_has_is_computed_with_it() -> None:
    x = polyc.lazy(np.arange(6.0))
    middle = x * 2.0
    begin = polyc.lazy.compilations
    assert float((middle + 1.0).sum()) == 36.0
    assert middle.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert polyc.lazy.compilations - begin == 1


@pytest.mark.parametrize("seed", range(12))
def test_random_chains(seed: int) -> None:
    """Random calls on random arrays, read at random moments."""
    r = random.Random(seed)
    rng = np.random.default_rng(seed)
    plain: list[Any] = [rng.standard_normal((3, 4)).astype(r.choice("fd")) for _ in range(2)]
    mine: list[Any] = [polyc.lazy(a) for a in plain]
    for _ in range(r.randint(3, 8)):
        k, m = r.randrange(len(plain)), r.randrange(len(plain))
        step = r.choice([
            lambda x, y: x + y, lambda x, y: x * 0.5 - y, lambda x, y: np.where(x > y, x, 1.0), lambda x, y: np.tanh(x),
            lambda x, y: np.concatenate([x, y])[1:4], lambda x, y: x - x.max(axis=0), lambda x, y: x[::-1],
            lambda x, y: np.abs(x.astype("d")), lambda x, y: np.sort(x, axis=1), lambda x, y: (x.T @ y / 8).T[:3],
        ])  # fmt: skip
        a, b = step(plain[k], plain[m]), step(mine[k], mine[m])
        if a.shape != (3, 4):
            assert b.shape == a.shape
            continue
        plain.append(a)
        mine.append(b)
        if r.random() < 0.3:
            float(mine[-1][0, 0])
    for a, b in zip(plain, mine, strict=True):
        assert b.dtype == a.dtype
        np.testing.assert_allclose(np.asarray(b), a, rtol=2e-5, atol=2e-5)


def test_what_numpy_computes_is_counted() -> None:
    x = polyc.lazy(np.array([3.0, 1.0, 2.0, 0.0]))
    before = polyc.lazy.in_numpy["np.split"]
    first, second = np.split(x + 1.0, 2)
    assert polyc.lazy.in_numpy["np.split"] == before + 1
    assert (first - second).tolist() == [1.0, 1.0]
    assert bool((x > 2.5).any()) and int(x[0]) == 3 and len(x) == 4


def test_in_place_is_refused_and_later_changes_are_not_seen() -> None:
    given = np.ones(3)
    x = polyc.lazy(given)
    y = x + given
    given[:] = 7.0
    assert y.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(polyc.ArgumentError, match="would update a lazy array in place: write x = x"):
        x += 1.0
    with pytest.raises(polyc.ArgumentError, match="cannot be set"):
        x[0] = 1.0
    out = np.asarray(y)
    out[0] = 9.0
    assert y.tolist() == [2.0, 2.0, 2.0]  # what was read is a copy


def test_a_long_chain_is_no_recursion() -> None:
    x = polyc.lazy(np.zeros(2))
    for k in range(1500):
        x = x + 1.0
        if k % 50 == 49:
            x.tolist()
    assert x.tolist() == [1500.0, 1500.0]
