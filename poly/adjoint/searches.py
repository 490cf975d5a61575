"""Largest and smallest values by their places: one element gets the whole adjoint of a maximum over many.

    k: W[r] = max(W[r], A[f(r, k)])

derived step by step is a chain from the last k to the first, which needs every running maximum. By the rule for equal
operands (the first of them is returned) the chain ends at the first k whose element is the result, or at the value
before the loop where no element is larger. So the place is looked for in the forward part, which lanes can do, and the
program is derived as if it had said

    k: W[r] = max(W[r], A[f(r, k)]);  k: at[r] = min(at[r], k if A[f(r, k)] == W[r] and W[r] > before[r])
    W[r] = A[f(r, at[r])] if at[r] was found

whose values are the same, bit for bit. NaN compares as in the chain: one before the loop stays, later ones are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.adjoint.names import Names
from polyc.poly.adjoint.trees import in_sequence
from polyc.poly.dtypes import bool_, i32, i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Select, Var, compare, substitute, variables
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.forms.ranges import bounds
from polyc.poly.records import dataclass
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim
from polyc.poly.tree import Sequence as SequenceNode

NOWHERE = 2**31 - 1


@dataclass(frozen=True)
class Searched:
    """The program with searches, the reductions that hand their adjoint on untouched, and the statements that take the
    element of the place found: they are there to be derived, and change no value."""

    scop: Scop
    chains: frozenset[str]
    taken: frozenset[str]


def searched(scop: Scop, active: set[str]) -> Searched:
    """The program with every maximum or minimum over one loop of elements as a search.

    Args:
        active: arrays that have adjoints.
    """
    names, chains, taken = Names(scop), set[str](), set[str]()
    if scop.reassociate:
        for s in list(scop.statements.values()):
            loop = _loop(scop, s, active)
            if loop is not None:
                found = _rewritten(scop, s, loop, names)
                if found is not None:
                    scop, take = found
                    chains.add(s.name)
                    taken.add(take)
    return Searched(scop, frozenset(chains), frozenset(taken))


def _loop(scop: Scop, s: Statement, active: set[str]) -> int | None:
    """The position of the one iterator over which a statement looks for the largest or smallest element."""
    if s.reduction not in ("max", "min") or s.array not in active or s.predicate is not None or s.dynamic:
        return None
    value = s.value
    if not isinstance(value, Binary) or value.op != s.reduction or not isinstance(value.b, Load):
        return None
    if value.b.array == s.array or value.b.array not in active or any(not isinstance(e, (Var, Const)) for e in s.index):
        return None
    summed = [k for k, i in enumerate(s.iters) if not any(i in variables(e) for e in s.index)]
    if len(summed) != 1 or not any(s.iters[summed[0]] in variables(e) for e in value.b.index):
        return None
    ends = bounds(s.domain.intersect_params(scop.context), summed[0])
    return summed[0] if ends is None or (ends[0] >= 0 and ends[1] < NOWHERE) else None


def _rewritten(scop: Scop, s: Statement, k: int, names: Names) -> tuple[Scop, str] | None:
    """The program with the search of one statement after its loops, and the name of the statement that takes what was
    found; None where these are not its own, one for each iterator."""
    value, array = s.value, scop.arrays[s.array]
    assert isinstance(value, Binary) and isinstance(value.b, Load) and s.reduction is not None
    place = _place(scop.tree, s, k)
    if place is None:
        return None
    element, rest = value.b, tuple(i for j, i in enumerate(s.iters) if j != k)
    before, at = (names.fresh(f"{s.array}_{end}") for end in ("before", "at"))
    arrays = {
        before: Array(before, array.dtype, array.shape, "local", span=s.span, expanded=array.expanded),
        at: Array(at, i32, array.shape, "local", span=s.span, expanded=array.expanded),
    }
    found = Load(at, s.index, i32, s.span)
    better = compare(">" if s.reduction == "max" else "<", s.target, Load(before, s.index, array.dtype))
    here = Binary("and", compare("==", element, s.target), better, bool_)
    position = Select(here, Cast(Var(s.iters[k]), i32), Const(NOWHERE, i32), i32)
    outer = s.domain.project_out(isl.dim_type.set, k, 1)
    known = compare("<", found, Const(NOWHERE, i32))
    there = Select(known, Cast(found, i64), _first(scop, s, k, rest), i64)  # an element in any case
    index = tuple(substitute(e, {s.iters[k]: there}) for e in element.index)
    taken = Select(known, replace(element, index=index), s.target, array.dtype)

    def once(end: str, array: str, value: Expr) -> Statement:
        name = names.fresh(f"{s.name}_{end}")
        return Statement(name, rest, _named(outer, name, rest), array, s.index, value, span=s.span)

    search = names.fresh(f"{s.name}_search")
    keep = once("before", before, s.target)
    start = once("nowhere", at, Const(NOWHERE, i32))
    find = replace(
        s, name=search, domain=_named(s.domain, search, s.iters), array=at, reduction="min",
        value=Binary("min", found, position, i32),
    )  # fmt: skip
    take = once("taken", s.array, taken)
    tree = _with(scop.tree, s, place, (keep, start), (find, take), k, names)
    statements: dict[str, Statement] = {}
    for n, t in scop.statements.items():
        new = (keep, start, s, find, take) if t is s else (t,)
        statements |= {x.name if x is not s else n: x for x in new}
    return replace(scop, arrays={**scop.arrays, **arrays}, statements=statements, tree=tree), take.name


def _first(scop: Scop, s: Statement, k: int, rest: Sequence[str]) -> Expr:
    """The first value of an iterator, as a function of the others."""
    domain = s.domain.intersect_params(scop.context)
    last = domain.dim(isl.dim_type.set) - 1
    graph = isl.Map.from_domain(domain.reset_tuple_id()).move_dims(isl.dim_type.out, 0, isl.dim_type.in_, k, 1)
    assert graph.dim(isl.dim_type.in_) == last
    low = graph.lexmin_pw_multi_aff().get_at(0).coalesce()
    return function_expr(low, rest, low.domain())


def _named(points: isl.Set, name: str, iters: Sequence[str]) -> isl.Set:
    points = points.set_tuple_name(name)
    for k, i in enumerate(iters):
        points = points.set_dim_name(isl.dim_type.set, k, i)
    return points


def _place(tree: Node, s: Statement, k: int) -> Band | None:
    """The loops that only this statement is in: one for each iterator, all others of its iterators in loops above."""
    found: Band | None = None
    waiting: list[Node] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Band) and set(node.members[0].schedule) == {s.name} and isinstance(node.child, Leaf):
            if found is not None:
                return None
            found = node
        waiting += node.children()
    if found is None:
        return None
    over = [_iterator(s, m) for m in found.members]
    return found if None not in over and k in over else None


def _iterator(s: Statement, m: Member) -> int | None:
    """The iterator that a loop runs over one by one."""
    return next((j for j in range(len(s.iters)) if m.schedule[s.name].plain_is_equal(loop_dim(s.domain, j))), None)


def _with(
    tree: Node, s: Statement, place: Band, first: Sequence[Statement], last: Sequence[Statement], k: int, names: Names
) -> Node:
    """The tree with some statements before and after the loops of the reduction; of `last` the first one has them,
    the others have those that remain without the reduction's."""
    over = [_iterator(s, m) for m in place.members]

    def nest(t: Statement) -> tuple[list[Statement], Node]:
        members = []
        for m, j in zip(place.members, over, strict=True):
            assert j is not None
            if len(t.iters) == len(s.iters) or j != k:
                position = j if len(t.iters) == len(s.iters) or j < k else j - 1
                members.append(Member(names.fresh(m.name), {t.name: loop_dim(t.domain, position)}))
        return [t], Band(tuple(members), Leaf()) if members else Leaf()

    new = in_sequence([*map(nest, first), ([s], place), *map(nest, last)])
    return _put(tree, s, place, new, [*first, *last], k)


