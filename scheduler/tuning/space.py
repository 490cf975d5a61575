"""The schedules that are worth a trial: the programs that the strategies propose, with other parameters.

Parameters are the register tile, rows in a block, packed or not, the order of tile loops, lanes, sizes of blocks,
unrolling and the threads' loop. The machine stays as it is. Every candidate is made of public steps, so that it is
legal or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from polyc.poly.budgets import AUTOMATIC
from polyc.poly.errors import PolycError, ScheduleError
from polyc.poly.quota import quota
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Band, Member, walk
from polyc.poly.words import first_line
from polyc.scheduler.cost.model import nominal, predict
from polyc.scheduler.cost.register_tile import RegisterTile, efficiency
from polyc.scheduler.cost.tile_plan import TilePlan, plain_dimension, plan_tile
from polyc.scheduler.cost.work import work_of
from polyc.scheduler.programs.tiles import TiledProduct
from polyc.scheduler.recognition.contraction import Contraction, extent, recognise
from polyc.scheduler.recognition.group import Group
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.step import Step
from polyc.scheduler.strategies.auto import STRATEGIES
from polyc.scheduler.strategies.contractions.strategy import contractions
from polyc.scheduler.strategies.contractions.tiling import Tiling
from polyc.scheduler.strategies.planner import Planner

MOST_TILES = 10  # register tiles: the best by the model
MOST_ROWS = 14
MOST_VECTORS = 6
PREFER = 1.03  # factor of the predicted time for each knob that is not as the automatic schedule has it
UNTUNED = "untuned"

Point = Mapping[str, str]


@dataclass(frozen=True)
class Candidate:
    """One schedule to try.

    `knobs` say how it differs from the automatic one (all knobs of the Scop, in order); `cost` is the time that
    the model predicts, in cycles; `make` builds it (and raises `PolycError` when it is illegal).
    """

    name: str
    knobs: Point
    cost: float
    make: Callable[[], Schedule]


def candidates(scop: Scop, target: Target, threads: int) -> list[Candidate]:
    """All candidates, the ones with the least predicted time first. The automatic schedule is not among them.

    Raises:
        ScheduleError: sizes of the Scop are not fixed, or depend on data.
    """
    work = work_of(scop, target)
    if work is None or scop.params:
        raise ScheduleError(f"{scop.name} cannot be tuned: its sizes are not fixed numbers")
    base = predict(work, nominal(target), threads).seconds * nominal(target).hertz
    knobs = _knobs(scop, target, threads)
    usual = {k: next(iter(values)) for k, values in knobs.items()}
    found = []
    for choice in product(*knobs.values()):
        point = dict(zip(knobs, choice, strict=True))
        other = [k for k in knobs if point[k] != usual[k]]
        if not other:
            continue
        cost = base * PREFER ** len(other) * knobs.get("tile", {}).get(point.get("tile", ""), 1.0)
        name = ", ".join(f"{k} {point[k]}" for k in other)
        found.append(Candidate(name, point, cost, _maker(scop, target, threads, point)))
    return sorted(found, key=lambda c: (c.cost, c.name))


def _maker(scop: Scop, target: Target, threads: int, point: Point) -> Callable[[], Schedule]:
    return lambda: schedule_at(scop, target, threads, point)


# ---- the knobs -----------------------------------------------------------------------------------


def _knobs(scop: Scop, target: Target, threads: int) -> dict[str, dict[str, float]]:
    """Values by knob, the usual one first, each with a factor of the predicted time."""
    knobs: dict[str, dict[str, float]] = {}
    main = _main(scop)
    planned = None if main is None else plan_tile(scop, main, target)
    if main is not None and planned is not None:
        knobs["tile"] = _tiles(main, planned, target)
        knobs["block"] = {"usual": 1.0, "1/2": 1.0, "2": 1.0, "none": 1.0}
        knobs["packed"] = {"usual": 1.0, "other": 1.0}
        knobs["order"] = {"usual": 1.0, "swapped": 1.0}
        knobs["unroll"] = {"1": 1.0, "2": 1.0, "4": 1.0}
    else:
        knobs["lanes"] = {"1": 1.0, "1/2": 1.0}
        knobs["blocks"] = {"usual": 1.0, "8x128": 1.0, "16x256": 1.0, "32x32": 1.0, "64x64": 1.0, "64x512": 1.0}
        knobs["tiles"] = {"1": 1.0, "1/4": 1.0, "1/2": 1.0, "2": 1.0}
        knobs["unroll"] = {"1": 1.0, "2": 1.0, "4": 1.0}
    if threads > 1:
        knobs["shared"] = {"usual": 1.0, "outer": 1.0, "inner": 1.0, "none": 1.0}
    return knobs


def _main(scop: Scop) -> Contraction | None:
    """The contraction with the most multiply-adds."""

    def size(c: Contraction) -> int:
        total = 1
        for i in (*c.outputs, *c.inner):
            total *= extent(c.update, i) or 1
        return total

    found = [c for s in scop.statements.values() if (c := recognise(s)) is not None]
    return max(found, key=size, default=None)


def _tiles(c: Contraction, planned: TilePlan, target: Target) -> dict[str, float]:
    """Register tiles `ROWSxVECTORS` that leave a register free, the planned one first, then the best."""
    lanes = planned.tile.lanes
    rows = 1 if planned.rows is None else extent(c.update, planned.rows)
    columns = extent(c.update, planned.columns)
    shares: dict[str, float] = {}
    for r, v in product(range(1, MOST_ROWS + 1), range(1, MOST_VECTORS + 1)):
        if r * v + v + 1 <= target.vector_registers and (planned.rows is not None or r == 1):
            shares[f"{r}x{v}"] = efficiency(rows, columns, (r, v, lanes), target)
    usual = f"{planned.tile.rows}x{planned.tile.vectors}"
    first = shares.get(usual) or planned.tile.efficiency
    best = sorted((n for n in shares if n != usual), key=lambda n: -shares[n])[:MOST_TILES]
    return {usual: 1.0} | {n: first / max(shares[n], 1e-3) for n in best}


# ---- a schedule from knobs -----------------------------------------------------------------------


def schedule_at(scop: Scop, target: Target, threads: int, point: Point) -> Schedule:
    """The schedule of a point of the space.

    Raises:
        ScheduleError, IllegalSchedule: there is no such schedule.
        QuotaExceeded: isl cannot decide within its quota.
    """
    plan = Planner(replace(Schedule.of(scop), terse=True), target, threads)
    main = _main(scop)

    def choose(s: Scop, c: Contraction, t: Target) -> TilePlan | None:
        planned = plan_tile(s, c, t)
        if planned is None or main is None or c.update.name != main.update.name:
            return planned
        return _with_block(s, _with_tile(planned, point), t, threads, point.get("block", "usual"))

    def change(product: TiledProduct) -> TiledProduct:
        ours = main is not None and product.update == main.update.name
        return _swapped(product) if ours and point.get("order", "usual") == "swapped" else product

    with quota(AUTOMATIC):
        for plan.stage, strategy in STRATEGIES.items():
            if plan.stage == "contraction":
                contractions(plan, choose, change)
            else:
                strategy(plan)
        done = _scaled(plan.schedule, _number(point.get("lanes", "1")), _number(point.get("tiles", "1")))
        if point.get("blocks", "usual") != "usual":
            done = _blocked(done, *map(int, point["blocks"].split("x")))
        if point.get("unroll", "1") != "1":
            done = _unrolled(done, int(point["unroll"]), main)
        if point.get("shared", "usual") != "usual":
            done = _shared(done, point["shared"])
    return replace(done, terse=False)


def _number(text: str) -> float:
    above, _, below = text.partition("/")
    return int(above) / int(below or 1)


def _with_tile(planned: TilePlan, point: Point) -> TilePlan:
    """The plan with the point's register tile, packed or not."""
    rows, _, vectors = point.get("tile", f"{planned.tile.rows}x{planned.tile.vectors}").partition("x")
    tile = RegisterTile(int(rows), int(vectors), planned.tile.lanes, planned.tile.efficiency)
    pack = planned.pack
    if point.get("packed", "usual") == "other":
        pack = not pack
        if pack and (planned.panel.own != (planned.columns,) or not _plain(planned)):
            raise ScheduleError(f"{planned.panel.load.array} cannot be packed in panels of '{planned.columns}'")
    return replace(planned, tile=tile, pack=pack)


