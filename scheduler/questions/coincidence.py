"""Which loops of a tree carry a conflict: one walk that narrows the conflicts on the way down."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import islpy as isl

from polyc.poly.dependences import Conflicts, conflicts, conflicts_among
from polyc.poly.ordering.narrowing import Facts, facts
from polyc.poly.ordering.one_dim import OneDims, forms
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Member, Node, Sequence


@dataclass(frozen=True, slots=True)
class Pair:
    """Conflicting instances `{ source[x] -> sink[y] }`; `reduction` pairs may be reordered."""

    source: str
    sink: str
    map: isl.Map
    reduction: bool
    equated: frozenset[tuple[int, int]]
    forms: OneDims
    """What sees, with the `equated` dimensions, that a loop gives both ends one value."""
    facts: Facts
    """Answers of isl: strategies ask the same about the same loops in many trees."""

    def tied(self, member: Member) -> bool:
        """Whether all pairs are within one iteration of the loop."""
        return self._seen(member) or bool(self._once("tied", member, self.map.is_subset))

    def within(self, member: Member) -> Pair:
        """Those within one iteration of the loop."""
        if self._seen(member):
            return self
        return replace(self, map=self._once("within", member, self.map.intersect))

    def is_empty(self) -> bool:
        """Whether there are none."""
        return bool(self.facts.once(("empty", id(self.map)), (self.map,), self.map.is_empty))

    def _once(self, what: str, member: Member, ask: Callable[[isl.Map], Any]) -> Any:
        """What `ask` says about the pairs within one iteration of the loop."""
        ends = member.schedule[self.source], member.schedule[self.sink]
        key = (what, id(self.map), *map(id, ends))
        return self.facts.once(key, (self.map, *ends), lambda: ask(same_time(member, self.source, self.sink)))

    def _seen(self, member: Member) -> bool:
        return self.forms.equal(member.schedule[self.source], member.schedule[self.sink], self.equated)


@dataclass(frozen=True, slots=True)
class Carried:
    """`parallel`: the loop carries no conflict at all; `vector`: none but reductions' own."""

    parallel: bool
    vector: bool


def all_pairs(scop: Scop, among: Collection[str] | None = None) -> list[Pair]:
    """All conflicts of a Scop, or only those of some of its statements with each other."""
    # What is remembered serves others, too: nothing is found twice where that is most of it.
    part = among is not None and 2 * len(among) <= len(scop.statements)
    found = conflicts_among(scop, among) if among is not None and part else conflicts(scop)
    known, answers = forms(scop), facts(scop)
    # (Lanes add up the updates of one statement.)
    relaxed = [
        Pair(a, b, m, a == b, found.equated_relaxed[a, b], known, answers) for (a, b), m in found.relaxed.items()
    ]
    return _ordered(scop, found) + relaxed


def ordered_pairs(scop: Scop) -> list[Pair]:
    """The conflicts whose order counts: all but those between updates of one reduction, also by several statements."""
    return _ordered(scop, conflicts(scop))


def _ordered(scop: Scop, found: Conflicts) -> list[Pair]:
    known, answers = forms(scop), facts(scop)
    return [Pair(a, b, m, False, found.equated[a, b], known, answers) for (a, b), m in found.ordered.items()]


def same_time(member: Member, source: str, sink: str) -> isl.Map:
    """`{ source[x] -> sink[y] }` in one iteration of the loop."""
    return member.schedule[source].eq_map(member.schedule[sink])


def narrowed(pairs: Iterable[Pair], members: Iterable[Member]) -> list[Pair]:
    """The pairs within one iteration of all the loops."""
    alive = list(pairs)
    for m in members:
        alive = [p for p in (q.within(m) for q in alive) if not p.is_empty()]
    return alive


def analyse(tree: Node, pairs: Iterable[Pair]) -> Mapping[str, Carried]:
    """What every loop of the tree carries."""
    found: dict[str, Carried] = {}
    _visit(tree, list(pairs), found)
    return found


def _visit(node: Node, alive: list[Pair], found: dict[str, Carried]) -> None:
    if isinstance(node, Band):
        for m in node.members:
            alive = _member(m, alive, found)
    if isinstance(node, (Sequence, Filter)):
        filters = node.filters if isinstance(node, Sequence) else (node,)
        cut = {s for f in filters for s in f.domain if sum(s in g.domain for g in filters) > 1}
        for f in filters:
            inside = (p for p in alive if p.source in f.domain and p.sink in f.domain)
            _visit(f.child, [q for p in inside if (q := _of_part(p, f, cut)) is not None], found)
        return
    for child in node.children():
        _visit(child, alive, found)


def _of_part(pair: Pair, part: Filter, cut: set[str]) -> Pair | None:
    """The pairs of a part, which has some instances only of the statements that are `cut`; None if there are none."""
    pairs = pair.map
    if pair.source in cut:
        pairs = pairs.intersect_domain(part.domain[pair.source])
    if pair.sink in cut:
        pairs = pairs.intersect_range(part.domain[pair.sink])
    return None if pairs.is_empty() else pair if pairs is pair.map else replace(pair, map=pairs)


def _member(m: Member, alive: list[Pair], found: dict[str, Carried]) -> list[Pair]:
    """Record what the loop carries; the pairs left for the loops inside."""
    parallel = vector = True
    left: list[Pair] = []
    for p in alive:
        if (vector or (parallel and p.reduction)) and not p.tied(m):
            parallel = False
            vector = vector and p.reduction
        inside = p.within(m)
        if not inside.is_empty():
            left.append(inside)
    found[m.name] = Carried(parallel, vector)
    return left
