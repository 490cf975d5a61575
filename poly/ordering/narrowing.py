"""Conflicts on the way down a tree: what the loops so far leave at equal times, worked out as late as possible.

Most loops are `g`, `g // n` or `g mod n` of an affine value `g`. If no pair has `g` of its
source above `g` of its sink, none of the three runs it backwards (the remainder as long as the
quotient is tied), and when quotient and remainder are tied, what remains are the pairs with equal
`g`. So the questions put to isl have no divisions in them and are the same ones for every blocking
of a nest; the answers are kept with the conflicts of the Scop. Where a loop is of another kind,
the general test has to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import islpy as isl

from polyc.poly.cache import per_scop
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop

LIMIT = 20_000  # answers kept for one Scop


@dataclass(frozen=True, eq=False)
class Value:
    """A loop value: `base` (kind "all"), `base // block` ("quotient") or `base mod block` ("remainder")."""

    kind: str
    base: isl.Aff
    block: int
    text: str

    @property
    def function(self) -> isl.PwAff:
        """The base as a piecewise function, whatever the kind."""
        return isl.PwAff.from_aff(self.base)


@dataclass(frozen=True, eq=False)
class Tied:
    """Pairs with equal times so far: those of `pairs` for which the two `quotients` of each entry are equal."""

    pairs: isl.Map
    quotients: tuple[tuple[Value, Value], ...] = ()


@dataclass(frozen=True, eq=False)
class _Bases:
    """What decides about two values: their bases; for remainders the tied quotients that complete them."""

    kind: str
    source: Value
    sink: Value
    entry: tuple[Value, Value] | None = None


class Facts:
    """Answers about the conflicts of one Scop, each worked out once."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[isl.PwAff, Value | None]] = {}
        self._answers: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}

    def value(self, pa: isl.PwAff) -> Value | None:
        """The form of a loop value, None for values of another kind."""
        entry = self._values.get(id(pa))
        if entry is None:  # the entry keeps `pa` alive, so its id stays its own
            if len(self._values) > LIMIT:
                self._values.clear()
            entry = self._values[id(pa)] = (pa, _form(pa))
        return entry[1]

    def pairs(self, tied: Tied) -> isl.Map:
        """The pairs themselves (perhaps none)."""
        out = tied.pairs
        for a, b in tied.quotients:
            out = self._narrowed(out, a, b)
        return out

    def _narrowed(self, pairs: isl.Map, a: Value, b: Value) -> isl.Map:
        """The pairs with equal quotients."""
        key = ("quotients", id(pairs), a.text, b.text, a.block)
        narrow: isl.Map = self.once(key, (pairs,), lambda: pairs.intersect(_quotient(a).eq_map(_quotient(b))))
        return narrow

    def forward(self, tied: Tied, a: isl.PwAff, b: isl.PwAff) -> bool:
        """Whether it is seen that no pair has the value `a` of its source above `b` of its sink."""
        found = self._bases(tied, a, b)
        if found is None:
            return False
        x, y = found.source, found.sink
        return bool(self.once(("forward", id(tied.pairs), x.text, y.text), (tied.pairs,),
                                lambda: tied.pairs.intersect(x.function.gt_map(y.function)).is_empty()))  # fmt: skip

    def left(self, tied: Tied, a: isl.PwAff, b: isl.PwAff) -> Tied | None:
        """The pairs with equal values, None when there are none (not always seen)."""
        found = self._bases(tied, a, b)
        if found is None:
            equal = self.pairs(tied).intersect(a.eq_map(b))
            return None if equal.is_empty() else Tied(equal)
        x, y = found.source, found.sink
        if found.kind == "quotient":
            return Tied(tied.pairs, (*tied.quotients, (x, y)))
        same = self.once(("equal", id(tied.pairs), x.text, y.text), (tied.pairs,),
                           lambda: _some(tied.pairs.intersect(x.function.eq_map(y.function))))  # fmt: skip
        return None if same is None else Tied(same, tuple(q for q in tied.quotients if q is not found.entry))

    def between(self, tied: Tied, a: isl.Set, b: isl.Set) -> Tied | None:
        """The pairs from `a` to `b`, None when there are none."""
        inside = self.once(("between", id(tied.pairs), id(a), id(b)), (tied.pairs, a, b),
                             lambda: _some(tied.pairs.intersect_domain(a).intersect_range(b)))  # fmt: skip
        return None if inside is None else Tied(inside, tied.quotients)

    def _bases(self, tied: Tied, a: isl.PwAff, b: isl.PwAff) -> _Bases | None:
        """Values whose bases decide about `a` and `b`."""
        x, y = self.value(a), self.value(b)
        if x is None or y is None:
            return None
        kind, block = max((x.kind, x.block), (y.kind, y.block), key=lambda v: v[0] != "all")
        if kind == "all":
            return _Bases(kind, x, y)
        for v in (x, y):
            if (v.kind, v.block) != (kind, block) and not (v.kind == "all" and v.base.is_cst()):
                return None
        if kind == "quotient":  # a number c is the quotient of c n (the least) and of c n + n - 1 (the largest)
            return _Bases(kind, _scaled(x, block, 0), _scaled(y, block, block - 1))
        for entry in tied.quotients:
            if entry[0].block == block:
                source, sink = _completed(entry[0], x, block), _completed(entry[1], y, block)
                if source is not None and sink is not None:
                    return _Bases(kind, source, sink, entry)
        return None

    def once(self, key: tuple[Any, ...], alive: tuple[Any, ...], work: Callable[[], Any]) -> Any:
        """The answer to `key`; `alive` are the objects whose ids are in it."""
        entry = self._answers.get(key)
        if entry is None:
            if len(self._answers) > LIMIT:
                self._answers.clear()
            entry = self._answers[key] = (alive, work())
        return entry[1]


