"""First values of local arrays stand where they are needed, not in loops of their own before the program.

    x: adj_v[x] = 0;  r: { k: adj_v[r] += ...; ... adj_v[r] ... }   ->   r: { adj_v[r] = 0; k: adj_v[r] += ...; ... }

Where the loops around all that touches an element take one value for each element, its first value is as right inside
them, before all else. Values of a row then need no array over all rows, and the nest no neighbour that keeps it from
being joined with others over the same rows. Elements that nobody touches get no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.adjoint.trees import in_sequence
from polyc.poly.expr import Const, Var
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim, loop_names, loops_around, time_map
from polyc.poly.tree import Sequence as SequenceNode


@dataclass(frozen=True, eq=False)
class _Opening:
    """A first value inside loops: the statement with the elements that are touched, the names of the loops around it,
    outermost first, their values at it, and the iterators that it keeps loops for."""

    statement: Statement
    around: tuple[str, ...]
    values: tuple[isl.PwAff, ...]
    own: tuple[int, ...]


def is_fill(s: Statement) -> bool:
    """Whether a statement gives elements the value 0."""
    return isinstance(s.value, Const) and s.value.value == 0 and s.predicate is None and not s.dynamic


def opened_inside(scop: Scop) -> Scop:
    """The Scop with first values of local arrays inside the loops that need them."""
    if not isinstance(scop.tree, SequenceNode):
        return scop
    for name in [n for f in scop.tree.filters if len(f.domain) == 1 for n in f.domain]:
        s = scop.statements[name]
        if is_fill(s) and scop.arrays[s.array].kind == "local" and s.index == tuple(map(Var, s.iters)):
            found = _opening(scop, s)
            if found is not None:
                scop = _moved(scop, found)
    return scop


def fills_in_front(scop: Scop) -> Scop:
    """The Scop with each first value that has loops of its own directly before the nest that needs it, if there is only
    one statement in that, else before all else: it keeps no two other nests from being neighbours."""
    if not isinstance(scop.tree, SequenceNode):
        return scop
    touched: dict[str, set[str]] = {}
    for a in accesses(scop):
        touched.setdefault(a.array, set()).add(a.stmt)
    front: list[Filter] = []
    rest: list[Filter] = []
    before: dict[int, list[Filter]] = {}
    for k, f in enumerate(scop.tree.filters):
        (name, *others) = f.domain
        own = touched[scop.statements[name].array]
        earlier, later = scop.tree.filters[:k], scop.tree.filters[k + 1 :]
        if others or not is_fill(scop.statements[name]) or any(not own.isdisjoint(g.domain) for g in earlier):
            rest.append(f)
            continue
        first = next((g for g in later if not own.isdisjoint(g.domain)), None)
        if first is not None and len(first.domain) == 1:
            before.setdefault(id(first), []).append(f)
        else:
            front.append(f)
    parts = [*front, *(x for f in rest for x in (*before.get(id(f), ()), f))]
    return replace(scop, tree=SequenceNode(tuple(parts)))


def _opening(scop: Scop, s: Statement) -> _Opening | None:
    """Where the first values can stand: as deep as one iteration of the loops has all that touches an element; None
    where loops for them would still be needed inside a single nest, which is better left as it is."""
    touching = [a for a in accesses(scop) if a.array == s.array and a.stmt != s.name]
    if not touching:
        return None
    loops = {a.stmt: loops_around(scop.tree, a.stmt) for a in touching}
    shared = _common([[m.name for m in found] for found in loops.values()])
    elements = s.domain.intersect_params(scop.context).set_tuple_name(s.array)
    for depth in range(len(shared), 0, -1):
        meeting: isl.Map | None = None
        for a in touching:
            domain = scop.statements[a.stmt].domain.intersect_params(scop.context)
            times = time_map(domain, [m.schedule[a.stmt] for m in loops[a.stmt][:depth]])
            pairs = a.map.reverse().apply_range(times)
            meeting = pairs if meeting is None else meeting.union(pairs)
        assert meeting is not None
        meeting = meeting.intersect_domain(elements).coalesce()
        if meeting.is_single_valued():
            own = _undecided(meeting, len(s.iters))
            if own and (depth < len(shared) or all(len(found) == depth for found in loops.values())):
                return None
            if own and len({found[depth].name for found in loops.values() if len(found) > depth}) < 2:
                return None
            meeting = meeting.set_tuple_name(isl.dim_type.in_, s.name)
            for k, i in enumerate(s.iters):
                meeting = meeting.set_dim_name(isl.dim_type.in_, k, i)
            domain = meeting.domain().coalesce()
            values = isl.PwMultiAff.from_map(meeting).coalesce().gist(domain)
            return _Opening(replace(s, domain=domain), tuple(shared[:depth]),
                            tuple(values.get_at(k) for k in range(depth)), own)  # fmt: skip
    return None


def _common(paths: Sequence[Sequence[str]]) -> list[str]:
    """The loops that all have first."""
    found = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        found.append(names[0])
    return found


def _undecided(meeting: isl.Map, rank: int) -> tuple[int, ...]:
    """The coordinates of an element that the values of the loops do not decide."""
    found = []
    for k in range(rank):
        back = meeting.reverse()
        back = back.project_out(isl.dim_type.out, k + 1, rank - k - 1).project_out(isl.dim_type.out, 0, k)
        if not back.is_single_valued():
            found.append(k)
    return tuple(found)


def _moved(scop: Scop, opening: _Opening) -> Scop:
    """The Scop with the statement in its new place."""
    s = opening.statement
    assert isinstance(scop.tree, SequenceNode)
    rest = [f for f in scop.tree.filters if s.name not in f.domain]
    tree = rest[0].child if len(rest) == 1 else SequenceNode(tuple(rest))
    names = list(loop_names(scop.tree))
    members = []
    for k in opening.own:
        name = f"{s.name}_{s.iters[k]}"
        while name in names:
            name += "_"
        names.append(name)
        members.append(Member(name, {s.name: loop_dim(s.domain, k)}))
    own: Node = Band(tuple(members), Leaf()) if members else Leaf()
    values = dict(zip(opening.around, opening.values, strict=True))
    statements = {n: s if n == s.name else t for n, t in scop.statements.items()}
    return replace(scop, statements=statements, tree=_put(tree, s, own, values, scop.statements))


def _put(node: Node, s: Statement, own: Node, values: Mapping[str, isl.PwAff], known: Mapping[str, Statement]) -> Node:
    """The tree with `own` first of all inside the loops of `values`."""
    if isinstance(node, Filter):
        return Filter({s.name: s.domain, **node.domain}, _put(node.child, s, own, values, known))
    if isinstance(node, SequenceNode):
        first = next(iter(values))
        filters: list[Node] = []
        for f in node.filters:
            filters.append(_put(f, s, own, values, known) if first in loop_names(f) else f)
        return node.with_children(tuple(filters))
    assert isinstance(node, Band)
    inside = [m for m in node.members if m.name in values]
    below = {n: v for n, v in values.items() if n not in {m.name for m in inside}}
    members = tuple(replace(m, schedule={s.name: values[m.name], **m.schedule}) for m in inside)
    left = node.members[len(inside) :]
    if below:
        assert not left
        return Band(members, _put(node.child, s, own, below, known))
    others = list(node.members[0].schedule)
    rest = Band(left, node.child) if left else node.child
    return Band(members, in_sequence([([s], own), ([known[n] for n in others], rest)]))
