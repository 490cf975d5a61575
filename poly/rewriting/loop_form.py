"""Loops in their normal form: what a program computes does not depend on where its loops begin, or on whether someone
has cut them into blocks.

    for b in range(0, N, 32): for i in range(b, min(b + 32, N)): S     ->  b: i: S[i], for S[b, i] (b follows i)
    for k in range(1, K + 1): Y[n, k - 1] += X[n, c] * W[c, k - 1]     ->  k from 0: Y[n, k] += X[n, c] * W[c, k]
    for j in range(4, N): s[j - 4] = f(j), s a copy for each j         ->  s[j] = f(j)

Iterators that others determine leave the statements; loops are shifted so that what is written, or else what is read,
has them as subscripts; copies of scalars have the iterators as subscripts. Order and values stay the same. (Loop
normalization: Allen and Kennedy, "Optimizing Compilers for Modern Architectures", section 4.2.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    Unary,
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
from polyc.poly.rewriting.choices import is_copy, loop_of, with_choices
from polyc.poly.rewriting.held_elements import with_held_elements
from polyc.poly.rewriting.loop_bounds import with_bounds
from polyc.poly.rewriting.specialise import fold
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Member, Node, loop_dim, loop_names, loops_below

FEW = 64
"""Elements that a dimension of symbolic size may grow by."""

Change = Mapping[str, tuple[Statement, isl.PwMultiAff]]
"""New statements and `{ new instance -> old instance }`."""


def normal_loops(scop: Scop) -> Scop:
    """The same program with loops in normal form, choices as values (`choices.py`), conditions on iterators as bounds
    (`loop_bounds.py`); the Scop itself where nothing changes."""
    marked = {m.loop for m in scop.marks}
    scop = with_held_elements(with_bounds(with_choices(scop), marked))
    for form in (_without_followers, _with_plain_subscripts, _with_plain_copies):
        scop = form(scop, marked)
    return scop


# ---- iterators that others determine -----------------------------------------------------------------


def _without_followers(scop: Scop, marked: set[str]) -> Scop:
    """Without iterators that the others determine: those of blocks that the program cuts its loops into."""
    for loop in loop_names(scop.tree):
        iters = None if loop in marked else _iterators(scop, loop)
        if iters is None or not all(_bound_to_others(scop.statements[n], i) for n, i in iters.items()):
            continue
        slim = _without_dims(scop, loop, iters)
        change = None if slim is None else _followers(slim, iters)
        if slim is not None and change is not None:
            scop = _changed(slim, change)
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
        domain = _called(points.domain(), rest)
        value = _simplest(isl.PwMultiAff.from_map(points).get_at(k), domain)
        others = iter(range(len(rest)))
        old = [value if x == k else loop_dim(domain, next(others)) for x in range(len(s.iters))]
        found[name] = replace(s, iters=rest, domain=domain), _points(old, s.domain)
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
        statements[name] = _mapped(replace(s, index=target.index), new)
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


def _points(old: Sequence[isl.PwAff], domain: isl.Set) -> isl.PwMultiAff:
    """`{ new instance -> old instance }` from the old iterators as functions of the new ones."""
    space = old[0].get_domain_space().map_from_domain_and_range(domain.get_space())
    found = isl.MultiPwAff.zero(space)
    for k, value in enumerate(old):
        found = found.set_at(k, value)
    return isl.PwMultiAff.from_multi_pw_aff(found)


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


def _simplest(value: isl.PwAff, domain: isl.Set) -> isl.PwAff:
    """The same on the domain, in one piece where one of its pieces holds everywhere."""
    for _, piece in value.get_pieces():
        whole = isl.PwAff.from_aff(piece)
        if domain.is_subset(whole.eq_set(value)):
            return whole
    return value


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
            return replace(e, index=tuple(_plus(x, -own.get(d, 0)) for d, x in enumerate(e.index)))
        return e

    arrays = dict(scop.arrays)
    for name, own in shifts.items():
        shape = tuple(_plus(n, -own.get(d, 0)) for d, n in enumerate(arrays[name].shape))
        arrays[name] = replace(arrays[name], shape=shape)
    statements = {}
    for name, s in scop.statements.items():
        target = new(s.target)
        assert isinstance(target, Load)
        statements[name] = _mapped(replace(s, index=target.index), new)
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


def _plus(e: Expr, by: int) -> Expr:
    """`e + by`, simplified."""
    if not by:
        return e
    if isinstance(e, Binary) and e.op in "+-" and isinstance(e.b, Const) and not isinstance(e.b.value, float):
        return _plus(e.a, by + (int(e.b.value) if e.op == "+" else -int(e.b.value)))
    return fold(Binary("+" if by > 0 else "-", e, const_int(abs(by)), i64))


# ---- where loops begin -------------------------------------------------------------------------------


def _with_plain_subscripts(scop: Scop, marked: set[str]) -> Scop:
    """With loops shifted so that what is written, or else what is read, has their iterators as subscripts."""
    for loop in loop_names(scop.tree):
        iters = None if loop in marked else _iterators(scop, loop)
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
        domain = _called(s.domain.preimage_multi_aff(back), s.iters)
        point = {i: Binary("-" if by > 0 else "+", Var(i), const_int(abs(by)), i64)}
        new = _mapped(replace(s, domain=domain), lambda e, p=point: _tidy(substitute(e, p)), whole=True)  # type: ignore[misc]
        change[name] = new, isl.PwMultiAff.from_multi_aff(back)
    return _changed(scop, change, {loop: by})


def _tidy(e: Expr) -> Expr:
    """The expression with the sums in it brought together."""
    whole = e.dtype == i64 and isinstance(e, Binary) and not any(isinstance(x, Cast) for x in walk(e))
    terms = terms_of(e) if whole else None
    if terms is None:
        kids = e.children()
        return e.with_children(tuple(map(_tidy, kids))) if kids else e
    constant, total = terms.pop("", 0), None
    for name, factor in sorted(terms.items(), key=lambda t: t[1] < 0):  # N - i, not -i + N
        size = abs(factor)
        term: Expr = Var(name) if size == 1 else Binary("*", const_int(size), Var(name), i64)
        if total is None:
            total = term if factor > 0 else Unary("neg", term, i64)
        else:
            total = Binary("+" if factor > 0 else "-", total, term, i64)
    return const_int(constant) if total is None else _plus(total, constant)


# ---- what they share ---------------------------------------------------------------------------------


def _iterators(scop: Scop, loop: str) -> dict[str, str] | None:
    """The iterator of each statement that a loop follows, None where it follows something else."""
    found = {}
    member = next(m for m in loops_below(scop.tree) if m.name == loop)
    for name, value in member.schedule.items():
        s = scop.statements[name]
        own = next((i for k, i in enumerate(s.iters) if value.plain_is_equal(loop_dim(s.domain, k))), None)
        if own is None or s.dynamic:
            return None
        found[name] = own
    return found


def _called(points: isl.Set, iters: tuple[str, ...]) -> isl.Set:
    """A domain with the iterators' names, which expressions go by."""
    points = points.coalesce()
    for k, name in enumerate(iters):
        points = points.set_dim_name(isl.dim_type.set, k, name)
    return points


