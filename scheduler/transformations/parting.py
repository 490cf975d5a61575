"""`split_statement`: the instances of a statement inside a loop become a statement of their own; `unite_statements`,
the inverse: statements that compute the same in the same loops, each for some instances, become one.

Every instance keeps its time and what it computes; what changes is only that later steps can say something about a part
of the instances: an operand of the trailing product of a factorization is read from a panel, that of its triangular
part is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Expr, substitute
from polyc.poly.forms.affine import to_pw_aff
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.records import replace
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim, loops_around, time_map
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.transformations.added import new_name, program, taken
from polyc.scheduler.transformations.tree_edit import Path, locate, reaching, refuse_dynamic, sequence


def split_statement(scop: Scop, tree: Node, statement: str, loop: str, name: str | None) -> tuple[Scop, Node]:
    """`scop` in which the instances of `statement` inside `loop` are the statement `name`, and its tree.

    Raises:
        ScheduleError: none of them are inside, or all, or the name is taken.
    """
    spot = locate(tree, loop)
    if statement not in spot.member.schedule:
        raise ScheduleError(f"loop '{loop}' is not around {statement}, only {', '.join(spot.member.schedule)}")
    refuse_dynamic(scop, spot.member, "cut into statements")
    old = scop.statements[statement]
    inside = reaching(scop, spot.path)[statement].coalesce()
    rest = old.domain.intersect_params(scop.context).subtract(inside).coalesce()
    if rest.is_empty() or inside.is_empty():
        raise ScheduleError(f"{'all' if rest.is_empty() else 'no'} instances of {statement} are inside loop '{loop}'")
    if name is not None and (name in taken(scop, tree) or not name.isidentifier()):
        raise ScheduleError(f"split_statement: '{name}' is no new name")
    name = name or new_name(scop, tree, f"{statement}_part")
    part = replace(old, name=name, domain=inside.set_tuple_name(name))
    statements: dict[str, Statement] = {}
    for n, s in scop.statements.items():
        statements |= {n: replace(s, domain=rest), name: part} if n == statement else {n: s}
    tree = _put(spot.path, _renamed(spot.band, statement, name), statement, part, inside)
    return replace(scop, statements=statements, tree=program(tree)), tree


def _renamed(node: Node, old: str, new: str) -> Node:
    """The subtree with the statement under another name."""
    if isinstance(node, Band):
        node = replace(node, members=tuple(_over(m, old, new, keep=False) for m in node.members))
    elif isinstance(node, Filter):
        node = Filter({new if n == old else n: d.set_tuple_name(new) if n == old else d
                       for n, d in node.domain.items()}, node.child)  # fmt: skip
    kids = node.children()
    return node.with_children(tuple(_renamed(c, old, new) for c in kids)) if kids else node


def _over(member: Member, old: str, new: str, keep: bool) -> Member:
    """The loop with the values of `old` also, or instead, for `new`."""
    schedule: dict[str, isl.PwAff] = {}
    for s, value in member.schedule.items():
        if s != old or keep:
            schedule[s] = value
        if s == old:
            name = isl.Id.read_from_str(isl.DEFAULT_CONTEXT, new)
            schedule[new] = value.set_tuple_id(isl.dim_type.in_, name)
    return replace(member, schedule=schedule)


def _put(path: Path, node: Node, old: str, part: Statement, inside: isl.Set) -> Node:
    """The tree with `node`, in which `part` stands for those instances of `old`, at the end of a path."""
    for parent, k in reversed(path):
        kids = list(parent.children())
        kids[k] = node
        left = any(old in _statements(c) for c in kids)
        if isinstance(parent, Band):
            node = replace(parent, members=tuple(_over(m, old, part.name, left) for m in parent.members), child=node)
        elif isinstance(parent, Filter):
            domain = dict(parent.domain)
            own = domain[old].subtract(inside).coalesce() if left else None
            domain |= {part.name: part.domain.intersect(domain[old].set_tuple_name(part.name)).coalesce()}
            if own is None or own.is_empty():
                del domain[old]
            else:
                domain[old] = own
            node = Filter(domain, node)
        else:
            node = parent.with_children(tuple(kids))
    return node


def _statements(node: Node) -> Mapping[str, object]:
    """The statements that a subtree says it holds."""
    while not isinstance(node, (Band, Filter, SequenceNode)) and node.children():
        node = node.children()[0]
    if isinstance(node, Band):
        return node.members[0].schedule
    if isinstance(node, Filter):
        return node.domain
    return {n: d for f in node.children() if isinstance(f, Filter) for n, d in f.domain.items()}


# ---- the inverse --------------------------------------------------------------------------------


def unite_statements(scop: Scop, tree: Node, first: str, second: str) -> tuple[Scop, Node]:
    """`scop` in which the instances of `second` are instances of `first`, and its tree.

    Raises:
        ScheduleError: they compute different things, stand in different places, or share an instance.
    """
    for name in (first, second):
        if name not in scop.statements:
            raise ScheduleError(f"no statement '{name}': the statements are {', '.join(scop.statements)}")
    a, b = scop.statements[first], scop.statements[second]
    around, others = (loops_around(tree, s.name) for s in (a, b))
    if a is b or [m.name for m in around] != [m.name for m in others]:
        raise ScheduleError(f"cannot unite {first} and {second}: they are not in the same loops (fuse first)")
    if b.domain.is_empty():
        raise ScheduleError(f"cannot unite {first} and {second}: {second} has no instances")
    point = _instance(a, b, around)
    if _with_point(a, point) != (b.target, b.value) or a.reduction != b.reduction:
        raise ScheduleError(f"cannot unite {first} and {second}: they compute different things")
    if any(s.predicate is not None or s.dynamic for s in (a, b)):
        raise ScheduleError(f"cannot unite {first} and {second}: whether they run depends on data")
    moved = _moved(a, b, point, around)
    more = moved.intersect_domain(b.domain).range()
    if not moved.intersect_domain(b.domain).is_injective() or not more.is_disjoint(a.domain):
        raise ScheduleError(f"cannot unite {first} and {second}: some instances of both would be one")
    statements = {n: s for n, s in scop.statements.items() if n != second}
    statements[first] = replace(a, domain=_called(a.domain.union(more), a.iters))
    tree = _united(tree, a, second, moved)
    return replace(scop, statements=statements, tree=program(tree)), tree


def _instance(a: Statement, b: Statement, around: Sequence[Member]) -> dict[str, Expr]:
    """The iterators of `a` as expressions in those of `b`, where all loops have the same values."""
    point: dict[str, Expr] = {}
    for k, i in enumerate(a.iters):
        own = loop_dim(a.domain, k)
        loop = next((m for m in around if m.schedule[a.name].plain_is_equal(own)), None)
        if loop is None:
            raise ScheduleError(f"cannot unite {a.name} and {b.name}: no loop goes over '{i}' of {a.name} one by one")
        point[i] = function_expr(loop.schedule[b.name], b.iters, b.domain)
    return point


def _with_point(a: Statement, point: Mapping[str, Expr]) -> tuple[Expr, Expr]:
    """What `a` writes and computes with other expressions as iterators."""
    return substitute(a.target, point), substitute(a.value, point)


def _moved(a: Statement, b: Statement, point: Mapping[str, Expr], around: Sequence[Member]) -> isl.Map:
    """`{ b[x] -> a[y] }`, which gives every loop its value."""
    space = b.domain.get_space()
    moved = time_map(isl.Set.universe(space), [to_pw_aff(point[i], space) for i in a.iters])
    moved = moved.set_tuple_name(isl.dim_type.out, a.name)
    for m in around:
        wanted = isl.Map.from_pw_aff(m.schedule[b.name]).intersect_domain(b.domain)
        found = moved.apply_range(isl.Map.from_pw_aff(m.schedule[a.name])).intersect_domain(b.domain)
        if not found.is_equal(wanted):
            raise ScheduleError(f"cannot unite {a.name} and {b.name}: loop '{m.name}' runs differently over them")
    return moved


def _called(points: isl.Set, iters: Sequence[str]) -> isl.Set:
    """The set with the iterators' names, which expressions go by."""
    points = points.coalesce()
    for k, name in enumerate(iters):
        points = points.set_dim_name(isl.dim_type.set, k, name)
    return points


