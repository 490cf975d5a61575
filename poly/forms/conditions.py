"""Sets of sizes as short readable conditions: `N <= 2 or T <= 1`."""

from __future__ import annotations

from functools import cached_property

import islpy as isl

from polyc.poly.forms.affine_text import condition_source
from polyc.poly.forms.canonical import set_text
from polyc.poly.records import dataclass


@dataclass(frozen=True, eq=False)
class Condition:
    """A set of sizes. `str` prints what must hold besides the program's own context, as a Python
    expression of the sizes; an empty set is false and prints as "never", all sizes as "always"."""

    set: isl.Set
    context: isl.Set

    def __bool__(self) -> bool:
        return not self.set.intersect(self.context).is_empty()

    def holds(self, **sizes: int) -> bool:
        """Whether it holds for these sizes (all that occur in it must be given)."""
        point = self.set
        for name, value in sizes.items():
            position = point.find_dim_by_name(isl.dim_type.param, name)
            if position >= 0:
                point = point.fix_val(isl.dim_type.param, position, isl.Val(value))
        return not point.is_empty()

    @cached_property
    def simple(self) -> isl.Set:
        """Equal to `set` inside the context, with as few and as short disjuncts as were found."""
        return _simplified(self.set, self.context)

    def __str__(self) -> str:
        if not self:
            return "never"
        parts = sorted((_conjunction(b) for b in self.simple.get_basic_sets()), key=lambda t: (len(t), t))
        if "" in parts:
            return "always"
        several = len(parts) > 1
        return " or ".join(f"({p})" if several and " and " in p else p for p in parts)


def _simplified(wanted: isl.Set, context: isl.Set) -> isl.Set:
    """Every disjunct widened as far as the set allows, and those that others cover left out.

    A disjunct loses each constraint without which it still lies in the set (given the context):
    the pieces `N <= 2` and `N >= 3 and T <= 1` become `N <= 2` and `T <= 1`.
    """
    wanted = wanted.intersect(context).coalesce()
    outside = context.subtract(wanted)
    wide: list[isl.Set] = []
    for piece in wanted.make_disjoint().compute_divs().get_basic_sets():
        grown = _widened(piece, outside, context)
        if not any(grown.intersect(context).is_subset(w) for w in wide):
            wide = [w for w in wide if not w.intersect(context).is_subset(grown)] + [grown]
    for candidate in sorted(wide, key=lambda s: -len(set_text(s))):
        rest = [w for w in wide if w is not candidate]
        if rest and candidate.intersect(context).is_subset(_union(rest)):
            wide = rest
    return _union(wide) if wide else wanted


def _widened(piece: isl.BasicSet, outside: isl.Set, context: isl.Set) -> isl.Set:
    """`piece` without the constraints that are not needed to keep clear of `outside`."""
    if piece.dim(isl.dim_type.div):
        return isl.Set.from_basic_set(piece).gist(context)
    kept = [h for c in piece.remove_redundancies().get_constraints() for h in _halves(c)]

    def built(constraints: list[isl.Constraint]) -> isl.Set:
        out = isl.BasicSet.universe(piece.get_space())
        for c in constraints:
            out = out.add_constraint(c)
        return isl.Set.from_basic_set(out)

    # Long constraints go first: `N <= 2` says more to a reader than `N + M <= 7`.
    for c in sorted(kept, key=lambda c: (-len(str(c)), str(c))):
        fewer = [k for k in kept if k is not c]
        if built(fewer).is_disjoint(outside):
            kept = fewer
    return built(kept).coalesce()


def _halves(c: isl.Constraint) -> list[isl.Constraint]:
    """An equality as its two inequalities."""
    if not c.is_equality():
        return [c]
    aff = c.get_aff()
    return [isl.Constraint.inequality_from_aff(aff), isl.Constraint.inequality_from_aff(aff.neg())]


def _union(sets: list[isl.Set]) -> isl.Set:
    out = sets[0]
    for s in sets[1:]:
        out = out.union(s)
    return out


def _conjunction(piece: isl.BasicSet) -> str:
    """The constraints of a basic set of parameters; "" when there are none."""
    if piece.dim(isl.dim_type.div):
        return condition_source(isl.Set.from_params(isl.Set.from_basic_set(piece)))
    exact = isl.Set.from_basic_set(piece).detect_equalities().get_basic_sets()
    return " and ".join(sorted(_comparison(c) for b in exact for c in b.remove_redundancies().get_constraints()))


def _comparison(c: isl.Constraint) -> str:
    """`2*N + 3 <= M`: positive terms on either side; a single parameter stands on the left."""
    terms: dict[str, int] = {}
    for k in range(c.dim(isl.dim_type.param)):
        value = int(c.get_coefficient_val(isl.dim_type.param, k).to_python())
        if value:
            terms[c.get_dim_name(isl.dim_type.param, k)] = value
    constant = int(c.get_constant_val().to_python())
    # constant + sum(terms) >= 0 (or = 0)
    plus = {n: v for n, v in terms.items() if v > 0}
    minus = {n: -v for n, v in terms.items() if v < 0}
    if c.is_equality():
        left, right, sign = (plus, minus, constant) if plus else (minus, plus, -constant)
        return f"{_sum(left, max(sign, 0))} == {_sum(right, max(-sign, 0))}"
    if not minus:
        return f"{_sum(plus, 0)} >= {-constant}"
    return (
        f"{_sum(minus, max(-constant, 0))} <= {_sum(plus, max(constant, 0))}"
        if plus
        else (f"{_sum(minus, 0)} <= {constant}")
    )


def _sum(terms: dict[str, int], constant: int) -> str:
    parts = [n if v == 1 else f"{v}*{n}" for n, v in terms.items()]
    if constant or not parts:
        parts.append(str(constant))
    return " + ".join(parts)
