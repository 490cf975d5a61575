"""A product between nests that make its operand and read its result runs as one nest, block by block."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from polyc import empty, f32, grid, op
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.frontend_dsl.library.winograd import transformed_filters
from polyc.frontend_dsl.library.winograd_blocks import make_winograd_blocks
from polyc.graph_driver.choosing.winograd import Shape, rows_of_block
from polyc.poly.target import Target
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

HOST = targets.host()


def small_l2(machine: Target, kilobytes: int) -> Target:
    """The machine with so large an L2 cache: what leaves it is then small enough for a test."""
    return replace(machine, l2=kilobytes << 10)


def decisions(schedule: Schedule) -> list[str]:
    return [str(d) for d in schedule.decisions if d.stage == "product blocks"]


def one_nest(schedule: Schedule) -> bool:
    return any(
        d.stage == "product blocks" and "near_bytes" in d.figures and d.outcome == "done" for d in schedule.decisions
    )


@dataclass(frozen=True)
class Image:
    """A 3x3 convolution of stride 1; `pads` above, to the left, below, to the right."""

    batch: int
    channels: tuple[int, int]
    size: tuple[int, int]
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)

    @property
    def out(self) -> tuple[int, int]:
        top, left, bottom, right = self.pads
        return self.size[0] + top + bottom - 2, self.size[1] + left + right - 2

    def operator(self, m: int, rows: int) -> object:
        return make_winograd_blocks(f32, self.batch, self.channels, self.size, self.pads[:2], self.out, m, rows)

    def data(self, m: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Random arguments, and the result in f64."""
        rng = np.random.default_rng()
        (c, o), (top, left, bottom, right) = self.channels, self.pads
        x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((self.batch, c, *self.size), (o, c, 3, 3), (o,)))
        wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
        high, across = self.out
        taps = (
            np.einsum("oc,nchw->nohw", w[:, :, i, j], wide[:, :, i : i + high, j : j + across])
            for i in range(3)
            for j in range(3)
        )
        return [x, np.ascontiguousarray(transformed_filters(w, m)), b], sum(taps) + b[:, None, None]


CASES = [
    (Image(1, (5, 7), (9, 11)), 4, 1),
    (Image(2, (16, 3), (13, 18), (0, 1, 2, 1)), 4, 2),
    (Image(1, (17, 33), (21, 22), (0, 0, 0, 0)), 2, 3),
    (Image(1, (8, 16), (19, 64), (2, 2, 2, 2)), 4, 2),
]


EACH = [
    pytest.param(*case, threads, marks=[pytest.mark.long] if k % 2 == threads % 2 else [])
    for k, case in enumerate(CASES)
    for threads in (1, 2)
]


@pytest.mark.parametrize(("image", "m", "rows", "threads"), EACH)
def test_winograds_blocks(image: Image, m: int, rows: int, threads: int) -> None:
    """One nest or several, the result is the definition's; as one with a cache that holds a block and not all."""
    scop, (given, expected) = image.operator(m, rows).scop(), image.data(m)
    for kilobytes in (24, 96, 384):
        schedule = automatic(scop, small_l2(HOST, kilobytes), threads)
        if one_nest(schedule):
            break
    else:
        pytest.fail(str(decisions(schedule)))
    for tried in (schedule, automatic(scop, small_l2(HOST, 1), threads)):
        got = compile_kernel(tried.scop, tried.tree, threads=threads)(*given)
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max() * (10 if m == 4 else 1)


def test_the_definition_in_python() -> None:
    image = Image(1, (2, 3), (5, 6), (1, 0, 1, 2))
    given, expected = image.data(2)
    assert np.abs(image.operator(2, 2).python(*given) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    "shape", [((16, 16), (250, 256)), ((32, 32), (64, 64)), ((24, 40), (97, 51)), ((64, 48), (56, 31))]
)
def test_what_is_built_in_blocks_runs_in_blocks(shape: tuple[tuple[int, int], tuple[int, int]], target: str) -> None:
    """Who chooses the operator and who schedules it go by one rule."""
    channels, size = shape
    machine = targets.get(target)
    rows = rows_of_block(Shape(1, channels, size, (1, 1), 1), 4, machine)
    schedule = automatic(Image(1, channels, size).operator(4, rows or 1).scop(), machine)
    assert one_nest(schedule) == (rows is not None), decisions(schedule)


@op
def scaled_product(X: f32[16, 64, 48], W: f32[48, 40]) -> f32[16, 40, 64]:
    S = empty((16, 64, 48), f32)
    T = empty((16, 64, 40), f32)
    Y = empty((16, 40, 64), f32)
    for b, i, k in grid(16, 64, 48):
        S[b, i, k] = X[b, i, k] * 2.0 + 1.0
    for b, i, j in grid(16, 64, 40):
        T[b, i, j] = 0
        for k in range(48):
            T[b, i, j] += S[b, i, k] * W[k, j]
    for b, j, i in grid(16, 40, 64):
        Y[b, j, i] = T[b, i, j] + T[b, 63 - i, j]
    return Y


@op
def reversed_blocks(X: f32[16, 64, 48], W: f32[48, 40]) -> f32[16, 40, 64]:
    S = empty((16, 64, 48), f32)
    T = empty((16, 64, 40), f32)
    Y = empty((16, 40, 64), f32)
    for b, i, k in grid(16, 64, 48):
        S[b, i, k] = X[b, i, k] * 2.0 + 1.0
    for b, i, j in grid(16, 64, 40):
        T[b, i, j] = 0
        for k in range(48):
            T[b, i, j] += S[b, i, k] * W[k, j]
    for b, j, i in grid(16, 40, 64):
        Y[b, j, i] = T[b, i, j] + T[15 - b, 63 - i, j]
    return Y


@pytest.mark.parametrize(("program", "whole"), [(scaled_product, True), (reversed_blocks, False)])
def test_any_product_between_its_neighbours(program: object, whole: bool) -> None:
    """By access relations: batches that read one another stay apart."""
    rng = np.random.default_rng()
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((16, 64, 48), (48, 40)))
    schedule = automatic(program.scop(), small_l2(HOST, 64))
    assert one_nest(schedule) == whole, decisions(schedule)
    got = compile_kernel(schedule.scop, schedule.tree)(x, w)
    t = (x.astype(np.float64) * 2 + 1) @ w
    expected = t + (t if whole else t[::-1])[:, ::-1]
    np.testing.assert_allclose(got, expected.transpose(0, 2, 1), rtol=1e-4, atol=1e-3)


def test_what_stays_in_l2_is_left_alone() -> None:
    schedule = automatic(scaled_product.scop(), small_l2(HOST, 4096))
    assert not one_nest(schedule) and any("stay in L2 anyway" in d for d in decisions(schedule))


def test_blocks_larger_than_l2_are_declined() -> None:
    schedule = automatic(scaled_product.scop(), small_l2(HOST, 16))
    assert not one_nest(schedule) and any("more than three quarters" in d for d in decisions(schedule))
