"""Panels are fetched an iteration ahead: asynchronous copies, or registers, and what goes wrong without a wait."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import differential
import numpy as np
import pytest
import simt
import texts
from small_operators import product
from texts import needs_shim

from polyc.emit.gpu import targets
from polyc.emit.gpu.devices.shim import ShimError
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Alloc, Barrier, Function, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.loop_ir.verify import verify
from polyc.poly.errors import BuildError
from polyc.poly.expr import Const
from polyc.scheduler.strategies.auto import automatic

SIZE = (10, 72, 40)


@cache
def lowered(arch: str) -> tuple[simt.Schedule, Function]:
    target = targets.get(arch)
    schedule = automatic(product(*SIZE).scop(), target)
    return schedule, lower_gpu(schedule.scop, schedule.tree, "f", target)


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    m, n, k = SIZE
    return [rng.integers(-3, 4, s).astype("f4") for s in ((m, k), (k, n))]


def without_waits(s: Stmt) -> Stmt:
    if isinstance(s, Barrier):
        return Barrier()
    return with_bodies(s, tuple(without_waits(b) for b in s.bodies()))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "opencl"])
def test_two_panels_in_turn(arch: str) -> None:
    schedule, fn = lowered(arch)
    panels = [s.buffer for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.space == "shared"]
    staged = [s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and "_next" in s.buffer.name]
    copies = {s.array for s in walk(fn.body) if isinstance(s, Store) and s.asynchronous}
    twice = [len(b.shape) == 3 and b.shape[0] == Const(2, b.shape[0].dtype) for b in panels]
    assert (all(twice), len(staged) > 0, copies) == {
        "sm_75": (True, True, set()), "sm_80": (True, True, {"B_panel"}), "opencl": (False, False, set()),
    }[arch]  # fmt: skip
    barriers = [s for s in walk(fn.body) if isinstance(s, Barrier)]
    assert len(barriers) == (3 if arch == "opencl" else 2), "one before the loop, one an iteration"
    args = arguments()
    expected = differential.oracle(product(*SIZE), args)
    for how in simt.ORDERS:
        assert simt.far(simt.results(schedule.scop, fn, args, **how), expected, 0.0) == ""


def test_a_missing_wait_is_a_race() -> None:
    schedule, fn = lowered("sm_80")
    wrong = replace(fn, body=without_waits(fn.body))
    with pytest.raises(simt.Race, match="before its asynchronous copy was waited for"):
        simt.results(schedule.scop, wrong, arguments(), races=True)
    (c,) = simt.results(schedule.scop, wrong, arguments())
    assert np.isnan(c).any(), "without race detection the elements are garbage"


@needs_shim
def test_the_shim_knows_asynchronous_copies() -> None:
    schedule, fn = lowered("sm_80")
    program = to_gpu(fn, targets.get("sm_80"))
    assert "cp.async.cg.shared.global" in program.text and "wait_for_copies();\n  __syncthreads();" in program.text
    args = arguments()
    for how in ({"order": "shuffled"}, {"check": "races"}):
        assert (texts.on_shim(schedule.scop, program, args, **how)[0] == args[0] @ args[1]).all()
    wrong = to_gpu(replace(fn, body=without_waits(fn.body)), targets.get("sm_80"))
    try:
        (c,) = texts.on_shim(schedule.scop, wrong, args)
    except ShimError:
        return
    assert np.isnan(c).any()


def test_opencl_copies_at_once() -> None:
    text = to_gpu(lowered("sm_80")[1], targets.get("opencl")).text
    assert "begin_copy" not in text and "wait_for_copies" not in text


def test_rules_of_asynchronous_copies() -> None:
    fn = lowered("sm_80")[1]

    def visit(s: Stmt, change: dict[str, object]) -> Stmt:
        if isinstance(s, Store) and s.asynchronous:
            return replace(s, **change)
        return with_bodies(s, tuple(visit(b, change) for b in s.bodies()))

    (copy, *_) = (s for s in walk(fn.body) if isinstance(s, Store) and s.asynchronous)
    verify(fn)
    turned = {"index": (copy.index[0], copy.index[2], copy.index[1])}
    with pytest.raises(BuildError, match="does not move 4, 8 or 16 bytes in a row"):
        verify(replace(fn, body=visit(fn.body, turned)))
    stored = next(s for s in walk(fn.body) if isinstance(s, Store) and s.array == "C")
    wrong = replace(stored, asynchronous=True)

    def put(s: Stmt) -> Stmt:
        return wrong if s is stored else with_bodies(s, tuple(put(b) for b in s.bodies()))

    with pytest.raises(BuildError, match="asynchronous copy to 'C' is not one from an array to shared memory"):
        verify(replace(fn, body=put(fn.body)))
