"""What the forms of an update cost: scattered as written, over elements, in phases.

The arithmetic of the time model (`model.py`) for each form, with the register tile or the vector loop that the form
would get (`work.py`). Loops that threads can share divide it; a scatter without a parallel loop has none. Which form is
fastest differs: a small convolution of stride two is a scatter in four lanes at a tenth of the time of a gather with
masks, and in phases at a quarter of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.model import Work, nominal, predict
from polyc.scheduler.cost.work import statement_work

CLEARLY = 0.85
"""A form must cost less than this share of the form that the program has."""


def cycles(
    scop: Scop, statements: Iterable[str], parallel: Collection[str], target: Target, threads: int
) -> float | None:
    """Cycles of arithmetic and of accesses of L1; None where sizes are not known.

    Args:
        parallel: those of the statements that have a parallel loop around them, which `threads` share.
    """
    shared, alone = Work(), Work()
    for name in statements:
        work = statement_work(scop, scop.statements[name], target)
        if work is None:
            return None
        if name in parallel:
            shared += work
        else:
            alone += work
    machine = nominal(target)
    own = predict(alone, machine).cycles["arithmetic"]
    return own + predict(shared + Work(entries=1.0), machine, threads).cycles["arithmetic"]
