"""Panels of an array that is itself a copy are fetched from where its elements come from.

A convolution with padding writes zeros and then the image into a local array, and fetches panels from that. Which
value an element of such an array has in the end follows from the Scop: the last of its writers, of which each stores
a constant or an element of an array of the caller, all before anything is read. Composing the copy with that map
gives panels straight from the image (zero outside), and the array with the kernels that fill it is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.emit.loop_ir.loops import Alloc, Block, Function, If, Launch, Stmt, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs, with_bodies
from polyc.poly.access import Access, accesses
from polyc.poly.dependences import conflicts
from polyc.poly.expr import Const, Expr, Load, substitute
from polyc.poly.expr import walk as walk_expr
from polyc.poly.forms.affine_expr import function_expr, set_expr
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement


@dataclass(frozen=True)
class _Case:
    """Where `condition` holds of an element, its value; both in terms of its subscripts `@0`, `@1`, ..."""

    condition: Expr
    value: Expr


def propagate_copies(fn: Function, scop: Scop) -> Function:
    """`fn` without the local arrays that are only copied from."""
    return replace(fn, body=_visit(fn.body, scop))


def _visit(s: Stmt, scop: Scop) -> Stmt:
    s = with_bodies(s, tuple(_visit(b, scop) for b in s.bodies()))
    if not isinstance(s, Alloc) or s.buffer.space != "heap" or s.buffer.name not in scop.arrays:
        return s
    array = s.buffer.name
    launches = [x for x in walk(s.body) if isinstance(x, Launch)]
    filling = [x for x in launches if array in _stored(x)]
    if any(_stored(x) != {array} for x in filling) or any(not _only_copied(x, array) for x in launches):
        return s
    cases = _cases(scop, array)
    if cases is None:
        return s
    return _without(s.body, array, filling, cases)


def _stored(s: Stmt) -> set[str]:
    """What a launch stores to, its own buffers left out."""
    own = {x.buffer.name for x in walk(s) if isinstance(x, Alloc)}
    return {x.array for x in walk(s) if isinstance(x, Store)} - own


def _only_copied(s: Stmt, array: str) -> bool:
    """Whether the launch reads the array only to put elements elsewhere, one by one."""
    for x in walk(s):
        plain = isinstance(x, Store) and x.instance is None and isinstance(x.value, Load) and x.mask is None
        for top in stmt_exprs(x):
            for e in walk_expr(top):
                if isinstance(e, Load | VLoad) and e.array == array and not (plain and e is top):
                    return False
    return True


def _without(s: Stmt, array: str, filling: Sequence[Launch], cases: Sequence[_Case]) -> Stmt:
    if any(s is x for x in filling):
        return Block(())
    if isinstance(s, Store) and isinstance(s.value, Load) and s.value.array == array:
        at = {f"@{d}": e for d, e in enumerate(s.value.index)}
        *others, last = [(substitute(c.condition, at), substitute(c.value, at)) for c in cases]
        out: Stmt = _of(s, last[1])
        for condition, value in reversed(others):
            out = If(condition, _of(s, value), out)
        return out
    return with_bodies(s, tuple(_without(b, array, filling, cases) for b in s.bodies()))


def _of(s: Store, value: Expr) -> Store:
    """The copy, of another value: what is no element of an array is there at once."""
    return replace(s, value=value, asynchronous=s.asynchronous and isinstance(value, Load))


def _cases(scop: Scop, array: str) -> list[_Case] | None:
    """The values of the elements in the end, the last writer's first; None when that is not known."""
    touching = [a for a in accesses(scop) if a.array == array]
    writers = {a.stmt: a for a in touching if a.write}
    readers = [a for a in touching if not a.write]
    found = conflicts(scop).ordered
    if not readers or any(r.stmt in writers for r in readers):
        return None
    if not all(_copies(scop, scop.statements[w]) and a.must for w, a in writers.items()):
        return None
    if any((r.stmt, w) in found and not found[r.stmt, w].is_empty() for r in readers for w in writers):
        return None
    order = _last_first(list(writers), found)
    if order is None:
        return None
    every = readers[0].map.range()
    for r in readers[1:]:
        every = every.union(r.map.range())
    left, names, cases = every, tuple(f"@{d}" for d in range(every.dim(isl.dim_type.set))), []
    for name in order:
        here = writers[name].map.range().intersect(left)
        value = _value(scop.statements[name], writers[name], scop, here, names)
        if value is None:
            return None
        if not here.is_empty():
            cases.append(_Case(set_expr(here, names, left), value))
        left = left.subtract(here)
    return cases if cases and left.is_empty() else None


def _copies(scop: Scop, s: Statement) -> bool:
    """Whether a statement stores a constant, or an element of an array that nothing changes."""
    if s.reduction is not None or s.predicate is not None or s.dynamic:
        return False
    return isinstance(s.value, Const) or (isinstance(s.value, Load) and scop.arrays[s.value.array].kind == "in")


def _last_first(writers: list[str], found: Mapping[tuple[str, str], isl.Map]) -> list[str] | None:
    """The writers so that each comes before those whose elements it overwrites; None when they alternate."""
    out: list[str] = []
    while writers:
        free = [w for w in writers if all(_none(found.get((w, o))) for o in writers if o != w)]
        if not free or not _none(found.get((free[0], free[0]))):
            return None
        out.append(free[0])
        writers = [w for w in writers if w != free[0]]
    return out


def _none(pairs: isl.Map | None) -> bool:
    return pairs is None or bool(pairs.is_empty())


def _value(s: Statement, write: Access, scop: Scop, here: isl.Set, names: tuple[str, ...]) -> Expr | None:
    """What the statement stores in the elements `here`."""
    if isinstance(s.value, Const):
        return s.value
    assert isinstance(s.value, Load)
    read = next(a for a in accesses(scop) if a.stmt == s.name and not a.write)
    source = write.map.reverse().apply_range(read.map).intersect_domain(here)
    if not read.must or not source.is_single_valued():
        return None
    parts = isl.PwMultiAff.from_map(source)
    index = tuple(function_expr(parts.get_pw_aff(d), names, here) for d in range(len(s.value.index)))
    return replace(s.value, index=index)
