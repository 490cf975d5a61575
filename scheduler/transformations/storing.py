"""How a local array lies in memory: the subscripts of all that touches it, composed with a layout."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.poly.errors import ScheduleError, ScopError
from polyc.poly.forms.layout_maps import is_one_to_one
from polyc.poly.rewriting.relayout import relayout as stored_by
from polyc.poly.scop import Scop
from polyc.poly.tree import Node
from polyc.scheduler.transformations.storage import full_layout, promoted_below


def relayout(
    scop: Scop, tree: Node, array: str, layout: Sequence[int] | Sequence[Sequence[int]]
) -> tuple[Scop, list[list[int]]]:
    """The Scop with the array stored so, and the layout as triples.

    Raises:
        ScheduleError: the array is none of the Scop's own, or has a buffer; the layout gives two elements one place, or
            cuts a dimension of unknown size.
    """
    found = scop.arrays.get(array)
    if found is None or found.kind != "local":
        raise ScheduleError(f"relayout '{array}': only local arrays are the program's own to store otherwise")
    if promoted_below(tree, array):
        raise ScheduleError(f"relayout '{array}': it is promoted already: relayout first")
    triples = full_layout(scop, array, layout)
    assert triples is not None
    rank = len(found.shape)
    if any(not 0 <= d < rank or div < 1 for d, div, _ in triples):
        raise ScheduleError(f"relayout '{array}': {list(triples)} names dimensions that it does not have")
    if not is_one_to_one([f"n{k}" for k in range(rank)], triples):
        raise ScheduleError(f"relayout '{array}': {list(triples)} gives two elements one place")
    try:
        return stored_by(scop, array, triples), [list(part) for part in triples]
    except ScopError as error:
        raise ScheduleError(f"relayout: {error}") from None
