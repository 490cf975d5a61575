"""Loop values that are functions of one iterator: cheap exact answers for the common case.

Most loops of most trees compute `i`, `i // 16`, `i % 16`, ... of a single iterator, and most
conflicts equate iterators one to one. Then a loop gives both ends of a conflict one value,
and no integer programming is needed to see it. "No" here always means "not seen": callers
fall back to the general test.
"""

from __future__ import annotations

import islpy as isl

from polyc.poly.cache import per_scop
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop

LIMIT = 20_000  # forms kept for one Scop


@dataclass(frozen=True, eq=False)
class OneDim:
    """A loop value as a function of the single instance dimension `position`."""

    position: int
    value: isl.PwAff
    plain: bool
    """Whether the value is that dimension itself."""


class OneDims:
    """Finds (and remembers) the one-dimensional form of loop values."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[isl.PwAff, OneDim | None]] = {}

    def of(self, pa: isl.PwAff) -> OneDim | None:
        """The form of `pa`, None when it depends on no or on several dimensions."""
        entry = self._known.get(id(pa))
        if entry is None:  # the entry keeps `pa` alive, so its id stays its own
            if len(self._known) > LIMIT:
                self._known.clear()
            entry = self._known[id(pa)] = (pa, one_dim(pa))
        return entry[1]

    def equal(self, a: isl.PwAff, b: isl.PwAff, equated: frozenset[tuple[int, int]]) -> bool:
        """Whether `a(x) == b(y)` is seen to hold wherever the `equated` dimensions agree."""
        first, second = self.of(a), self.of(b)
        if first is None or second is None or (first.position, second.position) not in equated:
            return False
        return bool(first.value.plain_is_equal(second.value))

    def iterators(self, a: isl.PwAff, b: isl.PwAff) -> tuple[int, int] | None:
        """The dimensions that the two values are, where each is an iterator itself."""
        first, second = self.of(a), self.of(b)
        return (first.position, second.position) if first and second and first.plain and second.plain else None


FEW_PARTS = 16


@per_scop
def forms(scop: Scop) -> OneDims:
    """The forms found so far for the loops of a Scop's trees."""
    return OneDims()


def one_dim(pa: isl.PwAff) -> OneDim | None:
    """`pa` over its only dimension, in an anonymous space."""
    count = pa.dim(isl.dim_type.in_)
    used = [k for k in range(count) if pa.involves_dims(isl.dim_type.in_, k, 1)]
    if len(used) != 1:
        return None
    k = used[0]
    value = pa.drop_dims(isl.dim_type.in_, k + 1, count - k - 1).drop_dims(isl.dim_type.in_, 0, k)
    value = value.reset_tuple_id(isl.dim_type.in_)
    return OneDim(k, value, _is_dimension(value))


def _is_dimension(value: isl.PwAff) -> bool:
    """Whether a function of one dimension visibly is that dimension."""
    if not value.isa_aff():
        return False
    aff = value.as_aff()
    alone = not aff.dim(isl.dim_type.div) and not aff.involves_dims(isl.dim_type.param, 0, aff.dim(isl.dim_type.param))
    one = aff.get_coefficient_val(isl.dim_type.in_, 0).is_one()
    return alone and bool(one) and bool(aff.get_constant_val().is_zero())


def equated_dims(pairs: isl.Map) -> frozenset[tuple[int, int]]:
    """Dimension pairs (p, q) with `x_p == y_q` for all `{ S[x] -> T[y] }` in `pairs`, as far as
    the equalities of a hull say so one by one: the affine hull, or, where `pairs` has so many
    parts that isl would take minutes, the constraints that all parts share."""
    hull = pairs.affine_hull() if pairs.n_basic_map() <= FEW_PARTS else pairs.unshifted_simple_hull()
    n_in, n_out = pairs.dim(isl.dim_type.in_), pairs.dim(isl.dim_type.out)
    found = set()
    for c in hull.get_constraints():
        if not c.is_equality() or not c.get_constant_val().is_zero() or c.is_div_constraint():
            continue
        ins = [(k, c.get_coefficient_val(isl.dim_type.in_, k)) for k in range(n_in)]
        outs = [(k, c.get_coefficient_val(isl.dim_type.out, k)) for k in range(n_out)]
        ins, outs = ([(k, v) for k, v in part if not v.is_zero()] for part in (ins, outs))
        if len(ins) == len(outs) == 1 and ins[0][1].add(outs[0][1]).is_zero() and not _others(c):
            found.add((ins[0][0], outs[0][0]))
    return frozenset(found)


def _others(c: isl.Constraint) -> bool:
    """Whether parameters or existential variables take part in the constraint."""
    kinds = (isl.dim_type.param, isl.dim_type.div)
    return any(c.involves_dims(t, 0, c.dim(t)) for t in kinds if c.dim(t))


def tells_apart(scop: Scop, values: list[isl.PwAff], dims: int) -> bool:
    """Whether the loop values are seen to differ for different instances of `dims` dimensions:
    for each dimension, the values that depend on it alone determine it."""
    known = forms(scop)
    found = [f for f in map(known.of, values) if f is not None]
    for k in range(dims):
        own = [f.value for f in found if f.position == k]
        if not own or not (any(map(_one_by_one, own)) or _together(own).is_injective()):
            return False
    return True


def _one_by_one(value: isl.PwAff) -> bool:
    """Whether the value visibly is the dimension itself, or its negative, and a constant."""
    if not value.isa_aff():
        return False
    aff = value.as_aff()
    return not aff.dim(isl.dim_type.div) and bool(aff.get_coefficient_val(isl.dim_type.in_, 0).abs().is_one())


def _together(values: list[isl.PwAff]) -> isl.Map:
    """All values as one map: as a product of maps isl sees most times at a glance that it is injective."""
    together = isl.Map.from_pw_aff(values[0])
    for value in values[1:]:
        together = together.flat_range_product(isl.Map.from_pw_aff(value))
    return together
