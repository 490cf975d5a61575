"""What windows read of a local array is made anew for each block of them: step `recompute`, and when it is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import dims, empty, f32, grid, op, zeros
from polyc.emit import targets
from polyc.frontend_dsl.library.convolution import make_conv2d
from polyc.poly.dtypes import f32 as single
from polyc.poly.errors import ScheduleError
from polyc.poly.quota import QuotaExceeded
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies import product_blocks
from polyc.scheduler.strategies.auto import automatic, marked

N, M = dims("N M")
V3 = targets.get("x86-64-v3")
SMALL = replace(V3, l2=16 << 10)
"""So that what leaves L2 is small enough for a test."""
rng = np.random.default_rng()


@op
def blurred(A: f32[N, M]) -> f32[N - 2, M - 2]:
    """Rows of a local image that three rows of the result read; a border that nothing else fills."""
    B, t = empty((N - 2, M - 2), f32), zeros((N, M), f32)
    for i in range(N):
        for j in range(1, M - 1):
            t[i, j] = A[i, j - 1] + A[i, j + 1]
    for r, c in grid(N - 2, M - 2):
        B[r, c] = t[r, c] + t[r + 1, c + 1] + t[r + 2, c + 2]
    return B


@op
def in_two_stages(A: f32[N]) -> f32[N - 4]:
    B, t, u = empty((N - 4,), f32), empty((N,), f32), empty((N - 2,), f32)
    for i in range(N):
        t[i] = A[i] * A[i]
    for k in range(N - 2):
        u[k] = t[k] - t[k + 2]
    for r in range(N - 4):
        B[r] = u[r] * u[r + 2]
    return B


@op
def sums_of_rows(A: f32[N, M]) -> f32[N - 1]:
    """An array that is added up is made anew with all that is added."""
    B, t = empty((N - 1,), f32), empty((N,), f32)
    for i in range(N):
        t[i] = 0.0
        for j in range(M):
            t[i] += A[i, j]
    for r in range(N - 1):
        B[r] = t[r] - t[r + 1]
    return B


@op
def steps_back(A: f32[N]) -> f32[N]:
    """Every second element, from the last."""
    B, t = zeros((N,), f32), empty((2 * N,), f32)
    for i in range(2 * N):
        t[i] = A[i // 2]
    for r in range(N - 1, -1, -1):
        B[r] = t[2 * r + 1]
    return B


def same(s: Schedule, operator: Any, *shapes: tuple[int, ...]) -> None:
    args = [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    wanted = operator.python(*args)
    for got in (interpret(s.scop, s.tree, args, shuffle=3), *(native(s.scop, s.tree, args, b) for b in NATIVE)):
        np.testing.assert_array_equal(got[0], wanted)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "operator, array, loop, shape",
    [
        (blurred, "t", "r", (9, 7)),
        (blurred, "t", "c", (9, 7)),
        (in_two_stages, "u", "r", (11,)),
        (in_two_stages, "t", "k", (11,)),
        (sums_of_rows, "t", "r", (8, 5)),
        (steps_back, "t", "r", (9,)),
    ],
    ids=lambda p: p.name if hasattr(p, "name") else str(p),
)
def test_results_are_the_same(operator: Any, array: str, loop: str, shape: tuple[int, ...], size: int) -> None:
    s = operator.scop().schedule().recompute(array, loop, size)
    assert s.scop.arrays[array].expanded == 1
    same(s, operator, shape)
    assert str(Schedule.replay(operator.scop(), s.save()).tree) == str(s.tree)


def test_a_block_makes_what_it_reads_and_keeps_no_more() -> None:
    s = blurred.scop().schedule().recompute("t", "r", 2).split("r", 2)
    s = s.fuse("r_1", "r_2").fuse("r_1", "r.out")
    s = s.contract("t")
    (buffer,) = (n for n in str(s.tree).splitlines() if "contract t" in n)
    assert ": 4, 0 : M] to" in buffer, buffer  # rows of two results and the two below
    same(s, blurred, (10, 6))


def test_stage_after_stage() -> None:
    """The last stage first: what it needs of the one before needs elements of the first one in its turn."""
    s = in_two_stages.scop().schedule().recompute("u", "r").recompute("t", "r_1")
    s = s.fuse("r_1_1", "r_1").fuse("r_1_1", "r").contract("t").contract("u")
    assert "contract t" in str(s.tree) and "contract u" in str(s.tree)
    same(s, in_two_stages, (12,))


@pytest.mark.parametrize(
    "operator, array, loop, says",
    [
        (blurred, "A", "r", "is no local array"),
        (blurred, "t", "i", "S1 writes 't' inside of loop 'i'"),
        (in_two_stages, "t", "r", "S1 reads 't' outside of loop 'r'"),
        (blurred, "t", "r", "the size must be a positive integer, not 0"),
    ],
)
def test_refusals(operator: Any, array: str, loop: str, says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        operator.scop().schedule().recompute(array, loop, 0 if "size" in says else 1)


def test_elements_that_are_made_of_others_are_refused() -> None:
    @op
    def running(A: f32[N]) -> f32[N]:
        B, t = empty((N,), f32), zeros((N + 1,), f32)
        for i in range(N):
            t[i + 1] = t[i] + A[i]
        for r in range(N):
            B[r] = t[r] + t[r + 1]
        return B

    with pytest.raises(ScheduleError, match="S1 computes elements of 't' from others of it"):
        running.scop().schedule().recompute("t", "r")


def conv(batch: int, channels: tuple[int, int], size: tuple[int, int], kernel: int, stride: int = 1) -> Any:
    pad = (kernel // 2,) * 2
    return make_conv2d(single, batch, channels, size, (kernel,) * 2, (stride,) * 2, (1, 1), pad, pad, True)


def recomputed(s: Schedule) -> dict[str, int]:
    return {str(step.args["loop"]): int(step.args.get("size", 1)) for step in s.trace if step.name == "recompute"}


def convolved(s: Schedule, x: tuple[int, ...], filters: int, kernel: int, stride: int) -> None:
    """Native code gives what NumPy's sums over windows are: of integers, so in any order."""
    shapes = x, (filters, x[1], kernel, kernel), (filters,)
    image, weights, bias = args = [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    half = kernel // 2
    padded = np.pad(image, ((0, 0), (0, 0), (half, half), (half, half)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    wanted = np.einsum("nchwij,ocij->nohw", windows, weights, optimize=True) + bias[:, None, None]
    for b in NATIVE:
        np.testing.assert_array_equal(native(s.scop, s.tree, args, b)[0], wanted)


@pytest.mark.parametrize(
    "batch, channels, size, kernel, stride",
    [(1, (8, 12), (37, 41), 3, 1), (2, (8, 9), (30, 33), 3, 3), (3, (5, 16), (41, 40), 3, 2),
     (1, (4, 12), (97, 41), 5, 1)],
)  # fmt: skip
def test_padded_images_are_made_in_blocks_of_rows(
    batch: int, channels: tuple[int, int], size: tuple[int, int], kernel: int, stride: int
) -> None:
    s = automatic(conv(batch, channels, size, kernel, stride).scop(), SMALL)
    assert recomputed(s), s.notes
    convolved(s, (batch, channels[0], *size), channels[1], kernel, stride)


def test_free_sizes() -> None:
    H, W = dims("H W")
    made = conv(N, (16, 24), (H, W), 3)
    s = automatic(made.scop(), V3)
    assert recomputed(s), s.notes
    convolved(s, (2, 16, 7, 19), 24, 3, 1)


def test_threads_share_the_blocks() -> None:
    s = automatic(conv(1, (32, 24), (160, 160), 3).scop(), V3, threads=2)
    assert recomputed(s) and marked(s, "parallel")[0] in [n for n in s.loops if n.startswith("h_1")]


@pytest.mark.parametrize(
    "channels, size, kernel, why",
    [
        ((64, 64), (14, 14), 3, "in between stay in L2 anyway"),
        ((64, 320), (80, 80), 3, "of reading 720 KB of operands again"),
        ((512, 8), (160, 160), 5, "more than three quarters of L2"),
    ],
)
def test_where_that_does_not_pay(channels: tuple[int, int], size: tuple[int, int], kernel: int, why: str) -> None:
    s = automatic(conv(1, channels, size, kernel).scop(), V3)
    assert not recomputed(s)
    assert any(d.outcome == "declined" and why in d.reason for d in s.decisions), s.notes


def test_a_quota_that_ends_in_between_leaves_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of all rows of windows without the blocks would be many times the image."""

    def ended(*_: object) -> None:
        raise QuotaExceeded("used up")

    monkeypatch.setattr(product_blocks, "_blocks", ended)
    s = automatic(conv(1, (8, 12), (37, 41), 3).scop(), SMALL)
    assert not recomputed(s) and not s.scop.arrays["P"].expanded


def test_images_that_others_read_too_stay_whole() -> None:
    @op
    def twice(X: f32[8, 40, 40], F: f32[24, 8, 3, 3]) -> tuple[f32[24, 40, 40], f32[8, 42, 42]]:
        P, Y, Z = zeros((8, 42, 42), f32), zeros((24, 40, 40), f32), empty((8, 42, 42), f32)
        for c, h, w in grid(8, 40, 40):
            P[c, h + 1, w + 1] = X[c, h, w]
        for o, h, w, c, i, j in grid(24, 40, 40, 8, 3, 3):
            Y[o, h, w] += P[c, h + i, w + j] * F[o, c, i, j]
        for c, h, w in grid(8, 42, 42):
            Z[c, h, w] = P[c, h, w] * 2.0
        return Y, Z

    assert not recomputed(automatic(twice.scop(), SMALL))
