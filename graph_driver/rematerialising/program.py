"""A program of steps over values with sizes, and what an order of its steps, some of them repeated, needs.

The problem is that of Checkmate (Jain et al., 1910.02653): a value may be dropped after a read and made again, by its
step, before the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from polyc.graph_driver.graph.errors import GraphError
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass

NOTHING_AGAIN = "nothing is computed again: "
"""How the note begins that says why a limit cannot be kept so."""


class DoesNotFit(PolycError):
    """No order of the steps was found that needs no more than the limit."""

    code = "P414"


@dataclass(frozen=True)
class Step:
    """What a step reads and makes, and what it costs (in any unit). `again`: whether it may run more than once."""

    reads: tuple[str, ...]
    makes: tuple[str, ...]
    cost: float = 1.0
    again: bool = True


@dataclass(frozen=True, eq=False)
class Program:
    """Steps in an order in which they can run; `sizes` of the values that take memory (others are somebody else's, and
    always there once made); `kept`: values that are needed after the last step."""

    steps: tuple[Step, ...]
    sizes: Mapping[str, int]
    kept: frozenset[str] = frozenset()

    @cached_property
    def makers(self) -> dict[str, int]:
        """Which step makes each value. What no step makes is there from the beginning."""
        return {v: k for k, s in enumerate(self.steps) for v in s.makes}

    @cached_property
    def uses(self) -> dict[str, list[int]]:
        """The steps that read each value, in order."""
        found: dict[str, list[int]] = {}
        for k, s in enumerate(self.steps):
            for v in dict.fromkeys(s.reads):
                found.setdefault(v, []).append(k)
        return found

    @property
    def cost(self) -> float:
        """That of each step once."""
        return sum(s.cost for s in self.steps)

    def size(self, values: Iterable[str]) -> int:
        """Bytes of values, each counted once."""
        return sum(self.sizes.get(v, 0) for v in set(values))

    @cached_property
    def least(self) -> int:
        """Bytes that no order can do without: what one step touches."""
        return max((self.size((*s.reads, *s.makes)) for s in self.steps), default=0)


@dataclass(frozen=True)
class Need:
    """What an order needs: the most bytes alive at one step, and the cost of all steps."""

    peak: int
    cost: float


def measure(program: Program, order: Sequence[int]) -> Need:
    """What an order of steps needs: a value lives from the step that makes it to its last read before it is made again.

    Raises:
        GraphError: a step reads what is not there, a step that may run once runs twice, or one never runs.
    """
    last: dict[int, dict[str, int]] = {}  # of each place in the order: until when what is made there lives
    made: dict[str, int] = {}
    seen: set[int] = set()
    for at, k in enumerate(order):
        step = program.steps[k]
        if k in seen and not step.again:
            raise GraphError(f"step {k} may run only once")
        seen.add(k)
        for v in step.reads:
            if v in made:
                last[made[v]][v] = at
            elif v in program.makers:
                raise GraphError(f"step {k} reads '{v}', which is not there")
        last[at] = dict.fromkeys(step.makes, at)
        made |= dict.fromkeys(step.makes, at)
    if len(seen) != len(program.steps):
        raise GraphError(f"{len(program.steps) - len(seen)} steps never run")
    for v in program.kept:
        if v in made:
            last[made[v]][v] = len(order) - 1
    change = [0] * (len(order) + 1)
    for first, values in last.items():
        for v, end in values.items():
            change[first] += program.sizes.get(v, 0)
            change[end + 1] -= program.sizes.get(v, 0)
    alive = peak = 0
    for c in change:
        alive += c
        peak = max(peak, alive)
    return Need(peak, sum(program.steps[k].cost for k in order))
