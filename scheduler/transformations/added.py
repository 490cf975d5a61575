"""What steps share that add statements to a program: new loops, arrays and names, and the program order afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, const_int
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.records import replace
from polyc.poly.rewriting.specialise import fold
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Promote, loop_dim, promotions_below
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.transformations.tree_edit import Path, sequence


def value_range(scop: Scop, values: isl.Set, what: str) -> tuple[Expr, Expr]:
    """The smallest of some numbers and how many there are up to the largest, in sizes.

    Raises:
        ScheduleError: there are none, or they have no bounds that the sizes give.
    """
    if values.is_empty():
        raise ScheduleError(f"{what} never runs")
    if not values.dim_is_bounded(isl.dim_type.set, 0):
        raise ScheduleError(f"{what} has no end that the sizes give")
    low, high = values.dim_min(0), values.dim_max(0)
    most = isl.Map.from_domain_and_range(values, values).deltas().dim_max_val(0)
    if not most.is_int():
        return _of_sizes(scop, low), _of_sizes(scop, high.sub(low).add_constant_val(isl.Val(1)))
    least, largest = values.dim_min_val(0), values.dim_max_val(0)
    if least.is_int() and largest.is_int() and largest.sub(least).eq(most):
        # One number for all sizes takes no more space, and subscripts need no conditions.
        return const_int(int(least.to_python())), const_int(int(most.to_python()) + 1)
    return _of_sizes(scop, low), const_int(int(most.to_python()) + 1)


def _of_sizes(scop: Scop, pa: isl.PwAff) -> Expr:
    return function_expr(pa.gist_params(scop.context).coalesce(), (), pa.domain())


def following(points: isl.Set, count: int, dim: int) -> isl.PwAff | None:
    """Dimension `dim` as one function of the first `count` ones, None if it is none of that kind."""
    total = points.dim(isl.dim_type.set)
    pair = points.project_out(isl.dim_type.set, dim + 1, total - dim - 1)
    pair = pair.project_out(isl.dim_type.set, count, dim - count)
    graph = isl.Map.from_domain(pair).move_dims(isl.dim_type.out, 0, isl.dim_type.in_, count, 1)
    if not graph.is_single_valued():
        return None
    value = isl.PwMultiAff.from_map(graph).get_at(0).coalesce()
    return value if value.n_piece() == 1 else None


def named(points: isl.Set, name: str, iters: Sequence[str], scop: Scop) -> isl.Set:
    """The points as a statement's domain."""
    out = points.coalesce().align_params(scop.context.get_space()).set_tuple_name(name)
    for k, i in enumerate(iters):
        out = out.set_dim_name(isl.dim_type.set, k, i)
    return out


def with_statements(member: Member, k: int, statements: Sequence[Statement]) -> Member:
    """The loop with the statements added; their iterator `k` is its value."""
    return replace(member, schedule={**member.schedule, **{s.name: loop_dim(s.domain, k) for s in statements}})


def put_with(path: Path, node: Node, statements: Sequence[Statement], depth: int) -> Node:
    """The tree with `node`, in which the statements are new, at the end of a path; their first `depth` iterators are
    the loops of the path."""
    for parent, k in reversed(path):
        kids = list(parent.children())
        kids[k] = node
        node = parent.with_children(tuple(kids))
        if isinstance(node, Band):
            depth -= len(node.members)
            members = (with_statements(m, depth + j, statements) for j, m in enumerate(node.members))
            node = replace(node, members=tuple(members))
        elif isinstance(node, Filter):
            node = Filter({**node.domain, **{s.name: s.domain for s in statements}}, node.child)
    return node


def program(node: Node) -> Node:
    """The tree as a program order: no marks, no promotions."""
    if isinstance(node, Promote):
        return program(node.child)
    if isinstance(node, Band):
        members = tuple(Member(m.name, m.schedule) for m in node.members)
        return Band(members, program(node.child))
    kids = node.children()
    return node.with_children(tuple(program(c) for c in kids)) if kids else node


def minus(e: Expr, low: Expr) -> Expr:
    """A subscript that counts from `low`."""
    return fold(Binary("-", e, low, e.dtype))


def taken(scop: Scop, tree: Node) -> set[str]:
    """Names that no iterator may have."""
    return {*scop.arrays, *scop.params, *scop.statements, *(n.buffer for n in promotions_below(tree))}


def new_name(scop: Scop, tree: Node, wanted: str) -> str:
    """A name that nothing has yet."""
    used = taken(scop, tree) | {i for s in scop.statements.values() for i in s.iters}
    return unique([wanted], used)[0]


def unique(wanted: Sequence[str], used: Set[str]) -> list[str]:
    """The names as identifiers, different from each other and from those used."""
    found: list[str] = []
    for name in wanted:
        base = "".join(c if c.isalnum() else "_" for c in name)
        candidate, k = base, 0
        while candidate in used or candidate in found:
            k += 1
            candidate = f"{base}_{k}"
        found.append(candidate)
    return found


def beside(node: Node, statement: str, parts: Sequence[Statement], here: Mapping[str, isl.Set]) -> Node:
    """The tree with `parts` one after another wherever the statement was; `here`: what reaches the node."""
    if statement not in here:
        return node
    if isinstance(node, Leaf):
        others = {n: where for n, where in here.items() if n != statement}
        ends = [Filter({p.name: here[statement].set_tuple_name(p.name)}, Leaf()) for p in parts]
        return sequence([*([Filter(others, Leaf())] if others else []), *ends])
    if isinstance(node, Filter):
        own = {p.name: node.domain[statement].set_tuple_name(p.name) for p in parts}
        domain = {n: s for n, s in node.domain.items() if n != statement} | own
        return Filter(domain, beside(node.child, statement, parts, node.domain))
    if isinstance(node, Band):
        members = tuple(replace(m, schedule=_shared(m.schedule, statement, parts)) for m in node.members)
        node = replace(node, members=members)
    if isinstance(node, SequenceNode):
        filters = (beside(f, statement, parts, f.domain) if statement in f.domain else f for f in node.filters)
        return SequenceNode(tuple(f for f in filters if isinstance(f, Filter)))
    return node.with_children(tuple(beside(c, statement, parts, here) for c in node.children()))


def _shared(schedule: Mapping[str, isl.PwAff], statement: str, parts: Sequence[Statement]) -> dict[str, isl.PwAff]:
    """The values of a loop with those of the statement for each of the parts."""
    own = schedule[statement]
    new = {p.name: own.set_tuple_id(isl.dim_type.in_, isl.Id.read_from_str(isl.DEFAULT_CONTEXT, p.name)) for p in parts}
    return {n: v for n, v in schedule.items() if n != statement} | new
