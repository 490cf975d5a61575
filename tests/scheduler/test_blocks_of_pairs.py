"""A depthwise and a 1x1 convolution run as one nest, a block of rows at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.frontend_dsl.library.depthwise_rows import make_depthwise_rows, make_pointwise_rows
from polyc.poly.dtypes import f32
from polyc.poly.rewriting.channels import LAST, Channels, store_channels
from polyc.poly.rewriting.compose import compose
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.rewriting.stored import lay_out
from polyc.poly.scop import Scop
from polyc.scheduler.cost.tile_plan import constant_layouts
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic, propose


@dataclass(frozen=True)
class Case:
    """`rows` divides the rows of the result."""

    channels: int
    filters: int
    size: tuple[int, int]
    rows: int
    batch: int = 1
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    begin: tuple[int, int] = (1, 1)
    end: tuple[int, int] = (1, 1)

    @property
    def result(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        parts = zip(self.size, self.begin, self.end, self.kernel, self.strides, self.dilations, strict=True)
        high, wide = ((n + b + e - d * (k - 1) - 1) // s + 1 for n, b, e, k, s, d in parts)
        return high, wide

    def scop(self) -> Scop:
        """Both convolutions with biases; `x` is the image."""
        window = (self.kernel, self.strides, self.dilations, self.begin, self.end)
        first = make_depthwise_rows(f32, self.batch, self.channels, self.size, *window, True, self.rows).scop()
        high, wide = self.result
        last = make_pointwise_rows(
            f32, self.batch, (self.channels, self.filters), high // self.rows, self.rows, wide, True
        ).scop()
        given = ["x", "f", "b", "v", "d"]
        parts = [
            (first, {"X": "x", "F": "f", "B": "b", first.results[0]: "t"}),
            (last, {"X": "t", "F": "v", "B": "d", last.results[0]: "y"}),
        ]
        return compose("pair", parts, given, ["y"])

    def data(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Random arguments, and the result in f64."""
        rng = np.random.default_rng()
        shapes = ((self.batch, self.channels, *self.size), (self.channels, *self.kernel), (self.channels,),
                  (self.filters, self.channels), (self.filters,))  # fmt: skip
        x, f, b, v, d = (rng.standard_normal(s).astype(np.float32) for s in shapes)
        wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *zip(self.begin, self.end, strict=True)))
        (high, across), (sh, sw), (dh, dw) = self.result, self.strides, self.dilations
        t = np.zeros((self.batch, self.channels, high, across)) + b[:, None, None]
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                part = wide[:, :, i * dh :: sh, j * dw :: sw][:, :, :high, :across]
                t += part * f[:, i, j][:, None, None]
        return [x, f, b, v, d], np.einsum("oc,nchw->nohw", v, t) + d[:, None, None]


def one_nest(schedule: Schedule) -> bool:
    return any(d.stage == "chains" and d.outcome == "done" and "blocks" in d.figures for d in schedule.decisions)


CASES = [
    Case(5, 7, (9, 11), 3),
    Case(13, 3, (14, 17), 2, batch=2),
    Case(6, 19, (21, 23), 11, strides=(2, 2)),
    Case(3, 8, (12, 10), 4, kernel=(5, 3), begin=(2, 0), end=(2, 1)),
    Case(4, 5, (15, 30), 5, kernel=(3, 5), dilations=(2, 1), begin=(2, 2), end=(2, 2)),
    Case(9, 4, (26, 13), 3, strides=(3, 1), begin=(0, 1), end=(1, 2)),
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_a_pair_is_one_nest(case: Case, threads: int) -> None:
    scop = case.scop()
    schedule = automatic(scop, targets.get(None), threads)
    assert one_nest(schedule), [str(n) for n in schedule.notes]
    given, expected = case.data()
    got = compile_kernel(schedule.scop, schedule.tree, threads=threads)(*given)
    np.testing.assert_allclose(got.reshape(expected.shape), expected, 1e-4, 1e-4)


def test_random_sizes() -> None:
    rng = np.random.default_rng()
    for _ in range(3):
        blocks, rows, wide, stride = (int(rng.integers(low, high)) for low, high in ((2, 5), (1, 6), (2, 40), (1, 3)))
        high = stride * (blocks * rows - 1) + 1
        c, m, n = (int(rng.integers(2, 20)) for _ in "cmn")
        case = Case(c, m, (high, stride * (wide - 1) + 1), rows, batch=1 + n % 2, strides=(stride, stride))
        assert case.result == (blocks * rows, wide)
        given, expected = case.data()
        schedule = automatic(case.scop(), targets.get(None))
        got = compile_kernel(schedule.scop, schedule.tree)(*given)
        np.testing.assert_allclose(got.reshape(expected.shape), expected, 1e-4, 1e-4, err_msg=repr(case))


def test_blocks_that_leave_half_of_l2_are_declined() -> None:
    machine = targets.get(None)
    case = Case(16, 16, (32, machine.l2 // (16 * 16 * 4) + 3), 16)
    proposal = propose(case.scop(), machine, ["chains"])
    assert not proposal.chains and "more than half of L2" in proposal.reasons["chains"]
    schedule = automatic(case.scop(), machine)
    assert not one_nest(schedule)
    assert any("more than half of L2" in d.reason for d in schedule.decisions)


@pytest.mark.parametrize("block", [16, LAST])
def test_images_in_blocks_of_channels(block: int) -> None:
    """Channels in lanes are inside the tiles, blocks of channels are a loop that both share."""
    case = Case(32, 8, (12, 9), 4)
    scop, layouts = store_channels(case.scop(), {"x": Channels(1, block)}, frozenset("fbvd"))
    args, want = case.data()
    stored = {n: lay_out(a, layouts[n]) if n in layouts else a for n, a in zip(scop.args, args, strict=True)}
    target = targets.host()
    for name, layout in constant_layouts(scop, frozenset("fbvd"), target).items():
        scop, stored[name] = relayout(scop, name, layout), lay_out(stored[name], layout)
    schedule = automatic(scop, target)
    texts = [str(d) for d in schedule.decisions if d.stage == "chains"]
    assert any(("one nest" if block else "all channels are lanes") in text for text in texts), texts
    kernel = compile_kernel(schedule.scop, schedule.tree)
    np.testing.assert_allclose(np.reshape(kernel(*stored.values()), want.shape), want, rtol=1e-4, atol=1e-4)
