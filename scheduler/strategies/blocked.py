"""Strategy: factorizations and triangular solves in place, block by block of steps (`programs.factorization`).

In the program's own order every step of an elimination goes over all that is left of the matrix; by blocks of steps
nearly all of it is a product, with the register tile of a product. How many steps a block has is bound by L1, which
holds a panel of both operands.
"""

from __future__ import annotations

from functools import partial

from polyc.scheduler.cost.elimination_blocks import LEAST_BLOCKS, block_of
from polyc.scheduler.decision import rounded
from polyc.scheduler.programs.factorization import Blocking, blocked
from polyc.scheduler.recognition.contraction import extent
from polyc.scheduler.recognition.elimination import Elimination, eliminations
from polyc.scheduler.strategies.planner import Planner


def block_eliminations(plan: Planner) -> None:
    """Block the nests at the top that are eliminations."""
    for loop in plan.top():
        names = sorted(plan.member(loop).schedule)
        for found in eliminations(plan.scop, names)[:1]:
            _propose(plan, found, names)


def _propose(plan: Planner, found: Elimination, names: list[str]) -> None:
    update = plan.scop.statements[found.update]
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
        f"{found.update} completes what later steps of {found.step} use: blocks of {sizes.steps} steps, what is beyond "
        f"a block as a product in register tiles of {sizes.tile.rows} x {sizes.tile.columns}, operands in panels",
        partial(blocked, e=found, how=blocking),
        block=sizes.steps, rows=sizes.tile.rows, columns=sizes.tile.columns, peak_share=rounded(sizes.tile.efficiency),
    ):  # fmt: skip
        plan.claimed |= set(names) & set(plan.scop.statements) | (set(plan.scop.statements) - known)
