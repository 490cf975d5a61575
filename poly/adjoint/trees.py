"""Schedule trees of statements that stand where those of another program do, in its order or in the reversed one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.scop import Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim
from polyc.poly.tree import Sequence as SequenceNode

Parts = Mapping[str, Sequence[Statement]]
"""For each statement of a tree those that take its place, in their order; they have its iterators."""


def in_place(node: Node, parts: Parts, loop: Callable[[str], str], reverse: bool = False) -> Node | None:
    """The tree with its statements replaced; None where nothing is left. `reverse`: every loop runs backwards and
    sequences are reversed, the order of the statements in one place stays. `loop` names the loops."""
    found = _mapped(node, parts, loop, reverse)
    return None if found is None else found[1]


def _mapped(node: Node, parts: Parts, loop: Callable[[str], str], reverse: bool,
            below: frozenset[str] | None = None) -> tuple[list[Statement], Node] | None:  # fmt: skip
    """The statements of the new tree and the tree. `below` are the statements that reach the node."""
    if isinstance(node, Leaf):
        names = parts if below is None else [n for n in parts if n in below]
        here = [s for n in names for s in parts[n]]
        return (here, in_sequence([([s], Leaf()) for s in here])) if here else None
    if isinstance(node, Band):
        found = _mapped(node.child, parts, loop, reverse, frozenset(node.members[0].schedule))
        if found is None:
            return None
        origin = {s.name: n for n in node.members[0].schedule for s in parts.get(n, ())}
        members = [
            Member(loop(m.name), {s.name: _moved(m.schedule[origin[s.name]], s.name, reverse) for s in found[0]})
            for m in node.members
        ]
        return found[0], joined_band(members, found[1])
    if isinstance(node, SequenceNode):
        children = [_filtered(f, parts, loop, reverse) for f in (node.filters[::-1] if reverse else node.filters)]
        kept = [c for c in children if c is not None]
        if not kept:
            return None
        return [s for statements, _ in kept for s in statements], in_sequence(kept)
    if isinstance(node, Filter):
        return _filtered(node, parts, loop, reverse)
    return _mapped(node.children()[0], parts, loop, reverse, below)


def _filtered(f: Filter, parts: Parts, loop: Callable[[str], str],
              reverse: bool) -> tuple[list[Statement], Node] | None:  # fmt: skip
    """The part below a filter, its statements with the domains that they have there."""
    inner: dict[str, list[Statement]] = {}
    for name, domain in f.domain.items():
        for s in parts.get(name, ()):
            here = _both(s.domain, domain.set_tuple_name(s.name))
            if not here.is_empty():
                inner.setdefault(name, []).append(_within(s, here))
    return _mapped(f.child, inner, loop, reverse) if inner else None


def _both(a: isl.Set, b: isl.Set) -> isl.Set:
    """What is in both. isl keeps the existential variables of both: of sets that have met before there would be twice
    as many after each step that makes a tree anew."""
    if a.plain_is_equal(b) or (a.involves_locals() and b.involves_locals() and a.is_subset(b)):
        return a
    return a.intersect(b)


def _within(s: Statement, domain: isl.Set) -> Statement:
    return replace(s, domain=domain)


def joined_band(members: Sequence[Member], child: Node) -> Band:
    """A band above a node; one directly below becomes part of it."""
    if isinstance(child, Band):
        return Band((*members, *child.members), child.child)
    return Band(tuple(members), child)


def in_sequence(children: Sequence[tuple[Sequence[Statement], Node]]) -> Node:
    """The nodes one after another, with the statements of each; sequences among them are spliced in."""
    if len(children) == 1:
        return children[0][1]
    filters: list[Filter] = []
    for statements, node in children:
        domains = {s.name: s.domain for s in statements}
        if isinstance(node, SequenceNode):
            filters += [Filter({n: _both(d, domains[n]) for n, d in f.domain.items()}, f.child) for f in node.filters]
        else:
            filters.append(Filter(domains, node))
    return SequenceNode(tuple(filters))


def _moved(value: isl.PwAff, name: str, reverse: bool) -> isl.PwAff:
    moved = value.set_tuple_id(isl.dim_type.in_, isl.Id.read_from_str(isl.DEFAULT_CONTEXT, name))
    return moved.neg() if reverse else moved


def loops_over(s: Statement, names: Sequence[str]) -> Node:
    """A nest of its own over all iterators of a statement."""
    if not s.iters:
        return Leaf()
    return Band(tuple(Member(n, {s.name: loop_dim(s.domain, k)}) for k, n in enumerate(names)), Leaf(), True)