def _put(node: Node, s: Statement, place: Band, new: Node, added: Sequence[Statement], k: int) -> Node:
    """The tree with `new` in the place of the loops; what is around them knows the new statements."""
    if node is place:
        return new
    if isinstance(node, Band):
        if s.name not in node.members[0].schedule:
            return node
        members = tuple(
            replace(m, schedule={**m.schedule, **{t.name: _over(m.schedule[s.name], s, t, k) for t in added}})
            for m in node.members
        )
        return replace(node, members=members, child=_put(node.child, s, place, new, added, k))
    if isinstance(node, Filter):
        if s.name not in node.domain:
            return node
        return Filter({**node.domain, **{t.name: t.domain for t in added}}, _put(node.child, s, place, new, added, k))
    if isinstance(node, SequenceNode):
        filters: list[Filter] = []
        for f in node.filters:
            child = _put(f, s, place, new, added, k)
            assert isinstance(child, Filter)
            if child is not f and isinstance(child.child, SequenceNode):
                filters += child.child.filters
            else:
                filters.append(child)
        return SequenceNode(tuple(filters))
    kids = node.children()
    return node.with_children(tuple(_put(c, s, place, new, added, k) for c in kids)) if kids else node


def _over(value: isl.PwAff, s: Statement, t: Statement, k: int) -> isl.PwAff:
    """A loop's value for a new statement, which has the iterators of `s`, or all but the reduction's."""
    space = t.domain.get_space()
    local = isl.LocalSpace.from_space(space)
    whole = len(t.iters) == len(s.iters)
    parts = isl.AffList.alloc(isl.DEFAULT_CONTEXT, len(s.iters))
    for j in range(len(s.iters)):
        if whole or j != k:
            parts = parts.add(isl.Aff.var_on_domain(local, isl.dim_type.set, j if whole or j < k else j - 1))
        else:
            parts = parts.add(isl.Aff.zero_on_domain(local))
    into = isl.Space.map_from_domain_and_range(space, s.domain.get_space())
    return value.pullback_multi_aff(isl.MultiAff.from_aff_list(into, parts))
