"""Sizes that are symbols, as strategies take them that choose blocks for all sizes: large ones.

Blocks are made for what leaves the caches. Arrays that fit them lose little by blocks, others gain much, so an array of
unknown size is taken for one of `ELEMENTS`, its unknown extents alike. Only how large blocks are depends on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.cache import per_scop
from polyc.poly.expr import Const, Expr, variables
from polyc.poly.forms.affine import set_space, to_pw_aff
from polyc.poly.forms.ranges import extremes, largest
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Member, time_map
from polyc.scheduler.transformations.tree_edit import floor_div

ELEMENTS = 1 << 21  # of an array of unknown size: 16 MiB of doubles, more than an L2


def assumed_sizes(scop: Scop) -> dict[str, int]:
    """A number for each size that is a symbol, as far as the program's context has one."""
    where, found = scop.context, {}
    for name in scop.params:
        extents = [_extent(a) for a in scop.arrays.values() if any(name in variables(e) for e in a.shape)]
        value = _nearest(where, name, min(extents, default=_root(ELEMENTS, 2)))
        if value is not None:
            found[name], where = value, _fixed(where, name, value)
    return found


def likely_extent(scop: Scop, member: Member, stmts: Iterable[str]) -> int | None:
    """Iterations of a loop at the assumed sizes; None where these do not decide."""
    sizes, ends = _values(scop), []
    for s in stmts:
        found = _range(member.schedule[s].intersect_domain(scop.statements[s].domain.intersect_params(sizes)))
        if found is None:
            return None
        ends.append(found)
    return None if not ends else max(high for _, high in ends) - min(low for low, _ in ends) + 1


def likely_width(scop: Scop, outer: Member, inner: Member) -> int | None:
    """Iterations of `inner` in one of `outer`, at most and at the assumed sizes (a band moves: its rows are few in each
    sweep, and many in all); None where these do not decide."""
    sizes, most = _values(scop), 0
    for s in inner.schedule:
        where = scop.statements[s].domain.intersect_params(sizes)
        times = isl.Map.from_pw_aff(outer.schedule[s].intersect_domain(where)).reverse()
        rows = times.apply_range(isl.Map.from_pw_aff(inner.schedule[s].intersect_domain(where)))
        farthest = rows.reverse().apply_range(rows).deltas().dim_max_val(0)
        if not farthest.is_int():
            return None
        most = max(most, int(farthest.to_python()) + 1)
    return most or None


def likely_values(scop: Scop, stmt: Statement, name: str) -> int | None:
    """Values of an iterator that starts at 0, at the assumed sizes; None where these do not decide."""
    place = stmt.iters.index(name)
    last = largest(stmt.domain, place)
    if last is None and scop.params:
        found = _range(stmt.domain.intersect_params(_values(scop)).dim_max(place))
        last = None if found is None else found[1]
    return None if last is None else last + 1


def likely_bytes(scop: Scop, array: str) -> int | None:
    """Of an array at the assumed sizes (of fixed size: its bytes); None where these do not decide."""
    size = scop.arrays[array].dtype.bytes
    for e in scop.arrays[array].shape:
        found = _value(scop, e)
        if found is None:
            return None
        size *= found
    return size


def likely_part_bytes(scop: Scop, array: str, loops: Sequence[Member], blocks: Mapping[str, int]) -> int | None:
    """Of the box around what an iteration of nested loops reads of an array (of loops in `blocks`: so many of them),
    at the assumed sizes; None where these do not decide."""
    found: isl.Map | None = None
    for a in accesses(scop):
        if a.array == array and not a.write and all(a.stmt in m.schedule for m in loops):
            reads = a.map.intersect_params(_values(scop))
            times = [floor_div(m.schedule, blocks[m.name]) if m.name in blocks else m.schedule for m in loops]
            part = time_map(reads.domain(), [t[a.stmt] for t in times]).reverse().apply_range(reads)
            found = part if found is None else found.union(part)
    if found is None:
        return None
    size = scop.arrays[array].dtype.bytes
    for k in range(len(scop.arrays[array].shape)):
        along = found.project_out(isl.dim_type.out, k + 1, len(scop.arrays[array].shape) - k - 1)
        along = along.project_out(isl.dim_type.out, 0, k)
        most = along.reverse().apply_range(along).deltas().dim_max_val(0)
        if not most.is_int():
            return None
        size *= int(most.to_python()) + 1
    return size


def _value(scop: Scop, e: Expr) -> int | None:
    if isinstance(e, Const):
        return int(e.value)
    found = _range(to_pw_aff(e, set_space("", (), scop.params)).intersect_params(_values(scop)))
    return None if found is None else found[1]


def _range(pa: isl.PwAff) -> tuple[int, int] | None:
    low, high = extremes(pa)
    return (int(low.to_python()), int(high.to_python())) if low.is_int() and high.is_int() else None


@per_scop
def _values(scop: Scop) -> isl.Set:
    """The one point that the assumed sizes are."""
    where = scop.context
    for name, value in assumed_sizes(scop).items():
        where = _fixed(where, name, value)
    return where


def _extent(array: Array) -> int:
    """Of each unknown dimension of an array that has some."""
    known = [int(e.value) for e in array.shape if isinstance(e, Const)]
    return _root(ELEMENTS / max(prod(known), 1), len(array.shape) - len(known))


def _root(amount: float, rank: int) -> int:
    return max(1, round(amount ** (1 / rank)))


def _nearest(where: isl.Set, name: str, value: int) -> int | None:
    """The nearest value that the context allows (None: only some between its ends)."""
    position = where.find_dim_by_name(isl.dim_type.param, name)
    if position < 0:
        return value
    line = where.move_dims(isl.dim_type.set, 0, isl.dim_type.param, position, 1)
    low, high = line.dim_min_val(0), line.dim_max_val(0)
    value = max(value, int(low.to_python())) if low.is_int() else value
    value = min(value, int(high.to_python())) if high.is_int() else value
    return None if _fixed(where, name, value).is_empty() else value


def _fixed(where: isl.Set, name: str, value: int) -> isl.Set:
    position = where.find_dim_by_name(isl.dim_type.param, name)
    if position < 0:
        where = where.add_dims(isl.dim_type.param, 1)
        position = where.dim(isl.dim_type.param) - 1
        where = where.set_dim_name(isl.dim_type.param, position, name)
    return where.fix_val(isl.dim_type.param, position, isl.Val(value))
