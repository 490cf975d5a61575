"""Cases of a piecewise formula: adding them up, and making as few of them as is easily seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import islpy as isl

from polyc.poly.closed_forms.polynomial import Atom, Extreme, Polynomial, affine_terms, rewritten
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass

MANY = 48
"""Pieces after which a formula is given up: nobody could read it."""

FEW = 8  # values of one size that are tried one by one when two pieces are compared


class CountingError(PolycError):
    """A set that is infinite, or too hard to count within the quota."""

    code = "P501"


class InfiniteError(CountingError):
    """A set without end."""

    code = "P502"


@dataclass(frozen=True, eq=False)
class Piece:
    """`value` where the sizes are in `where` (a parameter set)."""

    where: isl.Set
    value: Polynomial


def added(pieces: list[Piece], new: Piece) -> list[Piece]:
    """Disjoint pieces plus one more."""
    out: list[Piece] = []
    rest = new.where
    for p in pieces:
        if rest.is_empty():
            out.append(p)
            continue
        both = p.where.intersect(rest)
        if both.is_empty():
            out.append(p)
            continue
        only = p.where.subtract(rest).coalesce()
        if not only.is_empty():
            out.append(Piece(only, p.value))
        out.append(Piece(both.coalesce(), p.value + new.value))
        rest = rest.subtract(p.where).coalesce()
    if not rest.is_empty():
        out.append(Piece(rest, new.value))
    return out


def merged(pieces: Iterable[Piece], context: isl.Set) -> tuple[Piece, ...]:
    """As few pieces as easily seen: those whose formula holds on another one's region swallow it."""
    left = [Piece(p.where.intersect(context).coalesce(), p.value) for p in pieces]
    left = [p for p in left if not p.where.is_empty()]
    rest = context
    for p in left:
        rest = rest.subtract(p.where)
    zero = [Piece(isl.Set.from_basic_set(b), Polynomial()) for b in rest.coalesce().get_basic_sets()]
    left = [Piece(isl.Set.from_basic_set(b), p.value) for p in left for b in p.where.get_basic_sets()] + zero
    samples = [_sample(p.where) for p in left]
    k = 0
    while k < len(left):
        p = left[k]
        for j, q in enumerate(left):
            if j == k or p.value(samples[j]) != q.value(samples[j]) or not agree(p.value, q.value, q.where):
                continue
            left[k] = Piece(p.where.union(q.where).coalesce(), p.value)
            del left[j], samples[j]
            k -= j < k
            break
        else:
            k += 1
    left = _as_extreme(left, context)
    left = [p for p in left if p.value]
    return tuple(_ordered(left))


def _ordered(pieces: list[Piece]) -> list[Piece]:
    """Those with most sizes and terms first; only equal ones by their text, which takes longest."""
    by_size: dict[tuple[int, int], list[Piece]] = {}
    for p in pieces:
        by_size.setdefault((-len(p.value.sizes()), -len(p.value.terms)), []).append(p)
    out: list[Piece] = []
    for _, alike in sorted(by_size.items()):
        out += alike if len(alike) == 1 else sorted(alike, key=lambda p: str(p.value))
    return out


def _as_extreme(pieces: list[Piece], context: isl.Set) -> list[Piece]:
    """Affine cases of which each is the smallest (or largest) where it holds become one `min` (`max`)."""
    forms = [affine_terms(p.value) for p in pieces]
    known = [f for f in forms if f is not None]
    if not 2 <= len(pieces) <= 3 or len(known) < len(pieces) or ((), 0) in known:
        return pieces  # `max(0, x)` would hide that sums and products simplify where it is not 0
    if any(not isinstance(a, str) for terms, _ in known for a, _ in terms):
        return pieces
    space = context.get_space()
    values = [_affine(terms, constant, space) for terms, constant in known]
    for which in ("min", "max"):
        ahead = [
            (v.le_set(w) if which == "min" else v.ge_set(w)).params()
            for v in values for w in values if w is not v
        ]  # fmt: skip
        others = len(values) - 1
        if all(p.where.is_subset(s) for k, p in enumerate(pieces) for s in ahead[k * others : (k + 1) * others]):
            constants_last = sorted(known, key=lambda f: (bool(f[0]), str(f)))
            atom = Extreme(which, tuple(constants_last))
            return [Piece(context, Polynomial.atom(atom))]
    return pieces


