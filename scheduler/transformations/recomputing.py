"""`recompute`: what a loop reads of a local array is computed anew for each of its iterations.

    for i: t[i] = f(i)                            for r: for i in r .. r + 2: t[r, i] = f(i)
    for r: B[r] = t[r] + t[r + 1] + t[r + 2]  ->  for r: B[r] = t[r, r] + t[r, r + 1] + t[r, r + 2]

Each iteration (or block of iterations) of the readers' loop has elements of its own: none waits for another, and what
makes them can stand in the same loop: overlapped tiling (Krishnamoorthy et al., "Effective automatic parallelization of
stencil computations", PLDI 2007; `compute_at` of Ragan-Kelley et al., "Halide", PLDI 2013). Every copy of an element
gets all that is written to the element, in the same places of the program and the same order, so each read sees the
value that it saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import reduce

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Var, loads
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.records import replace
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim, loop_names
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.transformations.added import minus, named, program, unique, value_range
from polyc.scheduler.transformations.expansion import expanded
from polyc.scheduler.transformations.storage import promoted_below
from polyc.scheduler.transformations.tree_edit import floor_div, locate, reaching, refuse_dynamic, used_names


def recompute(scop: Scop, tree: Node, array: str, loop: str, size: int = 1) -> tuple[Scop, Node]:
    """`scop` with a copy of `array` for each `size` iterations of `loop`, of the elements that they read, and its tree.

    Raises:
        ScheduleError: no local array; what reads it is outside of the loop, or what writes it inside; a writer reads
            other elements of it, shares all of its loops with other statements, or runs as often as data say.
    """
    writers, readers = _users(scop, tree, array)
    spot = locate(tree, loop)
    refuse_dynamic(scop, spot.member, "compute anew what is read in")
    active = reaching(scop, spot.path)
    times = spot.member.schedule if size == 1 else floor_div(spot.member.schedule, size)
    for name in sorted(writers & set(times)):
        raise ScheduleError(f"{name} writes '{array}' inside of loop '{loop}': there is nothing to compute anew")
    for name in sorted(readers):
        if name not in times or not scop.statements[name].domain.intersect_params(scop.context).is_subset(active[name]):
            raise ScheduleError(f"{name} reads '{array}' outside of loop '{loop}'")
    ranges = [isl.Map.from_pw_aff(times[n]).intersect_domain(active[n]).range() for n in readers]
    low, extent = value_range(scop, reduce(isl.Set.union, ranges), f"loop '{loop}'")
    copies = _copies(scop, array, writers, readers, times)
    old = scop.arrays[array]
    iterator = unique([loop], used_names(scop, tree))[0]
    statements: dict[str, Statement] = {}
    for name, s in scop.statements.items():
        if name in writers:
            iters = (iterator, *s.iters)
            domain = named(copies[name], name, iters, scop)
            statements[name] = replace(expanded(s, array, minus(Var(iterator), low)), iters=iters, domain=domain)
        elif name in readers:
            statements[name] = expanded(s, array, minus(function_expr(times[name], s.iters, active[name]), low))
        else:
            statements[name] = s
    arrays = {**scop.arrays, array: replace(old, shape=(extent, *old.shape), expanded=old.expanded + 1)}
    made = _inside(tree, set(scop.statements), _names(tree, loop), {n: statements[n] for n in writers})
    return replace(scop, arrays=arrays, statements=statements, tree=program(made)), made


def _users(scop: Scop, tree: Node, array: str) -> tuple[set[str], set[str]]:
    """The statements that write the array, and the others, which read it."""
    if array not in scop.arrays or scop.arrays[array].kind != "local":
        known = ", ".join(a.name for a in scop.arrays.values() if a.kind == "local")
        raise ScheduleError(f"'{array}' is no local array (those are: {known or 'none'})")
    if promoted_below(tree, array):
        raise ScheduleError(f"array '{array}' is promoted already: recompute first")
    writers = {s.name for s in scop.statements.values() if s.array == array}
    readers = {a.stmt for a in accesses(scop) if a.array == array} - writers
    if not readers or not writers:
        raise ScheduleError(f"nothing {'reads' if writers else 'writes'} '{array}'")
    for name in sorted(writers):
        s = scop.statements[name]
        if s.dynamic:
            raise ScheduleError(f"how often {name} runs depends on data")
        reads = [s.value, *s.index, *([] if s.predicate is None else [s.predicate])]
        if any(x.array == array and x != s.target for e in reads for x in loads(e)):
            raise ScheduleError(f"{name} computes elements of '{array}' from others of it")
    return writers, readers


def _copies(
    scop: Scop, array: str, writers: Set[str], readers: Set[str], times: Mapping[str, isl.PwAff]
) -> dict[str, isl.Set]:
    """Of each writer the instances, the copy that each is for in front: those whose elements the copy needs."""
    touching = [a for a in accesses(scop) if a.array == array]
    reads = [isl.Map.from_pw_aff(times[a.stmt]).reverse().apply_range(a.map) for a in touching if a.stmt in readers]
    wanted = _box(reduce(isl.Map.union, reads).coalesce())
    found = {a.stmt: wanted.apply_range(a.map.reverse()) for a in touching if a.write and a.stmt in writers}
    return {n: m.wrap().flatten().coalesce().gist_params(scop.context) for n, m in found.items()}


def _box(wanted: isl.Map) -> isl.Map:
    """More than a copy needs, in simpler words: of each dimension whose elements are not the same for all copies what
    the copy reads of it, of all others everything (columns that a stride leaves out, too)."""
    rank = wanted.dim(isl.dim_type.out)
    box = isl.Map.from_domain_and_range(wanted.domain(), isl.Set.universe(wanted.range().get_space()))
    for k in range(rank):
        along = wanted.project_out(isl.dim_type.out, k + 1, rank - k - 1).project_out(isl.dim_type.out, 0, k)
        if not along.is_equal(isl.Map.from_domain_and_range(along.domain(), along.range())):
            along = along.insert_dims(isl.dim_type.out, 0, k).add_dims(isl.dim_type.out, rank - k - 1)
            box = box.intersect(along.set_tuple_name(isl.dim_type.out, wanted.get_tuple_name(isl.dim_type.out)))
    return box


def _names(tree: Node, loop: str) -> Iterator[str]:
    """Names for loops over the copies, all different."""
    used = set(loop_names(tree))
    while True:
        used.add(name := unique([loop], used)[0])
        yield name


def _inside(node: Node, here: Set[str], loops: Iterator[str], writers: Mapping[str, Statement]) -> Node:
    """The tree with a loop over the copies around each part that holds writers only; `here`: what reaches the node."""
    if here <= set(writers):
        copies = {n: loop_dim(writers[n].domain, 0) for n in sorted(here)}
        return Band((Member(next(loops), copies),), _lifted(node, writers))
    if not here & set(writers):
        return node
    if isinstance(node, Filter):
        return Filter(_lifted_sets(node.domain, writers), _inside(node.child, set(node.domain), loops, writers))
    if isinstance(node, SequenceNode):
        return SequenceNode(tuple(_part(f, loops, writers) for f in node.filters))
    if isinstance(node, Leaf):
        raise ScheduleError(f"{', '.join(sorted(here & set(writers)))} shares an iteration with other statements")
    if isinstance(node, Band):
        node = replace(node, members=tuple(_lifted_member(m, writers) for m in node.members))
    return node.with_children(tuple(_inside(c, here, loops, writers) for c in node.children()))


def _part(part: Filter, loops: Iterator[str], writers: Mapping[str, Statement]) -> Filter:
    return Filter(_lifted_sets(part.domain, writers), _inside(part.child, set(part.domain), loops, writers))


def _lifted(node: Node, writers: Mapping[str, Statement]) -> Node:
    """The part as it is, for each copy."""
    if isinstance(node, Band):
        node = replace(node, members=tuple(_lifted_member(m, writers) for m in node.members))
    if isinstance(node, Filter):
        node = Filter(_lifted_sets(node.domain, writers), node.child)
    return node.with_children(tuple(_lifted(c, writers) for c in node.children())) if node.children() else node


def _lifted_member(m: Member, writers: Mapping[str, Statement]) -> Member:
    moved = {n: v.pullback_multi_aff(_without_copy(writers[n])) if n in writers else v for n, v in m.schedule.items()}
    return replace(m, schedule=moved)


def _lifted_sets(domain: Mapping[str, isl.Set], writers: Mapping[str, Statement]) -> dict[str, isl.Set]:
    return {
        n: d.preimage_multi_aff(_without_copy(writers[n])).intersect(writers[n].domain) if n in writers else d
        for n, d in domain.items()
    }


def _without_copy(s: Statement) -> isl.MultiAff:
    """From the new instances of a statement to those that it had."""
    space = s.domain.get_space()
    old = space.drop_dims(isl.dim_type.set, 0, 1).set_tuple_name(isl.dim_type.set, s.name)
    local = isl.LocalSpace.from_space(space)
    values = isl.AffList.alloc(isl.DEFAULT_CONTEXT, len(s.iters))
    for k in range(1, len(s.iters)):
        values = values.add(isl.Aff.var_on_domain(local, isl.dim_type.set, k))
    return isl.MultiAff.from_aff_list(isl.Space.map_from_domain_and_range(space, old), values)
