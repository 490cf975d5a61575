"""The strategy that gives every contraction of a Scop its register-tiled tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from polyc.poly.scop import Scop, Statement
from polyc.poly.target import Target
from polyc.poly.tree import Filter, loops_around
from polyc.scheduler.cost.levels import Placed
from polyc.scheduler.cost.panels import LEAST_EFFICIENCY
from polyc.scheduler.cost.tile_plan import TilePlan, plan_tile
from polyc.scheduler.cost.vector_loops import iterator
from polyc.scheduler.decision import Outcome, rounded
from polyc.scheduler.programs.tiles import TiledProduct, tiled
from polyc.scheduler.recognition.contraction import Contraction, why_no_contraction
from polyc.scheduler.recognition.group import Group, examine_nests
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.contractions.levels import tile_levels
from polyc.scheduler.strategies.contractions.normal_form import Worth, filters_of, normal_form
from polyc.scheduler.strategies.contractions.tiling import Tiling, tiled_product
from polyc.scheduler.strategies.planner import Plan, Planner
from polyc.scheduler.strategies.serial import named

Choose = Callable[[Scop, Contraction, Target], TilePlan | None]
Change = Callable[[TiledProduct], TiledProduct]


def contractions(plan: Planner, choose: Choose = plan_tile, change: Change = lambda product: product) -> None:
    """Replace the top-level nests that hold a contraction (and the pointwise nests after it).

    `choose` gives each its register tile, `change` other parameters of its program (a tuner has other ideas than the
    model).
    """

    def worth(scop: Scop, c: Contraction) -> bool:
        tile = choose(scop, c, plan.target)
        return tile is not None and tile.score >= LEAST_EFFICIENCY

    _normalise(plan, worth)
    position = 0
    while position < len(top_filters(plan)):
        filters = top_filters(plan)
        nests = [list(f.domain) for f in filters]
        found = examine_nests(plan.scop, nests, position)
        if isinstance(found, str):
            _say_why(plan, nests[position], found)
            position += 1
            continue
        whole = found[0]
        for last in range(position + found[1], position, -1):
            found = examine_nests(plan.scop, nests[:last], position)
            if isinstance(found, str):
                break
            outcome = _propose(plan, found[0], choose, change)
            if outcome == "done":
                _follow(plan, whole, [s for s in whole.after if s not in found[0].after])
            if outcome != "refused":
                break
        position += 1


def _normalise(plan: Planner, worth: Worth) -> None:
    """All nests with products that are no contractions, as contractions: before any gets a tile, whose arrays in
    registers others could not be computed from."""
    position, tried = 0, set[str]()
    while position < len(top_filters(plan)):
        nests = [list(f.domain) for f in top_filters(plan)]
        here = set(nests[position])
        new = isinstance(examine_nests(plan.scop, nests, position), str) and not here & (plan.claimed | tried)
        tried |= here
        if not new or not normal_form(plan, nests[position], worth):
            position += 1


def _say_why(plan: Planner, nest: list[str], why: str) -> None:
    """A line for each reduction of a nest without a contraction; `why`: what stands against the one it might be."""
    for stmt in (plan.scop.statements[name] for name in nest):
        if stmt.reduction is None or stmt.name in plan.claimed:
            continue
        reason = str(why_no_contraction(stmt) or why)
        if reason:
            plan.decline(f"reduction {named(stmt)}", "no contraction", reason)


def top_filters(plan: Plan) -> list[Filter]:
    """The parts of the tree's outermost sequence (one part when there is no sequence)."""
    return filters_of(plan.tree, plan.scop)


def _propose(plan: Planner, group: Group, choose: Choose, change: Change) -> Outcome:
    """Propose the tile of a contraction; what came of it."""
    update = group.contraction.update
    tile = choose(plan.scop, group.contraction, plan.target)
    if tile is None or tile.score < LEAST_EFFICIENCY:
        why = "no operand has a dimension for vector lanes" if tile is None else f"predicted {tile.score:.0%} of peak"
        plan.decline(
            f"contraction {update.name}", "no register tile", why,
            peak_share=None if tile is None else rounded(tile.score), needed=LEAST_EFFICIENCY,
        )  # fmt: skip
        return "declined"
    group = replace(group, contraction=tile.contraction)  # which operand moves what is part of the choice
    product = change(tiled_product(plan.scop, group, tile, plan.target, plan.threads))
    block = Tiling(plan.scop, group, tile, plan.target).row_block(plan.threads)
    levels = tile_levels(plan.scop, tile, plan.target, block)
    if plan.attempt(
        f"contraction {update.name}", _describe(group, tile, levels), arranged(product), **tile_figures(tile, levels),
    ):  # fmt: skip
        plan.claimed |= set(product.statements)
        return "done"
    return "refused"


def _follow(plan: Planner, group: Group, after: Sequence[Statement]) -> None:
    """Statements over the result that could not be in its tiles, inside the loop around all of its tiles: what they
    read is still near, and a local result need not be kept for all iterations."""
    update = group.contraction.update
    for stmt in after:
        first, *_ = loops_around(plan.tree, update.name)
        around = loops_around(plan.tree, stmt.name)
        output = iterator(update, first.schedule[update.name])
        own = iterator(stmt, around[0].schedule[stmt.name])
        if output is None or own is None or group.iters[stmt.name].get(output) != own or len(around) < 2:
            return
        lanes, loops = plan.target.lanes(stmt.value.dtype.bits), (first.name, around[0].name, around[-1].name)

        def joined(s: Schedule, loops: tuple[str, str, str] = loops, lanes: int = lanes) -> Schedule:
            return s.fuse(loops[0], loops[1]).vectorize(loops[2], lanes)

        if not plan.attempt(f"statement {stmt.name}", f"{stmt.name} in each iteration of {first.name}", joined):
            return
        if first.kind == "parallel" and plan.member(first.name).kind != "parallel":  # it was, before they were fused
            plan.attempt(
                f"loop {first.name}", f"parallel loop {first.name}", partial(Schedule.parallel, loop=first.name)
            )
        plan.claimed.add(stmt.name)


def arranged(product: TiledProduct) -> Callable[[Schedule], Schedule]:
    """The proposal: the program, checked once."""
    return lambda s: s.in_one_check(lambda steps: tiled(steps, product))


def tile_figures(plan: TilePlan, levels: list[Placed]) -> dict[str, Any]:
    """What a decision says of a tile, as JSON values."""
    return {
        "rows": plan.tile.rows, "columns": plan.tile.columns, "row_loop": plan.rows, "column_loop": plan.columns,
        "accumulators": plan.tile.rows * plan.tile.vectors, "peak_share": rounded(plan.score), "packed": plan.pack,
        "levels": [p.data() for p in levels],
    }  # fmt: skip


def tile_text(plan: TilePlan) -> str:
    """A register tile in words."""
    tile = plan.tile
    return (
        f"register tile {tile.rows} ({plan.rows or 'one row'}) x {tile.columns} ({plan.columns}), predicted "
        f"{plan.score:.0%} of FMA peak"
    )


def _describe(group: Group, plan: TilePlan, levels: list[Placed]) -> str:
    """The decision in one line."""
    text = f"contraction {group.contraction.update.name}: {tile_text(plan)}"
    if plan.pack:
        text += f", {plan.panel.load.array} packed in panels"
    if group.after:
        text += f", fused with {', '.join(s.name for s in group.after)}"
    if levels:
        text += f"; {', '.join(map(str, levels))}"
    return text
