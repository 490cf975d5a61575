"""Which loops of a tree are parallel, and which stand in any order."""

from __future__ import annotations

from dataclasses import replace

from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Member, Node, Sequence, loop_names
from polyc.scheduler.questions.coincidence import Pair, all_pairs, analyse


def parallel_loops(scop: Scop, tree: Node, reductions: bool) -> tuple[str, ...]:
    """See `Questions.parallel_loops`."""
    carried = analyse(tree, all_pairs(scop))
    names = dict.fromkeys(loop_names(tree))
    return tuple(n for n in names if (carried[n].vector if reductions else carried[n].parallel))


def permutable_bands(scop: Scop, tree: Node) -> tuple[tuple[str, ...], ...]:
    """See `Questions.permutable_bands`."""
    found: list[tuple[str, ...]] = []
    # Instances of one reduction may run in any order, so their pairs forbid nothing here.
    _visit(tree, [p for p in all_pairs(scop) if not p.reduction], found)
    return tuple(found)


def _visit(node: Node, alive: list[Pair], found: list[tuple[str, ...]]) -> None:
    if isinstance(node, Band):
        members, below = _chain(node)
        _visit(below, _bands(members, alive, found), found)
    elif isinstance(node, (Sequence, Filter)):
        for f in node.filters if isinstance(node, Sequence) else (node,):
            inside = [
                replace(p, map=p.map.intersect_domain(f.domain[p.source]).intersect_range(f.domain[p.sink]))
                for p in alive if p.source in f.domain and p.sink in f.domain
            ]  # fmt: skip
            _visit(f.child, [p for p in inside if not p.is_empty()], found)
    else:
        for child in node.children():
            _visit(child, alive, found)


def _chain(node: Node) -> tuple[list[Member], Node]:
    members: list[Member] = []
    while isinstance(node, Band):
        members.extend(node.members)
        node = node.child
    return members, node


def _bands(members: list[Member], alive: list[Pair], found: list[tuple[str, ...]]) -> list[Pair]:
    """Cut nested loops into the longest permutable bands; the pairs left inside all of them."""
    start = 0
    while start < len(members):
        stop = start + 1
        while stop < len(members) and _never_back(members[stop], alive) and _never_back(members[start], alive):
            stop += 1
        if stop - start > 1:
            found.append(tuple(m.name for m in members[start:stop]))
        for m in members[start:stop]:
            alive = _inside(m, alive)
        start = stop
    return alive


def _never_back(m: Member, alive: list[Pair]) -> bool:
    """Whether no pair runs backwards in the loop taken alone."""
    return all(p.map.is_disjoint(m.schedule[p.source].gt_map(m.schedule[p.sink])) for p in alive)


def _inside(m: Member, alive: list[Pair]) -> list[Pair]:
    return [p for p in (q.within(m) for q in alive) if not p.is_empty()]
