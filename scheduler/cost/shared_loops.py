"""What the threads get from the parallel loops of a schedule: how often they are entered, and the work each time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import islpy as isl

from polyc.poly.closed_forms.counting import count_or_bound
from polyc.poly.records import dataclass
from polyc.poly.target import Target
from polyc.poly.tree import Member, loops_below, time_map
from polyc.scheduler.cost.model import Machine, predict
from polyc.scheduler.cost.work import statement_work, work_of
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import locate, outer_members


@dataclass(frozen=True)
class SharedLoop:
    """A parallel loop that `threads` share.

    `entries`: how often it is entered, and so how many barriers end it; `iterations` of one entry, on average.
    `seconds`: predicted work of one entry on one thread; `barrier`: seconds to wake the threads and wait for the
    last one. None where sizes are free.
    """

    loop: str
    threads: int
    entries: int | None
    iterations: float | None
    seconds: float | None
    barrier: float

    def data(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        """One line for people."""
        head = f"loop {self.loop}: {self.threads} threads share it"
        if self.entries is None or self.iterations is None or self.seconds is None:
            return f"{head}; how much work lies between two barriers depends on the sizes"
        times = "once" if self.entries == 1 else f"{self.entries:,} times"
        return (
            f"{head}, {self.iterations:,.6g} iterations, entered {times}; predicted {1e6 * self.seconds:,.1f} us of "
            f"work for one thread between two barriers, which cost {1e6 * self.barrier:.1f} us each"
        )


def shared_loops(schedule: Schedule, target: Target, machine: Machine, threads: int) -> list[SharedLoop]:
    """The outermost parallel loop of each nest, in order; none for one thread."""
    if threads < 2:
        return []
    scop = schedule.scop
    work = None if scop.params else work_of(schedule.original, target)
    alone = None if work is None else predict(work, machine).seconds
    parts = {n: _cycles(schedule, n, target, machine) for n in scop.statements} if alone is not None else {}
    known = {n: c for n, c in parts.items() if c is not None}
    total = sum(known.values()) if len(known) == len(parts) else 0.0
    found: list[SharedLoop] = []
    for m in _outermost(schedule):
        around = outer_members(locate(schedule.tree, m.name).path)
        entries, trips = _count(schedule, around, m), _count(schedule, [*around, m], m)
        seconds = None
        if alone is not None and total and entries:
            seconds = alone * sum(known[s] for s in m.schedule) / total / entries
        each = None if entries is None or trips is None else trips / max(1, entries)
        found.append(SharedLoop(m.name, threads, entries, each, seconds, machine.entry / machine.hertz))
    return found


def _cycles(schedule: Schedule, stmt: str, target: Target, machine: Machine) -> float | None:
    """What the instances of a statement cost, which is its share of the whole."""
    work = statement_work(schedule.scop, schedule.scop.statements[stmt], target)
    return None if work is None else work.flops / machine.fma_flops + work.operations / machine.operations


def _outermost(schedule: Schedule) -> list[Member]:
    """Parallel loops that no other one is around."""
    members = [m for m in loops_below(schedule.tree) if m.kind == "parallel"]
    inside = {
        m.name for m in members for x in outer_members(locate(schedule.tree, m.name).path) if x.kind == "parallel"
    }
    return [m for m in members if m.name not in inside]


def _count(schedule: Schedule, loops: list[Member], m: Member) -> int | None:
    """How many iterations the nested loops have for the statements inside `m`; None where sizes are free."""
    if schedule.scop.params:
        return None
    if not loops:
        return 1
    values: isl.Set | None = None
    for name in m.schedule:
        domain = schedule.scop.statements[name].domain
        here = time_map(domain, [loop.schedule[name] for loop in loops]).range()
        values = here if values is None else values.union(here)
    assert values is not None
    return count_or_bound(values)()
