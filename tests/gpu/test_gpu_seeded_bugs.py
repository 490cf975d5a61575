"""Seeded bugs in finished launches: a barrier removed, a copy one short, threads bound wrongly. All are noticed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import differential
import pytest
import simt
from programs import arguments
from small_operators import product

from polyc.emit.interpreter.interp import OutOfBounds
from polyc.emit.loop_ir.loops import Barrier, For, Function, If, Launch, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.frontend_dsl.library.normalization import make_softmax_rows
from polyc.poly.dtypes import f32
from polyc.poly.expr import Binary, Expr, Var, const_int, substitute
from polyc.scheduler.strategies.auto import automatic


def changed(s: Stmt, target: Stmt, new: Stmt) -> Stmt:
    return new if s is target else with_bodies(s, tuple(changed(b, target, new) for b in s.bodies()))


def mutants(fn: Function, lanes: int) -> Iterator[tuple[str, Function]]:
    """Bugs of all three kinds; copies are `lanes` elements short."""
    for n in range(sum(isinstance(s, Barrier) for s in walk(fn.body))):
        yield f"barrier {n} removed", simt.without_barrier(fn, n)
    guards = {(_copied(s), s.cond.b) for s in walk(fn.body) if _guards_copy(s)}
    for buffer, bound in sorted(guards, key=str):
        yield f"copy of {buffer} short: {bound}", replace(fn, body=shortened(fn.body, buffer, bound, lanes))
    for s in walk(fn.body):
        if isinstance(s, Launch):
            for k, (v, n) in enumerate(s.threads):
                if n > 1:
                    fewer = (*s.threads[:k], (v, n - 1), *s.threads[k + 1 :])
                    yield f"one thread {v} less", replace(fn, body=changed(fn.body, s, replace(s, threads=fewer)))
            if len(s.threads) > 1:
                a, b = Var(s.threads[0][0]), Var(s.threads[1][0])
                for store in walk(s.body):
                    if isinstance(store, Store) and store.instance is None and store.array == "C":
                        index = tuple(substitute(e, {a.name: b, b.name: a}) for e in store.index)
                        wrong = replace(store, index=index)
                        yield "x and y exchanged", replace(fn, body=changed(fn.body, store, wrong))
                        break


def _copied(s: Stmt) -> str:
    return next(x.array for x in walk(s) if isinstance(x, Store))


def _guards_copy(s: Stmt) -> bool:
    """A condition `x < bound` around the copies of one shared buffer and nothing else."""
    if not isinstance(s, If) or not isinstance(s.cond, Binary) or s.cond.op != "<":
        return False
    stores = [x for x in walk(s.then) if isinstance(x, Store)]
    alone = len({x.array for x in stores}) == 1 and not any(isinstance(x, For) for x in walk(s.then))
    return alone and all(x.instance is None and x.origin is not None and x.origin.buffer == x.array for x in stores)


def shortened(s: Stmt, buffer: str, bound: Expr, by: int) -> Stmt:
    """All conditions of this kind with a smaller bound."""
    s = with_bodies(s, tuple(shortened(b, buffer, bound, by) for b in s.bodies()))
    if _guards_copy(s) and (_copied(s), s.cond.b) == (buffer, bound):
        return replace(s, cond=replace(s.cond, b=Binary("-", bound, const_int(by), bound.dtype)))
    return s


def by_hand(operator: Any, depth: int) -> simt.Schedule:
    """Small tiles with panels, for a fast interpreter."""
    s = operator.scop().schedule().tile(["i", "j"], [4, 8])
    s = s.bind("i.out", "block.y").bind("j.out", "block.x").bind("i.in", "thread.y").bind("j.in", "thread.x")
    return s.split("p", depth).promote("A", "p.out", space="shared").promote("B", "p.out", space="shared")


CASES = {
    "panels": (product(9, 11, 11), lambda op: by_hand(op, 4), "matmul", (9, 11, 11), 1, 9),
    "wide panels": (product(9, 12, 12), lambda op: by_hand(op, 8), "matmul", (9, 12, 12), 4, 9),
    "rows": (
        make_softmax_rows(f32, (2,), 300),
        lambda op: automatic(op.scop(), simt.TARGET),
        "softmax",
        (2, 300, 1),
        1,
        6,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_all_are_caught(case: str) -> None:
    operator, make, name, sizes, lanes, least = CASES[case]
    schedule = make(operator)
    fn = simt.finished(schedule.scop, schedule.tree)
    args = arguments(name, sizes)
    expected = differential.oracle(operator, args)
    assert simt.far(simt.results(schedule.scop, fn, args, races=True), expected, 1e-5) == ""
    missed, count = [], 0
    for what, bug in mutants(fn, lanes):
        count += 1
        try:
            if simt.far(simt.results(schedule.scop, bug, args, races=True), expected, 1e-5) == "":
                missed.append(what)
        except (simt.Race, simt.Divergence, OutOfBounds):
            pass
    assert count >= least and missed == [], "\n".join(missed)
