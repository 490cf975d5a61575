"""What it costs that register tiles were chosen without knowing sizes: predicted times of one call."""

from __future__ import annotations

from math import prod

from polyc.poly.forms.ranges import points_of_box
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.model import Work, nominal, predict
from polyc.scheduler.cost.panels import LEAST_EFFICIENCY, UNKNOWN_DEPTH
from polyc.scheduler.cost.register_tile import efficiency
from polyc.scheduler.cost.sharing import WORTH
from polyc.scheduler.cost.tile_plan import TilePlan, plan_tile
from polyc.scheduler.cost.vector_loops import operations
from polyc.scheduler.cost.work import statement_work, work_of
from polyc.scheduler.recognition.contraction import extent, recognise, recognise_sweep

UNTILED_SHARE = 1 / 16
"""Of the peak that contractions without tiles reach (measured on a Zen 4: convolutions 0.06, attention 0.17, products
0.4)."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one call on one thread: of a kernel that knows its sizes (`own`), and of one that does not.
    `threaded`: whether there is work enough for more threads."""

    own: float
    unknown: float
    threaded: bool


def times(general: Scop, scop: Scop, target: Target, tiled: bool = True) -> Times | None:
    """The times of `scop`, all of whose sizes are numbers, and of `general`, the same program with sizes as symbols,
    at these sizes; None where the model has no figure. `tiled`: whether contractions of `general` are."""
    work = work_of(scop, target)
    if work is None:
        return None
    machine = nominal(target)
    apart = sum((_difference(general, scop, name, target, tiled) for name in scop.statements), Work())
    amount = sum((operations(s.value) + 1.0) * (points_of_box(s.domain) or 0) for s in scop.statements.values())
    return Times(predict(work, machine).seconds, predict(work + apart, machine).seconds, amount >= WORTH)


def _difference(general: Scop, scop: Scop, name: str, target: Target, tiled: bool) -> Work:
    """Arithmetic that a statement costs more (or less) in the general program, in its tile or without one, than in its
    own tile."""
    plan, own, stmt = _plan(general, name, target), _plan(scop, name, target), scop.statements[name]
    work = statement_work(scop, stmt, target)
    if work is None or own is None:  # no contraction, or one that is too small for a tile
        return Work()
    useful = work.flops * own.score
    share = _share(plan, scop, name, target) if plan is not None else None
    if not tiled:
        share = UNTILED_SHARE
    elif share is None:  # no tile without sizes: one scalar after another, at worst
        share = 1.0 / (2.0 * target.lanes(stmt.value.dtype.bits) * target.fma_units)
    return Work(flops=useful / max(share, LEAST_EFFICIENCY**2) - work.flops)


def _plan(scop: Scop, name: str, target: Target) -> TilePlan | None:
    stmt = scop.statements[name]
    c = recognise(stmt) or recognise_sweep(stmt)
    plan = None if c is None else plan_tile(scop, c, target)
    return plan if plan is not None and plan.score >= LEAST_EFFICIENCY else None


def _share(plan: TilePlan, scop: Scop, name: str, target: Target) -> float | None:
    """The share of peak that the tile of a plan without sizes reaches at the sizes of `scop`."""
    stmt = scop.statements[name]
    columns = extent(stmt, plan.columns)
    rows = 1 if plan.rows is None else extent(stmt, plan.rows)
    if not rows or not columns:
        return None
    depth = prod(extent(stmt, n) or UNKNOWN_DEPTH for n in plan.contraction.inner)
    tile = plan.tile.rows, plan.tile.vectors, plan.tile.lanes
    return plan.score / plan.tile.efficiency * efficiency(rows, columns, tile, target, depth)