def _affine(terms: Sequence[tuple[Atom, int]], constant: int, space: isl.Space) -> isl.PwAff:
    """The affine expression as an isl function of the parameters alone."""
    local = isl.LocalSpace.from_space(space)
    out = isl.Aff.zero_on_domain(local).set_constant_val(isl.Val(constant))
    for name, c in terms:
        out = out.set_coefficient_val(
            isl.dim_type.param, space.find_dim_by_name(isl.dim_type.param, str(name)), isl.Val(c)
        )
    return isl.PwAff.from_aff(out)


def agree(a: Polynomial, b: Polynomial, where: isl.Set, depth: int = 0) -> bool:
    """Whether two polynomials are seen to be equal for all sizes in `where`."""
    if a == b:
        return True
    if depth > 4:
        return False
    count = where.dim(isl.dim_type.param)
    as_set = isl.Set.from_params(where).move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, count)
    names = [where.get_dim_name(isl.dim_type.param, k) for k in range(count)]
    involved = a.sizes() | b.sizes()
    for k, name in enumerate(names):
        if name not in involved:
            continue
        low, high = as_set.dim_min_val(k), as_set.dim_max_val(k)
        if not (low.is_int() and high.is_int()) or (high.sub(low)).to_python() >= FEW:
            continue
        if len(involved) == 1:
            values = range(int(low.to_python()), int(high.to_python()) + 1)
            return all(a({name: v}) == b({name: v}) for v in values)
        for value in range(int(low.to_python()), int(high.to_python()) + 1):
            part = where.fix_val(isl.dim_type.param, k, isl.Val(value))
            if not part.is_empty() and not agree(_fixed(a, name, value), _fixed(b, name, value), part, depth + 1):
                return False
        return True
    return _agree_by_equality(a, b, where, names, depth)


def _sample(where: isl.Set) -> dict[str, int]:
    """Some values in a region that is not empty."""
    count = where.dim(isl.dim_type.param)
    point = isl.Set.from_params(where).move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, count).sample_point()
    return {
        where.get_dim_name(isl.dim_type.param, k): int(point.get_coordinate_val(isl.dim_type.set, k).to_python())
        for k in range(count)
    }


def _agree_by_equality(a: Polynomial, b: Polynomial, where: isl.Set, names: list[str], depth: int) -> bool:
    """Use an equality `size == affine` that holds in `where`."""
    for c in where.affine_hull().get_constraints():
        if not c.is_equality() or c.dim(isl.dim_type.div):
            continue
        row = {n: int(c.get_coefficient_val(isl.dim_type.param, k).to_python()) for k, n in enumerate(names)}
        constant = int(c.get_constant_val().to_python())
        unit = next((n for n, v in row.items() if abs(v) == 1 and n in a.sizes() | b.sizes()), None)
        if unit is None:
            continue
        sign = -row[unit]
        terms = {n: v * sign for n, v in row.items() if v and n != unit}
        value = Polynomial.affine(dict(terms), constant * sign)
        return _put(a, unit, value) == _put(b, unit, value)
    return False


def _fixed(p: Polynomial, name: str, value: int) -> Polynomial:
    return _put(p, name, Polynomial.constant(value))


def _put(p: Polynomial, name: str, value: Polynomial) -> Polynomial:
    """An affine value in place of a size, inside floors too."""
    return rewritten(p, lambda size: value if size == name else Polynomial.atom(size))
