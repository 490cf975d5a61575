"""Loops in their normal form: what a program computes does not depend on where its loops begin, or on whether someone
has cut them into blocks.

    for b in range(0, N, 32): for i in range(b, min(b + 32, N)): S     ->  b: i: S[i], for S[b, i] (b follows i)
    for k in range(1, K + 1): Y[n, k - 1] += X[n, c] * W[c, k - 1]     ->  k from 0: Y[n, k] += X[n, c] * W[c, k]
    for j in range(4, N): s[j - 4] = f(j), s a copy for each j         ->  s[j] = f(j)
    for p in range(M * 8): Y[p // 8, p % 8] = f(p)                     ->  i: j: Y[i, j] = f(8 * i + j)
    Y[8 * i + j] = f(i, j)                                             ->  Y[i, j] = f(i, j)

Iterators that others determine leave the statements; loops are shifted so that what is written, or else what is read,
has them as subscripts; copies of scalars have the iterators as subscripts. Order and values stay the same. (Loop
normalization: Allen and Kennedy, "Optimizing Compilers for Modern Architectures", section 4.2.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.dtypes import i64
from polyc.poly.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Var,
    const_int,
    loads,
    rewrite,
    substitute,
    variables,
    walk,
)
from polyc.poly.forms.affine import terms_of
from polyc.poly.forms.ranges import smallest
from polyc.poly.rewriting.changed_loops import (
    Change,
    called,
    changed,
    iterators_of,
    mapped,
    plus,
    points_of,
    simplest,
    tidy,
)
from polyc.poly.rewriting.choices import is_copy, loop_of, with_choices
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import loop_dim, loop_names

FEW = 64
"""Elements that a dimension of symbolic size may grow by."""


def normal_loops(scop: Scop) -> Scop:
    """The same program with loops in normal form, choices as values (`choices.py`), conditions on iterators as bounds
    (`loop_bounds.py`); the Scop itself where nothing changes."""
    marked = {m.loop for m in scop.marks}
    scop = with_choices(scop)
    if any(s.predicate is not None for s in scop.statements.values()):
        from polyc.poly.rewriting.counted_loops import with_counted_loops
        from polyc.poly.rewriting.held_elements import with_held_elements
        from polyc.poly.rewriting.loop_bounds import with_bounds
        from polyc.poly.rewriting.loop_ends import with_ends

        scop = with_held_elements(with_bounds(with_ends(with_counted_loops(scop, marked), marked), marked))
    if _has_linear_subscripts(scop):
        from polyc.poly.rewriting.coalesced_loops import with_loops_of_boxes
        from polyc.poly.rewriting.flat_arrays import with_dimensions

        scop = with_dimensions(with_loops_of_boxes(scop, marked), marked)
    for form in (_without_followers, _with_plain_subscripts, _with_plain_copies):
        scop = form(scop, marked)
    return scop


def _has_linear_subscripts(scop: Scop) -> bool:
    """Whether a subscript multiplies or divides, or a domain has remainders."""
    for s in scop.statements.values():
        every = [s.target, *(load for e in _expressions(s) for load in loads(e))]
        if any(isinstance(x, Binary) and x.op in ("*", "//", "%") for a in every for e in a.index for x in walk(e)):
            return True
    return any(b.dim(isl.dim_type.div) for s in scop.statements.values() for b in s.domain.get_basic_sets())


# ---- iterators that others determine -----------------------------------------------------------------


def _without_followers(scop: Scop, marked: set[str]) -> Scop:
    """Without iterators that the others determine: those of blocks that the program cuts its loops into."""
    for loop in loop_names(scop.tree):
        iters = None if loop in marked else iterators_of(scop, loop, dynamic=True)
        if iters is None or not all(_bound_to_others(scop.statements[n], i) for n, i in iters.items()):
            continue
        slim = _without_dims(scop, loop, iters)
        change = None if slim is None else _followers(slim, iters)
        if slim is not None and change is not None:
            scop = changed(slim, change)
    return scop


def _followers(scop: Scop, iters: Mapping[str, str]) -> Change | None:
    """Statements without an iterator each, None where one of them needs it."""
    found = {}
    for name, i in iters.items():
        s = scop.statements[name]
        if i in _used(s):
            return None
        k = s.iters.index(i)
        every = isl.Map.identity(s.domain.get_space().map_from_set()).intersect_range(s.domain)
        points = every.project_out(isl.dim_type.in_, k, 1).set_tuple_name(isl.dim_type.in_, name)
        if not points.is_single_valued():
            return None
        rest = tuple(x for x in s.iters if x != i)
        domain = called(points.domain(), rest)
        value = simplest(isl.PwMultiAff.from_map(points).get_at(k), domain)
        others = iter(range(len(rest)))
        old = [value if x == k else loop_dim(domain, next(others)) for x in range(len(s.iters))]
        found[name] = replace(s, iters=rest, domain=domain), points_of(old, s.domain)
    return found


def _without_dims(scop: Scop, loop: str, iters: Mapping[str, str]) -> Scop | None:
    """The program without the dimensions that local arrays have for a loop around all of their accesses: the other
    subscripts of an element say which iteration it belongs to. None where they do not."""
    dims: dict[str, int] = {}
    for array in scop.arrays.values():
        if array.kind == "local" and any(a.array == array.name and a.stmt in iters for a in accesses(scop)):
            moved = [d for d in range(len(array.shape)) if loop_of(scop, array.name, d) == loop]
            if moved and (len(moved) > 1 or not _needless(scop, array, moved[0])):
                return None
            if moved:
                dims[array.name] = moved[0]
    if not dims:
        return scop

    def new(e: Expr) -> Expr:
        if isinstance(e, Load) and e.array in dims:
            d = dims[e.array]
            return replace(e, index=(*e.index[:d], *e.index[d + 1 :]))
        return e

    arrays = dict(scop.arrays)
    for name, d in dims.items():
        a = arrays[name]
        arrays[name] = replace(a, shape=(*a.shape[:d], *a.shape[d + 1 :]), expanded=a.expanded - (d < a.expanded))
    statements = {}
    for name, s in scop.statements.items():
        target = new(rewrite(s.target, new) if s.array not in dims else s.target)
        assert isinstance(target, Load)
        statements[name] = mapped(replace(s, index=target.index), new)
    return replace(scop, arrays=arrays, statements=statements)


def _needless(scop: Scop, array: Array, d: int) -> bool:
    """Whether the other subscripts of each element that is touched determine subscript `d`."""
    cells = [a.map.range() for a in accesses(scop) if a.array == array.name]
    if not cells:
        return False
    every = cells[0]
    for c in cells[1:]:
        every = every.union(c)
    last = isl.Map.from_domain(every).move_dims(isl.dim_type.out, 0, isl.dim_type.in_, d, 1)
    return bool(last.is_single_valued())


def _bound_to_others(s: Statement, i: str) -> bool:
    """Whether the range of the iterator and that of another one may have to do with each other, or there is one value
    only."""
    k, parts = s.iters.index(i), s.domain.get_basic_sets()
    if s.domain.plain_get_val_if_fixed(isl.dim_type.set, k).is_int():
        return True
    others = [x for x in range(len(s.iters)) if x != k]
    return len(parts) > 1 or any(
        c.involves_dims(isl.dim_type.set, k, 1) and any(c.involves_dims(isl.dim_type.set, x, 1) for x in others)
        for part in parts
        for c in part.get_constraints()
    )


def _used(s: Statement) -> set[str]:
    """Variables of what a statement writes, reads and computes."""
    return set().union(*(variables(e) for e in _expressions(s)))


def _expressions(s: Statement) -> Iterator[Expr]:
    yield from (*s.index, s.value)
    if s.predicate is not None:
        yield s.predicate
    for d in s.dynamic:
        yield from (Var(d.iter), d.lo, d.hi)


# ---- copies of scalars -------------------------------------------------------------------------------


def _with_plain_copies(scop: Scop, marked: set[str]) -> Scop:
    """With the iterators of the loops as subscripts of scalars' copies."""
    shifts: dict[str, dict[int, int]] = {}
    for array in scop.arrays.values():
        if not is_copy(scop, array.name):
            continue
        seen = [(a.stmt, a.load.index) for a in accesses(scop) if a.array == array.name]
        for d in range(len(array.shape)):
            found = {_shift(index[d]) for _, index in seen}
            by = found.pop() if len(found) == 1 else None
            if by and -by <= _most_of(array.shape[d]) and all(_from_zero(scop.statements[n], x[d]) for n, x in seen):
                shifts.setdefault(array.name, {})[d] = by
    if not shifts:
        return scop

    def new(e: Expr) -> Expr:
        if isinstance(e, Load) and e.array in shifts:
            own = shifts[e.array]
            return replace(e, index=tuple(plus(x, -own.get(d, 0)) for d, x in enumerate(e.index)))
        return e

    arrays = dict(scop.arrays)
    for name, own in shifts.items():
        shape = tuple(plus(n, -own.get(d, 0)) for d, n in enumerate(arrays[name].shape))
        arrays[name] = replace(arrays[name], shape=shape)
    statements = {}
    for name, s in scop.statements.items():
        target = new(s.target)
        assert isinstance(target, Load)
        statements[name] = mapped(replace(s, index=target.index), new)
    return replace(scop, arrays=arrays, statements=statements)


