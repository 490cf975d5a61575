"""Local arrays stored in the order in which sums read them: step `relayout`, and when the compiler takes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyc import dims, empty, f32, grid, op, zeros
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.frontend_dsl.library.convolution import make_conv2d
from polyc.poly.dtypes import f32 as single
from polyc.poly.errors import ScheduleError
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.rewriting.stored import lay_out
from polyc.poly.scop import Scop
from polyc.scheduler.cost.reading_orders import in_reading_order, reading_orders
from polyc.scheduler.cost.tile_plan import constant_layouts
from polyc.scheduler.strategies.auto import automatic

V3 = targets.get("x86-64-v3")
M, N, H, W = dims("M N H W")
rng = np.random.default_rng()


@op
def twice(A: f32[M, N]) -> f32[M, N]:
    Y, t = empty((M, N), f32), empty((M, N), f32)
    for i, j in grid(M, N):
        t[i, j] = A[i, j] * A[i, j]
    for i, j in grid(M, N):
        Y[i, j] = t[i, j] + t[i, N - 1 - j]
    return Y


def conv(channels: int, size: int, kernel: int = 3) -> Scop:
    pad = kernel // 2
    made = make_conv2d(
        single, 1, (channels, 24), (size, size), (kernel, kernel), (1, 1), (1, 1), (pad, pad), (pad, pad), True
    )
    scop: Scop = made.scop()
    return scop


@pytest.mark.parametrize("layout", [[1, 0], [(1, 1, 0), (0, 1, 0)]])
def test_any_sizes(layout: list[object]) -> None:
    s = twice.scop().schedule().relayout("t", layout)  # type: ignore[arg-type]
    assert [str(e) for e in s.scop.arrays["t"].shape] == [str(e) for e in twice.scop().arrays["t"].shape[::-1]]
    for rows, columns in ((1, 1), (3, 7), (16, 5)):
        a = rng.standard_normal((rows, columns)).astype(np.float32)
        for target in ("c", "cpu"):
            assert np.array_equal(twice.compile(schedule=s, target=target)(a), twice.python(a))


def test_blocks_of_known_sizes() -> None:
    s = twice.scop(M=5, N=20).schedule().relayout("t", [(1, 8, 0), (0, 1, 0), (1, 1, 8)])
    a = rng.standard_normal((5, 20)).astype(np.float32)
    assert np.array_equal(twice.compile(schedule=s, M=5, N=20)(a), twice.python(a))


@pytest.mark.parametrize(
    "array, layout, says",
    [
        ("A", [1, 0], "only local arrays"),
        ("u", [1, 0], "only local arrays"),
        ("t", [0, 0], "names each of the 2 dimensions"),
        ("t", [(0, 1, 0), (1, 1, 8)], "gives two elements one place"),
        ("t", [(0, 1, 0), (1, 8, 0), (1, 1, 8)], "its shape is symbolic"),
        ("t", [(0, 1, 0), (2, 1, 0)], "dimensions that it does not have"),
    ],
)
def test_refusals(array: str, layout: list[object], says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        twice.scop().schedule().relayout(array, layout)  # type: ignore[arg-type]


def test_not_under_a_buffer() -> None:
    s = twice.scop().schedule().promote("t", "j_1", copy_out=False)
    with pytest.raises(ScheduleError, match="promoted already"):
        s.relayout("t", [1, 0])


@pytest.mark.parametrize("channels, size, wanted", [(96, 80, {"P": (0, 2, 1, 3)}), (96, 4, {}), (3, 224, {})])
def test_channels_that_are_far_apart_come_inside_of_the_rows(channels: int, size: int, wanted: object) -> None:
    """Not those whose images stay in L1 together, nor a handful."""
    assert reading_orders(conv(channels, size), V3) == wanted


def test_the_order_that_is_best_is_left_alone() -> None:
    scop = in_reading_order(conv(96, 80), V3)
    assert reading_orders(scop, V3) == {}
    stored = relayout(conv(96, 80), "P", ((0, 1, 0), (2, 1, 0), (1, 1, 0), (3, 1, 0)))
    assert stored.arrays == scop.arrays


def test_dimensions_of_one_element_are_not_moved() -> None:
    """A convolution of sound is one of images of height 1."""
    made = make_conv2d(single, 1, (96, 24), (1, 900), (1, 3), (1, 1), (1, 1), (0, 1), (0, 1), True)
    assert reading_orders(made.scop(), V3) == {}


SMALL = replace(V3, l2=32 << 10, tlb_pages=4)
"""So that what leaves L2 and the TLB is small enough for a test."""


@pytest.mark.parametrize("stride", [1, 2])
def test_blocks_of_long_rows_are_copied_side_by_side(stride: int) -> None:
    """One line for each channel, on a page of its own: the part of each that a block reads."""
    width = 1100
    made = make_conv2d(single, 1, (48, 40), (1, width), (1, 3), (1, stride), (1, 1), (0, 1), (0, 1), False)
    scop = made.scop()
    for array, layout in constant_layouts(scop, frozenset({"F"}), SMALL).items():
        stored = layout
        scop = relayout(scop, array, layout)
    schedule = automatic(scop, SMALL)
    assert [str(s) for s in schedule.trace if "P_block" in str(s)]
    x, f = (rng.integers(-3, 4, s).astype(np.float32) for s in ((1, 48, 1, width), (40, 48, 1, 3)))
    padded = np.pad(x[0, :, 0], ((0, 0), (1, 1)))
    exact = sum(f[:, :, 0, k] @ padded[:, k : k + width : stride] for k in range(3))  # integers: in any order
    assert np.array_equal(compile_kernel(schedule.scop, schedule.tree)(x, lay_out(f, stored))[0, :, 0], exact)


def test_rows_of_a_block_are_counted_by_what_they_add() -> None:
    """Windows of neighbouring rows overlap: 4 KB for each row of 512 channels with stride 2, not 6."""
    made = make_conv2d(single, 1, (512, 64), (1, 600), (1, 3), (1, 2), (1, 1), (0, 1), (0, 1), False)
    scop = made.scop()
    for array, layout in constant_layouts(scop, frozenset({"F"}), V3).items():
        scop = relayout(scop, array, layout)
    cuts = next(s.args["size"] for s in automatic(scop, V3).trace if s.name == "split" and "w_1" in str(s))
    assert cuts * 2 * 512 * 4 <= V3.l2 // 2 < cuts * 3 * 512 * 4


def test_free_sizes() -> None:
    @op
    def sums(X: f32[N, 40, H, W], F: f32[8, 40, 3, 3]) -> f32[N, 8, H, W]:
        P, Y = zeros((N, 40, H + 2, W + 2), f32), zeros((N, 8, H, W), f32)
        for n, c, h, w in grid(N, 40, H, W):
            P[n, c, h + 1, w + 1] = X[n, c, h, w]
        for n, o, h, w, c, i, j in grid(N, 8, H, W, 40, 3, 3):
            Y[n, o, h, w] += P[n, c, h + i, w + j] * F[o, c, i, j]
        return Y

    assert reading_orders(sums.scop(), V3) == {"P": (0, 2, 1, 3)}
    assert any("relayout" in str(step) for step in automatic(sums.scop(), V3).trace)
    x, f = (rng.integers(-3, 4, s).astype(np.float32) for s in ((2, 40, 5, 9), (8, 40, 3, 3)))
    assert np.array_equal(sums.compile()(x, f), sums.python(x, f))


def test_two_readers_that_want_different_orders_get_none() -> None:
    @op
    def both(X: f32[64, 64, 64], F: f32[64], G: f32[64]) -> tuple[f32[64, 64], f32[64, 64]]:
        P, Y, Z = empty((64, 64, 64), f32), zeros((64, 64), f32), zeros((64, 64), f32)
        for a, b, c in grid(64, 64, 64):
            P[a, b, c] = X[a, b, c] * X[a, c, b]
        for b, c, a in grid(64, 64, 64):
            Y[b, c] += P[a, b, c] * F[a]
        for a, c, b in grid(64, 64, 64):
            Z[a, c] += P[a, b, c] * G[b]
        return Y, Z

    assert reading_orders(both.scop(), V3) == {}
