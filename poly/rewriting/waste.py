"""What a Scop computes in vain, or twice, or only hands on, left out."""

from __future__ import annotations

from polyc.poly.budgets import WASTE, scaled
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.rewriting.common import without_common
from polyc.poly.rewriting.handed_on import without_handed_on
from polyc.poly.rewriting.live import without_dead, without_dead_statements
from polyc.poly.scop import Scop


def without_waste(scop: Scop) -> Scop:
    """The Scop without dead instances, statements that do again what another one does, and local arrays that only hand
    values on; the same results to the last bit. The Scop itself where there is nothing of this, or where to tell takes
    more than the budget."""
    if len(scop.statements) < 2:
        return scop
    try:
        with quota(scaled(WASTE)):
            # What is left of two statements may overlap where the whole ones contain each other, or the other way.
            merged = without_common(without_dead_statements(scop))
            live = without_dead(merged)
            again = live if live is merged else without_common(live)
            return without_handed_on(again if again is live else without_dead(again))
    except QuotaExceeded:
        return scop
