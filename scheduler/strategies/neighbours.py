"""A product at the top of the tree with the nests that it takes something from or hands something to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.poly.records import dataclass
from polyc.poly.tree import Member
from polyc.scheduler.cost.tile_plan import TilePlan
from polyc.scheduler.recognition.chains import handed_on
from polyc.scheduler.recognition.group import Group, group_nests
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.joining import between, values
from polyc.scheduler.strategies.planner import Planner, first_loops
from polyc.scheduler.transformations.storage import users
from polyc.scheduler.transformations.tree_edit import floor_div


@dataclass(frozen=True)
class Neighbours:
    """Nests from `start` to `end` of the outermost sequence; those of the product are from `position` to `after`."""

    start: int
    position: int
    after: int
    end: int
    group: Group


def neighbours(plan: Planner, position: int) -> Neighbours | None:
    """The product at a position with what makes its operand before it, and what reads its result behind it, if any."""
    nests = [list(f.domain) for f in top_filters(plan)]
    found = None if plan.claimed & set(nests[position]) else group_nests(plan.scop, nests, position)
    if found is None or found[0].contraction.sweep:
        return None
    group, taken = found
    start, end = position, position + taken
    while start > 0 and _hands_on(plan, nests[start - 1], nests[start:end]):
        start -= 1
    while end < len(nests) and _hands_on(plan, [s for n in nests[start:end] for s in n], [nests[end]]):
        if group_nests(plan.scop, nests, end) is not None:
            return None  # a product of what this one makes: a chain
        end += 1
    alone = start == position or plan.claimed & {s for n in nests[start:end] for s in n}
    return None if alone else Neighbours(start, position, position + taken, end, group)


def _hands_on(plan: Planner, makers: Sequence[str], readers: Sequence[Sequence[str]]) -> bool:
    """Whether statements write a local array that the nests behind them use."""
    local = {
        plan.scop.statements[s].array for s in makers if plan.scop.arrays[plan.scop.statements[s].array].kind == "local"
    }
    inside = {s for n in readers for s in n}
    return any(users(plan.scop, a) & inside for a in local)


def nests_of(plan: Planner, found: Neighbours) -> list[list[Member]]:
    """The perfectly nested loops of each nest from outside; none for parts without one outermost loop."""
    heads = [first_loops(f.child) for f in top_filters(plan)[found.start : found.end]]
    return [plan.nest(h[0])[0] if len(h) == 1 else [] for h in heads]


def shared_depth(plan: Planner, found: Neighbours, tile: TilePlan, rows: Mapping[str, int]) -> int:
    """How many of the outermost loops all nests can share; they are outputs that the register tile does not cut.
    `rows`: the product's loops of which a block of so many iterations is one of the others'."""
    nests, carried, depth = nests_of(plan, found), plan.carried(), 0
    outputs = set(found.group.contraction.outputs) - {tile.rows, tile.columns}
    own = range(found.position - found.start, found.after - found.start)
    for loops in zip(*nests):
        ours = loops[own.start]
        if ours.name not in outputs or any(m.kind != "serial" or not carried[m.name].parallel for m in loops):
            break
        if rows.get(ours.name, 1) > 1:
            loops = tuple(_in_blocks(m, rows[ours.name]) if k in own else m for k, m in enumerate(loops))
        if not _alike(plan, loops, loops[own.start]):
            break
        depth += 1
    return depth


def _in_blocks(m: Member, size: int) -> Member:
    return replace(m, schedule=floor_div(m.schedule, size))


def _alike(plan: Planner, loops: Sequence[Member], ours: Member) -> bool:
    """Whether the loops take the product's values, and all that one nest hands to another stays in one iteration."""
    joined = Member(ours.name, {s: e for m in loops for s, e in m.schedule.items()})
    if not all(values(plan, [m]).is_subset(values(plan, [ours])) for m in loops):
        return False
    return all(p.tied(joined) for k, a in enumerate(loops) for b in loops[k + 1 :] for p in between(plan, a, b))


def handed(plan: Planner, found: Neighbours) -> list[str]:
    """The local arrays that one of the nests leaves for another; the product's own are one."""
    domains = [set(f.domain) for f in top_filters(plan)]
    own = {s for d in domains[found.position : found.after] for s in d}
    return handed_on(plan.scop, [*domains[found.start : found.position], own, *domains[found.after : found.end]])
