"""`keep_rows`: what several passes over a row use stays in the block between them.

    for each row (a block)
      copy the row to shared memory
        passes of all threads over it
      copy results out

Rows whose length comes with the call have two versions: one for the sizes at which they fit, the passes over device
memory for all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.storage import touches
from polyc.scheduler.transformations.tree_edit import locate


def keep_rows(
    s: Schedule,
    loop: str,
    arrays: Sequence[str],
    fill: bool = False,
    where: str | None = None,
    nest: str | None = None,
) -> Schedule:
    """The schedule with what one iteration of a loop uses of some arrays in shared memory.

    Arguments: `loop`, an iteration of which is a row; `arrays`, innermost buffer first; `fill`: copy in arrays that
    are both read and written (False where the row is written before it is read); `where`, a condition on sizes as text
    (`"N <= 4096"`) for those at which rows fit; `nest`, the loop that then gets two versions (`loop` or one around it).
    Before -> after: `i: (passes over A[i])` -> `i: (copy of A[i] in; passes over the buffer; copy out)`.
    Refused when: a value that is not copied in is read; a subscript depends on data; all sizes fulfil `where`, or none.
    """
    if where is not None:
        s = s.version(nest or loop, where)
    inside = [s.scop.statements[n] for n in locate(s.tree, loop).member.schedule]
    for array in arrays:
        read, written = (any(used) for used in zip(*(touches(x, array) for x in inside), strict=True))
        s = s.promote(array, loop, "shared", copy_in=None if read and (fill or not written) else False)
    return s
