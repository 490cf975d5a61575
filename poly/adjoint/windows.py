"""The adjoint of a window's sum is a window's sum again: over elements, of a padded array.

    Y[o] += A[o + k] * w[k]         (0 <= o < N, 0 <= k < K)            has the adjoint
    bA[o + k] += bY[o] * w[k]       over elements x = o + k:            bA[x] += bY[x - k] * w[k]   (0 <= x - k < N)

The sum over k ends where bY does, at each border elsewhere. With zeros around a copy of bY it is the same sum for all
elements, and the whole is what it came from: a convolution, with turned weights. Only sums of products of two elements
are brought to this form, where one factor alone sets the bounds and no stride leaves gaps; others are left to the
schedule (step `gather`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.access import accesses, element_map
from polyc.poly.adjoint.algebra import less
from polyc.poly.adjoint.fills import Part
from polyc.poly.adjoint.names import Names
from polyc.poly.adjoint.openings import is_fill
from polyc.poly.adjoint.trees import in_place, in_sequence, loops_over
from polyc.poly.closed_forms.counting import count_set
from polyc.poly.closed_forms.pieces import CountingError
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int, loads
from polyc.poly.forms.affine import set_space
from polyc.poly.forms.ranges import bounds
from polyc.poly.records import dataclass
from polyc.poly.rewriting.gather import coordinates, gathered, mixes
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim, loop_names
from polyc.poly.tree import Sequence as SequenceNode

MOST_PADDING = 2.0
"""The padded sums may be so many times as many instances."""


@dataclass(frozen=True, eq=False)
class _Window:
    """An update over its elements: the statement on all of its sums, how many of its iterators are the element's, and
    the factor that is to be padded with the range of its subscripts."""

    statement: Statement
    outer: int
    factor: Load
    ranges: tuple[tuple[int, int], ...]


def windows(scop: Scop) -> Scop:
    """The Scop with each scattering sum of products, that stands at the top, over its elements."""
    for name in list(scop.statements):
        if name in scop.statements and isinstance(scop.tree, SequenceNode) and scop.reassociate:
            s = scop.statements[name]
            part = next((f for f in scop.tree.filters if name in f.domain), None)
            if part is None or not _movable(scop, s, part):
                continue
            found = _window(scop, s)
            if found is not None:
                scop = _made(scop, s, found)
    return scop


def _movable(scop: Scop, s: Statement, part: Filter) -> bool:
    """Whether a statement is a sum of products that scatters, and nothing in its nest has to do with what it writes,
    or changes what it reads."""
    if s.reduction != "+" or s.predicate is not None or s.dynamic or _factors(s) is None or not mixes(s, scop.params):
        return False
    read = {load.array for e in (s.value, *s.index) for load in loads(e)} - {s.array}
    for a in accesses(scop):
        if a.stmt in part.domain and a.stmt != s.name and (a.array == s.array or (a.write and a.array in read)):
            return False
    return all(d.is_equal(scop.statements[n].domain) for n, d in part.domain.items() if n == s.name)


def _factors(s: Statement) -> tuple[Load, Load] | None:
    value = s.value
    if not isinstance(value, Binary) or value.op != "+" or not isinstance(value.b, Binary) or value.b.op != "*":
        return None
    a, b = value.b.a, value.b.b
    if not isinstance(a, Load) or not isinstance(b, Load) or s.array in (a.array, b.array) or a.array == b.array:
        return None
    return (a, b) if all(next(loads(e), None) is None for x in (a, b) for e in x.index) else None


def _window(scop: Scop, s: Statement) -> _Window | None:
    """The update over its elements with bounds of their own for all iterators, if it has that form."""
    try:
        best = coordinates(scop, s)[0]
    except ScheduleError:
        return None
    if best.divisions or len(best.element) != len(s.index) or not best.summed:
        return None
    (phase,) = gathered(
        scop, best, (1,) * len(s.index), [s.name], {i for t in scop.statements.values() for i in t.iters}
    )
    t = phase.statement
    box = _box(t.domain)
    pair = _factors(t)
    if box is None or pair is None or box.is_equal(t.domain):
        return None
    if not _worth(box, t.domain):
        return None
    space = set_space(t.name, t.iters, scop.params)
    added = box.subtract(t.domain)
    for factor in pair:
        relation, exact = element_map(factor, scop.arrays[factor.array], space)
        inside = relation.intersect_domain(t.domain).range()
        if exact and relation.intersect_domain(added).range().is_disjoint(inside):
            touched = relation.intersect_domain(box).range()
            ranges = [bounds(touched, k) for k in range(len(factor.index))]
            if None not in ranges and _is_box(inside):
                names = isl.dim_type.set
                for k, i in enumerate(t.iters):
                    box = box.set_dim_name(names, k, i)
                known = tuple(r for r in ranges if r is not None)
                return _Window(replace(t, domain=box), len(best.element), factor, known)
    return None


def _worth(box: isl.Set, points: isl.Set) -> bool:
    """Whether the padded sums are not too many more. (isl's own count goes through the points one by one.)"""
    try:
        return count_set(box)() <= MOST_PADDING * count_set(points)()
    except CountingError:
        return False


def _box(points: isl.Set) -> isl.Set | None:
    """The box around points; None where sizes decide about it."""
    if points.dim(isl.dim_type.param) and points.involves_dims(
        isl.dim_type.param, 0, points.dim(isl.dim_type.param)
    ):  # fmt: skip
        return None
    out = isl.Set.universe(points.get_space())
    for k in range(points.dim(isl.dim_type.set)):
        ends = bounds(points, k)
        if ends is None:
            return None
        out = out.lower_bound_val(isl.dim_type.set, k, isl.Val(ends[0]))
        out = out.upper_bound_val(isl.dim_type.set, k, isl.Val(ends[1]))
    return out


def _is_box(points: isl.Set) -> bool:
    around = _box(points)
    return around is not None and bool(around.is_equal(points))


def _made(scop: Scop, s: Statement, w: _Window) -> Scop:
    """The Scop with the padded copy, and the update in a nest of its own before the one that it was in."""
    assert isinstance(scop.tree, SequenceNode)
    names = Names(scop)
    old = scop.arrays[w.factor.array]
    shape = tuple(const_int(high - low + 1) for low, high in w.ranges)
    padded = Array(names.fresh(f"{old.name}_padded"), old.dtype, shape, "local", span=s.span)

    def there(load: Load) -> Load:
        index = tuple(less(e, low) for e, (low, _) in zip(load.index, w.ranges, strict=True))
        return Load(padded.name, index, load.dtype, load.span)

    zeros = _over(names, padded, [(0, high - low) for low, high in w.ranges], Const(0.0, old.dtype), None, s)
    space = set_space(s.name, s.iters, scop.params)
    relation, _ = element_map(_same_factor(s, w), old, space)
    inside = relation.intersect_domain(s.domain).range()
    ends = [bounds(inside, k) for k in range(len(w.ranges))]
    known = [e for e in ends if e is not None]
    copy = _over(names, padded, known, None, (old.name, [low for low, _ in w.ranges]), s)
    assert isinstance(w.statement.value, Binary) and isinstance(w.statement.value.b, Binary)
    product = w.statement.value.b
    product = replace(product, a=_swap(product.a, w.factor, there), b=_swap(product.b, w.factor, there))
    update = replace(w.statement, value=replace(w.statement.value, b=product))
    return _placed(scop, s, [zeros, copy], padded, update, w.outer, names)


def _same_factor(s: Statement, w: _Window) -> Load:
    """The factor in the statement's old coordinates."""
    pair = _factors(s)
    assert pair is not None
    return next(x for x in pair if x.array == w.factor.array)


def _swap(e: Expr, old: Load, there: object) -> Expr:
    return there(e) if e == old and callable(there) and isinstance(e, Load) else e


def _over(
    names: Names, array: Array, ranges: Sequence[tuple[int, int]], value: Expr | None,
    source: tuple[str, Sequence[int]] | None, s: Statement,
) -> Part:  # fmt: skip
    """`array[x - low] = source[x]`, or a value, for all x of some ranges."""
    name = names.fresh(f"S_{array.name}")
    iters = tuple(names.fresh(f"p{k}") for k in range(len(ranges)))
    domain = isl.Set.universe(set_space(name, iters, ()))
    for k, (low, high) in enumerate(ranges):
        domain = domain.lower_bound_val(isl.dim_type.set, k, isl.Val(low))
        domain = domain.upper_bound_val(isl.dim_type.set, k, isl.Val(high))
    index: tuple[Expr, ...] = tuple(map(Var, iters))
    if source is not None:
        value = Load(source[0], index, array.dtype)
        index = tuple(less(e, low) for e, low in zip(index, source[1], strict=True))
    assert value is not None
    made = Statement(name, iters, domain, array.name, index, value, span=s.span)
    return [made], loops_over(made, [names.fresh(f"{name}_{i}") for i in iters])


def _placed(
    scop: Scop, s: Statement, before: list[Part], padded: Array, update: Statement, outer: int, names: Names
) -> Scop:
    """The Scop with the parts and the nest of the update, with its zeros inside where it updates all that has these."""
    assert isinstance(scop.tree, SequenceNode)
    fill = _fill_of(scop, update, outer)
    used = set(loop_names(scop.tree))
    loops = [_fresh(i, used) for i in update.iters]
    inner = Band(tuple(Member(n, {update.name: loop_dim(update.domain, k)})
                       for k, n in enumerate(loops) if k >= outer), Leaf())  # fmt: skip
    first: list[Part] = []
    if fill is not None:
        iters = update.iters[:outer]
        points = update.domain.project_out(isl.dim_type.set, outer, len(update.iters) - outer)
        points = points.set_tuple_name(fill.name)
        for k, i in enumerate(iters):
            points = points.set_dim_name(isl.dim_type.set, k, i)
        fill = replace(fill, iters=iters, domain=points, index=update.index)
        first = [([fill], Leaf())]
    both = [*([] if fill is None else [fill]), update]
    body = in_sequence([*first, ([update], inner)])
    nest: Node = Band(tuple(Member(n, {t.name: loop_dim(t.domain, k) for t in both})
                            for k, n in enumerate(loops) if k < outer), body)  # fmt: skip
    rest = {n: [t] for n, t in scop.statements.items() if n != s.name and (fill is None or n != fill.name)}
    parts: list[Part] = []
    for f in scop.tree.filters:
        if s.name in f.domain:
            parts += [*before, (both, nest)]
        left = {n: rest[n] for n in f.domain if n in rest}
        if left:
            whole = in_place(f, left, str)
            assert whole is not None
            parts.append(([t for some in left.values() for t in some], whole))
    statements = {t.name: t for some, _ in parts for t in some}
    arrays = {**scop.arrays, padded.name: padded}
    return replace(scop, arrays=arrays, statements=statements, tree=in_sequence(parts))


def _fill_of(scop: Scop, update: Statement, outer: int) -> Statement | None:
    """The statement that sets exactly the elements of the update to 0, if that is all else that writes the array."""
    others = [t for t in scop.statements.values() if t.array == update.array and t.name != update.name]
    if len(others) != 1 or not is_fill(others[0]):
        return None
    (fill,) = others
    found = [a for a in accesses(scop) if a.stmt == fill.name and a.write]
    relation, _ = element_map(
        update.target, scop.arrays[update.array], set_space(update.name, update.iters, scop.params)
    )
    same = found[0].must and found[0].map.range().is_equal(relation.intersect_domain(update.domain).range())
    readers = {a.stmt for a in accesses(scop) if a.array == update.array and not a.write}
    first = set(update.iters[:outer]) >= {e.name for e in update.index if isinstance(e, Var)}
    plain = all(isinstance(e, Var) for e in update.index)
    return fill if same and first and plain and readers <= {update.name} | _later(scop, update.name) else None


def _later(scop: Scop, name: str) -> set[str]:
    """The statements of the parts after the one of a statement."""
    assert isinstance(scop.tree, SequenceNode)
    seen, found = False, set[str]()
    for f in scop.tree.filters:
        if seen:
            found |= set(f.domain)
        seen = seen or name in f.domain
    return found


def _fresh(base: str, used: set[str]) -> str:
    name, k = base, 0
    while name in used:
        k += 1
        name = f"{base}_{k}"
    used.add(name)
    return name