@per_scop
def facts(scop: Scop) -> Facts:
    """The answers about a Scop's conflicts so far."""
    return Facts()


def _some(pairs: isl.Map) -> isl.Map | None:
    return None if pairs.is_empty() else pairs


def _quotient(v: Value) -> isl.PwAff:
    return v.function.scale_down_val(isl.Val(v.block)).floor()


def _form(pa: isl.PwAff) -> Value | None:
    """`g`, `u + floor(w / n)` (the quotient of `w + n u`) or `w - n floor(w / n)`, with integer coefficients."""
    if pa.n_piece() != 1:
        return None
    aff = pa.get_pieces()[0][1]
    if not aff.get_denominator_val().is_one():
        return None
    count = aff.dim(isl.dim_type.div)
    if count == 0:
        return Value("all", aff, 1, str(aff))
    if count > 1:
        return None
    inner = aff.get_div(0)
    block = inner.get_denominator_val()
    whole = inner.scale_val(block)
    factor = aff.get_coefficient_val(isl.dim_type.div, 0)
    outside = aff.set_coefficient_val(isl.dim_type.div, 0, 0)
    if whole.dim(isl.dim_type.div) and whole.involves_dims(isl.dim_type.div, 0, whole.dim(isl.dim_type.div)):
        return None
    if factor.is_one():
        base = whole.add(outside.scale_val(block))
        return Value("quotient", base, int(block.to_python()), str(base))
    if factor.add(block).is_zero() and outside.plain_is_equal(whole):
        return Value("remainder", whole, int(block.to_python()), str(whole))
    return None


def _scaled(v: Value, block: int, plus: int) -> Value:
    """A number as a quotient; quotients stay as they are."""
    if v.kind == "quotient":
        return v
    base = v.base.scale_val(isl.Val(block)).add_constant_val(isl.Val(plus))
    return Value("quotient", base, block, str(base))


def _completed(quotient: Value, remainder: Value, block: int) -> Value | None:
    """The value with this quotient and remainder (a number, or the remainder of the same base)."""
    if remainder.kind == "remainder":
        return quotient if _congruent(quotient.base, remainder.base, block) else None
    if not quotient.base.is_cst():
        return None
    least = quotient.base.scale_down_val(isl.Val(block)).floor().scale_val(isl.Val(block))
    base = least.add(remainder.base)
    return Value("all", base, 1, str(base))


def _congruent(a: isl.Aff, b: isl.Aff, block: int) -> bool:
    """Whether the difference is a multiple of `block` in every coefficient."""
    return bool(a.sub(b).scale_down_val(isl.Val(block)).get_denominator_val().is_one())
