"""The symbolic sizes of one model: names, ranges, representative values, and the guards found on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from math import gcd
from typing import TYPE_CHECKING

from polyc.graph_driver.graph.size import Extent, Quotient, Size, SizeError, evaluate, symbol
from polyc.poly.errors import ArgumentError, PolycError
from polyc.poly.records import dataclass

if TYPE_CHECKING:  # a model that is loaded starts without isl
    import islpy as isl

    from polyc.poly.expr import Expr


@dataclass(frozen=True)
class Guard:
    """`size` is negative, zero or not negative in every run (`kind` is `<`, `=` or `>=`), because of `reason`."""

    size: Size
    kind: str
    reason: str

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it does for these values of the symbols."""
        n = evaluate(self.size, values)
        return {"<": n < 0, "=": n == 0, ">=": n >= 0}[self.kind]

    def __str__(self) -> str:
        positive = {m: f for m, f in self.size.terms if f > 0}
        negative = {m: -f for m, f in self.size.terms if f < 0}
        home = self.size.home
        left = Size(home, positive) if positive else 0
        right = Size(home, negative) if negative else 0
        return f"{left} {self.kind} {right}"


class GuardError(PolycError):
    """Something that must hold does not hold for the representative sizes; `wanted` is that, if others can keep it."""

    code = "P409"

    def __init__(self, text: str, wanted: Guard | None = None) -> None:
        super().__init__(text)
        self.wanted = wanted


@dataclass
class Range:
    """`low <= symbol <= high` (None: no end); `typical` is the representative value."""

    low: int
    high: int | None
    typical: int
    asked: tuple[int, int | None] = (1, None)  # the ends before any guard
    key: str = ""  # what the model calls the size (`--dim KEY=V`)


