"""Which loop of a contraction the threads share, and row blocks that divide evenly."""

from math import ceil

import numpy as np
import pytest

from examples.matmul import matmul
from polyc import dims, empty, f32, grid, op
from polyc.emit import targets
from polyc.emit.loop_ir.loops import For
from polyc.emit.loop_ir.loops import walk as walk_loops
from polyc.emit.lowering.lower import lower
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.tree import Band, walk
from polyc.scheduler.cost.sharing import balance, shared_loop
from polyc.scheduler.strategies.auto import automatic, marked
from polyc.scheduler.strategies.contractions.tiling import _even_block

M, N, K = dims("M N K")
LARGE = 1e9


@op
def pointwise_convolution(X: f32[1, K, M], W: f32[N, K]) -> f32[1, N, M]:
    Y = empty((1, N, M), f32)
    for b, o, x in grid(1, N, M):
        Y[b, o, x] = 0.0
        for c in range(K):
            Y[b, o, x] += X[b, c, x] * W[o, c]
    return Y


def test_balance():
    assert balance(8, 2) == 1.0 and balance(3, 2) == 0.75 and balance(1, 4) == 0.25


@pytest.mark.parametrize(
    ("trips", "operations", "threads", "wanted"),
    [
        ((1, 32, 12), LARGE, 2, 1),  # one image: not the loop over images
        ((3, 64), LARGE, 2, 1),  # three blocks on two threads: the loop inside is even
        ((25, 63), LARGE, 2, 0),  # nearly even: not worth 25 entries
        ((None, 4), LARGE, 2, 0),  # depends on sizes: many
        ((1, None), None, 2, 1),
        ((64, 64), 5e3, 2, None),  # too little work
        ((1, 1), LARGE, 2, None),
    ],
)
def test_shared_loop(trips, operations, threads, wanted):
    assert shared_loop(trips, operations, threads) == wanted


def test_even_blocks():
    assert _even_block(167, 10, 1) == 10  # one thread: as large as the cache allows
    block = _even_block(167, 10, 2)
    blocks = ceil(167 / block)
    assert 5 <= block <= 10 and ceil(blocks / 2) * block <= 84
    assert _even_block(5, 1, 2) == 1


@pytest.mark.parametrize(("op_", "sizes"), [(matmul, (1000, 1000, 1000)), (pointwise_convolution, (196, 256, 1024))])
def test_the_shared_loop_has_work_for_all(op_, sizes):
    scop = specialise(op_.scop(), dict(zip(("M", "N", "K"), sizes, strict=True)))
    schedule = automatic(scop, targets.get("x86-64-v3"), 2)
    assert len(marked(schedule, "parallel")) == 1
    (member,) = [m for n in walk(schedule.tree) if isinstance(n, Band) for m in n.members if m.kind == "parallel"]
    assert not member.name.startswith("b")  # of extent 1


def test_what_passes_between_cores_counts():
    """What one core has written and all read is written again at the speed of lines between cores: panels that every
    thread packs for itself are worth a loop that is a little less even."""
    trips = (2, 25)
    assert shared_loop(trips, 2e8, 2) == 0
    assert shared_loop(trips, 2e8, 2, (1.6e6, 0)) == 1
    assert shared_loop(trips, 2e10, 2, (1.6e6, 0)) == 0  # little beside the work


def test_threads_read_the_panels_that_they_have_packed():
    """Of a product whose panels are copied once for blocks of rows, threads share the panels, and the copies alike."""
    sizes = {"M": 784, "N": 256, "K": 2048}
    scop = specialise(pointwise_convolution.scop(), sizes)
    target = targets.get("znver5")
    schedule = automatic(scop, target, 2)
    (shared,) = marked(schedule, "parallel")
    assert shared.startswith("x")
    loops = lower(schedule.scop, schedule.tree, "f", target)
    *copies, products = [f.var for f in walk_loops(loops.body) if isinstance(f, For) and f.kind == "parallel"]
    assert "X_packed_in0" in copies and all("_in" in name for name in copies) and products.startswith("x")
    alone = automatic(scop, target, 1)
    loops = lower(alone.scop, alone.tree, "f", target)
    assert not [f for f in walk_loops(loops.body) if isinstance(f, For) and f.kind == "parallel"]


def test_shared_copies_give_the_same_bits():
    sizes = {"M": 784, "N": 256, "K": 512}
    kernels = [pointwise_convolution.compile(threads=n, **sizes) for n in (1, 2)]
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((1, 512, 784), np.float32), rng.standard_normal((256, 512), np.float32)
    one, two = (k(x, w) for k in kernels)
    assert np.array_equal(one, two)
    wanted = w.astype(np.float64) @ x[0].astype(np.float64)
    assert np.abs(two[0] - wanted).max() < 1e-3
