"""Running one schedule as the interpreter runs a GPU: blocks, threads, barriers, in several orders."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import back_ends
import numpy as np

from polyc.emit.gpu import targets
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.interpreter.interp import DataRace as Race
from polyc.emit.interpreter.interp import DivergentBarrier as Divergence
from polyc.emit.interpreter.interp import run
from polyc.emit.loop_ir.loops import Barrier, Block, Function, If, Launch, Stmt
from polyc.emit.loop_ir.loops import walk as walk_loops
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.loop_ir.verify import verify
from polyc.emit.mathlib import expand_function
from polyc.poly.errors import ScheduleError
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, GpuAxis, Node, is_bound, walk
from polyc.scheduler.schedule import Schedule

TARGET = targets.get("sm_80")
ORDERS: tuple[dict[str, Any], ...] = ({"races": True}, {"reverse": True}, {"shuffle": 1})


def finished(scop: Scop, tree: Node) -> Function:
    """The launches that every back end gets, ready to be printed."""
    fn = expand_function(lower_gpu(scop, tree, scop.name, TARGET))
    verify(fn)
    return fn


def results(scop: Scop, fn: Function, args: Sequence[Any], **how: Any) -> list[np.ndarray]:
    """The updated arrays after one run."""
    arrays, sizes = back_ends.arrays_of(scop, args)
    run(fn, {b.name: arrays[b.name] for b in fn.buffers}, sizes, **how)
    return [arrays[n] for n in back_ends.updated(scop)]


def agree(schedule: Schedule, args: Sequence[Any], expected: Sequence[np.ndarray], rtol: float = 0.0) -> str:
    """ "" when runs in all orders give `expected` (bit by bit, or within `rtol` of the largest value)."""
    scop = schedule.scop
    fn = finished(scop, schedule.tree)
    for how in ORDERS:
        got = results(scop, fn, args, **how)
        text = back_ends.difference(got, expected) if rtol == 0 else far(got, expected, rtol)
        if text:
            return f"{how}: {text}"
    return ""


def far(got: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float) -> str:
    """Where two lists of arrays differ by more than rounding."""
    for k, (g, e) in enumerate(zip(got, expected, strict=True)):
        written = ~np.isnan(e) if e.dtype.kind == "f" else np.ones(e.shape, bool)
        scale = max(float(np.abs(e[written]).max(initial=0)), 1e-30) if e.dtype.kind == "f" else 0
        with np.errstate(invalid="ignore"):
            near = (g == e) | (np.abs(g.astype("f8") - e.astype("f8")) <= rtol * scale)
        if g.shape != e.shape or g.dtype != e.dtype or not near[written].all():
            return f"array {k} differs at {[int(i) for i in np.argwhere(~near & written)[0]]}"
    return ""


def random_binding(schedule: Schedule, seed: int) -> Schedule:
    """Random loops of the schedule bound to random axes, as far as that is legal; tiles and shared buffers."""
    r = random.Random(seed)
    s = replace(schedule, terse=True)
    for _ in range(r.randint(2, 8)):
        if not s.loops:
            break
        loop = r.choice(s.loops)
        try:
            with quota(1_000_000):
                what = r.random()
                if what < 0.2:
                    s = s.split(loop, r.choice((2, 3, 4)))
                elif what < 0.35:
                    s = s.promote(r.choice(list(s.scop.arrays)), loop, space=r.choice(("shared", "shared", "register")))
                else:
                    s = s.bind(loop, r.choice(get_args(GpuAxis)))
        except (ScheduleError, QuotaExceeded):
            continue
    return s


def bound(schedule: Schedule) -> int:
    """How many loops are bound."""
    return sum(is_bound(m.kind) for n in walk(schedule.tree) if isinstance(n, Band) for m in n.members)


def launches(fn: Function, wide: bool = False) -> list[Launch]:
    """The launches in the text: those for all sizes, or the versions for sizes that suit wide accesses."""
    return [s for s in walk_loops(fn.body) if isinstance(s, Launch) and bool(s.given) == wide]


def version(fn: Function, wide: bool = False) -> Function:
    """`fn` with one version of its launches, whatever the sizes are."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, If) and isinstance(s.then, Launch) and s.then.given and s.orelse is not None:
            return s.then if wide else s.orelse
        return with_bodies(s, tuple(visit(b) for b in s.bodies()))

    return replace(fn, body=visit(fn.body))


def without_barrier(fn: Function, number: int) -> Function:
    """`fn` without one of its barriers, counted in the order of the text."""
    count = -1

    def visit(s: Stmt) -> Stmt:
        nonlocal count
        if isinstance(s, Barrier):
            count += 1
            return Block(()) if count == number else s
        return with_bodies(s, tuple(visit(b) for b in s.bodies()))

    return replace(fn, body=visit(fn.body))


__all__ = ["Divergence", "Race", "Schedule", "agree", "bound", "finished", "launches", "random_binding", "results"]