@dataclass(eq=False)
class Symbols:
    """All symbolic sizes of a model.

    `where` names the node at hand, for the guards' reasons. Outside of `at` nothing becomes a guard: a rewrite
    that needs to know more of a size than is known is not worth one, and gets a `SizeError`.
    """

    ranges: dict[str, Range] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # symbol -> why its range is narrower than asked for
    where: str = ""
    cut_below: bool = False  # whether a decision of the representative sizes has taken small values from a range
    _parameters: dict[str, Size] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def new(self, name: str, low: int, high: int | None, typical: int, key: str = "") -> Size:
        """Another symbol."""
        self.ranges[name] = Range(low, high, typical, (low, high), key or name)
        return symbol(self, name)

    @property
    def narrowed(self) -> bool:
        """Whether there are sizes from 1 on that a run cannot have."""
        return bool(self.guards) or any((r.low, r.high) != (1, None) for r in self.ranges.values())

    def range_of(self, name: str) -> Range:
        """Raises `ValueError` for a name that is no symbol."""
        if name not in self.ranges:
            raise ValueError(f"'{name}' is no symbolic size")
        return self.ranges[name]

    @property
    def typical(self) -> dict[str, int]:
        """The representative values."""
        return {n: r.typical for n, r in self.ranges.items()}

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Guards found inside belong to `where`."""
        before, self.where = self.where, where
        try:
            yield
        finally:
            self.where = before

    # ---- kernel parameters -------------------------------------------------------------------

    def parameter(self, size: Size) -> str:
        """The name of the kernel parameter that holds `size` (a symbol, a product, a quotient)."""
        text = re.sub(r"\W+", "_", str(size).replace("*", "_x_").replace("//", "_div_")).strip("_")
        name = f"n_{text}"
        while self._parameters.setdefault(name, size) != size:
            name += "_"
        return name

    def formula(self, parameter: str) -> Size:
        """What a kernel parameter stands for."""
        return self._parameters[parameter]

    # ---- decisions ---------------------------------------------------------------------------

    def bounds(self, size: Extent) -> tuple[int | None, int | None]:
        """An interval that holds the value for all sizes in their ranges (None: no end)."""
        if isinstance(size, int):
            return size, size
        low: int | None = 0
        high: int | None = 0
        for monomial, factor in size.terms:
            a: int | None = 1
            b: int | None = 1
            for atom, power in monomial:
                x, y = self._atom_bounds(atom)
                if x is None or x < 0:
                    return None, None
                a = None if a is None else a * x**power
                b = None if b is None or y is None else b * y**power
            if factor < 0:
                a, b = b, a
            low = None if low is None or a is None else low + factor * a
            high = None if high is None or b is None else high + factor * b
        return low, high

    def only_value(self, quotient: Quotient) -> int | None:
        """The value of a quotient of one symbol by a number, where the symbol's range as asked for leaves only one."""
        above, below = quotient.above, quotient.below
        if not isinstance(above, Size) or not isinstance(below, int):
            return None
        ((monomial, factor), *rest) = above.terms
        if any(m for m, _ in rest) or len(monomial) != 1 or not isinstance(name := monomial[0][0], str) or factor < 0:
            return None
        low, high = self.ranges[name].asked
        if high is None or evaluate(above, {name: low}) // below != evaluate(above, {name: high}) // below:
            return None
        return evaluate(above, {name: low}) // below

    def _atom_bounds(self, atom: str | Quotient) -> tuple[int | None, int | None]:
        if isinstance(atom, str):
            r = self.ranges[atom]
            return r.low, r.high
        (a, b), (c, d) = self.bounds(atom.above), self.bounds(atom.below)
        if c is None or c < 1:
            return None, None
        low = None if a is None else (0 if d is None else a // d) if a >= 0 else a // c
        return low, None if b is None else b // c if b >= 0 else -1

    def decide_negative(self, size: Extent) -> bool:
        """Whether `size < 0`; when that depends on the sizes the representative ones decide, as a guard."""
        if (known := self._known_negative(size)) is not None:
            return known
        assert isinstance(size, Size)
        if not self.where:
            raise SizeError(f"whether {size} is negative depends on the sizes")
        negative = evaluate(size, self.typical) < 0
        lows = [r.low for r in self.ranges.values()]
        self._guard(size, "<" if negative else ">=", self.where)
        self.cut_below |= lows != [r.low for r in self.ranges.values()]
        return negative

    def _known_negative(self, size: Extent) -> bool | None:
        """Whether `size < 0` for all sizes in their ranges; None when it depends on them."""
        low, high = self.bounds(size)
        if low is not None and low >= 0:
            return False
        if high is not None and high < 0:
            return True
        assert isinstance(size, Size)
        size = self._primitive(size)
        if size.affine:
            sizes, value = self._affine(size)
            negative = sizes.intersect(value.lt_set(value.sub(value)))
            return False if negative.is_empty() else True if sizes.is_subset(negative) else None
        return next((g.kind == "<" for g in self.guards if g.size == size and g.kind != "="), None)

    def most(self, size: Size) -> int | None:
        """The largest value of an affine size for all sizes in their ranges; None without one."""
        if not size.affine:
            return self.bounds(size)[1]
        from polyc.poly.forms.ranges import extremes

        sizes, value = self._affine(size)
        largest = extremes(value.intersect_params(sizes.params()))[1]
        return int(largest.to_python()) if largest.is_int() else None

    def never_negative(self) -> tuple[Expr, ...]:
        """The affine guards of several symbols as what is never negative in a run (of numbers of one: its range)."""
        sides: list[Extent] = []
        for g in self.guards:
            if g.size.affine:
                both: dict[str, list[Extent]] = {"<": [-g.size - 1], "=": [g.size, -g.size], ">=": [g.size]}
                sides += both[g.kind]
        return tuple(s.expr for s in sides if isinstance(s, Size))

    def _affine(self, size: Size) -> tuple[isl.Set, isl.PwAff]:
        """The sizes that a run can have, and an affine size as a function of them."""
        import islpy as isl

        from polyc.poly.forms.affine import set_space, to_pw_aff

        names = sorted(size.symbols())
        space = set_space("", [], [self.parameter(symbol(self, n)) for n in names])
        sizes = isl.Set.universe(space)
        for k, r in enumerate(self.ranges[n] for n in names):
            sizes = sizes.lower_bound_val(isl.dim_type.param, k, isl.Val(r.low))
            if r.high is not None:
                sizes = sizes.upper_bound_val(isl.dim_type.param, k, isl.Val(r.high))
        for g in self.guards:
            if g.size.affine and g.size.symbols() <= set(names):
                left = to_pw_aff(g.size.expr, space)
                zero = left.sub(left)
                kept = {"<": left.lt_set, "=": left.eq_set, ">=": left.ge_set}[g.kind](zero)
                sizes = sizes.intersect(kept)
        return sizes, to_pw_aff(size.expr, space)

    def require_equal(self, a: Extent, b: Extent, why: str) -> None:
        """Make `a == b` a guard unless it is known. Raises `GuardError` when the representative sizes break it."""
        gap = a - b
        if isinstance(gap, int):
            if gap:
                raise GuardError(f"{why}: {a} and {b} differ")
            return
        gap = self._primitive(gap)
        if evaluate(gap, self.typical) != 0:
            raise GuardError(f"{why}: {a} and {b} differ", Guard(gap, "=", why))
        if gap.affine:
            sizes, value = self._affine(gap)
            if sizes.is_subset(value.eq_set(value.sub(value))):
                return
        self._guard(gap, "=", self.where or why)

    def require_at_least(self, size: Extent, low: int, why: str) -> None:
        """Make `size >= low` a guard unless it is known. Raises `GuardError` as above."""
        left = size - low
        known = self._known_negative(left)
        if known is False:
            return
        if known or evaluate(left, self.typical) < 0:
            wanted = Guard(left, ">=", why) if isinstance(left, Size) else None
            raise GuardError(f"{why}: {size} must be at least {low}", wanted)
        assert isinstance(left, Size)
        self._guard(left, ">=", self.where or why)

    def _primitive(self, size: Size) -> Size:
        """The formula without a number, and without sizes that are never 0, that divide all of it: the same sign."""
        whole = gcd(*(f for _, f in size.terms))
        common = dict(size.terms[0][0])
        for monomial, _ in size.terms:
            powers = dict(monomial)
            common = {a: min(p, powers[a]) for a, p in common.items() if a in powers}
        common = {a: p for a, p in common.items() if (self._atom_bounds(a)[0] or 0) > 0}
        terms = {
            tuple((a, p - common.get(a, 0)) for a, p in m if p > common.get(a, 0)): f // whole for m, f in size.terms
        }
        return Size(self, terms) if set(terms) != {()} else size

    def _guard(self, size: Size, kind: str, reason: str) -> None:
        """Keep the sizes of runs to those where it holds."""
        size = self._primitive(size)
        if self._narrowed(size, kind, reason):
            return
        guard = Guard(size, kind, reason)
        if guard not in self.guards:
            self.guards.append(guard)

    def _narrowed(self, size: Size, kind: str, reason: str) -> bool:
        """A guard on one symbol alone moves an end of its range; one on one quotient is one on what is divided."""
        terms = dict(size.terms)
        constant = terms.pop((), 0)
        if len(terms) != 1:
            return False
        ((monomial, factor),) = terms.items()
        if len(monomial) != 1 or monomial[0][1] != 1:
            return False
        if kind == "=" and constant % factor:
            return False
        if kind == "<":  # factor * atom + constant < 0, as its negation's complement
            factor, constant = -factor, -constant - 1
        # factor * atom + constant >= 0 gives an end; "=" gives both
        low = -(constant // factor) if factor > 0 or kind == "=" else None
        high = constant // -factor if factor < 0 or kind == "=" else None
        atom = monomial[0][0]
        if isinstance(atom, str):
            self._bounded(atom, low, high, reason)
            return True
        if not isinstance(atom.below, int):
            return False
        assert isinstance(atom.above, Size)
        for end, sign in ((low, 1), (None if high is None else high + 1, -1)):
            if end is not None:
                left = atom.above - end * atom.below
                self._guard(left if sign > 0 else -left - 1, ">=", reason)
        return True

    def _bounded(self, name: str, low: int | None, high: int | None, reason: str) -> None:
        r = self.ranges[name]
        r.low = r.low if low is None else max(r.low, low)
        r.high = high if r.high is None else r.high if high is None else min(r.high, high)
        self.reasons[name] = reason

    # ---- a run's values ----------------------------------------------------------------------

    def check(self, values: Mapping[str, int]) -> None:
        """Refuse sizes outside of the ranges or against a guard. Raises `ArgumentError`, one line."""
        for name, r in self.ranges.items():
            if values[name] < r.low or (r.high is not None and values[name] > r.high):
                why = f" ({self.reasons[name]})" if name in self.reasons else ""
                raise ArgumentError(
                    f"size {r.key} is {values[name]}, the model was compiled for {self.range_text(name)}{why}"
                )
        for g in self.guards:
            if not g.holds(values):
                given = ", ".join(f"{n} = {values[n]}" for n in sorted(g.size.symbols()))
                raise ArgumentError(f"the model was compiled for {g} ({g.reason}); given {given}")

    def range_text(self, name: str) -> str:
        """`1 <= batch <= 64`, the size by the name that it has in the model."""
        r = self.ranges[name]
        if r.low == r.high:
            return f"{r.key} = {r.low}"
        return f"{r.key} >= {r.low}" if r.high is None else f"{r.low} <= {r.key} <= {r.high}"

    def lines(self) -> list[str]:
        """The ranges and guards for people."""
        out = []
        for name, r in self.ranges.items():
            why = f" ({self.reasons[name]})" if name in self.reasons else ""
            out.append(f"size {self.range_text(name)}{why}, planned with {r.typical}")
        return out + [f"guard {g} ({g.reason})" for g in self.guards]
