"""The one legality check: does a schedule tree keep every conflict of the Scop in order?

A tree is accepted when it runs every instance exactly once, maps no conflict to a
non-positive time distance, and its `parallel` and `vector` loops and promotions hold what
they claim. Every transformation and every strategy goes through `check`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import islpy as isl

from polyc.poly.dependences import Conflicts, Pair, conflicts
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.ordering.coverage import check_coverage
from polyc.poly.ordering.narrowing import Tied, facts
from polyc.poly.ordering.one_dim import forms
from polyc.poly.ordering.order import by_parts
from polyc.poly.ordering.promotion import promotion_faults
from polyc.poly.scop import Scop
from polyc.poly.tree import (
    Band,
    Filter,
    Leaf,
    LoopKind,
    Member,
    Node,
    Sequence,
    concurrency,
    loop_names,
    promotions_below,
    walk,
)
from polyc.poly.witnesses.violation import Rule, Violation


def check(scop: Scop, tree: Node) -> None:
    """Accept `tree` as a schedule of `scop`, or say why not.

    Raises:
        ScheduleError: the tree does not run every instance exactly once.
        IllegalSchedule: a conflict is reversed or left unordered, a parallel or vector loop
            carries one, or a promotion loses or misses values; `.witness` has the proof.
    """
    fault = first_violation(scop, tree)
    if fault is not None:
        raise IllegalSchedule(f"illegal schedule of '{scop.name}'", fault)


def first_violation(scop: Scop, tree: Node) -> Violation | None:
    """What `check` refuses the tree for, None when it is legal.

    Raises:
        ScheduleError: the tree does not run every instance exactly once.
    """
    check_coverage(scop, tree)
    return find_violation(scop, tree) or check_promotions(scop, tree)


def is_legal(scop: Scop, tree: Node) -> bool:
    """Whether `check` accepts; quicker on a refusal because no witness is made."""
    try:
        return first_violation(scop, tree) is None
    except ScheduleError:
        return False


def find_violation(scop: Scop, tree: Node) -> Violation | None:
    """The first violation of order, or of a loop marked parallel or vector, in tree order."""
    return next(iter(_Walk(scop, tree, marks=True).run()), None)


def check_order(scop: Scop, tree: Node) -> Violation | None:
    """A conflict that `tree` reverses or leaves unordered, whatever its loops are marked."""
    return next(iter(_Walk(scop, tree, marks=False).run()), None)


def check_parallel(scop: Scop, tree: Node, member_name: str, vector: bool = False) -> Violation | None:
    """A conflict carried by the loop `member_name` of the (legally ordered) `tree`.

    With `vector`, pairs of a reduction's own instances are allowed.

    Raises:
        ScheduleError: the tree has no such loop.
    """
    if member_name not in loop_names(tree):
        raise ScheduleError(f"there is no loop '{member_name}' (loops: {', '.join(loop_names(tree)) or 'none'})")
    marked = _marked(tree, member_name, "vector" if vector else "parallel")
    return next(iter(_Walk(scop, marked, marks=True, only=member_name).run()), None)


def _marked(node: Node, loop: str, kind: LoopKind) -> Node:
    """The tree with one loop marked."""
    if isinstance(node, Band) and any(m.name == loop for m in node.members):
        members = tuple(m if m.name != loop or m.kind == kind else replace(m, kind=kind) for m in node.members)
        return replace(node, members=members)
    kids = node.children()
    return node.with_children(tuple(_marked(c, loop, kind) for c in kids)) if kids else node


def check_promotions(scop: Scop, tree: Node) -> Violation | None:
    """A value that a `Promote` node loses (not copied out) or misses (not copied in)."""
    return next(_promotions(scop, tree), None)


def _promotions(scop: Scop, tree: Node) -> Iterator[Violation]:
    for f in promotion_faults(scop, tree):
        yield Violation(scop, tree, "promotion", f.pairs, f.sizes, f.loop, f.detail, f.node, f.end)


def violations(scop: Scop, tree: Node) -> Iterator[Violation]:
    """All violations: every loop, sequence and promotion that breaks a conflict, with all the pairs."""
    yield from _Walk(scop, tree, marks=True, every=True).run()
    yield from _promotions(scop, tree)


def legal_sizes(scop: Scop, tree: Node) -> isl.Set:
    """The exact set of parameters, within the Scop's context, for which `tree` is legal.

    The complement of the projection of all violated conflicts onto the parameters. Exact where
    the conflicts are (affine accesses); with data-dependent accesses a subset.
    """
    legal = scop.context
    for v in violations(scop, tree):
        legal = legal.subtract(v.sizes)
    return legal.coalesce()


Pairs = dict[Pair, Tied]


class _Walk:
    """One descent of the tree with the conflicts that the loops so far leave at equal times."""

    def __init__(self, scop: Scop, tree: Node, marks: bool, only: str | None = None, every: bool = False) -> None:
        """`marks`: check what marked loops promise (`only` this one); `every`: go on after a violation."""
        self.scop, self.tree, self.marks, self.only, self.every = scop, tree, marks, only, every
        self.found: list[Violation] = []
        self.known: Conflicts = conflicts(scop)
        self.forms = forms(scop)
        self.facts = facts(scop)

    def run(self) -> list[Violation]:
        overlap = any(self.may_overlap(n) for n in walk(self.tree) if isinstance(n, Band))
        relaxed = self.known.relaxed if overlap else {}
        self.visit(self.tree, *({k: Tied(m) for k, m in group.items()} for group in (self.known.ordered, relaxed)))
        return self.found

    def may_overlap(self, band: Band) -> bool:
        """Whether a loop of the band could run updates of one reduction at once: in all other loops
        they may come in any order."""
        rules = {self.rule_of(m) for m in band.members}
        updated = {self.scop.statements[s].array for s, _ in self.known.relaxed}
        several = any(s != t for s, t in self.known.relaxed)
        return "parallel" in rules or ("vector" in rules and (several or not updated.isdisjoint(_promoted(band.child))))

    @property
    def done(self) -> bool:
        """Whether the answer is known."""
        return bool(self.found) and not self.every

    def fail(self, rule: Rule, pairs: isl.Map, loop: str | None = None) -> bool:
        """Record the violation when `pairs` has any; says whether that is enough."""
        if not self.done and not pairs.is_empty():
            self.found.append(Violation(self.scop, self.tree, rule, pairs, pairs.params(), loop))
        return self.done

    def visit(self, node: Node, ordered: Pairs, relaxed: Pairs) -> None:
        if self.done or not (ordered or relaxed):
            return
        if isinstance(node, Leaf):
            for pairs in ordered.values():
                if self.fail("unordered", self.facts.pairs(pairs)):
                    return
        elif isinstance(node, Band):
            promoted = _promoted(node.child)
            for member in node.members:
                ordered, relaxed = self.member(member, ordered, relaxed, promoted)
                if self.done:
                    return
            self.visit(node.child, ordered, relaxed)
        elif isinstance(node, Sequence):
            self.sequence(node, ordered, relaxed)
        elif isinstance(node, Filter):
            self.visit(node.child, self.between(ordered, node, node), self.between(relaxed, node, node))
        else:
            self.visit(node.children()[0], ordered, relaxed)

    def rule_of(self, member: Member) -> Rule | None:
        """What the loop must hold besides order."""
        if not self.marks or self.only not in (None, member.name):
            return None
        return concurrency(member.kind)

    def member(self, m: Member, ordered: Pairs, relaxed: Pairs, promoted: set[str]) -> tuple[Pairs, Pairs]:
        """Check one loop; what it leaves tied. `promoted`: arrays with a buffer inside the loop; the
        lanes of a vector loop would each update a copy of its own, and lose the others' updates."""
        rule = self.rule_of(m)
        tied: Pairs = {}
        known = self.facts
        for (s, t), pairs in ordered.items():
            a, b = m.schedule[s], m.schedule[t]
            if self.forms.equal(a, b, self.known.equated[s, t]):
                tied[s, t] = pairs
                continue
            if not known.forward(pairs, a, b):
                if self.fail("order", known.pairs(pairs).intersect(a.gt_map(b)), m.name):
                    return {}, {}
            if rule is not None and self.fail(rule, known.pairs(pairs).intersect(a.lt_map(b)), m.name):
                return {}, {}
            equal = known.left(pairs, a, b)
            if equal is not None:
                tied[s, t] = equal
        loose: Pairs = {}
        for (s, t), pairs in relaxed.items():
            a, b = m.schedule[s], m.schedule[t]
            if self.forms.equal(a, b, self.known.equated_relaxed[s, t]):
                loose[s, t] = pairs
                continue
            lanes = s != t or self.scop.statements[s].array in promoted  # (of one statement they are added up)
            if rule == "parallel" or (rule == "vector" and lanes):
                apart = a.lt_map(b).union(a.gt_map(b))
                if self.fail(rule, known.pairs(pairs).intersect(apart), m.name):
                    return {}, {}
            equal = known.left(pairs, a, b)
            if equal is not None:
                loose[s, t] = equal
        return tied, loose

    def sequence(self, node: Sequence, ordered: Pairs, relaxed: Pairs) -> None:
        both, loose = (by_parts([f.domain for f in node.filters], group) for group in (ordered, relaxed))
        backwards: dict[int, list[int]] = {}
        for i, j in sorted(both):
            if j < i:
                backwards.setdefault(i, []).append(j)
        for i, first in enumerate(node.filters):
            for j in backwards.get(i, ()):
                for pairs in self.between(both[i, j], first, node.filters[j]).values():
                    if self.fail("order", self.facts.pairs(pairs)):
                        return
            own, apart = both.get((i, i), {}), loose.get((i, i), {})
            self.visit(first.child, self.between(own, first, first), self.between(apart, first, first))

    def between(self, pairs: Mapping[Pair, Tied], a: Filter, b: Filter) -> Pairs:
        """The pairs from instances of `a` to instances of `b`."""
        out = {}
        for (s, t), m in pairs.items():
            if s not in a.domain or t not in b.domain:
                continue
            whole = self.whole(s, a.domain[s]) and self.whole(t, b.domain[t])
            inside = m if whole else self.facts.between(m, a.domain[s], b.domain[t])
            if inside is not None:
                out[s, t] = inside
        return out

    def whole(self, stmt: str, part: isl.Set) -> bool:
        """Whether a filter visibly lets all instances of the statement pass."""
        domain = self.scop.statements[stmt].domain
        return part is domain or bool(part.plain_is_equal(domain))


def _promoted(tree: Node) -> set[str]:
    """The arrays that have a buffer somewhere in the tree."""
    return {n.array for n in promotions_below(tree)}
