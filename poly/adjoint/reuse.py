"""What the forward part has computed and stored is read, not computed again.

    Y[x] = exp(X[x] - t); ... g[x] = d[x] * exp(X[x] - t)   ->   Y[x] = exp(X[x] - t); ... g[x] = d[x] * Y[x]

The derivative of `exp(e)` (`tanh`, `sqrt`, ...) is made of `exp(e)`. Where a statement that runs anyway has stored that
value for the same iterations, the element still has it, and nothing that `e` reads has changed, one load is enough:
common subexpressions over statements instead of within one. A tape that keeps the element has the value, too, also
when the element has changed. Only values with a call of an elementary function count; others cost no more than the
load.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyc.poly.adjoint.copies import flow_of, rewritten, written_after
from polyc.poly.expr import Call, Expr, Load, Var, loads, rewrite, substitute
from polyc.poly.scop import Scop, Statement


def stored_values_read(scop: Scop) -> Scop:
    """The Scop in which elementary functions that a statement has stored are not computed by another one again."""
    for s in list(scop.statements.values()):
        if _costly(s.value) and s.reduction is None and s.predicate is None and not s.dynamic:
            users = [t.name for t in scop.statements.values() if t is not s and t.iters == s.iters and _has(t, s.value)]
            read = {load.array for load in loads(s.value)}
            if users and s.array not in read and not written_after(scop, s.name, read):
                stores = [(s.name, s.target), *_copies(scop, s)]
                for name in users:
                    for store in stores:
                        scop = _read(scop, s, store, name)
    return scop


def _copies(scop: Scop, s: Statement) -> list[tuple[str, Load]]:
    """The statements that copy what `s` has stored, all of it, with the element in which each iteration of `s` finds
    its value."""
    readers = [t for t in scop.statements.values() if isinstance(t.value, Load) and t.value.array == s.array]
    plain = [t for t in readers if t.array != s.array and t.predicate is None and not t.dynamic]
    flow = flow_of(scop, s.array) if plain else None
    found: list[tuple[str, Load]] = []
    if flow is None:
        return found
    for t in plain:
        sources = {writer for writer, reader in flow if reader == t.name}
        if sources == {s.name} and len(t.iters) == len(s.iters):
            if flow[s.name, t.name].is_equal(_same_iteration(scop, s, t.name, s.domain)):
                there = substitute(t.target, {i: Var(j) for i, j in zip(t.iters, s.iters, strict=True)})
                assert isinstance(there, Load)
                found.append((t.name, there))
    return found


def _same_iteration(scop: Scop, s: Statement, reader: str, domain: isl.Set) -> isl.Map:
    """`{ s[i] -> reader[i] }` on a domain."""
    domain = domain.intersect_params(scop.context)
    identity = isl.Map.identity(isl.Space.map_from_set(domain.get_space())).intersect_domain(domain)
    return identity.set_tuple_name(isl.dim_type.in_, s.name).set_tuple_name(isl.dim_type.out, reader)


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


def _read(scop: Scop, s: Statement, store: tuple[str, Load], user: str) -> Scop:
    """The Scop with a load of what `s`, or a copy of it, has stored in one of its users, if that sees the value of the
    same iteration."""
    writer, element = store
    t = scop.statements[user]
    new = rewritten(t, lambda e: element if e == s.value else e)
    made = replace(scop, statements={**scop.statements, user: new})
    flow = flow_of(made, element.array) if new != t else None
    if flow is None or {w for w, reader in flow if reader == user} != {writer}:
        return scop
    same = _same_iteration(scop, s, user, t.domain).set_tuple_name(isl.dim_type.in_, writer)
    return made if flow[writer, user].is_equal(same) else scop
