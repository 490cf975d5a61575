"""Copies of a promoted buffer run only where statements use the buffer.

isl may cut the code below a `Promote` node into parts for different statements, each with a
buffer of its own, but it repeats the copies in all parts: in a part whose statements do not run
they would copy an unset buffer out. There they get a condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from polyc.emit.loop_ir.loops import Alloc, Function, If, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.lowering.isl_expr import to_expr
from polyc.emit.passes.simplify import simplify
from polyc.emit.proof.read_back import Lifetime, Place, read_back
from polyc.poly.expr import Expr, Load, Var
from polyc.poly.scop import Scop

SET, PARAM = isl.dim_type.set, isl.dim_type.param


def guard_copies(scop: Scop, fn: Function) -> Function:
    """`fn` with conditions on the copies of buffers that isl has cut in parts."""
    parts = Counter(s.buffer.promoted for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.promoted)
    if all(count == 1 for count in parts.values()):
        return fn
    places = read_back(scop, fn)
    conditions: dict[int, Expr] = {}
    for place in places:
        life = _copied(place)
        if life is not None:
            unused = _outer(place, life).subtract(_used(places, life))
            if not unused.is_empty():
                conditions[id(place.store)] = _condition(_used(places, life), _outer(place, life))
    return simplify(replace(fn, body=_guarded(fn.body, conditions))) if conditions else fn


def _copied(place: Place) -> Lifetime | None:
    """The buffer that a copy belongs to: the inner one of its two ends."""
    store = place.store
    if store.instance is not None or not isinstance(store.value, Load):
        return None
    ends = [place.lifetimes[a] for a in (store.array, store.value.array) if a in place.lifetimes]
    return max(ends, key=lambda n: len(n.outer), default=None)


def _outer(place: Place, life: Lifetime) -> isl.Set:
    """The values of the loops around a buffer at which a store in it runs."""
    depth = len(life.loops)
    return place.points.project_out(SET, depth, len(place.loops) - depth)


def _used(places: Sequence[Place], life: Lifetime) -> isl.Set:
    """The values of the loops around a buffer at which statements run in its lifetime."""
    out: isl.Set | None = None
    for p in places:
        if p.store.instance is not None and any(n is life for n in p.lifetimes.values()):
            here = _outer(p if p.guard is None else p.narrowed(p.guard), life)
            out = here if out is None else out.union(here)
    if out is None:
        copy = next(p for p in places if any(n is life for n in p.lifetimes.values()))
        return isl.Set.empty(_outer(copy, life).get_space())
    return out.coalesce()


def _condition(holds: isl.Set, context: isl.Set) -> Expr:
    """Membership in `holds`, within `context`, as an expression of the loop variables."""
    names = holds.get_var_names(SET)
    inside = holds.gist(context).coalesce().move_dims(PARAM, 0, SET, 0, len(names)).params()
    build = isl.AstBuild.from_context(isl.Set.universe(inside.get_space()))
    known = inside.get_var_names(PARAM)
    return to_expr(build.expr_from_set(inside), {n: Var(n) for n in known})


def _guarded(s: Stmt, conditions: dict[int, Expr]) -> Stmt:
    if isinstance(s, Store):
        return If(conditions[id(s)], s) if id(s) in conditions else s
    return with_bodies(s, tuple(_guarded(b, conditions) for b in s.bodies()))
