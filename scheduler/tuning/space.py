"""The schedules that are worth a trial: the automatic one with other sizes, orders and marks.

Every candidate is made by the strategies and steps that make any schedule, so that it is legal or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from polyc.poly.budgets import AUTOMATIC
from polyc.poly.errors import PolycError, ScheduleError
from polyc.poly.quota import quota
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Band, Member, walk
from polyc.scheduler.cost.model import nominal, predict
from polyc.scheduler.cost.register_tile import RegisterTile, efficiency
from polyc.scheduler.cost.work import work_of
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import STRATEGIES
from polyc.scheduler.strategies.contractions.recognise import Contraction, extent, recognise
from polyc.scheduler.strategies.contractions.strategy import contractions
from polyc.scheduler.strategies.contractions.tile_plan import TilePlan, plan_tile
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
        knobs["cache"] = {"1": 1.0, "1/2": 1.0, "2": 1.0}
        knobs["order"] = {"usual": 1.0, "swapped": 1.0}
        knobs["unroll"] = {"1": 1.0, "2": 1.0, "4": 1.0}
    else:
        knobs["lanes"] = {"1": 1.0, "1/2": 1.0}
        knobs["blocks"] = {"usual": 1.0, "8x128": 1.0, "16x256": 1.0, "32x32": 1.0, "64x64": 1.0, "64x512": 1.0}
        knobs["cache"] = {"1": 1.0, "1/4": 1.0}
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
    machine = replace(
        target, l2=int(target.l2 * _number(point.get("cache", "1"))),
        vector_bits=max(64, int(target.vector_bits * _number(point.get("lanes", "1")))),
    )  # fmt: skip
    shared = point.get("shared", "usual")
    plan = Planner(
        replace(Schedule.of(scop), terse=True), machine, 1 if shared in ("outer", "inner", "none") else threads
    )
    main = _main(scop)

    def choose(s: Scop, c: Contraction, t: Target) -> TilePlan | None:
        planned = plan_tile(s, c, target)
        if planned is None or main is None or c.update.name != main.update.name:
            return planned
        return _with_tile(planned, point.get("tile", ""))

    with quota(AUTOMATIC):
        for plan.stage, strategy in STRATEGIES.items():
            if plan.stage == "contraction":
                contractions(plan, choose)
            else:
                strategy(plan)
        done = plan.schedule
        if point.get("order", "usual") == "swapped":
            done = _swapped(done)
        if point.get("blocks", "usual") != "usual":
            done = _blocked(done, *map(int, point["blocks"].split("x")))
        if point.get("unroll", "1") != "1":
            done = _unrolled(done, int(point["unroll"]), main)
        if shared in ("outer", "inner"):
            done = _shared(done, shared)
    return replace(done, terse=False)


def _number(text: str) -> float:
    above, _, below = text.partition("/")
    return int(above) / int(below or 1)


def _with_tile(planned: TilePlan, text: str) -> TilePlan:
    rows, _, vectors = text.partition("x")
    tile = RegisterTile(int(rows), int(vectors), planned.tile.lanes, planned.tile.efficiency)
    return replace(planned, tile=tile)


def _bands(schedule: Schedule) -> Iterator[list[Member]]:
    for node in walk(schedule.tree):
        if isinstance(node, Band):
            yield list(node.members)


def _swapped(schedule: Schedule) -> Schedule:
    """The last two tile loops of the contraction's outer band change places."""
    for members in _bands(schedule):
        tiles = [m.name for m in members if m.name.endswith(".out")]
        if len(tiles) >= 2:
            names = [m.name for m in members]
            a, b = names.index(tiles[-2]), names.index(tiles[-1])
            names[a], names[b] = names[b], names[a]
            return schedule.permute(names)
    raise ScheduleError("there are no two tile loops to exchange")


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
    """The outermost loop that carries nothing, or the next one inside it, over all threads."""
    free = [n for n in schedule.parallel_loops() if not n.endswith(".in")]
    wanted = free[:1] if which == "outer" else free[1:2]
    kinds = {m.name: m.kind for members in _bands(schedule) for m in members}
    if not wanted or kinds[wanted[0]] != "serial":
        raise ScheduleError(f"there is no {which} loop to share")
    return schedule.parallel(wanted[0])


def failure(error: PolycError) -> str:
    """Why a candidate is none, in one line."""
    return str(error).splitlines()[0][:200]
