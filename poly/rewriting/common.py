"""Common subexpressions of a Scop's statements: two arrays that get the same values become one.

    T[i] = exp(X[i + 1]);  U[j] = exp(X[j])  (j within what T has)    ->    readers of U[e] read T[e - 1]

Statements are equal by their access maps, not by their spelling: instance j of one does what instance i of the other
does if all subscripts and affine parts of their values agree, which is a relation between instances that isl solves.
Whether what both read is the same, and whether readers find the value in time, is decided by exact flow of values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import islpy as isl

from polyc.poly.access import accesses, accesses_of
from polyc.poly.adjoint.copies import Flow, flow_of, rewritten
from polyc.poly.adjoint.trees import in_place
from polyc.poly.cache import per_scop
from polyc.poly.expr import Const, Expr, Load, Select, Var, loads, rewrite, walk
from polyc.poly.forms.affine import NotAffine, set_space, to_pw_aff
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Leaf, loop_names


@per_scop
def without_common(scop: Scop) -> Scop:
    """The Scop in which no local array has the values that another array has; the Scop itself where there is none."""
    if not any(a.kind == "local" for a in scop.arrays.values()):
        return scop
    while (found := next(_merged(scop), None)) is not None:
        scop = found
    return scop


def _merged(scop: Scop) -> Iterator[Scop]:
    """The Scops with two arrays as one."""
    writers: dict[str, list[Statement]] = {}
    for s in scop.statements.values():
        writers.setdefault(s.array, []).append(s)
    known = [n for n, those in writers.items() if all(s.predicate is None and not s.dynamic for s in those)]
    for names in _grouped(known, lambda n: tuple((s.reduction, type(s.value)) for s in writers[n])):
        for alike in _grouped(names, lambda n: tuple(_form(s) for s in writers[n])):
            for kept in alike:
                for gone in alike:
                    if gone != kept and scop.arrays[gone].kind == "local" and _fit(scop, kept, gone):
                        found = _as_one(scop, kept, gone, list(zip(writers[kept], writers[gone], strict=True)))
                        if found is not None:
                            yield found


def _grouped(names: Sequence[str], key: Callable[[str], Hashable]) -> list[list[str]]:
    """The names with equal keys, but for those that are alone."""
    found: dict[Hashable, list[str]] = {}
    for n in names if len(names) > 1 else ():
        found.setdefault(key(n), []).append(n)
    return [those for those in found.values() if len(those) > 1]


def _fit(scop: Scop, kept: str, gone: str) -> bool:
    a, b = scop.arrays[kept], scop.arrays[gone]
    return a.dtype == b.dtype and a.kind in ("local", "out")


def _form(s: Statement) -> Expr:
    """The value without anything that is affine: what two statements must have in common at least."""
    own = s.array

    def plain(e: Expr) -> Expr:
        if isinstance(e, Load):
            return replace(e, array="" if e.array == own else e.array, index=(), span=None)
        return Const(0, e.dtype) if isinstance(e, Var) else e

    return rewrite(s.value, plain)


Pairs = Sequence[tuple[Statement, Statement]]
"""Statements that write the array that is kept, each with the one that does the same for the other array."""


def _as_one(scop: Scop, kept: str, gone: str, pairs: Pairs) -> Scop | None:
    """The Scop without an array whose values another one has; None where it has not."""
    arrays = {gone: kept}
    if any(load.array == other for a, b in pairs for s, other in ((a, gone), (b, kept)) for load in _loads(s)):
        return None
    same = [_same(scop, a, b, arrays) for a, b in pairs]
    maps = {b.name: m for (_, b), m in zip(pairs, same, strict=True) if m is not None}
    if len(maps) < len(pairs):
        return None
    summed = any(s.reduction is not None or s.array in {x.array for x in loads(s.value)} for s, _ in pairs)
    if len(pairs) > 1 or summed:
        if summed and not scop.reassociate or not all(_identical(scop, a, b, maps[b.name]) for a, b in pairs):
            return None
        maps = {b.name: _by_name(b.domain, b.name, a.name) for a, b in pairs}
    elif not all(map(_once, (accesses_of(scop)[s.name, s.array][-1].map for s in pairs[0]))):
        return None
    maps = {n: m.lexmin() for n, m in maps.items()}
    if not _reads_alike(scop, pairs, maps):
        return None
    (first, second), *_ = pairs
    place = _write(scop, second).reverse().apply_range(maps[second.name]).apply_range(_write(scop, first))
    made = _redirected(scop, arrays, [b.name for _, b in pairs], place)
    return made if made is not None and _found_in_time(scop, made, kept, gone, pairs, maps) else None


def _loads(s: Statement) -> Iterator[Load]:
    for e in (s.value, *s.index):
        yield from loads(e)


def _write(scop: Scop, s: Statement) -> isl.Map:
    return accesses_of(scop)[s.name, s.array][-1].map


def _once(m: isl.Map) -> bool:
    """Whether each instance writes one element, and no element is written twice."""
    return bool(m.is_single_valued()) and bool(m.is_injective())


def _by_name(domain: isl.Set, source: str, target: str) -> isl.Map:
    """`{ source[i] -> target[i] }`."""
    identity = isl.Map.identity(isl.Space.map_from_set(domain.get_space())).intersect_domain(domain)
    return identity.set_tuple_name(isl.dim_type.in_, source).set_tuple_name(isl.dim_type.out, target)


def _same(scop: Scop, a: Statement, b: Statement, arrays: Mapping[str, str]) -> isl.Map | None:
    """`{ b[j] -> a[i] }`: the instances of `a` that compute what b[j] does; None where some j has none."""
    spaces = set_space(a.name, a.iters, scop.params), set_space(b.name, b.iters, scop.params)
    parts: list[tuple[isl.PwAff, isl.PwAff]] = []
    if not _unified(a.value, b.value, spaces, arrays, parts):
        return None
    domain = b.domain.intersect_params(scop.context)
    found = isl.Map.from_domain_and_range(domain, a.domain.intersect_params(scop.context))
    for x, y in parts:
        equal = isl.Map.from_pw_aff(y).apply_range(isl.Map.from_pw_aff(x).reverse())
        found = found.intersect(equal)
    return found if domain.is_subset(found.domain()) else None


def _unified(a: Expr, b: Expr, spaces: tuple[isl.Space, isl.Space], arrays: Mapping[str, str],
             parts: list[tuple[isl.PwAff, isl.PwAff]]) -> bool:  # fmt: skip
    """Whether two expressions are the same where all `parts`, which this fills, have equal values."""
    if a.dtype != b.dtype:
        return False
    if a.dtype.is_int:
        try:
            parts.append((to_pw_aff(a, spaces[0]), to_pw_aff(b, spaces[1])))
            return True
        except NotAffine:
            pass
    if isinstance(a, Load) and isinstance(b, Load):
        if a.array != arrays.get(b.array, b.array) or len(a.index) != len(b.index):
            return False
    elif a.with_children(b.children()) != b if len(a.children()) == len(b.children()) else True:
        return False
    return all(_unified(x, y, spaces, arrays, parts) for x, y in zip(a.children(), b.children(), strict=True))


def _identical(scop: Scop, a: Statement, b: Statement, same: isl.Map) -> bool:
    """Whether two statements are one but for their names and those of their arrays."""
    if len(a.iters) != len(b.iters) or not b.domain.set_tuple_name(a.name).is_equal(a.domain):
        return False
    both = _by_name(b.domain.intersect_params(scop.context), b.name, a.name)
    write = _write(scop, b).set_tuple_name(isl.dim_type.in_, a.name).set_tuple_name(isl.dim_type.out, a.array)
    return bool(both.is_subset(same)) and bool(write.is_equal(_write(scop, a)))


def _reads_alike(scop: Scop, pairs: Pairs, maps: Mapping[str, isl.Map]) -> bool:
    """Whether both see the same values of what they read: those of the same instances of the same writers."""
    written = {s.array for s in scop.statements.values()}
    own = dict(zip((b.name for _, b in pairs), (a.name for a, _ in pairs), strict=True))
    for a, b in pairs:
        for array in {x.array for x in _loads(b)} & written:
            there = a.array if array == b.array else array
            here, other = flow_of(scop, array), flow_of(scop, there)
            if here is None or other is None:
                return False
            of_b = {own.get(w, w): _onto(m, maps.get(w)) for (w, r), m in here.items() if r == b.name}
            back = maps[b.name].reverse()
            of_a = {w: m.apply_range(back) for (w, r), m in other.items() if r == a.name}
            if not _equal(of_b, of_a):
                return False
    return True


def _onto(m: isl.Map, to: isl.Map | None) -> isl.Map:
    return m if to is None else m.apply_domain(to)


def _equal(a: Mapping[Any, isl.Map], b: Mapping[Any, isl.Map]) -> bool:
    """Whether two families of relations are equal; one that is missing is empty."""
    return all(a[k].is_equal(b[k]) if k in a and k in b else (a if k in a else b)[k].is_empty() for k in {**a, **b})


def _redirected(scop: Scop, arrays: Mapping[str, str], gone: Sequence[str], place: isl.Map) -> Scop | None:
    """The Scop whose readers read the array that is kept, without the statements `gone`; None where a subscript would
    be none of one piece. `place`: from elements to elements."""
    ((old, new),) = arrays.items()
    moved: dict[tuple[str, Load], Load] = {}
    plain = place.is_subset(_by_name(place.domain(), old, new))
    for a in accesses(scop):
        if a.array != old or a.stmt in gone:
            continue
        if a.write or not plain and (not a.must or not a.map.range().is_subset(place.domain())):
            return None
        s = scop.statements[a.stmt]
        at = a.load.index if plain else _subscripts(a.map.apply_range(place), s)
        if at is None or moved.setdefault((a.stmt, a.load), replace(a.load, array=new, index=at)).index != at:
            return None

    def renamed(s: Statement) -> Statement:
        return rewritten(s, lambda e: moved.get((s.name, e), e) if isinstance(e, Load) else e)

    statements = {n: renamed(s) for n, s in scop.statements.items() if n not in gone}
    found = in_place(scop.tree, {n: [s] for n, s in statements.items()}, str)
    tree = Leaf() if found is None else found
    marks = tuple(m for m in scop.marks if m.loop in loop_names(tree))
    kept = {n: a for n, a in scop.arrays.items() if n != old}
    return replace(scop, arrays=kept, statements=statements, tree=tree, marks=marks)


def _subscripts(m: isl.Map, s: Statement) -> tuple[Expr, ...] | None:
    """The elements of a relation as subscripts of a statement; None where one has several cases."""
    if not m.is_single_valued():
        return None
    of = isl.PwMultiAff.from_map(m)
    found = tuple(function_expr(of.get_at(k), s.iters, m.domain()) for k in range(m.dim(isl.dim_type.out)))
    return None if any(isinstance(x, Select) for e in found for x in walk(e)) else found


def _found_in_time(scop: Scop, made: Scop, kept: str, gone: str, pairs: Pairs, maps: Mapping[str, isl.Map]) -> bool:
    """Whether readers of the array that is gone see the values of the same instances in the other one."""
    before, other, after = flow_of(scop, kept), flow_of(scop, gone), flow_of(made, kept)
    if before is None or other is None or after is None:
        return False
    own = {b.name: a.name for a, b in pairs}
    wanted: Flow = dict(before)
    for (writer, reader), m in other.items():
        if reader not in own:
            key = own[writer], reader
            more = m.apply_domain(maps[writer])
            wanted[key] = wanted[key].union(more) if key in wanted else more
    return _equal(wanted, after)
