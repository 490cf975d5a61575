"""The second proof: the loops execute exactly the Scop's domain, every instance once.

Read back from the loop IR alone (bounds, conditions, instance expressions), not from the
schedule: a mistake in the schedule tree, in isl's AST or in its translation shows here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import islpy as isl

from emit.linear import operands
from emit.loops import Block, For, Function, If, Let, Stmt, Store
from poly.affine import NotAffine, depends_on_memory, to_pw_aff, to_set
from poly.dtypes import bool_
from poly.errors import BuildError
from poly.expr import Binary, Expr, Unary, Var, const_int, substitute, walk
from poly.quota import QuotaExceeded, quota
from poly.scop import Scop


@dataclass(frozen=True)
class _Nest:
    """Loops around a statement and the affine conditions on them."""

    vars: tuple[str, ...] = ()
    conditions: tuple[Expr, ...] = ()
    lets: tuple[tuple[str, Expr], ...] = ()

    def resolved(self, e: Expr) -> Expr:
        for name, value in reversed(self.lets):
            e = substitute(e, {name: value})
        return e


PROOF_QUOTA = 20_000_000  # isl operations, some seconds


def proven(scop: Scop, fn: Function) -> Function:
    """`fn`, after `prove_domain`; a note says so if isl could not decide within its quota."""
    try:
        with quota(PROOF_QUOTA):
            prove_domain(scop, fn)
    except QuotaExceeded as e:
        return replace(fn, notes=(*fn.notes, f"the proof of the executed domain was given up: {e}"))
    return fn


def prove_domain(scop: Scop, fn: Function) -> None:
    """Check that `fn`, as generated (before loops are expanded), runs each instance once.

    Conditions that read memory are the statements' own predicates and are not part of the
    domain. Data-dependent loops must still have their static over-approximation.

    Raises:
        BuildError: instances are missing, added or repeated; the text gives one of them.
    """
    images: dict[str, list[isl.Map]] = {}
    for store, nest in _stores(fn.body, _Nest()):
        if store.instance is not None:
            images.setdefault(store.instance[0], []).append(_executed(scop, fn, store, nest))
    for stmt in scop.statements.values():
        wanted = stmt.domain.intersect_params(scop.context)
        done = isl.Set.empty(wanted.get_space())
        for m in images.get(stmt.name, []):
            image = m.range()
            if not m.is_injective() or not done.is_disjoint(image):
                raise BuildError(f"{fn.name}: the loops run some instance of {stmt.name} twice")
            done = done.union(image)
        for what, wrong in (("miss", wanted.subtract(done)), ("wrongly run", done.subtract(wanted))):
            if not wrong.is_empty():
                raise BuildError(f"{fn.name}: the loops {what} {wrong.sample_point()} of {stmt.name}")


def _stores(s: Stmt, nest: _Nest) -> Iterator[tuple[Store, _Nest]]:
    if isinstance(s, Store):
        yield s, nest
    elif isinstance(s, For):
        v = Var(s.var)
        # argument by argument: `max` and `min` as functions would cut the set in pieces
        conditions = [Binary(">=", v, e, bool_) for e in operands(s.lo, "max")]
        conditions += [Binary("<", v, e, bool_) for e in operands(s.hi, "min")]
        if s.step != 1:
            remainder = Binary("%", Binary("-", v, s.lo, v.dtype), const_int(s.step), v.dtype)
            conditions.append(Binary("==", remainder, const_int(0), bool_))
        extra = tuple(nest.resolved(c) for c in conditions)
        yield from _stores(s.body, _Nest((*nest.vars, s.var), (*nest.conditions, *extra), nest.lets))
    elif isinstance(s, If):
        cond = nest.resolved(s.cond)
        affine = _is_affine(cond, nest.vars)
        then = (cond,) if affine else ()
        yield from _stores(s.then, _Nest(nest.vars, (*nest.conditions, *then), nest.lets))
        if s.orelse is not None:
            other = (Unary("not", cond, cond.dtype),) if affine else ()
            yield from _stores(s.orelse, _Nest(nest.vars, (*nest.conditions, *other), nest.lets))
    elif isinstance(s, Let):
        yield from _stores(s.body, _Nest(nest.vars, nest.conditions, (*nest.lets, (s.name, nest.resolved(s.value)))))
    elif isinstance(s, Block) or s.bodies():
        for b in s.bodies():
            yield from _stores(b, nest)


def _is_affine(cond: Expr, vars: tuple[str, ...]) -> bool:
    """Whether a condition can come from the domain; others (`A[i] > 0`, `i * j > 3`) are predicates."""
    if depends_on_memory(cond):
        return False
    params = sorted({e.name for e in walk(cond) if isinstance(e, Var)} - set(vars))
    try:
        to_set(cond, isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=list(vars), params=params))
    except NotAffine:
        return False
    return True


def _executed(scop: Scop, fn: Function, store: Store, nest: _Nest) -> isl.Map:
    """`{ [loop variables] -> S[iterators] }` of one store."""
    assert store.instance is not None
    name, values = store.instance
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=list(nest.vars), params=list(fn.params))
    points = isl.Set.universe(space)
    try:
        for c in nest.conditions:
            points = points.intersect(to_set(c, space))
        parts = [to_pw_aff(nest.resolved(e), space) for e in values]
    except NotAffine as e:
        raise BuildError(f"{fn.name}: the loops around {name} are not affine ({e})") from None
    target = scop.statements[name].domain.get_space()
    result = isl.MultiPwAff.zero(space.map_from_domain_and_range(target.align_params(space)))
    for d, part in enumerate(parts):
        result = result.set_pw_aff(d, part)
    return isl.Map.from_multi_pw_aff(result).intersect_domain(points).intersect_params(scop.context)
