"""Schedule tree to `isl.Schedule`: every loop one isl band under a mark that carries its name.

Marks are plain strings (`loop:<name>`, `promote:<n>`); what they stand for is in the side
tables of `IslSchedule`, because isl ids with user objects do not compare equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import islpy as isl

from polyc.emit.lowering.promotion import Copy, Promotion, Times, copy_extension, loose_extension, plan_promotion
from polyc.poly.errors import BuildError
from polyc.poly.forms.affine import constant_of
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Promote, Sequence, is_bound, promotions_below

LOOP = "loop:"
PROMOTE = "promote:"
EXACT = "exact:"


@dataclass
class IslSchedule:
    """`members` by loop name, `promotions` by their number in the mark."""

    schedule: isl.Schedule
    members: dict[str, Member] = field(default_factory=dict)
    promotions: list[Promotion] = field(default_factory=list)
    exact: list[Mapping[str, isl.Set]] = field(default_factory=list)


def to_isl(scop: Scop, tree: Node, atomic: bool = False, loose: bool = False) -> IslSchedule:
    """Convert. isl may cut a loop into several where the statements' domains have pieces;
    loops over tiles or bound to a GPU's axes are never cut (one launch would become several), and
    none is when `atomic`. Nor are loops around a buffer with copies: isl would repeat these in all
    parts, where the buffer may hold nothing yet.

    `loose` shows isl domains and copies without their remainders (`loosened`); which instances there
    really are is in `exact`, by the number in the mark `EXACT` above them. isl derives wrong strides for some
    sets with remainders (see `absolute`): nothing is then left to derive them from.

    Raises:
        BuildError: two loops share a name, or a buffer has no constant or parametric size.
    """
    builder = _Builder(scop, atomic, loose)
    active = {s.name: s.domain for s in scop.statements.values()}
    domain = union_of({n: loosened(d) for n, d in active.items()}) if loose else scop.domain
    root = isl.Schedule.from_domain(domain).get_root()
    done = builder.build(tree, root.child(0), active, ())
    return IslSchedule(done.get_schedule(), builder.members, builder.promotions, builder.exact)


def loosened(s: isl.Set) -> isl.Set:
    """A superset without remainders or other existentially quantified variables."""
    return isl.Set.from_basic_set(s.remove_divs().polyhedral_hull())


def _mark(node: isl.ScheduleNode, name: str) -> isl.ScheduleNode:
    return node.insert_mark(isl.Id(name, context=isl.DEFAULT_CONTEXT))


def union_of(sets: Mapping[str, isl.Set]) -> isl.UnionSet:
    """One union set of the statements' sets."""
    out = isl.UnionSet.empty(isl.Space.params_alloc(isl.DEFAULT_CONTEXT, 0))
    for s in sets.values():
        out = out.union(isl.UnionSet.from_set(s))
    return out


