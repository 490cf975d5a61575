"""Kernels with a block for each row: rows stay in registers between passes, sums are trees of shuffles."""

from __future__ import annotations

from typing import Any

import differential
import numpy as np
import pytest
import simt
from programs import ALL
from texts import CUDA, needs_nvidia, needs_shim, on_shim

from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.kernel import compile_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Alloc, Barrier, Buffer, For, Function, Launch, Store, WarpReduce, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.emit.loop_ir.verify import verify
from polyc.frontend_dsl.library import normalization, reduction
from polyc.poly.dtypes import f32, f64, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Load, Var, const_int
from polyc.poly.expr import walk as walk_expr
from polyc.scheduler.strategies.auto import automatic


def lowered(operator: Any) -> tuple[Any, Function]:
    schedule = automatic(operator.scop(), simt.TARGET)
    return schedule.scop, simt.finished(schedule.scop, schedule.tree)


def loads_of(launch: Launch, array: str) -> int:
    return sum(isinstance(e, Load) and e.array == array for s in walk(launch.body) for top in stmt_exprs(s)
               for e in walk_expr(top))  # fmt: skip


def test_a_row_lies_in_registers() -> None:
    _, fn = lowered(normalization.make_softmax_rows(f32, (5,), 1000))
    (launch,) = simt.launches(fn)
    spaces = {s.buffer.promoted: s.buffer for s in walk(launch.body) if isinstance(s, Alloc)}
    for row in ("X_buf", "Y_buf"):
        assert spaces[row].space == "register" and spaces[row].shape == (const_int(1), const_int(4))
    assert loads_of(launch, "X") == 4 and loads_of(launch, "Y") == 0, "each element is read once"
    assert sum(isinstance(s, WarpReduce) for s in walk(launch.body)) == 2
    assert sum(isinstance(s, Barrier) for s in walk(launch.body)) <= 4


def test_long_rows_have_more_threads() -> None:
    schedule = automatic(normalization.make_rms_norm(f32, 5, 9000, 1e-5).scop(), simt.TARGET)
    (launch,) = simt.launches(simt.finished(schedule.scop, schedule.tree))
    assert launch.block_threads == 1024


def test_rows_that_do_not_follow_the_threads_stay_in_shared_memory() -> None:
    """A maximum that begins with the first element is spread from the second element on."""
    _, fn = lowered(ALL["softmax"][0])
    kept = simt.launches(fn)[0]
    spaces = {s.buffer.promoted: s.buffer.space for s in walk(kept.body) if isinstance(s, Alloc)}
    assert (spaces["X_buf"], spaces["Y_buf"]) == ("shared", "register")


MADE = {
    "softmax": lambda n: normalization.make_softmax_rows(f32, (3,), n),
    "log softmax": lambda n: normalization.make_softmax(f32, 3, n, 1, True),
    "layer norm": lambda n: normalization.make_layer_norm(f32, 3, n, 1e-5, True),
    "rms norm": lambda n: normalization.make_rms_norm(f64, 3, n, 1e-5),
    "group norm": lambda n: normalization.make_group_norm(f32, 2, 3, 3, n, 1e-5, True),
    "sum": lambda n: reduction.make_reduce("sum", f32, (3, n), (1,), False),
    "least": lambda n: reduction.make_reduce("min", i64, (3, n), (1,), False),
}


@pytest.mark.parametrize(
    ("name", "n"),
    [pytest.param(name, n, marks=() if (name, n) in (("softmax", 300), ("least", 61)) else pytest.mark.long)
     for name in MADE for n in (61, 300, 1037)],
)  # fmt: skip
def test_rows_in_the_interpreter(name: str, n: int) -> None:
    operator = MADE[name](n)
    scop = operator.scop()
    rng = np.random.default_rng(n)
    shapes = [(scop.arrays[a].dtype.np, [int(e.value) for e in scop.arrays[a].shape]) for a in scop.args]
    args = [(rng.random(s) * 8 - 4).astype(d) for d, s in shapes]
    made = operator.python(*args)
    assert simt.agree(automatic(scop, simt.TARGET), args, [np.asarray(made)], 1e-5) == ""


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
@pytest.mark.parametrize("n", [37, 521, 4099])
def test_rows_whose_length_comes_with_the_call(name: str, n: int) -> None:
    """4099 elements are more than the kept version takes."""
    operator, shapes = ALL[name]
    rng = np.random.default_rng(n)
    args = [rng.random(s).astype("f4") for s in shapes(2, n, 1)]
    expected = differential.oracle(operator, args)
    scop, fn = lowered(operator)
    program = to_gpu(fn, CUDA)
    for how in (*({"order": o, "check": "bounds", "seed": 1} for o in shim.ORDERS), {"check": "races"}):
        assert simt.far(on_shim(scop, program, args, **how), expected, 1e-5) == "", how


def test_every_barrier_of_a_row_kernel_is_needed() -> None:
    """Without any one of them the interpreter finds a race: exchanges of registers order no memory."""
    operator = normalization.make_layer_norm(f32, 2, 100, 1e-5, False)
    scop, fn = lowered(operator)
    rng = np.random.default_rng(0)
    args = [rng.random(s).astype("f4") for s in ((2, 100), (100,))]
    count = sum(isinstance(s, Barrier) for s in walk(fn.body))
    assert count >= 3
    for number in range(count):
        with pytest.raises(simt.Race):
            simt.results(scop, simt.without_barrier(fn, number), args, races=True)


def exchange(body: Any) -> Function:
    own = Buffer("own", f32, (const_int(1),), "register")
    launch = Launch("k", (("b", const_int(1)),), (("t", 64),), Alloc(own, body))
    return Function("k", (), (), launch)


def test_a_warp_reduction_where_threads_disagree_is_refused() -> None:
    step = WarpReduce("+", "own", (const_int(0),), f32)
    verify(exchange(step))
    with pytest.raises(BuildError, match="a warp reduction of 'own' under loop 'v' on which threads may disagree"):
        verify(exchange(For("v", const_int(0), Var("t"), 1, step)))


def test_the_order_of_a_warp_is_pairwise() -> None:
    """The bits of a sum: the elements of lanes 16 apart first, neighbours last."""
    scop, fn = lowered(reduction.make_reduce("sum", f32, (2, 32), (1,), False))
    assert any(isinstance(s, WarpReduce) for s in walk(fn.body))
    x = np.random.default_rng(5).random((2, 32)).astype("f4")
    lanes = x[0].copy()
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    (got,) = simt.results(scop, fn, [x])
    assert got[0] == lanes[0]


@needs_nvidia
@pytest.mark.long
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("n", [197, 768, 1000, 4097, 8192, 16001])
@pytest.mark.parametrize("name", ["softmax", "layer norm"])
def test_no_spills_at_any_length(name: str, n: int, arch: str) -> None:
    target = targets.get(arch)
    schedule = automatic(MADE[name](n).scop(), target)
    (used,) = compile_gpu(schedule.scop, schedule.tree, target).cubin().resources
    assert used.spill_loads == used.spill_stores == 0 and used.blocks > 0


def test_stores_of_partial_results_are_not_shared() -> None:
    _, fn = lowered(normalization.make_layer_norm(f32, 2, 4000, 1e-5, False))
    (launch,) = simt.launches(fn)
    shared = {s.buffer.name for s in walk(launch.body) if isinstance(s, Alloc) and s.buffer.space == "shared"}
    assert not any(isinstance(s, Store) and "part" in s.array and s.array in shared for s in walk(launch.body))
