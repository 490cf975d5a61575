"""The state of a strategy: a legal schedule that only improves, and why it went where it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Band, Filter, Member, Node, Sequence, loop_names, loops_around, loops_below
from polyc.poly.words import first_line
from polyc.scheduler.cost.assumed_sizes import likely_extent
from polyc.scheduler.cost.cache_blocks import SHARED
from polyc.scheduler.cost.vector_loops import constant_extent
from polyc.scheduler.decision import Decision, Outcome
from polyc.scheduler.questions.coincidence import Carried, Pair, all_pairs, analyse
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import Path, chain_of, locate, outer_members, paths


@dataclass(frozen=True)
class Chained:
    """Contractions that run block by block in one nest: `rows` of `array` at a time stay on chip, or all of it that one
    of `blocks` makes, `near_bytes`."""

    array: str
    rows: int | None = None
    blocks: int | None = None
    near_bytes: int | None = None

    def data(self) -> dict[str, int]:
        """The figures that are known."""
        figures = {"rows": self.rows, "blocks": self.blocks, "near_bytes": self.near_bytes}
        return {name: n for name, n in figures.items() if n is not None}


class Plan:
    """`schedule` is legal at all times; `attempt` replaces it when a proposal is accepted.

    `near_bytes`: what one part of a schedule can leave for the next one close at hand. `claimed`: statements that a
    strategy has arranged, which later ones leave alone; `whole`: those whose nests are not to be distributed. `chains`:
    what runs block by block; `refusals`: why something was not done, the last reason of each stage.
    """

    def __init__(self, schedule: Schedule, near_bytes: int) -> None:
        self.schedule = schedule
        self.near_bytes = near_bytes
        self.claimed: set[str] = set()
        self.whole: set[str] = set()
        self.stage = ""
        self.chains: list[Chained] = []
        self.refusals: dict[str, str] = {}
        self._pairs: tuple[Scop, list[Pair]] | None = None
        self._carried: tuple[Node, list[Pair], Mapping[str, Carried]] | None = None
        self._extents: dict[tuple[str, frozenset[str]], int | None] = {}
        self.fixed, self.kept = _fixed_by_program(schedule)

    def _order_kept(self, tree: Node) -> list[list[tuple[object, ...]]]:
        """The loops around each statement of the nests that the program orders; kinds and lanes where it says them."""
        return [
            [(m.name, m.kind, m.factor) if m.name in self.fixed else (m.name,) for m in loops_around(tree, s)]
            for s in self.kept
        ]

    def _asked(self) -> str:
        return ", ".join(f"{m.kind} {m.loop}" for m in self.scop.marks)

    @property
    def scop(self) -> Scop:
        """The program as the schedule so far has it."""
        return self.schedule.scop

    @property
    def tree(self) -> Node:
        """The schedule tree so far."""
        return self.schedule.tree

    def decline(self, subject: str, what: str, reason: str, **figures: Any) -> None:
        """Record that something was not tried."""
        self._record(subject, what, "declined", reason, figures)

    def attempt(self, subject: str, what: str, proposal: Callable[[Schedule], Schedule], **figures: Any) -> bool:
        """Take the proposal if it is accepted; record it either way."""
        try:
            proposed = proposal(self.schedule)
            if self.kept and self._order_kept(proposed.tree) != self._order_kept(self.tree):
                self.decline(subject, what, f"the program says how this nest runs ({self._asked()})", **figures)
                return False
            self.schedule = proposed
        except IllegalSchedule as error:
            self._record(subject, what, "refused", first_line(error), figures)
            return False
        except ScheduleError as error:
            self._record(subject, what, "impossible", first_line(error), figures)
            return False
        self._record(subject, what, "done", "", figures)
        return True

    def _record(self, subject: str, what: str, outcome: Outcome, reason: str, figures: Mapping[str, Any]) -> None:
        if reason:
            self.refusals[self.stage] = reason
        self.schedule = self.schedule.noted(Decision(self.stage, subject, what, outcome, reason, figures))

    # ---- facts about the present tree ----------------------------------------------------------

    def pairs(self) -> list[Pair]:
        """All conflicts of the Scop."""
        if self._pairs is None or self._pairs[0] is not self.scop:  # (`rfactor` makes a new one)
            self._pairs = self.scop, all_pairs(self.scop)
        return self._pairs[1]

    def carried(self) -> Mapping[str, Carried]:
        """What the loops of the present tree carry."""
        known, pairs = self._carried, self.pairs()
        if known is None or known[0] is not self.tree or known[1] is not pairs:
            # Marks and promotions keep the members' schedules, and with them what is carried (arrays that are expanded
            # keep the tree, but not the conflicts).
            if known is not None and known[1] is pairs and _shape(known[0]) == _shape(self.tree):
                known = (self.tree, pairs, known[2])
            else:
                known = (self.tree, pairs, analyse(self.tree, pairs))
            self._carried = known
        return known[2]

    def extent(self, member: Member, stmts: Iterable[str] | None = None) -> int | None:
        """Iterations of a loop when constant."""
        names = frozenset(member.schedule if stmts is None else stmts)
        key = (member.name, names)
        if key not in self._extents:
            single = bool(names) and self._follows(member, names)
            self._extents[key] = 1 if single else constant_extent(self.scop, member, names)
        return self._extents[key]

    def likely_extent(self, member: Member, stmts: Iterable[str] | None = None) -> int | None:
        """The same, at assumed sizes where it depends on sizes that are symbols."""
        known = self.extent(member, stmts)
        if known is not None or not self.scop.params:
            return known
        return likely_extent(self.scop, member, member.schedule if stmts is None else stmts)

    def _follows(self, member: Member, stmts: Iterable[str]) -> bool:
        """Whether loops around have the same values: one iteration in each of theirs."""
        if member.name not in loop_names(self.tree):
            return False
        around = self.around(member.name)
        return all(any(m.schedule[s].plain_is_equal(member.schedule[s]) for m in around) for s in stmts)

    def member(self, loop: str) -> Member:
        """The loop of this name. Raises `ScheduleError` when there is none."""
        return locate(self.tree, loop).member

    def nest(self, loop: str) -> tuple[list[Member], Node]:
        """The perfectly nested loops from `loop` inwards, and what they contain."""
        chain = chain_of(self.tree, loop)
        return list(chain.members[chain.position(loop) :]), chain.child

    def around(self, loop: str) -> list[Member]:
        """All loops around `loop`, outermost first."""
        spot = locate(self.tree, loop)
        return [*outer_members(spot.path), *spot.band.members[: spot.index]]

    def top(self) -> list[str]:
        """First loops of the unclaimed nests at the top, in execution order."""
        return [n for n in first_loops(self.tree) if not self.claimed & set(self.member(n).schedule)]

    def sequences(self) -> list[tuple[Path, Sequence]]:
        """All Sequences with their paths, innermost last."""
        return [(p, n) for p, n in paths(self.tree) if isinstance(n, Sequence)]


class Planner(Plan):
    """The plan of a schedule for a CPU."""

    def __init__(self, schedule: Schedule, target: Target, threads: int) -> None:
        super().__init__(schedule, target.l2 // SHARED)
        self.target = target
        self.threads = threads


def _fixed_by_program(schedule: Schedule) -> tuple[frozenset[str], tuple[str, ...]]:
    """Loops whose kind the program says, and the statements of the nests that they are in."""
    serial = {m.loop for m in schedule.scop.marks if m.kind == "serial"}
    if not schedule.scop.marks:
        return frozenset(), ()
    members = loops_below(schedule.tree)
    fixed = frozenset(m.name for m in members if m.name in serial or m.kind != "serial")
    if not fixed:
        return fixed, ()
    nests: list[set[str]] = []
    for loop in first_loops(schedule.tree):
        nests.append(set(locate(schedule.tree, loop).member.schedule))
    marked = [set(m.schedule) for m in members if m.name in fixed]
    return fixed, tuple(s for s in schedule.scop.statements if any(s in n and n & k for n in nests for k in marked))


def _shape(tree: Node) -> list[tuple[str, int]]:
    """The loops in order with the identities of their schedules (alive as long as the tree is)."""
    return [(m.name, id(m.schedule)) for m in loops_below(tree)]


def as_one(steps: Iterable[tuple[str, dict[str, Any]]]) -> Callable[[Schedule], Schedule]:
    """A proposal of several steps that are checked together."""

    def proposal(s: Schedule) -> Schedule:
        return s.batch(*steps)

    return proposal


def first_loops(node: Node) -> list[str]:
    """The first loop of each part of a subtree (parts without loops give none)."""
    if isinstance(node, Band) and node.members:  # (one without loops may be left where loops have gone)
        return [node.members[0].name]
    return [n for c in node.children() for n in first_loops(c)]


def is_flat(node: Node) -> bool:
    """No loops in the subtree."""
    return not loop_names(node)


def parts(node: Node) -> list[Filter]:
    """The children of a Sequence; none for other nodes."""
    return list(node.filters) if isinstance(node, Sequence) else []