def _united(node: Node, first: Statement, b: str, moved: isl.Map) -> Node:
    """The tree with the instances of `b` as those of the first statement."""
    a = first.name

    def both(domain: Mapping[str, isl.Set]) -> dict[str, isl.Set]:
        own = {n: d for n, d in domain.items() if n != b}
        if b in domain:
            more = domain[b].apply(moved)
            own[a] = _called(own[a].union(more) if a in own else more, first.iters)
        return own

    if isinstance(node, Band):
        members = (replace(m, schedule={n: v for n, v in m.schedule.items() if n != b}) for m in node.members)
        return replace(node, members=tuple(members), child=_united(node.child, first, b, moved))
    if isinstance(node, Filter):
        return Filter(both(node.domain), _united(node.child, first, b, moved))
    if isinstance(node, SequenceNode):
        parts: list[Filter] = []
        for f in node.filters:
            alone = isinstance(f.child, Leaf) and set(f.domain) <= {a, b}
            if alone and parts and isinstance(parts[-1].child, Leaf) and set(parts[-1].domain) <= {a, b}:
                parts[-1] = Filter({a: _called(parts[-1].domain[a].union(both(f.domain)[a]), first.iters)}, Leaf())
            else:
                parts.append(Filter(both(f.domain), _united(f.child, first, b, moved)))
        if sum(a in f.domain for f in parts) > 1 and any(b in f.domain for f in node.filters):
            raise ScheduleError(f"cannot unite {a} and {b}: other statements are between them")
        return sequence(parts)
    return node.with_children(tuple(_united(c, first, b, moved) for c in node.children()))
