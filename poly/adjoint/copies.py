"""Readers of a copy read what was copied, where nothing has changed it in between.

    tape[x] = Y[x]; ... tape[i] ...                    ->   ... Y[i] ...                     (Y is not written after it)
    adj[x] = d_Y[x]; ... adj[i] = adj[i] * v[i]; ...   ->   ... adj[i] = d_Y[i] * v[i]; ...

Each reader by itself, decided by exact flow: all that it sees of the array comes from the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import islpy as isl

from polyc.poly.access import accesses, accesses_of, accumulator_of
from polyc.poly.budgets import TIDYING, scaled
from polyc.poly.dependences import value_flow_among
from polyc.poly.expr import Expr, Load, Var, loads, rewrite
from polyc.poly.ordering.order import in_order
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.scop import Scop, Statement

Flow = dict[tuple[str, str], isl.Map]
"""By (writer, reader): `{ writer[i] -> reader[j] }`, the reader may see what the writer wrote."""


def flow_of(scop: Scop, array: str) -> Flow | None:
    """Which writes of an array its readers may see; None where that takes isl too long."""
    found: list[isl.Map] = []
    try:
        with quota(scaled(TIDYING)):
            value_flow_among(scop, [a for a in accesses(scop) if a.array == array], "RAW").foreach_map(found.append)
    except QuotaExceeded:
        return None
    out: Flow = {}
    for m in found:
        key = (m.get_tuple_name(isl.dim_type.in_), m.get_tuple_name(isl.dim_type.out))
        out[key] = out[key].union(m) if key in out else m
    return out


def past_copies(scop: Scop) -> Scop:
    """The Scop in which nobody reads a copy who can read the original; the copies themselves stay."""
    for name in [s.name for s in scop.statements.values() if _is_copy(scop, s)]:
        scop = _past(scop, scop.statements[name])
    return scop


def copies(scop: Scop) -> list[str]:
    """The arrays that get elements of others, and those others."""
    found = [s for s in scop.statements.values() if _is_copy(scop, s)]
    return sorted({name for s in found for name in (s.array, *(load.array for load in loads(s.value)))})


def _is_copy(scop: Scop, s: Statement) -> bool:
    """Whether a statement gives elements of a local array the elements of another one at the same place."""
    value = s.value
    if not isinstance(value, Load) or s.predicate is not None or s.dynamic or scop.arrays[s.array].kind != "local":
        return False
    source, copy = scop.arrays[value.array], scop.arrays[s.array]
    plain = s.index == value.index == tuple(map(Var, s.iters))
    return plain and source.shape == copy.shape and source.dtype == copy.dtype and not source.scalar


def _past(scop: Scop, s: Statement) -> Scop:
    assert isinstance(s.value, Load)
    source = s.value.array
    if not all(a.must for a in accesses(scop) if a.array == s.array and a.write) or changed_later(scop, s):
        return scop
    flow = flow_of(scop, s.array)
    if flow is None:
        return scop
    readers = {reader for writer, reader in flow if writer == s.name}
    readers -= {reader for writer, reader in flow if writer != s.name}

    def moved(e: Expr) -> Expr:
        return replace(e, array=source) if isinstance(e, Load) and e.array == s.array else e

    statements = {n: rewritten(t, moved) if n in readers else t for n, t in scop.statements.items()}
    return replace(scop, statements=statements)


def changed_later(scop: Scop, s: Statement) -> bool:
    """Whether something writes an element of the source after it was copied."""
    assert isinstance(s.value, Load)
    return written_after(scop, s.name, [s.value.array])


def written_after(scop: Scop, stmt: str, arrays: Collection[str]) -> bool:
    """Whether something writes an element of these arrays after a statement has read it."""
    pairs: dict[tuple[str, str], isl.Map] = {}
    for array in arrays:
        writers = [a for t in scop.statements for a in accesses_of(scop).get((t, array), ()) if a.write]
        for a in accesses_of(scop).get((stmt, array), ()):
            for w in () if a.write else writers:
                pair, key = a.map.apply_range(w.map.reverse()), (stmt, w.stmt)
                pairs[key] = pairs[key].union(pair) if key in pairs else pair
    return bool(pairs) and bool(in_order(scop, pairs))


def rewritten(s: Statement, fn: Callable[[Expr], Expr]) -> Statement:
    """A statement with other reads; its target stays, so a sum that no longer reads it is none."""
    own = accumulator_of(s)
    value = rewrite(s.value, fn)
    updates = own is None or fn(own) == own
    return replace(
        s, value=value, index=tuple(rewrite(e, fn) for e in s.index), reduction=s.reduction if updates else None,
        predicate=None if s.predicate is None else rewrite(s.predicate, fn),
        dynamic=tuple(replace(d, lo=rewrite(d.lo, fn), hi=rewrite(d.hi, fn)) for d in s.dynamic),
    )  # fmt: skip
