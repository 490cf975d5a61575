"""Which kernels of a model are worth tuning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyc.graph_driver.fusion.joined import Group
from polyc.poly.records import dataclass
from polyc.scheduler.cost.model import nominal, predict
from polyc.scheduler.cost.work import work_of

if TYPE_CHECKING:
    from polyc.graph_driver.backends.protocol import Platform
    from polyc.poly.scop import Scop

SHARE = 0.01  # of the model's predicted time: smaller kernels are left as they are


@dataclass(frozen=True)
class Kernel:
    """One distinct kernel, how many groups it serves, and its Scop."""

    label: str
    uses: int
    scop: Scop


def worth_tuning(groups: Sequence[Group], platform: Platform) -> tuple[list[Kernel], int]:
    """The distinct kernels of fixed sizes that matter, those with most predicted time first; how many do not."""
    distinct: dict[str, Kernel] = {}
    for g in groups:
        if g.scop is not None:
            known = distinct.get(g.key)
            label = known.label if known else f"{g.label} at '{g.nodes[0].name}'"
            distinct[g.key] = Kernel(label, known.uses + 1 if known else 1, g.scop)
    cost: dict[str, float] = {}
    for key, kernel in distinct.items():
        work = work_of(kernel.scop, platform.machine)
        seconds = 0.0 if work is None else predict(work, nominal(platform.machine), platform.threads).seconds
        cost[key] = kernel.uses * seconds
    worth = [k for k in sorted(cost, key=lambda k: -cost[k]) if cost[k] >= SHARE * sum(cost.values())]
    return [distinct[k] for k in worth], len(distinct) - len(worth)
