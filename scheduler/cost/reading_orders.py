"""The order of a local array's dimensions in which sums read it.

A padded image `P[n, c, h, w]` is the program's own. A window of it is summed up over all channels, each of them a whole
image away: a page of its own, and no prefetcher follows. In `P[n, h, c, w]` the rows that a window needs lie together.
"""

from __future__ import annotations

from polyc.poly.expr import Load, const_int, loads, variables
from polyc.poly.forms.layout_maps import in_order
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.panels import LEAST_STEPS, UNKNOWN_DEPTH, scattered
from polyc.scheduler.recognition.contraction import Contraction, bytes_apart, extent, recognise

Order = tuple[int, ...]


def reading_orders(scop: Scop, target: Target) -> dict[str, Order]:
    """Local arrays that sums walk through in far steps, each with the order of its dimensions in which they are near:
    those of outputs, those of windows, those of the sum alone, the last one where it is."""
    found: dict[str, set[Order]] = {}
    for stmt in scop.statements.values():
        c = recognise(stmt)
        for load in () if c is None else dict.fromkeys(loads(stmt.value)):
            if c is not None and load.index and scop.arrays[load.array].kind == "local" and load.array != stmt.array:
                found.setdefault(load.array, set()).add(_order(scop, c, load, target))
    return {a: order for a, orders in found.items() for order in orders if len(orders) == 1 and not _kept(order)}


def in_reading_order(scop: Scop, target: Target) -> Scop:
    """The Scop with those arrays stored so, as the strategy `reading order` will have them."""
    for array, order in reading_orders(scop, target).items():
        scop = relayout(scop, array, in_order(order))
    return scop


def _kept(order: Order) -> bool:
    return order == tuple(range(len(order)))


def _order(scop: Scop, c: Contraction, load: Load, target: Target) -> Order:
    """The order for one load; as it is where its steps are near."""
    dims, inner = range(len(load.index)), set(c.inner)
    moved = [variables(e) for e in load.index]
    alone = [k for k in dims[:-1] if moved[k] and moved[k] <= inner]
    steps = [(bytes_apart(scop, load, i), extent(c.update, i) or UNKNOWN_DEPTH) for k in alone for i in moved[k]]
    if not any(count >= LEAST_STEPS and scattered(step, count, target) for step, count in steps):
        return tuple(dims)
    order = (*sorted(dims[:-1], key=lambda k: (k in alone, bool(moved[k] & inner))), dims[-1])
    wide = [k for k in order if scop.arrays[load.array].shape[k] != const_int(1)]
    return order if wide != sorted(wide) else tuple(dims)  # else the elements would lie as before
