"""The one legality check: does a schedule tree keep every conflict of the Scop in order?

A tree is accepted when it runs every instance exactly once, maps no conflict to a
non-positive time distance, and its `parallel` and `vector` loops and promotions hold what
they claim. Every transformation and every strategy goes through `check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import islpy as isl

from poly.coverage import check_coverage
from poly.dependences import Conflicts, Pair, conflicts
from poly.errors import IllegalSchedule, ScheduleError
from poly.one_dim import OneDims
from poly.promotion import PromotionFault, promotion_fault
from poly.scop import Scop
from poly.tree import Band, Filter, Leaf, Member, Node, Sequence, concurrency, loop_names, walk
from poly.witness import Witness, legal_sizes, make_witness

Rule = Literal["order", "unordered", "parallel", "vector", "promotion"]


@dataclass(frozen=True, eq=False)
class Violation:
    """Conflicting pairs (program order: source -> sink) that break `rule`; `loop` carries them.

    `pairs` is None where the caller is the other end: a promotion that loses a result or
    misses an input; `detail` says so.
    """

    scop: Scop
    rule: Rule
    pairs: isl.Map | None
    loop: str | None = None
    detail: str = ""

    @cached_property
    def witness(self) -> Witness | None:
        """The smallest counterexample (computed when asked for)."""
        if self.pairs is None:
            return None
        return replace(make_witness(self.scop, self.pairs), legal_when=legal_sizes(self.scop, self.pairs))

    def __str__(self) -> str:
        w = self.witness
        if w is None:
            return self.detail
        source, sink = w.instance("source"), w.instance("sink")
        sizes = ", ".join(f"{n}={v}" for n, v in w.params.items())
        text = (f"with {sizes}, " if sizes else "") + w.why
        if self.rule == "order":
            at = f" (at loop '{self.loop}')" if self.loop else ""
            text += f", but the new schedule runs {sink} before {source}{at}"
        elif self.rule == "unordered":
            text += ", but the new schedule does not order the two"
        elif self.rule == "promotion":
            text += f", but {self.detail}"
        else:
            word = "parallel" if self.rule == "parallel" else "vector"
            text += f", but they are different iterations of the {word} loop '{self.loop}'"
        if w.legal_when is not None and w.params:
            text += f"; it would be legal for {_conditions(w.legal_when)}"
        return text + (f" [{w.located}]" if w.located else "")


def _conditions(sizes: isl.Set) -> str:
    """The constraints of a parameter set as text."""
    text = str(sizes)
    inside = text[text.index("{") + 1 : text.rindex("}")].strip()
    return inside.removeprefix(":").strip() or "all sizes"


def check(scop: Scop, tree: Node) -> None:
    """Accept `tree` as a schedule of `scop`, or say why not.

    Raises:
        ScheduleError: the tree does not run every instance exactly once.
        IllegalSchedule: a conflict is reversed or left unordered, a parallel or vector loop
            carries one, or a promotion loses or misses values; `.witness` has the proof.
    """
    check_coverage(scop, tree)
    fault = find_violation(scop, tree) or check_promotions(scop, tree)
    if fault is not None:
        raise IllegalSchedule(f"illegal schedule of '{scop.name}': {fault}", fault.witness)


def is_legal(scop: Scop, tree: Node) -> bool:
    """Whether `check` accepts; quicker on a refusal because no witness is made."""
    try:
        check_coverage(scop, tree)
    except ScheduleError:
        return False
    return find_violation(scop, tree) is None and check_promotions(scop, tree) is None


def find_violation(scop: Scop, tree: Node) -> Violation | None:
    """The first violation of order, or of a loop marked parallel or vector, in tree order."""
    return _Walk(scop, marks=True).run(tree)


def check_order(scop: Scop, tree: Node) -> Violation | None:
    """A conflict that `tree` reverses or leaves unordered, whatever its loops are marked."""
    return _Walk(scop, marks=False).run(tree)


def check_parallel(scop: Scop, tree: Node, member_name: str, vector: bool = False) -> Violation | None:
    """A conflict carried by the loop `member_name` of the (legally ordered) `tree`.

    With `vector`, pairs of a reduction's own instances are allowed.

    Raises:
        ScheduleError: the tree has no such loop.
    """
    if member_name not in loop_names(tree):
        raise ScheduleError(f"there is no loop '{member_name}' (loops: {', '.join(loop_names(tree)) or 'none'})")
    return _Walk(scop, marks=False, asked=(member_name, "vector" if vector else "parallel")).run(tree)


def check_promotions(scop: Scop, tree: Node) -> Violation | None:
    """A value that a `Promote` node loses (not copied out) or misses (not copied in)."""
    fault: PromotionFault | None = promotion_fault(scop, tree)
    if fault is None:
        return None
    return Violation(scop, "promotion", fault.pairs, fault.loop, fault.detail)


Pairs = dict[Pair, isl.Map]


class _Walk:
    """One descent of the tree with the conflicts that the loops so far leave at equal times."""

    def __init__(self, scop: Scop, marks: bool, asked: tuple[str, Rule] | None = None) -> None:
        self.scop, self.marks, self.asked = scop, marks, asked
        self.found: Violation | None = None
        self.known: Conflicts = conflicts(scop)
        self.forms = OneDims()

    def run(self, tree: Node) -> Violation | None:
        members = [m for n in walk(tree) if isinstance(n, Band) for m in n.members]
        # Reduction pairs may run in any order: only a parallel loop can break them.
        overlap = any(self.rule_of(m) == "parallel" for m in members)
        self.visit(tree, dict(self.known.ordered), dict(self.known.relaxed) if overlap else {})
        return self.found

    def fail(self, rule: Rule, pairs: isl.Map, loop: str | None = None) -> bool:
        """Record the violation when `pairs` has any; says whether it does."""
        if self.found is None and not pairs.is_empty():
            self.found = Violation(self.scop, rule, pairs, loop)
        return self.found is not None

    def visit(self, node: Node, ordered: Pairs, relaxed: Pairs) -> None:
        if self.found is not None or not (ordered or relaxed):
            return
        if isinstance(node, Leaf):
            for pairs in ordered.values():
                if self.fail("unordered", pairs):
                    return
        elif isinstance(node, Band):
            for member in node.members:
                ordered, relaxed = self.member(member, ordered, relaxed)
                if self.found is not None:
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
        if self.asked is not None:
            return self.asked[1] if self.asked[0] == member.name else None
        return concurrency(member.kind) if self.marks else None

    def member(self, m: Member, ordered: Pairs, relaxed: Pairs) -> tuple[Pairs, Pairs]:
        """Check one loop; what it leaves tied."""
        rule = self.rule_of(m)
        tied: Pairs = {}
        for (s, t), pairs in ordered.items():
            a, b = m.schedule[s], m.schedule[t]
            if self.forms.equal(a, b, self.known.equated[s, t]):
                tied[s, t] = pairs
                continue
            if self.fail("order", pairs.intersect(a.gt_map(b)), m.name):
                return {}, {}
            if rule is not None and self.fail(rule, pairs.intersect(a.lt_map(b)), m.name):
                return {}, {}
            equal = pairs.intersect(a.eq_map(b))
            if not equal.is_empty():
                tied[s, t] = equal
        loose: Pairs = {}
        for (s, t), pairs in relaxed.items():
            a, b = m.schedule[s], m.schedule[t]
            if self.forms.equal(a, b, self.known.equated_relaxed[s, t]):
                loose[s, t] = pairs
                continue
            apart = a.lt_map(b).union(a.gt_map(b))
            if rule == "parallel" and self.fail(rule, pairs.intersect(apart), m.name):
                return {}, {}
            equal = pairs.intersect(a.eq_map(b))
            if not equal.is_empty():
                loose[s, t] = equal
        return tied, loose

    def sequence(self, node: Sequence, ordered: Pairs, relaxed: Pairs) -> None:
        for i, first in enumerate(node.filters):
            for earlier in node.filters[:i]:
                for pairs in self.between(ordered, first, earlier).values():
                    if self.fail("order", pairs):
                        return
            self.visit(first.child, self.between(ordered, first, first), self.between(relaxed, first, first))

    def between(self, pairs: Mapping[Pair, isl.Map], a: Filter, b: Filter) -> Pairs:
        """The pairs from instances of `a` to instances of `b`."""
        out = {}
        for (s, t), m in pairs.items():
            if s not in a.domain or t not in b.domain:
                continue
            whole = self.whole(s, a.domain[s]) and self.whole(t, b.domain[t])
            inside = m if whole else m.intersect_domain(a.domain[s]).intersect_range(b.domain[t])
            if whole or not inside.is_empty():
                out[s, t] = inside
        return out

    def whole(self, stmt: str, part: isl.Set) -> bool:
        """Whether a filter visibly lets all instances of the statement pass."""
        domain = self.scop.statements[stmt].domain
        return part is domain or bool(part.plain_is_equal(domain))
