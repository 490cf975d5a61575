"""What a range of indices of one axis needs: boxes, as formulas of its ends."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.graph_driver.parallel.flow import Flow
from polyc.graph_driver.parallel.layouts import WHOLE, Layout, Range, Split
from polyc.poly.records import dataclass

Ends = tuple[isl.PwAff, isl.PwAff]


@dataclass(frozen=True, eq=False)
class Image:
    """For a range `begin <= i < end` of one axis, the box that a relation maps it to: of each axis the first and last
    index as formulas of `begin` and `end`."""

    axes: tuple[Ends, ...]

    def box(self, begin: int, end: int) -> tuple[Range, ...]:
        """That of a range; empty where nothing is read."""
        return tuple((_value(lo, begin, end), _value(hi, begin, end) + 1) for lo, hi in self.axes)


def image(relation: isl.Map, axis: int) -> Image:
    """The boxes to which ranges of an axis of the relation's domain are mapped."""
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=["begin", "end"])
    relation = relation.align_params(space)
    domain = relation.domain()
    cut = domain.copy()
    local = isl.LocalSpace.from_space(domain.get_space())
    i = isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.set, axis))
    begin, end = (isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.param, k)) for k in (0, 1))
    cut = cut.intersect(i.ge_set(begin)).intersect(i.lt_set(end))
    found = relation.intersect_domain(cut).range().coalesce()
    rank = found.dim(isl.dim_type.set)
    return Image(tuple((found.dim_min(k).coalesce(), found.dim_max(k).coalesce()) for k in range(rank)))


def _value(formula: isl.PwAff, begin: int, end: int) -> int:
    point = isl.Point.zero(formula.domain().get_space())
    point = point.set_coordinate_val(isl.dim_type.param, 0, isl.Val(begin))
    point = point.set_coordinate_val(isl.dim_type.param, 1, isl.Val(end))
    value = formula.eval(point)
    return int(value.to_python()) if value.is_int() else 0


def read_for(flow: Flow, result: int, operand: int, axis: int) -> Image | None:
    """What ranges of an axis of a result read of an operand; None: nothing (an operand that is baked in)."""
    relation = flow.reads[result].get(operand)
    if relation is None:
        return None
    return _kept(flow, ("read", result, operand, axis), relation, axis)


def met_by(flow: Flow, result: int, operand: int, other: int, axis: int) -> Image | None:
    """Of a result that is a sum: what of another operand meets ranges of an axis of an operand."""
    relation = flow.sums[result][operand].get(other)
    return None if relation is None else _kept(flow, ("met", result, operand, other, axis), relation, axis)


def made_from(flow: Flow, result: int, operand: int, axis: int) -> Image | None:
    """Which elements of a result are made from ranges of an axis of an operand."""
    relation = flow.reads[result].get(operand)
    return None if relation is None else _kept(flow, ("made", result, operand, axis), relation.reverse(), axis)


def _kept(flow: Flow, key: object, relation: isl.Map, axis: int) -> Image:
    found = flow.known.get(key)
    if not isinstance(found, Image):
        found = flow.known[key] = image(relation, axis)
    return found


def layout_of(boxes: Sequence[Sequence[Range]], shape: Sequence[int]) -> Layout | None:
    """Boxes of all ranks as a layout: whole along all axes but one. None: along more than one axis they are parts, or
    one is empty."""
    parts = [k for k, n in enumerate(shape) if any(b[k] != (0, n) for b in boxes)]
    parts = [k for k in parts if len({b[k] for b in boxes}) > 1]  # what nobody reads is not worth a part
    if not parts:
        return WHOLE
    if len(parts) > 1 or any(a >= b for a, b in (box[parts[0]] for box in boxes)):
        return None
    return Split(parts[0], tuple(box[parts[0]] for box in boxes))
