"""The box of an array that one iteration of a promoted region touches: offset, extent, layout."""

from __future__ import annotations

from functools import cache

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.errors import ScheduleError
from polyc.poly.forms.canonical import value_text
from polyc.poly.forms.layout_maps import places_of
from polyc.poly.ordering.regions import Region, prefix_map
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Layout
from polyc.poly.words import counted


@dataclass(frozen=True, eq=False)
class Box:
    """`touched` is `{ [values of the loops above] -> [element] }`; `loops` are their names."""

    touched: isl.Map
    loops: tuple[str, ...]

    @property
    def rank(self) -> int:
        """Dimensions of the array."""
        return int(self.touched.dim(isl.dim_type.out))

    def offset(self, d: int) -> isl.PwAff:
        """The smallest coordinate, as a function of the loops above."""
        low = self.touched.dim_min(d).coalesce()
        low = low.gist(low.domain())
        for k, name in enumerate(self.loops):
            low = low.set_dim_id(isl.dim_type.in_, k, isl.Id(name, context=isl.DEFAULT_CONTEXT))
        return low

    def extent(self, d: int) -> int | None:
        """The largest number of coordinates from the smallest to the largest; None if the sizes decide."""
        spread = self.touched.reverse().apply_range(self.touched).deltas().dim_max_val(d)
        return int(spread.to_python()) + 1 if spread.is_int() else None

    def text(self) -> str:
        """`A[32i.out : 32, 0 : K]`: in each dimension the offset and the extent."""
        return ", ".join(f"{self._offset_text(d)} : {self._extent_text(d)}" for d in range(self.rank))

    def _offset_text(self, d: int) -> str:
        return _body(self.offset(d))

    def _extent_text(self, d: int) -> str:
        constant = self.extent(d)
        if constant is not None:
            return str(constant)
        spread = self.touched.reverse().apply_range(self.touched).deltas()
        if not spread.dim_is_bounded(isl.dim_type.set, d):
            return "?"
        most = spread.dim_max(d).add_constant_val(isl.Val(1)).coalesce()
        return _body(most.gist(most.domain()))


def box_of(scop: Scop, region: Region) -> Box | None:
    """The box of a promoted region; None when nothing in it touches the array."""
    touched: isl.Map | None = None
    for a in accesses(scop):
        if a.array == region.node.array and a.stmt in region.inside:
            part = prefix_map(region, a.stmt).reverse().apply_range(a.map).reset_tuple_id(isl.dim_type.out)
            touched = part if touched is None else touched.union(part)
    if touched is None or touched.is_empty():
        return None
    return Box(touched.intersect_params(scop.context).coalesce(), tuple(m.name for m in region.loops))


def check_layout(scop: Scop, region: Region) -> None:
    """Raise `ScheduleError` unless the layout of a promotion gives each element of its box a place of its own."""
    layout, rank = region.node.layout, len(scop.arrays[region.node.array].shape)
    if layout is None:
        return
    what = f"layout {layout} of buffer '{region.node.buffer}'"
    if any(not 0 <= d < rank or div < 1 or mod < 0 for d, div, mod in layout):
        raise ScheduleError(f"the {what} does not fit: '{region.node.array}' has {counted(rank, 'dimension')}")
    if _one_to_one(layout, (None,) * rank):
        return
    box = box_of(scop, region)
    if box is None or _one_to_one(layout, tuple(map(box.extent, range(rank)))):
        return
    # The threads of a block share a buffer in shared memory: what one of them touches is not all.
    if region.node.space == "shared" or not _one_to_one_on(box, layout):
        raise ScheduleError(f"the {what} gives two elements one place")


def _one_to_one_on(box: Box, layout: Layout) -> bool:
    """Whether different elements that are touched get different places: the box may have holes."""
    elements = box.touched.wrap().flatten()  # { [values of the loops above, element] }
    space, above = elements.get_space(), box.touched.dim(isl.dim_type.in_)
    loops = isl.PwMultiAff.project_out_map(space, isl.dim_type.set, above, box.rank)
    places = isl.Map.from_pw_multi_aff(loops)
    for dim, div, mod in layout:
        element = isl.PwAff.var_on_domain(isl.LocalSpace.from_space(space), isl.dim_type.set, above + dim)
        place = element.sub(box.touched.dim_min(dim).pullback_pw_multi_aff(loops)).scale_down_val(isl.Val(div)).floor()
        places = places.flat_range_product(isl.Map.from_pw_aff(place.mod_val(isl.Val(mod)) if mod else place))
    return bool(places.intersect_domain(elements).is_injective())


@cache
def _one_to_one(layout: Layout, extents: tuple[int | None, ...]) -> bool:
    """Whether different elements of a box of these extents (None: any) get different places."""
    names = [f"b{d}" for d in range(len(extents))]
    limits = [f"0 <= {n}" + ("" if e is None else f" < {e}") for n, e in zip(names, extents, strict=True)]
    places, where = ", ".join(places_of(layout, names)), " and ".join(limits) or "true"
    relation = isl.Map(f"{{ [{', '.join(names)}] -> [{places}] : {where} }}")
    return bool(relation.is_injective())


def _body(pa: isl.PwAff) -> str:
    """The value between `[(` and `)]` of isl's text, the whole text when there are cases."""
    text = value_text(pa)
    text = text.split(" -> ", 1)[1] if text.startswith("[") and "] -> {" in text else text
    if text.count("[(") == 1:
        return text.partition("[(")[2].rpartition(")]")[0]
    return text