def _plain(planned: TilePlan) -> bool:
    return plain_dimension(planned.panel.load, planned.columns) is not None


def _with_block(scop: Scop, planned: TilePlan, target: Target, threads: int, block: str) -> TilePlan:
    """The plan with other rows in a block: a part or a multiple of the usual ones, in whole tiles, or no blocks."""
    if block == "usual":
        return planned
    usual = Tiling(scop, Group(planned.contraction), planned, target).row_block(threads)
    if block == "none" or planned.rows is None:
        return replace(planned, block=None)
    total = extent(planned.contraction.update, planned.rows)
    rows = usual or total
    if rows is None:
        raise ScheduleError(f"the number of iterations of loop '{planned.rows}' is not known")
    tiles = max(1, int(rows * _number(block)) // planned.tile.rows)
    return replace(planned, block=tiles * planned.tile.rows)


def _swapped(product: TiledProduct) -> TiledProduct:
    """The last two loops around a tile change places, and the buffers with them."""
    if len(product.outer) < 2:
        raise ScheduleError("there are no two tile loops to exchange")
    *first, a, b = product.outer
    kept = [replace(k, at=a.place) if k.at == b.place else k for k in product.kept]
    if not first:
        kept = [replace(k, around=b.place) if k.around == a.place else k for k in kept]
    return replace(product, outer=(*first, b, a), kept=tuple(kept))


def _scaled(schedule: Schedule, lanes: float, tiles: float) -> Schedule:
    """The program with other lanes in each of its vector loops, and other sizes of its tiles."""
    if lanes == tiles == 1:
        return schedule
    steps: list[Step] = []
    for step in schedule.trace:
        args = dict(step.args)
        if step.name == "vectorize" and args["lanes"] is not None:
            args["lanes"] = max(1, int(args["lanes"] * lanes))
        if step.name == "tile":
            args["sizes"] = [max(1, int(size * tiles)) for size in args["sizes"]]
        steps.append(Step(step.name, args))
    start = replace(Schedule.start(schedule.original), terse=True)
    return start.batch(*((s.name, s.args) for s in steps))


def _bands(schedule: Schedule) -> Iterator[list[Member]]:
    for node in walk(schedule.tree):
        if isinstance(node, Band):
            yield list(node.members)


def _blocked(schedule: Schedule, rows: int, columns: int) -> Schedule:
    """The last two loops of the deepest band that has two, in blocks."""
    nests = [members for members in _bands(schedule) if len(members) >= 2]
    if not nests:
        raise ScheduleError("there are no two nested loops to tile")
    names = [m.name for m in max(nests, key=len)[-2:]]
    return schedule.tile(names, [rows, columns])


def _unrolled(schedule: Schedule, factor: int, main: Contraction | None) -> Schedule:
    """The innermost serial loop (of the contraction's reduction, if there is one) by a factor."""
    serial = [m for members in _bands(schedule) for m in members if m.kind == "serial"]
    if main is not None:
        serial = [m for m in serial if main.update.name in m.schedule and len(m.schedule) == 1]
    if not serial:
        raise ScheduleError("there is no serial loop to unroll")
    return schedule.unroll(serial[-1].name, factor)


def _shared(schedule: Schedule, which: str) -> Schedule:
    """Another threads' loop: the outermost one that carries nothing, the next one inside it, or none."""
    for name in [m.name for members in _bands(schedule) for m in members if m.kind == "parallel"]:
        schedule = schedule.serial(name)
    if which == "none":
        return schedule
    free = [n for n in schedule.parallel_loops() if not n.endswith(".in")]
    wanted = free[:1] if which == "outer" else free[1:2]
    kinds = {m.name: m.kind for members in _bands(schedule) for m in members}
    if not wanted or kinds[wanted[0]] != "serial":
        raise ScheduleError(f"there is no {which} loop to share")
    return schedule.parallel(wanted[0])


def failure(error: PolycError) -> str:
    """Why a candidate is none, in one line."""
    return first_line(error)[:200]
