"""Strategy: factorizations and triangular solves in place, block by block of steps (`programs.factorization`).

In the program's own order every step of an elimination goes over all that is left of the matrix; by blocks of steps
nearly all of it is a product, with the register tile of a product. How many steps a block has is bound by L1, which
holds a panel of both operands.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.poly.errors import ScheduleError
from polyc.scheduler.cost.elimination_blocks import LEAST_BLOCKS, block_of
from polyc.scheduler.decision import rounded
from polyc.scheduler.programs.factorization import Blocking, blocked
from polyc.scheduler.recognition.contraction import extent
from polyc.scheduler.recognition.elimination import Elimination, eliminations
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner


def block_eliminations(plan: Planner) -> None:
    """Block the nests at the top that are eliminations."""
    for loop in plan.top():
        names = sorted(plan.member(loop).schedule)
        made, moved = _sums_in_place(plan.schedule, names)
        names = [n for n in names if n in made.scop.statements]
        for found in eliminations(made.scop, names)[:1]:
            _propose(plan, made, moved, found, names)


def _sums_in_place(s: Schedule, names: list[str]) -> tuple[Schedule, str]:
    """The schedule with sums of eliminations that a local scalar or array holds as those of the matrix itself; what
    moved."""
    said = []
    for update in eliminations(s.scop, names):
        if update.update not in s.scop.statements:
            continue
        array = s.scop.statements[update.update].array
        if s.scop.arrays[array].kind != "local":
            continue
        from polyc.scheduler.transformations.coalescing import copied_with

        for into in copied_with(s.scop, array):
            if into in (update.left.array, update.right.array):
                new = _coalesced(s, array, into)
                said += [] if new is s else [f"{array} kept in {into}"]
                s = new
                break
    return s, ", ".join(said)


def _coalesced(s: Schedule, array: str, into: str) -> Schedule:
    try:
        return s.coalesce(array, into)
    except ScheduleError:
        return s


def _propose(plan: Planner, made: Schedule, moved: str, found: Elimination, names: list[str]) -> None:
    """Propose the blocks of an elimination in `made`, the plan's schedule with sums in their places."""
    update = made.scop.statements[found.update]
    subject = f"elimination {found.update}"
    sizes = block_of(update.value.dtype.bits, plan.target)
    steps = extent(update, found.step)
    if steps is not None and steps < LEAST_BLOCKS * sizes.steps:
        plan.decline(subject, "not blocked", f"{steps} steps are less than {LEAST_BLOCKS} blocks of {sizes.steps}",
                     steps=steps, block=sizes.steps)  # fmt: skip
        return
    known = set(plan.scop.statements)
    blocking = Blocking(sizes.steps, sizes.tile.rows, sizes.tile.columns, plan.threads > 1)
    if plan.attempt(
        subject,
        f"{found.update} completes what later steps of {found.step} use: {moved}{', ' * bool(moved)}blocks of "
        f"{sizes.steps} steps, what is beyond a block as a product in register tiles of {sizes.tile.rows} x "
        f"{sizes.tile.columns}, operands in panels",
        lambda s: blocked(replace(made, decisions=s.decisions), found, blocking),
        block=sizes.steps, rows=sizes.tile.rows, columns=sizes.tile.columns, peak_share=rounded(sizes.tile.efficiency),
    ):  # fmt: skip
        plan.claimed |= set(names) & set(plan.scop.statements) | (set(plan.scop.statements) - known)
