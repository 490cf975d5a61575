"""What fusion asks of the machine that kernels are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyc.poly.records import dataclass
from polyc.poly.target import Target

if TYPE_CHECKING:
    from polyc.poly.scop import Scop

Chain = Callable[["Scop"], tuple[int | None, str]]
"""How many rows at a time the schedule makes of two products with passes over rows between them; None where it does
not, and why."""


@dataclass(frozen=True)
class Fusing:
    """What a back end says of its machine to those who join nodes (`Backend.fusing`). The default joins what needs no
    more than loops: pointwise operators after others, and before them where that costs nothing.

    `cpu`: a CPU whose register tiles and caches are known: what stands before a contraction may be written in its
    panels, rows and pairs of convolutions stay in its caches. `copies_panels`: contractions copy their panels from
    where the operands are, so that a plain copy in front of one needs no memory. `cached`: bytes between two products
    that stay near anyway. `near`: where blocks of rows stay. `chain`: what schedules make of attention; None: it is
    not joined.
    """

    cpu: Target | None = None
    copies_panels: bool = False
    cached: int = 0
    near: str = "the cache"
    chain: Chain | None = None


def rows_at_a_time(machine: Any) -> Chain:
    """What the scheduler's own strategies for a machine make of attention; they know what scores in memory cost."""

    def rows(scop: Scop) -> tuple[int | None, str]:
        from polyc.scheduler.strategies.auto import propose  # loading a compiled model needs no strategies

        made = propose(scop, machine, ["chains"])
        nothing = "they are no chain of two products with passes over rows between them"
        return (made.chains[0].rows, "") if made.chains else (None, made.reasons.get("chains", nothing))

    return rows


def for_cpu(target: Target) -> Fusing:
    """A CPU."""
    return Fusing(target, cached=target.l2, chain=rows_at_a_time(target))
