"""The symbolic sizes of one model: names, ranges, representative values, and the guards found on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import islpy as isl

from graph_driver.dynamic.size import Extent, Quotient, Size, SizeError, evaluate, symbol
from poly.errors import ArgumentError, PolycError
from poly.forms.affine import set_space, to_pw_aff


class GuardError(PolycError):
    """Something that must hold does not hold for the representative sizes."""


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


@dataclass
class Range:
    """`low <= symbol <= high` (None: no end); `typical` is the representative value."""

    low: int
    high: int | None
    typical: int
    asked: int = 1  # the low end that was asked for
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
    _parameters: dict[str, Size] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def new(self, name: str, low: int, high: int | None, typical: int, key: str = "") -> Size:
        """Another symbol."""
        self.ranges[name] = Range(low, high, typical, low, key or name)
        return symbol(self, name)

    def range_of(self, name: str) -> Range:
        """Raises `ValueError` for a name that is no symbol."""
        if name not in self.ranges:
            raise ValueError(f"'{name}' is no symbolic size")
        return self.ranges[name]

    @property
    def cut_below(self) -> bool:
        """Whether a guard has taken small values from a range."""
        return any(r.low > r.asked for r in self.ranges.values())

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
        low, high = self.bounds(size)
        if low is not None and low >= 0:
            return False
        if high is not None and high < 0:
            return True
        assert isinstance(size, Size)
        if size.affine and (decided := self._decided(size)) is not None:
            return decided
        if not self.where:
            raise SizeError(f"whether {size} is negative depends on the sizes")
        known = next((g.kind == "<" for g in self.guards if g.size == size and g.kind != "="), None)
        if known is not None:
            return known
        negative = evaluate(size, self.typical) < 0
        self._guard(size, "<" if negative else ">=", self.where)
        return negative

    def _decided(self, size: Size) -> bool | None:
        """Whether an affine `size < 0` holds for all sizes or for none, exactly; None when it depends on them."""
        sizes, value = self._affine(size)
        negative = sizes.intersect(value.lt_set(value.sub(value)))
        if negative.is_empty():
            return False
        return True if sizes.is_subset(negative) else None

    def most(self, size: Size) -> int | None:
        """The largest value of an affine size for all sizes in their ranges; None without one."""
        if not size.affine:
            return self.bounds(size)[1]
        sizes, value = self._affine(size)
        largest = value.intersect_params(sizes.params()).max_val()
        return int(largest.to_python()) if largest.is_int() else None

    def _affine(self, size: Size) -> tuple[isl.Set, isl.PwAff]:
        """The sizes in their ranges, and an affine size as a function of them."""
        names = {self.parameter(symbol(self, n)): self.ranges[n] for n in sorted(size.symbols())}
        space = set_space("", [], list(names))
        sizes = isl.Set.universe(space)
        for k, r in enumerate(names.values()):
            sizes = sizes.lower_bound_val(isl.dim_type.param, k, isl.Val(r.low))
            if r.high is not None:
                sizes = sizes.upper_bound_val(isl.dim_type.param, k, isl.Val(r.high))
        return sizes, to_pw_aff(size.expr, space)

    def require_equal(self, a: Extent, b: Extent, why: str) -> None:
        """Make `a == b` a guard unless it is known. Raises `GuardError` when the representative sizes break it."""
        gap = a - b
        if isinstance(gap, int) and gap == 0:
            return
        if isinstance(gap, int) or evaluate(gap, self.typical) != 0:
            raise GuardError(f"{why}: {a} and {b} differ")
        self._guard(gap, "=", self.where or why)

    def require_at_least(self, size: Extent, low: int, why: str) -> None:
        """Make `size >= low` a guard unless it is known. Raises `GuardError` as above."""
        if self.decide_negative(size - low):
            raise GuardError(f"{why}: {size} must be at least {low}")

    def _guard(self, size: Size, kind: str, reason: str) -> None:
        if self._narrowed(size, kind, reason):
            return
        guard = Guard(size, kind, reason)
        if guard not in self.guards:
            self.guards.append(guard)

    def _narrowed(self, size: Size, kind: str, reason: str) -> bool:
        """A guard on one symbol alone moves an end of its range."""
        terms = dict(size.terms)
        constant = terms.pop((), 0)
        if len(terms) != 1 or kind == "=":
            return False
        ((monomial, factor),) = terms.items()
        if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(monomial[0][0], str):
            return False
        name = monomial[0][0]
        r = self.ranges[name]
        if kind == "<":  # factor * s + constant < 0, as its negation's complement
            factor, constant = -factor, -constant - 1
        # factor * s + constant >= 0
        if factor > 0:
            r.low = max(r.low, -(constant // factor))
        else:
            end = constant // -factor
            r.high = end if r.high is None else min(r.high, end)
        self.reasons[name] = reason
        return True

    # ---- a run's values ----------------------------------------------------------------------

    def check(self, values: Mapping[str, int]) -> None:
        """Refuse sizes outside of the ranges or against a guard. Raises `ArgumentError`, one line."""
        for name, r in self.ranges.items():
            if values[name] < r.low or (r.high is not None and values[name] > r.high):
                why = f" ({self.reasons[name]})" if name in self.reasons else ""
                raise ArgumentError(
                    f"size {name} is {values[name]}, the model was compiled for {self.range_text(name)}{why}"
                )
        for g in self.guards:
            if not g.holds(values):
                given = ", ".join(f"{n} = {values[n]}" for n in sorted(g.size.symbols()))
                raise ArgumentError(f"the model was compiled for {g} ({g.reason}); given {given}")

    def range_text(self, name: str) -> str:
        """`1 <= batch <= 64`."""
        r = self.ranges[name]
        return f"{name} >= {r.low}" if r.high is None else f"{r.low} <= {name} <= {r.high}"

    def lines(self) -> list[str]:
        """The ranges and guards for people."""
        out = []
        for name, r in self.ranges.items():
            why = f" ({self.reasons[name]})" if name in self.reasons else ""
            out.append(f"size {self.range_text(name)}{why}, planned with {r.typical}")
        return out + [f"guard {g} ({g.reason})" for g in self.guards]
