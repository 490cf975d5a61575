"""Strategy: a loop whose statements wait for each other becomes several, strip by strip, most of them in vector lanes.

    i: (A[i] = B[i - 1] + C[i]; B[i] = B[i + 1] * D[i])

    strips of i: (i: t[i] = B[i + 1]; i: B[i] = t[i] * D[i]; i: A[i] = B[i - 1] + C[i])

Statements whose dependences lead around in a circle share a loop, all others get their own, in an order that the
dependences allow (Allen and Kennedy, "Automatic translation of Fortran programs to vector form", TOPLAS 1987). A circle
that only holds because something is read before it is overwritten is broken by reading it first (`read_first`). Parts
that may share a loop do (Kennedy and McKinley, "Maximizing loop parallelism and improving data locality via loop fusion
and distribution", LCPC 1993). A strip stays in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from polyc.poly.access import Access, accesses
from polyc.poly.dependences import conflicts
from polyc.poly.expr import loads, variables
from polyc.poly.ordering.order import in_order
from polyc.poly.records import dataclass
from polyc.poly.text import print_expr
from polyc.poly.tree import Member, loops_around
from polyc.scheduler.cost.vector_loops import (
    DISTRIBUTION_GAIN,
    LEAST_STRIP,
    MOST_APART,
    iterator,
    lanes_for,
    vector_cost,
)
from polyc.scheduler.decision import rounded
from polyc.scheduler.questions.coincidence import all_pairs, narrowed, same_time
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner
from polyc.scheduler.transformations.reading import always_read
from polyc.scheduler.transformations.storage import touches
from polyc.scheduler.transformations.tree_edit import is_dynamic, locate, outer_members

Read = tuple[str, str]  # a statement, and what it reads, as text


@dataclass
class Group:
    """Statements that share a loop, in its order."""

    vector: bool
    stmts: list[str] = field(default_factory=list)


def apart_in_strips(plan: Planner, loop: Member) -> bool:
    """Give the statements of an innermost serial loop loops of their own; whether that was done."""
    stmts = tuple(s for s in plan.scop.statements if s in loop.schedule)
    if not 1 < len(stmts) <= MOST_APART or is_dynamic(plan.scop, loop) or plan.whole & set(stmts):
        return False
    extent = plan.extent(loop, stmts)
    if extent is not None and extent < 2:
        return False
    groups, reads = _arranged(plan, loop)
    if not any(g.vector for g in groups):
        return False
    waiting = [g for g in groups if not g.vector]
    if waiting and not reads and all(_hands_on(plan, loop, g) for g in waiting):
        plan.decline(
            f"loop {loop.name}", "not in strips", "iterations hand on scalars that depend on no other iteration"
        )
        return False
    costs = _costs(plan, loop, groups, reads)
    if costs[0] >= DISTRIBUTION_GAIN * costs[1]:
        return False
    strip = _strip(plan, stmts)
    cut = extent is None or extent > 2 * strip
    what = f"strips of {loop.name}: " + "; ".join(", ".join(g.stmts) for g in groups)
    if not plan.attempt(
        f"loop {loop.name}", what, lambda s: _in_strips(s, loop.name, groups, reads, strip if cut else 0),
        strip=strip if cut else 0, cost=rounded(costs[0]), serial_cost=rounded(costs[1]),
    ):  # fmt: skip
        return False
    for g in groups:
        if g.vector:
            _in_lanes(plan, g.stmts)
    return True


def _hands_on(plan: Planner, loop: Member, group: Group) -> bool:
    """Whether iterations only wait for scalars that the one before has made of what no iteration of the group changes.

    Lanes then take the scalar from the lane beside them (recurrences of first order), which the compiler of the loops
    does: there is nothing to take apart.
    """
    stmts = [plan.scop.statements[n] for n in group.stmts]
    stored = {s.array for s in stmts}
    scalars = {
        s.array for s in stmts if iterator(s, loop.schedule[s.name]) not in set().union(*map(variables, s.index))
    }
    for s in stmts:
        read = {load.array for load in loads(s.value)}
        if s.predicate is not None or read & stored - scalars or (s.array in scalars and read & stored):
            return False
    return all(plan.scop.arrays[name].kind == "local" for name in scalars)


def _in_strips(s: Schedule, loop: str, groups: Sequence[Group], reads: Sequence[Read], strip: int) -> Schedule:
    """The loop as one for each group, in strips (0: not cut)."""

    def program(s: Schedule) -> Schedule:
        for statement, read in reads:
            s = s.read_first(statement, read)
        inner = loop
        if strip:
            s, inner = s.split(loop, strip), f"{loop}.in"
        s = s.reorder_statements([n for g in groups for n in g.stmts])
        if len(groups) > 1:
            s = s.distribute(inner)
            for g in groups:
                for a, b in zip(g.stmts, g.stmts[1:]):
                    s = s.fuse(loops_around(s.tree, a)[-1].name, loops_around(s.tree, b)[-1].name)
        return s

    return s.in_one_check(program)


def _in_lanes(plan: Planner, stmts: Sequence[str]) -> None:
    loop = loops_around(plan.tree, stmts[0])[-1]
    lanes = lanes_for(plan.scop, stmts, plan.extent(loop), plan.target)
    plan.attempt(
        f"loop {loop.name}", f"vector loop {loop.name}, {lanes} lanes", lambda s: s.vectorize(loop.name, lanes),
        lanes=lanes,
    )  # fmt: skip


def _strip(plan: Planner, stmts: Sequence[str]) -> int:
    """Iterations that half of the first-level cache holds all elements of."""
    used = [a for n, a in plan.scop.arrays.items() if any(any(touches(plan.scop.statements[s], n)) for s in stmts)]
    most = plan.target.l1 // 2 // sum(a.dtype.bytes for a in used)
    return max(LEAST_STRIP, most // LEAST_STRIP * LEAST_STRIP)


def _costs(plan: Planner, loop: Member, groups: Sequence[Group], reads: Sequence[Read]) -> tuple[float, float]:
    """Of an iteration: of the groups, and of all statements as they are."""
    s = _with_reads(plan.schedule, reads)
    loop = locate(s.tree, loop.name).member
    total = 0.0
    for g in groups:
        lanes = lanes_for(s.scop, g.stmts, None, plan.target) if g.vector else 1
        total += vector_cost(s.scop, loop, g.stmts, lanes, None)
    return total, vector_cost(plan.scop, loop, [n for n in loop.schedule if n in plan.scop.statements], 1, None)


def _with_reads(s: Schedule, reads: Sequence[Read]) -> Schedule:
    for statement, read in reads:
        s = s.read_first(statement, read)
    return s


# ---- which statements share a loop ---------------------------------------------------------------


def _arranged(plan: Planner, loop: Member) -> tuple[list[Group], list[Read]]:
    """The groups in an order that the dependences allow, and what is read first for that."""
    graph = _Graph(plan.schedule, loop.name)
    reads = [read for part in graph.parts() if graph.waits(part) for read in graph.old_elements(part)]
    reads = [(name, read) for name, read in reads if not plan.scop.statements[name].dynamic]
    if reads:
        graph = _Graph(_with_reads(plan.schedule, reads), loop.name)
    groups: list[Group] = []
    place: dict[str, int] = {}
    for part in graph.parts():
        own = Group(not graph.waits(part), part)
        first = max([0, *(place[a] for a in graph.before(part))])
        while first < len(groups) and not (groups[first].vector == own.vector and graph.together(groups[first], own)):
            first += 1
        if first == len(groups):
            groups.append(Group(own.vector))
        groups[first].stmts.extend(part)
        place |= dict.fromkeys(part, first)
    return groups, reads


class _Graph:
    """The statements of an innermost loop and their dependences within one iteration of the loops around it."""

    def __init__(self, schedule: Schedule, loop: str) -> None:
        self.scop = schedule.scop
        spot = locate(schedule.tree, loop)
        self.loop = spot.member
        self.around = [*outer_members(spot.path), *spot.band.members[: spot.index]]
        self.stmts = [n for n in self.scop.statements if n in self.loop.schedule]
        inside = [p for p in all_pairs(self.scop) if p.source in self.loop.schedule and p.sink in self.loop.schedule]
        self.pairs = narrowed(inside, self.around)
        ordered = conflicts(self.scop).ordered
        self.edges = {(p.source, p.sink) for p in self.pairs if not p.reduction and (p.source, p.sink) in ordered}

    def parts(self) -> list[list[str]]:
        """The strongly connected components in an order that all edges follow, that of the program where free."""
        reached = {n: self._reached(n) for n in self.stmts}
        left, found = list(self.stmts), list[list[str]]()
        while left:
            free = (n for n in left if all(m in reached[n] for m in left if n in reached[m] and m != n))
            head = next(free)
            part = [n for n in left if n == head or (n in reached[head] and head in reached[n])]
            found.append(part)
            left = [n for n in left if n not in part]
        return found

    def _reached(self, start: str) -> set[str]:
        """The statements that edges lead to from one."""
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            here = ahead.pop()
            for a, b in self.edges:
                if a == here and b not in seen:
                    seen.add(b)
                    ahead.append(b)
        return seen

    def before(self, part: Sequence[str]) -> list[str]:
        """The statements that must come before some of the part, others than its own."""
        return [a for a, b in self.edges if b in part and a not in part]

    def waits(self, part: Sequence[str]) -> bool:
        """Whether the loop around these statements alone carries more than reductions."""
        own = (p for p in self.pairs if p.source in part and p.sink in part)
        return any(not p.reduction and not p.tied(self.loop) for p in own)

    def together(self, group: Group, more: Group) -> bool:
        """Whether the loop around both is like that around each."""
        return not group.vector or not self.waits([*group.stmts, *more.stmts])

    def old_elements(self, part: Sequence[str]) -> list[Read]:
        """What statements of a circle read that others in it, or they themselves, only overwrite later."""
        found: list[Read] = []
        writes = [a for a in accesses(self.scop) if a.write and a.stmt in part]
        for name in part:
            stmt = self.scop.statements[name]
            always = always_read(stmt)
            for a in (a for a in accesses(self.scop) if a.stmt == name and not a.write and not a.accumulator):
                if a.load not in always or (name, print_expr(a.load)) in found:
                    continue
                flows, later = False, False
                for w in (w for w in writes if w.array == a.array):
                    flows = flows or self._some(w, a)
                    # (What stands before the one that overwrites may stay there.)
                    behind = self.stmts.index(name) >= self.stmts.index(w.stmt)
                    later = later or (behind and self._some(a, w))
                if later and not flows:
                    found.append((name, print_expr(a.load)))
        return found

    def _some(self, first: Access, second: Access) -> bool:
        """Whether the second access comes later to an element of the first, in one iteration of the loops around."""
        key = first.stmt, second.stmt
        pairs = in_order(self.scop, {key: first.map.apply_range(second.map.reverse())}).get(key)
        if pairs is None:
            return False
        for m in self.around:
            pairs = pairs.intersect(same_time(m, *key))
        return not pairs.is_empty()
