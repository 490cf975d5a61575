"""Groups over as few dimensions as their accesses need, so that rows are long enough for vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyc.graph_driver.fusion.joined import Group, text_of
from polyc.poly.budgets import STEP, scaled
from polyc.poly.expr import loads
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.rewriting.collapse import collapse
from polyc.poly.scop import Scop


def collapse_groups(found: Sequence[Group]) -> list[Group]:
    """Every group with neighbouring loops merged where its accesses allow (`polyc.poly.rewriting.collapse`).

    Groups with contractions stay as they are: their strategies tell batches, rows and images apart.
    """
    known: dict[str, tuple[Scop, str, str] | None] = {}  # by key: equal kernels become equal ones
    return [_collapsed(g, known) for g in found]


def _collapsed(group: Group, known: dict[str, tuple[Scop, str, str] | None]) -> Group:
    if group.scop is None or _contracts(group.scop):
        return group
    if group.key not in known:
        scop = _within_budget(group.scop)
        known[group.key] = None if scop is group.scop else (scop, *text_of(scop))
    made = known[group.key]
    return group if made is None else replace(group, scop=made[0], text=made[1], key=made[2])


def _within_budget(scop: Scop) -> Scop:
    """The Scop collapsed, or as it is where that takes too long."""
    try:
        with quota(scaled(STEP)):
            return collapse(scop)
    except QuotaExceeded as error:
        if not error.spent:
            raise
        return scop


def _contracts(scop: Scop) -> bool:
    """Whether something is summed up over two operands."""
    return any(s.reduction and len(set(loads(s.value)) - {s.target}) > 1 for s in scop.statements.values())
