"""Two versions of a program under a condition on the sizes: the new tree where it is legal, the
old one elsewhere (loop versioning, decided by the exact condition instead of a run-time alias test)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import islpy as isl

from polyc.poly.forms.conditions import Condition
from polyc.poly.legality import legal_sizes
from polyc.poly.ordering.coverage import check_coverage
from polyc.poly.records import replace
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Node, Promote, Sequence, loop_names, promotions_below

PREFIX = "else."
AGAIN = "next."


def guarded(scop: Scop, old: Node, new: Node) -> Node:
    """`new` where all sizes allow it or none does, else a choice between the two:

        sequence
        ├─ (sizes for which `new` is legal)   new
        └─ (other sizes)                      old, its loops named `else.<loop>`

    Raises:
        ScheduleError: `new` does not run every instance exactly once.
    """
    check_coverage(scop, new)
    legal = Condition(legal_sizes(scop, new), scop.context).simple
    other = Condition(scop.context.subtract(legal), scop.context).simple
    if legal.intersect(scop.context).is_empty() or other.intersect(scop.context).is_empty():
        return new
    every = {n: isl.Set.universe(s.domain.get_space()) for n, s in scop.statements.items()}
    return _versions(every, (legal, new), (other, old))


def _versions(domain: Mapping[str, isl.Set], new: tuple[isl.Set, Node], old: tuple[isl.Set, Node]) -> Sequence:
    """Two trees for the same instances, each with the sizes for which it is; the loops of `old` are renamed."""
    return Sequence((_under(domain, *new), _under(domain, old[0], _renamed(old[1], new[1]))))


def _under(domain: Mapping[str, isl.Set], sizes: isl.Set, tree: Node) -> Filter:
    return Filter({n: d.intersect_params(sizes) for n, d in domain.items()}, tree)


def _renamed(old: Node, new: Node) -> Node:
    """`old` with loops named `else.<loop>`, and buffers that `new` does not have; suffixes as `.out` stay."""
    taken = {*loop_names(new), *(n.buffer for n in promotions_below(new))}
    loops = {name: _free(PREFIX + name, taken, PREFIX) for name in loop_names(old)}
    buffers = {n.buffer: _free(n.buffer, taken, "else_") for n in promotions_below(old)}
    return _rename(old, loops, buffers)


def renamed(tree: Node, taken: Iterable[str]) -> Node:
    """The tree with its loops named so that none has a name that is taken; buffers keep theirs."""
    used = set(taken)
    loops = {name: _free(name, used, AGAIN) for name in loop_names(tree)}
    return _rename(tree, loops, {n.buffer: n.buffer for n in promotions_below(tree)})


def _free(name: str, taken: set[str], prefix: str) -> str:
    while name in taken:
        name = prefix + name
    taken.add(name)
    return name


def _rename(node: Node, loops: Mapping[str, str], buffers: Mapping[str, str]) -> Node:
    if isinstance(node, Band):
        node = replace(node, members=tuple(replace(m, name=loops[m.name]) for m in node.members))
    elif isinstance(node, Promote):
        node = replace(node, buffer=buffers[node.buffer])
    kids = node.children()
    return node.with_children(tuple(_rename(c, loops, buffers) for c in kids)) if kids else node