def _from_zero(s: Statement, subscript: Expr) -> bool:
    """Whether the iterator in a subscript is never negative."""
    (name,) = variables(subscript)
    least = smallest(s.domain, s.iters.index(name)) if name in s.iters else None
    return least is not None and least >= 0


def _most_of(size: Expr) -> int:
    """By how much a dimension may grow: its own size, or a few where that is a symbol."""
    return int(size.value) if isinstance(size, Const) else FEW


def _shift(e: Expr) -> int | None:
    """`c` of a subscript `i + c`."""
    terms = None if any(isinstance(x, Cast) for x in walk(e)) else terms_of(e)
    if terms is None:
        return None
    by = terms.pop("", 0)
    return by if list(terms.values()) == [1] else None


# ---- where loops begin -------------------------------------------------------------------------------


def _with_plain_subscripts(scop: Scop, marked: set[str]) -> Scop:
    """With loops shifted so that what is written, or else what is read, has their iterators as subscripts."""
    for loop in loop_names(scop.tree):
        iters = None if loop in marked else iterators_of(scop, loop)
        by = None if iters is None else _wanted(scop, iters)
        if iters is not None and by:
            scop = _shifted(scop, loop, iters, by)
    return scop


def _wanted(scop: Scop, iters: Mapping[str, str]) -> int | None:
    """By how much a loop is to be shifted."""
    written: set[int] = set()
    read: set[int] = set()
    for name, i in iters.items():
        s = scop.statements[name]
        if s.dynamic:
            return None
        if not is_copy(scop, s.array):
            written |= _shifts(s.index, i)
        values = (s.value,) if s.predicate is None else (s.value, s.predicate)
        for load in (x for e in values for x in loads(e) if x.array != s.array and not is_copy(scop, x.array)):
            read |= _shifts(load.index, i)
    found = written or read
    if 0 in read:  # what is read has the iterator as it is: a copy to another place
        return None
    return next(iter(found)) if len(found) == 1 else None


def _shifts(index: tuple[Expr, ...], i: str) -> set[int]:
    """The `c` of subscripts `i + c`."""
    found = set()
    for e in index:
        by = _shift(e) if variables(e) == {i} else None
        if by is not None:
            found.add(by)
    return found


def _shifted(scop: Scop, loop: str, iters: Mapping[str, str], by: int) -> Scop:
    """The program with `i + by` as the loop's values and iterators."""
    change = {}
    for name, i in iters.items():
        s = scop.statements[name]
        k = s.iters.index(i)
        back = isl.MultiAff.identity(s.domain.get_space().map_from_set())
        back = back.set_aff(k, back.get_aff(k).add_constant_val(isl.Val(-by)))
        domain = called(s.domain.preimage_multi_aff(back), s.iters)
        point = {i: Binary("-" if by > 0 else "+", Var(i), const_int(abs(by)), i64)}
        new = mapped(replace(s, domain=domain), lambda e, p=point: tidy(substitute(e, p)), whole=True)  # type: ignore[misc]
        change[name] = new, isl.PwMultiAff.from_multi_aff(back)
    return changed(scop, change, {loop: by})
