"""What the forms of an update cost: scattered as written, over elements, in phases.

The arithmetic of the time model (`model.py`) for each form, with the register tile or the vector loop that the form
would get (`work.py`). Loops that threads can share divide it; a scatter without a parallel loop has none. Which form is
fastest differs: a small convolution of stride two is a scatter in four lanes at a tenth of the time of a gather with
masks, and in phases at a quarter of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from polyc.poly.forms.ranges import points_of_box
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import loops_below
from polyc.scheduler.cost.model import Work, nominal, predict
from polyc.scheduler.cost.vector_loops import vector_cost
from polyc.scheduler.cost.work import statement_work
from polyc.scheduler.recognition.contraction import recognise

CLEARLY = 0.85
"""A form must cost less than this share of the form that the program has."""
NEARLY = 2.0
"""A box around at most so many times the instances has lanes nearly everywhere (borders of a convolution)."""


def cycles(
    scop: Scop, statements: Iterable[str], parallel: Collection[str], target: Target, threads: int,
    instances: float | None = None,
) -> float | None:  # fmt: skip
    """Cycles of arithmetic and of accesses of L1; None where sizes are not known.

    Args:
        parallel: those of the statements that have a parallel loop around them, which `threads` share.
        instances: how many each has at most. Where they are no box, loops run over them one by one (bounds differ from
            lane to lane), tiles of a product over the box around them.
    """
    shared, alone = Work(), Work()
    for name in statements:
        work = statement_work(scop, scop.statements[name], target)
        if work is None:
            return None
        box = points_of_box(scop.statements[name].domain)
        if instances is not None and box and instances * NEARLY < box and recognise(scop.statements[name]) is None:
            work = Work(operations=instances * _one_by_one(scop, name))
        if name in parallel:
            shared += work
        else:
            alone += work
    machine = nominal(target)
    own = predict(alone, machine).cycles["arithmetic"]
    return own + predict(shared + Work(entries=1.0), machine, threads).cycles["arithmetic"]


def _one_by_one(scop: Scop, name: str) -> float:
    """What an instance of a statement costs without lanes, in the best of its loops."""
    around = [m for m in loops_below(scop.tree) if name in m.schedule]
    return min((vector_cost(scop, m, (name,), 1, None) for m in around), default=0.0)
