"""Loops cut where subscripts wrap round: periodic, clamped and mirrored neighbours, any offset and size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyc import empty, f64, grid, max, min, op
from polyc.emit import targets
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic, marked

RNG = np.random.default_rng(5)


def cuts(schedule: Schedule) -> list[int]:
    return [s.args["at"] for s in schedule.trace if s.name == "index_split"]


@pytest.mark.parametrize("size, before, behind", [(64, 1, 1), (61, 3, 2), (97, 1, 0), (50, 0, 49)])
def test_periodic_rows(size: int, before: int, behind: int) -> None:
    @op
    def periodic(u: f64[5, size]) -> f64[5, size]:
        out = empty((5, size), f64)
        for i, j in grid(5, size):
            out[i, j] = u[i, (j + behind) % size] - 2.0 * u[(i + 1) % 5, j] + u[i, (j + size - before) % size]
        return out

    schedule = automatic(periodic.scop(), targets.get("x86-64-v3"))
    assert cuts(schedule) == sorted({p for p in (before, size - behind) if 0 < p < size})
    u = RNG.random((5, size))
    expected = np.roll(u, -behind, 1) - 2.0 * np.roll(u, -1, 0) + np.roll(u, before, 1)
    np.testing.assert_allclose(periodic.compile(threads=1)(u), expected)


def test_edges_that_count_on() -> None:
    @op
    def clamped(u: f64[7, 83]) -> f64[7, 83]:
        out = empty((7, 83), f64)
        for i, j in grid(7, 83):
            out[i, j] = u[i, max(j - 2, 0)] + u[i, min(j + 1, 82)] + u[max(i - 1, 0), j]
        return out

    schedule = automatic(clamped.scop(), targets.get("x86-64-v3"))
    assert cuts(schedule) == [2, 81]
    assert len(marked(schedule, "vector")) == 1
    u = RNG.random((7, 83))
    padded = np.pad(u, ((1, 0), (2, 1)), "edge")
    np.testing.assert_allclose(clamped.compile(threads=1)(u), padded[1:, :-3] + padded[1:, 3:] + padded[:-1, 2:-1])


@pytest.mark.parametrize("size", [90, 61])
def test_windows_over_edges(size: int) -> None:
    """Where the cut is depends on the window's loop: behind it lies what no iteration of that loop changes."""

    @op
    def windows(u: f64[5, size], g: f64[7]) -> f64[2, 5, size]:
        out = empty((2, 5, size), f64)
        for i, j in grid(5, size):
            kept, round_ = 0.0, 0.0
            for k in range(7):
                kept += g[k] * u[max(i - k, 0), min(max(j + k - 3, 0), size - 1)]
                round_ += g[k] * u[i, (j - k + size) % size]
            out[0, i, j] = kept
            out[1, i, j] = round_
        return out

    schedule = automatic(windows.scop(), targets.get("x86-64-v3"))
    assert cuts(schedule) == [3, 6, size - 4] and marked(schedule, "vector")
    u, g = RNG.random((5, size)), RNG.random(7)
    np.testing.assert_allclose(windows.compile(threads=1)(u, g), windows.python(u, g))


def test_backwards_and_by_blocks() -> None:
    @op
    def turned(u: f64[90], w: f64[3]) -> f64[90]:
        out = empty(90, f64)
        for j in range(90):
            out[j] = u[(120 - j) % 90] * w[j // 40]
        return out

    schedule = automatic(turned.scop(), targets.get("x86-64-v3"))
    assert cuts(schedule) == [31, 40, 80]
    u, w = RNG.random(90), RNG.random(3)
    j = np.arange(90)
    np.testing.assert_allclose(turned.compile(threads=1)(u, w), u[(120 - j) % 90] * w[j // 40])


def test_no_cut_without_gain() -> None:
    """Many turns, loops of few vectors, and rows that wrap round while lanes go along them."""

    def program(rows: int, size: int, step: int) -> Any:
        @op
        def rolled(u: f64[rows, size]) -> f64[rows, size]:
            out = empty((rows, size), f64)
            for i, j in grid(rows, size):
                out[i, j] = u[(i + 3) % rows, j * step % size]
            return out

        return rolled

    for rows, size, step in ((40, 64, 7), (6, 12, 1), (40, 64, 1)):
        rolled = program(rows, size, step)
        assert not cuts(automatic(rolled.scop(), targets.get("x86-64-v3"))), (rows, size, step)
        u = RNG.random((rows, size))
        expected = np.roll(u, -3, 0)[:, np.arange(size) * step % size]
        np.testing.assert_allclose(rolled.compile(threads=1)(u), expected)
