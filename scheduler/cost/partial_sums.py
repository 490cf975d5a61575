"""Whether threads that share the rows of a nest should have sums of their own, or loops of their own for the sums.

Counted is what moves in bytes beyond L2: the arrays that both kinds of loops would read, against the sums of each
thread, which are cleared, and added to the result in the end.
"""

from __future__ import annotations

from collections.abc import Collection

from polyc.poly.access import accesses_by
from polyc.poly.closed_forms.counting import count_or_bound
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.model import at_level

PASSES = 4
"""Over the sums of each thread: cleared, then read and added to the result, which is read and written."""
NEAR = (None, "l2")
"""Where a second reading costs next to nothing."""


def bytes_of_both(scop: Scop, sums: Collection[str], others: Collection[str], target: Target) -> int:
    """Bytes of the arrays that both groups of statements read and that do not stay near a core; 0 for free sizes."""
    if scop.params:
        return 0
    groups = [{a.array for a in accesses_by(scop, g) if not a.write and not a.accumulator} for g in (sums, others)]
    written = {a.array for a in accesses_by(scop, [*sums, *others]) if a.write}
    sizes = [_bytes(scop, array, others) for array in (groups[0] & groups[1]) - written]
    return sum(n for n in sizes if at_level(n, target) not in NEAR)


def bytes_of_sums(scop: Scop, sums: Collection[str], blocks: int) -> int:
    """Bytes that sums of their own move for so many blocks."""
    return PASSES * blocks * sum(_bytes(scop, array, sums) for array in {scop.statements[n].array for n in sums})


def _bytes(scop: Scop, array: str, statements: Collection[str]) -> int:
    """Bytes of the elements of an array that statements touch; sizes are known."""
    touched = None
    for a in accesses_by(scop, statements):
        if a.array == array:
            here = a.map.range()
            touched = here if touched is None else touched.union(here)
    assert touched is not None
    return count_or_bound(touched)() * scop.arrays[array].dtype.np.itemsize
