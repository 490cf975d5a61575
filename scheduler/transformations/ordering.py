"""Changing the order of loops and statements: `interchange permute reverse skew shift reorder_statements`.

Pure tree edits, unchecked.

What makes no sense on the tree (no such loop, loops that are not nested) is a `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.records import replace
from polyc.poly.scop import Scop
from polyc.poly.tree import Filter, Member, Node, loop_names
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.arguments import integer
from polyc.scheduler.transformations.tree_edit import (
    chain_of,
    locate,
    map_member,
    outer_members,
    paths,
    put,
    refuse_dynamic,
    regroup,
    together,
)


def permute(scop: Scop, tree: Node, loops: Sequence[str]) -> Node:
    """The loops in the given order, in the places that they hold together."""
    if len(set(loops)) != len(loops) or len(loops) < 2:
        raise ScheduleError(f"permute needs two or more different loops, not: {', '.join(loops) or 'none'}")
    for name in loops:
        locate(tree, name)
    tree = together(scop, tree, loops)
    chain = chain_of(tree, loops[0])
    by_name = {m.name: m for m in chain.members}
    places = sorted(chain.position(name) for name in loops)
    members = list(chain.members)
    for place, name in zip(places, loops, strict=True):
        members[place] = by_name[name]
    return regroup(chain, members)


def interchange(scop: Scop, tree: Node, a: str, b: str) -> Node:
    """Swap two nested loops."""
    if a == b:
        raise ScheduleError(f"interchange needs two different loops, not '{a}' twice")
    first, second = locate(tree, a), locate(tree, b)
    outer_first = (len(first.path), first.index) < (len(second.path), second.index)
    return permute(scop, tree, [b, a] if outer_first else [a, b])


def reverse(scop: Scop, tree: Node, loop: str) -> Node:
    """Run the loop backwards."""
    member = locate(tree, loop).member
    refuse_dynamic(scop, member, "reverse")
    return map_member(tree, loop, replace(member, schedule={s: pa.neg() for s, pa in member.schedule.items()}))


def skew(scop: Scop, tree: Node, loop: str, by: str, factor: int) -> Node:
    """`loop` runs over `loop + factor * by`."""
    if loop == by:
        raise ScheduleError(f"loop '{loop}' cannot be skewed by itself")
    integer(factor, "skew factor")
    member = locate(tree, loop).member
    refuse_dynamic(scop, member, "skew")
    spot = locate(tree, loop)
    if not any(m.name == by for m in [*outer_members(spot.path), *spot.band.members[: spot.index]]):
        locate(tree, by)
        tree = together(scop, tree, [loop, by])
        spot = locate(tree, loop)
    other = locate(tree, by).member
    schedule = {s: pa.add(other.schedule[s].scale_val(isl.Val(factor))) for s, pa in spot.member.schedule.items()}
    return map_member(tree, loop, replace(spot.member, schedule=schedule))


def shift(scop: Scop, tree: Node, loop: str, amount: int, statements: Sequence[str] | None) -> Node:
    """Add `amount` to the loop's time of some statements."""
    integer(amount, "shift")
    member = locate(tree, loop).member
    refuse_dynamic(scop, member, "shift")
    chosen = tuple(member.schedule) if statements is None else tuple(statements)
    for s in chosen:
        if s not in member.schedule:
            have = ", ".join(member.schedule)
            raise ScheduleError(f"no statement '{s}' in loop '{loop}': the statements there are {have}")
    return map_member(tree, loop, shifted(member, amount, chosen))


def shifted(member: Member, amount: int, statements: Sequence[str]) -> Member:
    """The loop with some statements delayed by `amount` iterations."""
    schedule = dict(member.schedule)
    for s in statements:
        space = isl.LocalSpace.from_space(schedule[s].get_domain_space())
        constant = isl.PwAff.from_aff(isl.Aff.zero_on_domain(space).set_constant_val(isl.Val(amount)))
        schedule[s] = schedule[s].add(constant)
    return replace(member, schedule=schedule)


def reorder_statements(tree: Node, order: Sequence[str]) -> Node:
    """Put the children of one Sequence that hold these statements (or loops) in the given order."""
    if len(set(order)) != len(order) or len(order) < 2:
        raise ScheduleError(f"reorder_statements needs two or more different statements, not: {', '.join(order)}")
    for path, node in reversed(paths(tree)):
        if not isinstance(node, SequenceNode):
            continue
        where = {s: _holders(node, s) for s in order}
        if not all(where.values()):
            continue
        for s, found in where.items():
            if len(found) > 1:
                raise ScheduleError(f"{s} is in several parts of the sequence: name a loop of the part that is meant")
        places = [found[0] for found in where.values()]
        if len(set(places)) != len(places):
            raise ScheduleError(f"statements {', '.join(order)} are inside a common loop: distribute it first")
        filters: list[Filter] = list(node.filters)
        for place, source in zip(sorted(places), places, strict=True):
            filters[place] = node.filters[source]
        return put(path, SequenceNode(tuple(filters)))
    raise ScheduleError(f"statements {', '.join(order)} are not neighbours in one sequence")


def _holders(node: SequenceNode, name: str) -> list[int]:
    """The parts of a sequence that hold a statement or a loop."""
    return [k for k, f in enumerate(node.filters) if name in f.domain or name in loop_names(f.child)]