def _mapped(s: Statement, new: Callable[[Expr], Expr], whole: bool = False) -> Statement:
    """The statement with `new` applied to each part of its expressions, or to each as a whole (subscripts of what it
    writes, too)."""
    each = new if whole else lambda e: rewrite(e, new)
    return replace(
        s,
        index=tuple(each(e) for e in s.index),
        value=each(s.value),
        predicate=None if s.predicate is None else each(s.predicate),
        dynamic=tuple(replace(d, lo=each(d.lo), hi=each(d.hi)) for d in s.dynamic),
    )


def _changed(scop: Scop, change: Change, shifts: Mapping[str, int] | None = None) -> Scop:
    """The program with new statements; loops in `shifts` have values that are larger by so much."""
    statements = {n: change[n][0] if n in change else s for n, s in scop.statements.items()}
    return replace(scop, statements=statements, tree=_moved(scop.tree, change, shifts or {}))


def _moved(node: Node, change: Change, shifts: Mapping[str, int]) -> Node:
    """The tree over the new instances."""
    kids = tuple(_moved(c, change, shifts) for c in node.children())
    if isinstance(node, Band):
        members = tuple(_member(m, change, shifts.get(m.name, 0)) for m in node.members)
        return Band(members, kids[0], node.permutable)
    if isinstance(node, Filter):
        domain = dict(node.domain)
        for name in domain.keys() & change.keys():
            new, back = change[name]
            domain[name] = _called(domain[name].preimage_pw_multi_aff(back).intersect(new.domain), new.iters)
        return Filter(domain, kids[0])
    return node.with_children(kids) if kids else node


def _member(m: Member, change: Change, by: int) -> Member:
    """The loop over the new instances, its values larger by so much."""
    schedule = dict(m.schedule)
    for name in schedule.keys() & change.keys():
        new, back = change[name]
        value = _simplest(schedule[name].pullback_pw_multi_aff(back).coalesce(), new.domain)
        schedule[name] = value.add_constant_val(isl.Val(by)) if by else value
    return replace(m, schedule=schedule)