class _Builder:
    def __init__(self, scop: Scop, atomic: bool, loose: bool) -> None:
        self.scop = scop
        self.atomic = atomic
        self.loose = loose
        self.exact: list[Mapping[str, isl.Set]] = []
        self.members: dict[str, Member] = {}
        self.promotions: list[Promotion] = []
        self.times: tuple[isl.ScheduleNode, Times] | None = None

    def build(
        self, tree: Node, at: isl.ScheduleNode, active: dict[str, isl.Set], outer: tuple[Member, ...]
    ) -> isl.ScheduleNode:
        """Insert `tree`, which is inside the loops `outer`, at the leaf `at`; returns the node
        that then stands there."""
        if isinstance(tree, Leaf):
            return self.leaf(at, active)
        if isinstance(tree, Band):
            return self.band(tree, at, active, outer)
        if isinstance(tree, Filter):
            inner = restrict(active, tree.domain)
            node = at.insert_filter(self.filter(at, inner))
            return self.build(tree.child, node.child(0), inner, outer).parent()
        if isinstance(tree, Sequence):
            return self.sequence(tree, at, active, outer)
        if isinstance(tree, Promote):
            return self.promote(tree, at, active, outer)
        raise BuildError(f"the schedule tree has an unknown node {type(tree).__name__}")

    def leaf(self, at: isl.ScheduleNode, active: dict[str, isl.Set]) -> isl.ScheduleNode:
        if not self.loose:
            return at
        self.exact.append(active)
        return _mark(at, f"{EXACT}{len(self.exact) - 1}")

    def filter(self, at: isl.ScheduleNode, active: dict[str, isl.Set]) -> isl.UnionSet:
        """What the filter of these instances shows isl."""
        return union_of({n: loosened(d) for n, d in active.items()} if self.loose else active)

    def band(
        self, tree: Band, at: isl.ScheduleNode, active: dict[str, isl.Set], outer: tuple[Member, ...]
    ) -> isl.ScheduleNode:
        if not active:
            return self.build(tree.child, at, active, outer)
        copies = any((n.copy_in or n.copy_out) for n in promotions_below(tree.child))
        for member in tree.members:
            if member.name in self.members:
                raise BuildError(f"the schedule tree has two loops named '{member.name}'")
            self.members[member.name] = member
            total: isl.UnionPwAff | None = None
            times = absolute(member, outer)
            for s in active:
                time = times[s].gist(self.scop.statements[s].domain) if self.loose else times[s]
                part = isl.UnionPwAff.from_pw_aff(time)
                total = part if total is None else total.union_add(part)
            node = at.insert_partial_schedule(isl.MultiUnionPwAff.from_union_pw_aff(total))
            if self.atomic or copies or is_bound(member.kind) or member.name.endswith(".out"):
                node = node.band_member_set_ast_loop_type(0, isl.ast_loop_type.atomic)
            at = _mark(node, LOOP + member.name).child(0).child(0)
            outer = (*outer, member)
        at = self.build(tree.child, at, active, outer)
        for _ in tree.members:
            at = at.parent().parent()
        return at

    def sequence(
        self, tree: Sequence, at: isl.ScheduleNode, active: dict[str, isl.Set], outer: tuple[Member, ...]
    ) -> isl.ScheduleNode:
        parts = [(f, restrict(active, f.domain)) for f in tree.filters]
        parts = [(f, inner) for f, inner in parts if any(not d.is_empty() for d in inner.values())]
        if not parts:
            return at
        filters = isl.UnionSetList.from_union_set(self.filter(at, parts[0][1]))
        for _, inner in parts[1:]:
            filters = filters.add(self.filter(at, inner))
        node = at.insert_sequence(filters)
        if len(parts) == 1:
            # isl may drop a sequence of one: it then is a plain filter
            if node.get_type() != isl.schedule_node_type.sequence:
                return self.build(parts[0][0].child, node.child(0), parts[0][1], outer).parent()
        for i, (f, inner) in enumerate(parts):
            node = self.build(f.child, node.child(i).child(0), inner, outer).parent().parent()
        return node

    def promote(
        self, tree: Promote, at: isl.ScheduleNode, active: dict[str, isl.Set], outer: tuple[Member, ...]
    ) -> isl.ScheduleNode:
        number = len(self.promotions)
        if self.times is None or self.times[0] is not at:  # promotions right below one another have the same
            self.times = at, Times(at)
        promotion = plan_promotion(self.scop, tree, self.times[1], active, number, outer)
        if promotion is None:  # nothing below touches the array
            return self.build(tree.child, at, active, outer)
        self.promotions.append(promotion)
        depth = at.get_tree_depth()
        node = self.build(tree.child, at, active, outer)
        for copy, before in ((promotion.copy_in, True), (promotion.copy_out, False)):
            if copy is not None:
                graft = self.copies(copy)
                node = node.graft_before(graft) if before else node.graft_after(graft)
                while node.get_tree_depth() > depth:
                    node = node.parent()
        return _mark(node, f"{PROMOTE}{number}")

    def copies(self, copy: Copy) -> isl.ScheduleNode:
        """The tree of a copy, to be grafted."""
        if not self.loose:
            return copy_extension(copy, self.members)
        self.exact.append({copy.name: copy.extension.range()})
        return loose_extension(copy, self.members, f"{EXACT}{len(self.exact) - 1}")


def absolute(member: Member, outer: tuple[Member, ...]) -> Mapping[str, isl.PwAff]:
    """The times of a loop without the blocks that loops around it count: inside
    `floor(i/8)` the values of `i mod 8` come in the order of `i`, which is plain affine.

    isl derives wrong strides for some sets with remainders and then loses instances
    (`isl_set_get_stride_info` of `{ [j, b] : exists e: 24e + 23 <= 2j - 9b <= 24e + 24 }`,
    isl 0.27: the offset is rounded after it was multiplied), and is slower on them.
    """
    times = member.schedule
    for block in reversed(outer):
        factor = next((f for s in times if (f := _block_factor(times[s], block.schedule[s]))), 0)
        if factor:
            times = {s: t.add(block.schedule[s].scale_val(isl.Val(factor))).coalesce() for s, t in times.items()}
    return times


def _block_factor(time: isl.PwAff, block: isl.PwAff) -> int:
    """k where `time` has the term `-k * block` and `block` is a floor; else 0."""
    pieces = time.get_pieces()
    if len(pieces) != 1:
        return 0
    aff = pieces[0][1]
    for d in range(aff.dim(isl.dim_type.div)):
        floor = isl.PwAff.from_aff(aff.get_div(d).floor())
        factor = aff.get_coefficient_val(isl.dim_type.div, d)
        if factor.is_int() and constant_of(block.sub(floor).coalesce()) is not None:
            return -int(factor.to_python())
    return 0


def restrict(active: Mapping[str, isl.Set], to: Mapping[str, isl.Set]) -> dict[str, isl.Set]:
    """The active statements that a filter keeps, on the instances that it keeps."""
    return {s: active[s].intersect(d) for s, d in to.items() if s in active}
