"""Strategy: what a block reads or writes in several passes over its row stays in the block between them (`keep_rows`).

Softmax and norms go over a row several times. Where a block takes a row (`bind_rows`), the row is copied to shared
memory once, used there, and results are copied out once. Which elements a block touches, in how many passes, and
whether anything has to be copied in follows from the access relations; a pass of the emitter
(`private_registers.py`) moves to registers what one thread alone uses. Rows whose length comes with the call have two
versions: one for rows that fit, and the passes over device memory for all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.forms.conditions import Condition
from polyc.poly.records import dataclass
from polyc.poly.tree import Band, Member, Node, Promote
from polyc.poly.tree import Sequence as InOrder
from polyc.scheduler.cost.gpu_rows import LARGEST, RESERVED
from polyc.scheduler.programs.rows import keep_rows
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.planner import is_flat
from polyc.scheduler.transformations.storage import check_affine, promoted_below, spread, touches
from polyc.scheduler.transformations.tree_edit import Path, outer_members, paths


@dataclass(frozen=True)
class _Row:
    """An array that several passes below a loop over blocks use. `extents`: of the box that a block touches,
    None where sizes decide; `spread`: the distances of its elements."""

    array: str
    extents: Sequence[int | None]
    spread: isl.Set
    written: bool
    read: bool

    def bytes_for(self, plan: GpuPlan, unknown: int) -> int:
        """Of shared memory, where a dimension that sizes decide has `unknown` elements."""
        return prod(unknown if e is None else e for e in self.extents) * plan.scop.arrays[self.array].dtype.bytes


def hold_rows(plan: GpuPlan) -> None:
    """Hold the rows of all nests in which a block has one."""
    for name in [n.members[-1].name for _, n in paths(plan.tree) if isinstance(n, Band) and _is_row(plan, n)]:
        path, band = next((p, n) for p, n in paths(plan.tree) if isinstance(n, Band) and n.members[-1].name == name)
        _keep(plan, path, band)


def _is_row(plan: GpuPlan, band: Band) -> bool:
    """Whether the band's loops are blocks, with several passes by threads below."""
    blocks = band.members[-1].kind.startswith("block.") and not plan.claimed & set(band.members[0].schedule)
    return blocks and isinstance(_passes(band), InOrder)


def _passes(band: Band) -> Node:
    """What lies below the promotions under the band."""
    node = band.child
    while isinstance(node, Promote):
        node = node.child
    return node


def _keep(plan: GpuPlan, path: Path, band: Band) -> None:
    passes = _passes(band)
    assert isinstance(passes, InOrder)
    around = [*outer_members(path), *band.members]
    found = [_row(plan, a, passes, around) for a in _used_again(plan, passes)]
    rows = [r for r in found if r is not None and r.extents.count(None) <= 1 and prod(e or 2 for e in r.extents) > 1]
    if not rows:
        return
    what = f"the row of {', '.join(r.array for r in rows)} stays in the block"
    subject = f"nest {band.members[0].name}"
    known = all(None not in r.extents for r in rows)
    size = sum(r.bytes_for(plan, 1) for r in rows)
    room = plan.target.shared if known else plan.target.shared_static
    if known and size + RESERVED > room:
        plan.decline(subject, what, f"{size} bytes of shared memory, over {room - RESERVED}", bytes=size)
        return
    most = 0 if known else _power_below(min(LARGEST, (room - RESERVED) // size))
    fits = Condition(_fitting(plan, rows, most), plan.scop.context)
    if not fits:
        plan.decline(subject, what, f"no row has {most} elements or fewer", most=most)
        return
    where = None if plan.scop.context.is_subset(fits.set) else str(fits)
    arrays, block, nest = [r.array for r in rows], band.members[-1].name, band.members[0].name
    for fill in (False, True):
        if plan.attempt(
            subject, what,
            partial(
                Schedule.in_one_check,
                program=partial(keep_rows, loop=block, arrays=arrays, fill=fill, where=where, nest=nest),
            ),
            most=most or None,
        ):  # fmt: skip
            return


def _power_below(n: int) -> int:
    return 1 << max(0, n.bit_length() - 1)


def _used_again(plan: GpuPlan, passes: InOrder) -> list[str]:
    """The arrays of the caller that at least two passes touch, and one of them in a loop."""
    out = []
    for name, array in plan.scop.arrays.items():
        using = [f for f in passes.filters if any(any(touches(plan.scop.statements[s], name)) for s in f.domain)]
        again = len(using) > 1 and any(not is_flat(f.child) for f in using)
        if array.kind != "local" and again and not promoted_below(passes, name):
            out.append(name)
    return out


def _row(plan: GpuPlan, array: str, passes: InOrder, around: Sequence[Member]) -> _Row | None:
    """What a block touches of an array; None, and noted, where data decide that."""
    below = [plan.scop.statements[s] for f in passes.filters for s in f.domain]
    try:
        check_affine(below, array)
    except ScheduleError as error:
        plan.decline(f"array {array}", "its row stays in device memory", str(error))
        return None
    apart = spread(plan.scop, array, list(around))
    tops = [apart.dim_max_val(d) for d in range(apart.dim(isl.dim_type.set))]
    extents = [int(t.to_python()) + 1 if t.is_int() else None for t in tops]
    used = [touches(s, array) for s in below]
    return _Row(array, extents, apart, any(w for _, w in used), any(r for r, _ in used))


def _fitting(plan: GpuPlan, rows: Iterable[_Row], most: int) -> isl.Set:
    """The sizes for which rows whose length comes with the call have `most` elements at most."""
    sizes = plan.scop.context
    for r in rows:
        for d, e in enumerate(r.extents):
            if e is None:
                sizes = sizes.intersect(_at_most(r.spread.dim_max(d), most - 1))
    return sizes


def _at_most(extent: isl.PwAff, most: int) -> isl.Set:
    """The sizes for which a number is at most `most`, or there is none."""
    zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(extent.get_domain_space()))
    limit = isl.PwAff.from_aff(zero.set_constant_val(isl.Val(most)))
    return extent.gt_set(limit).params().complement()
