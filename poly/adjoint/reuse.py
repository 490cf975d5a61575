"""What the forward part has computed and stored is read, not computed again.

    Y[x] = exp(X[x] - t); ... g[x] = d[x] * exp(X[x] - t)   ->   Y[x] = exp(X[x] - t); ... g[x] = d[x] * Y[x]

The derivative of `exp(e)` (`tanh`, `sqrt`, ...) is made of `exp(e)`. Where a statement that runs anyway has stored that
value for the same iterations, the element still has it, and nothing that `e` reads has changed, one load is enough:
common subexpressions over statements instead of within one. Only values with a call of an elementary function count;
others cost no more than the load.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyc.poly.access import Access, accesses_of
from polyc.poly.adjoint.copies import flow_of, rewritten
from polyc.poly.expr import Call, Expr, loads, rewrite
from polyc.poly.ordering.order import in_order
from polyc.poly.scop import Scop, Statement


def stored_values_read(scop: Scop) -> Scop:
    """The Scop in which elementary functions that a statement has stored are not computed by another one again."""
    for s in list(scop.statements.values()):
        if _costly(s.value) and s.reduction is None and s.predicate is None and not s.dynamic:
            users = [t.name for t in scop.statements.values() if t is not s and t.iters == s.iters and _has(t, s.value)]
            if users and all(load.array != s.array for load in loads(s.value)) and not _changed(scop, s):
                for name in users:
                    scop = _read(scop, s, name)
    return scop


def _costly(e: Expr) -> bool:
    return isinstance(e, Call) or any(map(_costly, e.children()))


def _has(t: Statement, e: Expr) -> bool:
    found: list[Expr] = []

    def note(x: Expr) -> Expr:
        if x == e:
            found.append(x)
        return x

    rewrite(t.value, note)
    return bool(found)


def _changed(scop: Scop, s: Statement) -> bool:
    """Whether something writes an element after the statement has read it."""
    read = {load.array for load in loads(s.value)}
    pairs: dict[tuple[str, str], isl.Map] = {}
    for array in read:
        writers = [a for t in scop.statements for a in accesses_of(scop).get((t, array), ()) if a.write]
        for a in accesses_of(scop)[s.name, array]:
            for w in writers:
                pair, key = _touching(a, w), (s.name, w.stmt)
                pairs[key] = pairs[key].union(pair) if key in pairs else pair
    return bool(in_order(scop, pairs))


def _touching(a: Access, b: Access) -> isl.Map:
    return a.map.apply_range(b.map.reverse())


def _read(scop: Scop, s: Statement, user: str) -> Scop:
    """The Scop with a load of what `s` has stored in one of its users, if that sees the value of the same iteration."""
    t = scop.statements[user]
    new = rewritten(t, lambda e: s.target if e == s.value else e)
    made = replace(scop, statements={**scop.statements, user: new})
    flow = flow_of(made, s.array)
    if flow is None:
        return scop
    sources = {writer for writer, reader in flow if reader == user}
    if sources != {s.name}:
        return scop
    same = flow[s.name, user]
    domain = t.domain.intersect_params(scop.context)
    identity = isl.Map.identity(isl.Space.map_from_set(domain.get_space())).intersect_domain(domain)
    identity = identity.set_tuple_name(isl.dim_type.in_, s.name)
    return made if same.is_equal(identity) else scop
