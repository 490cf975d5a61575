"""Dynamic tensor rematerialization (Kirisame et al., 2006.09616): values are dropped while a program runs, without
knowledge of what comes.

`Runtime` holds values under a limit. Whoever makes one says how; when memory is full, the values of the lowest score
are dropped, and one that is asked for and not there is made again, with all that this needs. `simulate` runs a
`Program` so; with `run=None` only bytes and costs are counted. `polyc.graph_driver.execution.evicting_run` runs the
kernels of a compiled model so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import field
from typing import Any

from polyc.graph_driver.rematerialising.program import DoesNotFit, Program, Step
from polyc.poly.records import dataclass

HEURISTICS = ("dtr", "local", "lru", "size")
"""`dtr`: cost, with that of dropped neighbours, by size and staleness; `local`: without neighbours; `lru`: staleness;
`size`: bytes."""

Compute = Callable[[int, Sequence[Any]], Sequence[Any]]
"""Runs a step (by its number) on the values that it reads; gives those that it makes. One that is there already is made
once more in vain."""


@dataclass(eq=False)
class Held:
    """A value: the step that makes it, its bytes, when it was last used, and itself while it is there."""

    step: int
    size: int
    used: int = 0
    there: bool = False
    locks: int = 0
    readers: list[str] = field(default_factory=list)
    value: Any = None
    forgotten: bool = False
    passing: bool = False  # nobody but its step uses it


@dataclass(frozen=True)
class Ran:
    """What a run did: cost of all steps, how many ran, the most bytes held, and the kept values."""

    cost: float
    steps: int
    peak: int
    values: Mapping[str, Any]


class Runtime:
    """Values under a limit of bytes. `evicted` counts what was dropped for others, `ran` the steps."""

    def __init__(self, limit: int, heuristic: str = "dtr") -> None:
        """Raises `ValueError`: there is no such heuristic."""
        if heuristic not in HEURISTICS:
            raise ValueError(f"there is no heuristic '{heuristic}': they are {', '.join(HEURISTICS)}")
        self.limit, self.heuristic = limit, heuristic
        self.steps: list[Step] = []
        self.again: list[bool] = []  # whether a step may run once more: with it all whose memory it takes over
        self.takes: list[Mapping[str, str]] = []
        self.held: dict[str, Held] = {}
        self.outside: dict[str, Any] = {}  # values that take no memory here
        self.bytes = self.peak = self.clock = self.ran = self.evicted = 0
        self.cost = 0.0

    def add(
        self, step: Step, sizes: Mapping[str, int], run: Compute | None, takes: Mapping[str, str] | None = None,
        passing: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Run a new step.

        Args:
            sizes: bytes of what it makes; what is not among them takes no memory here.
            takes: of values that it makes, the operand whose memory each takes over: that one is gone then (of one that
                somebody else still needs at that moment a copy is taken).
            passing: of values that it makes, those that are dropped as soon as it has run.

        Raises:
            DoesNotFit: what it touches is more than the limit.
        """
        number, takes = len(self.steps), takes or {}
        self.steps.append(step)
        self.takes.append(takes)
        self.again.append(step.again and all(self.again[self.held[old].step] for old in takes.values()))
        for v in step.makes:
            if v in sizes:
                self.held[v] = Held(number, sizes[v], passing=v in passing)
        for v in step.reads:
            if v in self.held:
                self.held[v].readers += [m for m in step.makes if m in self.held]
        self._run(number, run)

    def forget(self, name: str) -> None:
        """Nobody asks for a value any more: it is dropped, and stays known as something to be made again. One that
        cannot be made again stays while others may be made again of it."""
        if name not in self.held:
            return
        held = self.held[name]
        held.forgotten = True
        if self.again[held.step]:
            self._drop(held)
        self._drop_useless()

    def value(self, name: str, run: Compute | None) -> Any:
        """A value that was made, made again where it is not there. Raises `DoesNotFit`."""
        if name not in self.held:
            return self.outside.get(name)
        if not self.held[name].there:
            self._run(self.held[name].step, run)
        return self.held[name].value

    def _drop_useless(self) -> None:
        """Drop what cannot be made again, is forgotten, and that no value which is not could be made again of."""
        once = [v for v, h in self.held.items() if h.there and h.forgotten and not self.again[h.step]]
        if not once:
            return
        waiting = [v for v, h in self.held.items() if not h.forgotten and not h.passing and self.again[h.step]]
        needed = {*waiting}
        while waiting:
            for v in self._operands(waiting.pop()):
                if v not in needed:
                    needed.add(v)
                    if self.again[self.held[v].step]:
                        waiting.append(v)
        for v in once:
            if v not in needed:
                self._drop(self.held[v])

    def _run(self, number: int, run: Compute | None) -> None:
        step, takes = self.steps[number], self.takes[number]
        reads = [self.held[v] for v in dict.fromkeys(step.reads) if v in self.held]
        for h in reads:
            h.locks += 1
        for h in reads:
            if not h.there:
                self._run(h.step, run)
        new = [self.held[v] for v in step.makes if v in self.held and not self.held[v].there]
        gone = [self.held[old] for v, old in takes.items() if self.held[old].locks == 1 and not self.held[v].there]
        copies = sum(self.held[v].size for v in takes if self.held[v].there)  # whose result nobody needs
        self._make_room(sum(h.size for h in new) - sum(h.size for h in gone) + copies)
        values: Sequence[Any] = [None] * len(step.makes)
        if run is not None:
            kept = {old for old in takes.values() if self.held[old] not in gone}
            given = [self.held[v].value if v in self.held else self.outside.get(v) for v in step.reads]
            given = [copy(x) if v in kept else x for v, x in zip(step.reads, given, strict=True)]
            values = run(number, given)
        self.clock += 1
        self.ran += 1
        self.cost += step.cost
        for h in gone:
            self._drop(h)
        for v, value in zip(step.makes, values, strict=True):
            if v not in self.held:
                self.outside[v] = value
            elif not self.held[v].there:
                self.held[v].there, self.held[v].value = True, value
                self.bytes += self.held[v].size
        for h in (*reads, *new):
            h.used = self.clock
        for h in reads:
            h.locks -= 1
        self.peak = max(self.peak, self.bytes + copies)
        for h in new:
            if h.passing:
                self._drop(h)

    def _drop(self, h: Held) -> None:
        if h.there:
            h.there, h.value = False, None
            self.bytes -= h.size

    def _make_room(self, size: int) -> None:
        while self.bytes + size > self.limit:
            free = [
                (self._score(v, h), v)
                for v, h in self.held.items()
                if h.there and not h.locks and h.size and self.again[h.step]
            ]
            if not free:
                raise DoesNotFit(f"{self.bytes + size} bytes are needed at once, the limit is {self.limit}")
            self._drop(self.held[min(free)[1]])
            self.evicted += 1

    def _score(self, name: str, h: Held) -> float:
        """What goes first: the lowest."""
        stale = self.clock - h.used + 1
        if self.heuristic == "lru":
            return -stale
        if self.heuristic == "size":
            return -h.size
        cost = self.steps[h.step].cost
        if self.heuristic == "dtr":
            cost += sum(self.steps[k].cost for k in self._neighbours(name))
        return cost / (h.size * stale)

    def _neighbours(self, name: str) -> set[int]:
        """Steps of dropped values that making this one again needs, or that need this one (the paper's e*)."""
        found: set[int] = set()
        for direction in (self._operands, lambda v: self.held[v].readers):
            waiting, seen = [name], {name}
            while waiting:
                for v in direction(waiting.pop()):
                    if v not in seen and not self.held[v].there:
                        seen.add(v)
                        found.add(self.held[v].step)
                        waiting.append(v)
        return found

    def _operands(self, name: str) -> list[str]:
        return [v for v in self.steps[self.held[name].step].reads if v in self.held]


def simulate(
    program: Program, limit: int, heuristic: str = "dtr", run: Compute | None = None,
    given: Mapping[str, Any] | None = None,
) -> Ran:  # fmt: skip
    """Run a program in its order, values being dropped when memory is full and after their last read.

    Args:
        run: computes a step; None: costs and bytes are only counted.
        given: values that no step makes.

    Raises:
        DoesNotFit: what one step touches is more than the limit.
        ValueError: there is no such heuristic.
    """
    runtime = Runtime(limit, heuristic)
    runtime.outside |= given or {}
    for k, step in enumerate(program.steps):
        runtime.add(step, program.sizes, run)
        for v in {*step.reads, *step.makes}:
            uses = program.uses.get(v, [])
            if v not in program.kept and (not uses or uses[-1] <= k):
                runtime.forget(v)
    values = {v: runtime.value(v, run) for v in sorted(program.kept)}
    return Ran(runtime.cost, runtime.ran, runtime.peak, values)
