"""Dead code inside a Scop: only the instances run whose values a result needs.

    T[i] = exp(X[i]) for 0 <= i < 64;  Y[i] = T[i] + 1 for 0 <= i < 32    ->    both for 0 <= i < 32, T has 32 elements

Liveness is a backward slice along the flow of values (Feautrier, "Dataflow analysis of array and scalar references",
1991), so that an instance is dead, too, if everything that it writes is overwritten before anybody reads it. Of each
statement the convex hull of the live instances stays: a loop nest with a hole is slower than what it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

import islpy as isl

from polyc.poly.access import Access, accesses
from polyc.poly.adjoint.algebra import less
from polyc.poly.adjoint.copies import rewritten
from polyc.poly.adjoint.trees import in_place
from polyc.poly.cache import instances, per_scop
from polyc.poly.dependences import value_flow_among
from polyc.poly.expr import Const, Expr, Load, const_int
from polyc.poly.forms.ranges import bounds, points_of_box
from polyc.poly.ordering.order import in_order
from polyc.poly.rewriting.part import touched
from polyc.poly.rewriting.specialise import fix_params, fold
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Leaf, Node, loop_names, time_map

ROUNDS = 32
"""How often what is needed may be handed on from statement to statement; programs that need more stay as they are."""

MOST = 5 / 8
"""A statement of which more is needed runs whole: to leave out the borders of padded images and of tiles saves little,
and odd extents and split loops cost time."""

SOME = 64
"""A size for those that are symbols, where it is only asked how much of a statement is needed."""

Edges = Mapping[tuple[str, str], isl.Map]
"""By (reader, writer): from an instance to those whose values it may see."""


def without_dead(scop: Scop) -> Scop:
    """The Scop without instances whose values no result needs, without statements that have none left, and with local
    arrays as long as what is left of them (where sizes are numbers). The Scop itself where there is nothing to leave
    out."""
    live = _live(scop)
    if live is None or all(n in live and live[n].is_equal(_whole(scop, n)) for n in scop.statements):
        return scop
    return _shrunk(with_domains(scop, live))


def without_dead_statements(scop: Scop) -> Scop:
    """The same, but statements of which some instances are needed stay whole."""
    live = _live(scop)
    if live is None or all(n in live for n in scop.statements):
        return scop
    return with_domains(scop, {n: _whole(scop, n) for n in live})


@per_scop
def _live(scop: Scop) -> Mapping[str, isl.Set] | None:
    """By statement the instances that run; None: all of them."""
    suspects = _suspects(scop)
    return _needed(scop, suspects) if suspects else None


# ---- what may be dead ---------------------------------------------------------------------------


def _suspects(scop: Scop) -> frozenset[str]:
    """Arrays of which much may be written in vain: a local array of which a part is not read, or an array of which one
    statement may overwrite what another one has written. Everything else needs no isl flow: every Scop is asked."""
    found = set()
    by_array: dict[str, list[Access]] = {}
    for a in accesses(scop):
        by_array.setdefault(a.array, []).append(a)
    for name, here in by_array.items():
        writes = [a for a in here if a.write]
        if not writes:
            continue
        if scop.arrays[name].kind == "local" and not _all_read(writes, [a for a in here if not a.write]):
            found.add(name)
        elif len({a.stmt for a in writes}) > 1 and _overwritten(writes, here):
            found.add(name)
    return frozenset(found)


def _all_read(writes: list[Access], reads: list[Access]) -> bool:
    """Whether other statements read most of what each statement writes, judged by the boxes around both."""
    # The usual case, an element read as it is written, needs none of isl's sets of elements.
    left = [w for w in writes if not any(r.load.index == w.load.index and _same_points(r, w) for r in reads)]
    ranges = [(r.stmt, r.map.range()) for r in reads] if left else []
    boxes = [_box(r) for _, r in ranges]
    for w in left:
        written = w.map.range()
        whole = _box(written)
        if whole is None or None in boxes:
            for stmt, r in ranges:
                written = written.subtract(r) if stmt != w.stmt else written
            if not written.is_empty():
                return False
        else:
            near = [b for (stmt, _), b in zip(ranges, boxes, strict=True) if b is not None and stmt != w.stmt]
            if not near or not _most(_around(near), whole):
                return False
    some = [r for _, r in ranges]
    return not left or None in boxes or not all(map(_has_gaps, some)) or _all_between(left, some)


def _same_points(a: Access, b: Access) -> bool:
    """Whether two statements have the same relation, but for their names."""
    if a.stmt == b.stmt or a.map.dim(isl.dim_type.in_) != b.map.dim(isl.dim_type.in_):
        return False
    return bool(a.map.plain_is_equal(b.map.set_tuple_name(isl.dim_type.in_, a.stmt)))


def _overwritten(writes: list[Access], here: list[Access]) -> bool:
    """Whether a statement that does not read the array surely writes elements that one before it in the text writes,
    and leaves a smaller box of them, or none."""
    reading = {a.stmt for a in here if not a.write}
    plain = [w for w in writes if w.must and w.stmt not in reading]
    place = {a.stmt: k for k, a in enumerate(writes)}
    return any(
        place[v.stmt] < place[w.stmt]
        and _cuts(w.map.range(), v.map.range())
        and not w.map.range().is_disjoint(v.map.range())
        for w in plain
        for v in writes
    )


Box = list[tuple[int, int]]
"""Least and largest value of each dimension."""


def _box(elements: isl.Set) -> Box | None:
    """The box around a set; None where it has no end, or is empty."""
    found = [bounds(elements, k) for k in range(elements.dim(isl.dim_type.set))]
    known = [b for b in found if b is not None]
    return known if len(known) == len(found) else None


def _around(boxes: list[Box]) -> Box:
    return [(min(low for low, _ in d), max(high for _, high in d)) for d in zip(*boxes, strict=True)]


def _points(box: Box) -> int:
    return prod(max(0, high - low + 1) for low, high in box)


def _most(part: Box, whole: Box) -> bool:
    inside = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(part, whole, strict=True)]
    return _points(inside) > MOST * _points(whole)


def _has_gaps(elements: isl.Set) -> bool:
    """Whether remainders leave elements out, as those of `T[2 * i]` do."""
    parts = elements.get_basic_sets()
    return any(p.dim(isl.dim_type.div) for p in parts) and not elements.remove_divs().is_subset(elements)


def _all_between(writes: list[Access], ranges: list[isl.Set]) -> bool:
    """Whether remainders leave out nothing of what is written between the first and the last of all `ranges`."""
    written = reduce(lambda a, b: a.union(b), [w.map.range() for w in writes]).coalesce()
    for k, (low, high) in enumerate(_around([b for b in map(_box, ranges) if b is not None])):
        written = written.lower_bound_val(isl.dim_type.set, k, isl.Val(low))
        written = written.upper_bound_val(isl.dim_type.set, k, isl.Val(high))
    for r in ranges:
        written = written.subtract(r)
    return bool(written.is_empty())


def _cuts(by: isl.Set, elements: isl.Set) -> bool:
    """Whether `elements` without those of `by` have a box that is clearly smaller."""
    whole, other = _box(elements), _box(by)
    if whole is None or other is None:
        return not elements.is_disjoint(by)
    over = [(a <= c and d <= b) for (a, b), (c, d) in zip(other, whole, strict=True)]
    if over.count(False) > 1:
        return False
    if all(over):
        return True
    (a, b), (c, d) = next((o, w) for o, w, all_ in zip(other, whole, over, strict=True) if not all_)
    left = max(0, d - b) if a <= c else max(0, a - c) if b >= d else d - c + 1
    return left <= MOST * (d - c + 1)


# ---- what is live -------------------------------------------------------------------------------


def _whole(scop: Scop, name: str) -> isl.Set:
    return instances(scop)[name]


def _needed(scop: Scop, suspects: frozenset[str]) -> dict[str, isl.Set] | None:
    """By statement the instances that run; None: needs are handed on too often."""
    edges, groups = _edges(scop, suspects), _sharing(scop)
    exact = _sums(scop)
    live: dict[str, isl.Set] = {}
    new = {n: _hull(scop, n, some, exact) for n, some in _last(scop, suspects).items()}
    live |= new
    for _ in range(ROUNDS):
        if not new:
            return live
        _alike(scop, groups, live, new)
        wanted: dict[str, isl.Set] = {}
        for (reader, writer), m in edges.items():
            if reader in new:
                some = new[reader].apply(m)
                wanted[writer] = wanted[writer].union(some) if writer in wanted else some
        new = {}
        for n, some in wanted.items():
            known = live.get(n)
            if known is None and not some.is_empty() or known is not None and not some.is_subset(known):
                live[n] = new[n] = _hull(scop, n, some if known is None else some.union(known), exact)
    return None


def _sums(scop: Scop) -> set[str]:
    return {s.array for s in scop.statements.values() if s.reduction is not None}


def _sharing(scop: Scop) -> list[dict[str, isl.Map]]:
    """The statements that share loops, with their iterations of the outermost band of these."""
    found = []
    waiting: list[Node] = [scop.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Band):
            names = list(node.members[0].schedule)
            if len(names) > 1:
                found.append(
                    {n: time_map(scop.statements[n].domain, [m.schedule[n] for m in node.members]) for n in names}
                )
        else:
            waiting += node.children()
    return found


def _alike(
    scop: Scop, groups: Sequence[Mapping[str, isl.Map]], live: dict[str, isl.Set], new: dict[str, isl.Set]
) -> None:
    """Statements that share loops are cut alike, so that they go on to share them."""
    for group in groups:
        if any(n in new for n in group):
            some = [live[n].apply(m).reset_tuple_id() for n, m in group.items() if n in live]
            loops = reduce(lambda a, b: a.union(b), some).coalesce().simple_hull()
            for n, m in group.items():
                if n in live:
                    wanted = isl.Set.from_basic_set(loops).apply(m.reset_tuple_id(isl.dim_type.out).reverse())
                    if not wanted.intersect(_whole(scop, n)).is_subset(live[n]):
                        live[n] = new[n] = _hull(scop, n, wanted.union(live[n]), _sums(scop))


def _hull(scop: Scop, name: str, some: isl.Set, sums: set[str]) -> isl.Set:
    """What of a statement runs so that `some` of it does: one basic set. Sums over every second element are no
    matrix products any more, so that arrays in `sums` have no remainders in their domains."""
    whole = _whole(scop, name)
    s = scop.statements[name]
    some = some.intersect(whole).coalesce()
    if s.array in sums:
        some = some.remove_divs()
    hull = isl.Set.from_basic_set(some.simple_hull())
    needed, points = points_of_box(hull), points_of_box(whole)
    if needed is not None and points is not None and needed > MOST * points and not _has_gaps(hull):
        return whole
    if points is None and _most_of_some_size(hull, whole):
        return whole
    cut = hull.gist(whole)
    return whole if whole.is_subset(cut) else _named(whole.intersect(cut).coalesce(), s)


def _most_of_some_size(part: isl.Set, whole: isl.Set) -> bool:
    """Whether remainders cut a statement of symbolic sizes, and of one size (`SOME`) most is left: the rows that a
    stride does not reach at the end of a padded image would cost a question in every vector."""
    remainders = [max((b.dim(isl.dim_type.div) for b in x.get_basic_sets()), default=0) for x in (part, whole)]
    if remainders[0] <= remainders[1]:
        return False
    sizes = {part.get_dim_name(isl.dim_type.param, k): SOME for k in range(part.dim(isl.dim_type.param))}
    part, whole = fix_params(part, sizes), fix_params(whole, sizes)
    if whole.is_empty() or not (part.is_bounded() and whole.is_bounded()):
        return False
    return int(part.count_val().to_python()) > MOST * int(whole.count_val().to_python())


def _named(domain: isl.Set, s: Statement) -> isl.Set:
    for k, name in enumerate(s.iters):
        domain = domain.set_dim_name(isl.dim_type.set, k, name)
    return domain


def _last(scop: Scop, suspects: frozenset[str]) -> dict[str, isl.Set]:
    """By statement the instances that write what a result has in the end. Where data decide what an instance does it
    runs in any case: it may be one that ends in an error."""
    found = {a.stmt: _whole(scop, a.stmt) for a in accesses(scop) if not a.must}
    for a in accesses(scop):
        if not a.write or scop.arrays[a.array].kind == "local":
            continue
        left = a.map
        for w in accesses(scop) if a.array in suspects else ():
            if w.array == a.array and w.write and w.must and not w.accumulator:
                key = (a.stmt, w.stmt)
                later = in_order(scop, {key: a.map.apply_range(w.map.reverse())}).get(key)
                if later is not None:
                    left = left.subtract(later.apply_range(w.map).intersect(left))
        if a.stmt not in found:
            instances = left.domain()
            found[a.stmt] = a.map.domain() if _fills(scop, a.stmt) and not instances.is_empty() else instances
    return found


def _fills(scop: Scop, name: str) -> bool:
    """Whether a statement stores one number: what others overwrite of it costs less than loops around the rest."""
    return isinstance(scop.statements[name].value, Const)


def _edges(scop: Scop, suspects: frozenset[str]) -> Edges:
    """Who may see whose values. Of arrays that are no suspects, and of fills, all who touch one element count: it is a
    superset."""
    found: dict[tuple[str, str], isl.Map] = {}

    def note(key: tuple[str, str], m: isl.Map) -> None:
        if not m.is_empty():
            found[key] = found[key].union(m) if key in found else m

    for name in scop.arrays:
        here = [a for a in accesses(scop) if a.array == name]
        writes = [a for a in here if a.write]
        filled: set[str] = set()
        if name in suspects:
            # An update adds to what was there: it hides no earlier value.
            some = [replace(a, must=a.must and not (a.write and a.accumulator)) for a in here]
            flow: list[isl.Map] = []
            value_flow_among(scop, some, "RAW").foreach_map(flow.append)
            for m in flow:
                writer = m.get_tuple_name(isl.dim_type.in_)
                if _fills(scop, writer):
                    filled.add(writer)
                else:
                    note((m.get_tuple_name(isl.dim_type.out), writer), m.reverse())
        for r in here:
            for w in writes if not r.write else ():
                if w.stmt in filled or name not in suspects:
                    note((r.stmt, w.stmt), r.map.apply_range(w.map.reverse()))
    return found


# ---- the new Scop -------------------------------------------------------------------------------


def with_domains(scop: Scop, live: Mapping[str, isl.Set]) -> Scop:
    """The Scop with these instances alone; arrays that nothing accesses any more are gone."""
    kept = {n: s for n, s in scop.statements.items() if n in live and not live[n].is_empty()}
    narrow = {n: s if live[n].is_equal(_whole(scop, n)) else replace(s, domain=live[n]) for n, s in kept.items()}
    found = in_place(scop.tree, {n: [s] for n, s in narrow.items()}, str)
    tree = Leaf() if found is None else found
    used = {*scop.args, *scop.results, *(a.array for a in accesses(replace(scop, statements=narrow)))}
    arrays = {n: a for n, a in scop.arrays.items() if n in used}
    marks = tuple(m for m in scop.marks if m.loop in loop_names(tree))
    return replace(scop, arrays=arrays, statements=narrow, tree=tree, marks=marks)


def _shrunk(scop: Scop) -> Scop:
    """Local arrays have the elements that are accessed, from 0 on; of unknown sizes they stay as they are."""
    if scop.params:
        return scop
    runs = {n: s.domain for n, s in scop.statements.items()}
    first: dict[str, list[int]] = {}
    arrays = dict(scop.arrays)
    for name, array in scop.arrays.items():
        exact = array.kind == "local" and array.shape and all(a.must for a in accesses(scop) if a.array == name)
        box = touched(scop, name, runs) if exact else None
        if box is not None:
            first[name] = [begin for begin, _ in box]
            arrays[name] = replace(array, shape=tuple(const_int(end - begin) for begin, end in box))

    def moved(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.array not in first:
            return e
        return replace(e, index=tuple(fold(less(x, k)) for x, k in zip(e.index, first[e.array], strict=True)))

    def placed(s: Statement) -> Statement:
        target = moved(s.target)
        assert isinstance(target, Load)
        return replace(rewritten(replace(s, index=target.index), moved), reduction=s.reduction)

    return replace(scop, arrays=arrays, statements={n: placed(s) for n, s in scop.statements.items()})
