"""Bytes that the generated OpenCL text really moves, counted by oclgrind, against what must move."""

from __future__ import annotations

import math

import differential
import pytest
import simt
import traffic
from executors import OPENCL
from programs import ALL, arguments

from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.program import sequence
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Barrier, Function, walk
from polyc.emit.mathlib import expand_function
from polyc.poly.scop import Scop
from polyc.scheduler.strategies.auto import automatic

pytestmark = pytest.mark.skipif(bool(traffic.missing()), reason=traffic.missing())

TILE = 128  # rows and columns of C for each block, on this target
F32 = 4


def mapped(name: str) -> tuple[Scop, Function]:
    """The launches of the automatic schedule."""
    s = automatic(ALL[name][0].scop(), OPENCL)
    return s.scop, expand_function(lower_gpu(s.scop, s.tree, name, OPENCL))


def counted(name: str, sizes: tuple[int, int, int]) -> traffic.Traffic:
    """The traffic of one run with right results."""
    scop, fn = mapped(name)
    args = arguments(name, sizes)
    got, moved = traffic.counted(scop, fn, args)
    assert simt.far(got, differential.oracle(ALL[name][0], args), 1e-5) == ""
    return moved


@pytest.mark.parametrize(
    "sizes", [(37, 41, 5), *(pytest.param(s, marks=pytest.mark.long) for s in ((64, 64, 32), (131, 150, 9)))]
)
def test_a_tiled_product_moves_what_its_tiles_need(sizes: tuple[int, int, int]) -> None:
    """Each column of blocks reads A once, each row of blocks reads B once, C is written once."""
    m, n, k = sizes
    moved = counted("matmul", sizes)
    predicted = F32 * (m * k * math.ceil(n / TILE) + k * n * math.ceil(m / TILE) + m * n)
    assert predicted <= moved.moved <= 1.05 * predicted
    assert moved.written["global"] == F32 * m * n
    assert moved.read["local"] > 0 < moved.barriers


def test_the_prediction_speaks_of_the_tiles_in_use() -> None:
    program = to_gpu(mapped("matmul")[1], OPENCL)
    (call,) = sequence(program, {"M": 2 * TILE + 1, "N": 3 * TILE, "K": 9}).calls
    assert call.grid == (3, 3, 1)


def test_a_pointwise_chain_reads_and_writes_once() -> None:
    m, n = 5, 37
    moved = counted("chain", (m, n, 1))
    assert moved.written["global"] == F32 * m * n
    assert moved.read["global"] == 2 * F32 * m * n, "X once; the row B once for every row of X"
    assert moved.barriers == 0


@pytest.mark.parametrize(
    ("name", "rows_read", "n"),
    [
        ("softmax", 1, 300),
        *(pytest.param(*c, marks=pytest.mark.long) for c in (("layer_norm", 2, 300), ("softmax", 1, 37))),
    ],
)
def test_rows_are_read_and_written_once(name: str, rows_read: int, n: int) -> None:
    """Layer norm reads its scale for every row, too."""
    m = 3
    moved = counted(name, (m, n, 1))
    assert moved.written["global"] == F32 * m * n
    assert moved.read["global"] == rows_read * F32 * m * n


@pytest.mark.long
@pytest.mark.parametrize(("name", "passes", "writes"), [("softmax", 3, 2), ("layer_norm", 4, 1)])
def test_rows_that_do_not_fit_are_read_in_each_pass(name: str, passes: int, writes: int) -> None:
    m, n = 2, 2100
    moved = counted(name, (m, n, 1))
    assert moved.written["global"] == writes * F32 * m * n
    assert 1 < moved.read["global"] / (F32 * m * n) <= passes + (name == "softmax")


# ---- races and bounds, in OpenCL text ----


SMALL = (9, 11, 7)


def panels() -> tuple[Scop, Function]:
    """A small product through shared memory."""
    s = ALL["matmul"][0].scop().schedule().tile(["i", "j"], [4, 8])
    s = s.bind("i.out", "block.y").bind("j.out", "block.x").bind("i.in", "thread.y").bind("j.in", "thread.x")
    s = s.split("k", 4).promote("A", "k.out", space="shared").promote("B", "k.out", space="shared")
    return s.scop, expand_function(lower_gpu(s.scop, s.tree, "matmul", OPENCL))


def report(scop: Scop, fn: Function) -> tuple[str, str]:
    """Where the result is wrong, and what oclgrind says about races and bounds."""
    args = arguments("matmul", SMALL)
    got, text = traffic.run(scop, fn, args, "--data-races", "--uniform-writes")
    return simt.far(got, differential.oracle(ALL["matmul"][0], args), 1e-5), text


@pytest.mark.long
def test_oclgrind_finds_what_the_interpreter_finds() -> None:
    """Every barrier removed in turn (those of kernels that are not launched for these sizes do no harm)."""
    scop, fn = panels()
    args = arguments("matmul", SMALL)
    wrong, text = report(scop, fn)
    assert wrong == "" and "data race" not in text and "Invalid" not in text
    caught = 0
    for number in range(sum(isinstance(s, Barrier) for s in walk(fn.body))):
        bug = simt.without_barrier(fn, number)
        try:
            simt.results(scop, bug, args, races=True)
        except simt.Race:
            assert "data race" in report(scop, bug)[1]
            caught += 1
    assert caught >= 3


def test_a_missing_barrier_is_seen_in_opencl_text() -> None:
    scop, fn = panels()
    assert report(scop, fn) == ("", "")
    barriers = [s for s in walk(fn.body) if isinstance(s, Barrier)]
    for number in range(len(barriers)):
        fn = simt.without_barrier(fn, 0)
    assert "data race" in report(scop, fn)[1]
