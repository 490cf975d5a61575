"""A quick test that is enough: with the largest elements of the index arrays, can any subscript be outside?

Elements are compared as unsigned numbers, so that a negative one is among the largest and the test fails; one sweep at
the speed of memory per array. Elements that no instance reads count, too: a failed test means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import islpy as isl

from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, ForKind, If, Stmt, Store
from polyc.poly.certificates import Site, all_of, negated, type_range
from polyc.poly.dtypes import BY_NAME, DType, bool_, i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Select, Var, const_int
from polyc.poly.records import dataclass
from polyc.poly.scop import Array, DynamicBound

LIMIT = (1 << 31) - 1  # sums and multiples of numbers up to here stay within 64 bits
Bounds = tuple[Expr, Expr]


class Unknown(Exception):
    """No bounds are known (internal signal)."""


@dataclass
class Largest:
    """Collects the test for several sites. `arrays` are those of the Scop, `record` is a prefix for names."""

    arrays: Mapping[str, Array]
    record: str
    used: dict[str, Array] = field(default_factory=dict)
    conditions: list[Expr] = field(default_factory=list)

    def add(self, site: Site, dynamic: Sequence[DynamicBound], domain: isl.Set) -> bool:
        """Whether the test can tell that the site holds; if so it does from now on."""
        trial = Largest(self.arrays, self.record, dict(self.used), list(self.conditions))
        try:
            lo, hi = trial.bounds(site.index, {b.iter: b for b in dynamic}, domain)
        except Unknown:
            return False
        trial.conditions += [_at_least(lo, const_int(0)), Binary("<", hi, site.size, bool_)]
        self.used, self.conditions = trial.used, trial.conditions
        return True

    def bounds(self, e: Expr, dynamic: Mapping[str, DynamicBound], domain: isl.Set) -> Bounds:
        """Least and greatest value, as i64."""
        if isinstance(e, Const) and e.dtype.is_int and abs(int(e.value)) <= LIMIT:
            return const_int(int(e.value)), const_int(int(e.value))
        if isinstance(e, Var) and e.name in dynamic:
            loop = dynamic[e.name]
            lo, hi = self.bounds(loop.lo, dynamic, domain)[0], self.bounds(loop.hi, dynamic, domain)[1]
            return lo, Binary("-", hi, const_int(1), i64)
        if isinstance(e, Var):
            return self.static(e.name, domain)
        if isinstance(e, Load) and e.dtype.is_int:
            self.used[e.array] = self.arrays[e.array]
            top = Cast(Load(self.name(e.array), (const_int(0),), unsigned(e.dtype)), i64)
            if e.dtype.bits == 64:
                self.conditions.append(_at_least(top, const_int(0)))
            if e.dtype.kind == "int" or e.dtype.bits >= 32:
                self.conditions.append(Binary("<=", top, const_int(self.limit(e.dtype)), bool_))
            return const_int(0), top
        if isinstance(e, Cast) and e.dtype.is_int and e.a.dtype.is_int:
            return self.fitting(self.bounds(e.a, dynamic, domain), e.dtype)
        if isinstance(e, Select):
            (a, b), (c, d) = self.bounds(e.a, dynamic, domain), self.bounds(e.b, dynamic, domain)
            return Binary("min", a, c, i64), Binary("max", b, d, i64)
        if isinstance(e, Binary) and e.op in ("+", "-", "*"):
            (a, b), (c, d) = self.bounds(e.a, dynamic, domain), self.bounds(e.b, dynamic, domain)
            if e.op == "+":
                return self.fitting((Binary("+", a, c, i64), Binary("+", b, d, i64)), e.dtype)
            if e.op == "-":
                return self.fitting((Binary("-", a, d, i64), Binary("-", b, c, i64)), e.dtype)
            factor = e.b if isinstance(e.b, Const) else e.a
            ends = (a, b) if isinstance(e.b, Const) else (c, d)
            if isinstance(factor, Const):
                scaled = [Binary("*", x, const_int(int(factor.value)), i64) for x in ends]
                pair = (scaled[0], scaled[1]) if int(factor.value) >= 0 else (scaled[1], scaled[0])
                return self.fitting(pair, e.dtype)
        raise Unknown

    def static(self, name: str, domain: isl.Set) -> Bounds:
        """Least and greatest value of an iterator over the statement's domain.

        Raises:
            Unknown: the sizes decide, or it may be larger than `LIMIT`.
        """
        dim = domain.find_dim_by_name(isl.dim_type.set, name)
        if dim < 0 or domain.is_empty():
            raise Unknown
        low, high = domain.dim_min_val(dim), domain.dim_max_val(dim)
        if not (low.is_int() and high.is_int()) or max(abs(low.to_python()), abs(high.to_python())) > LIMIT:
            raise Unknown
        return const_int(low.to_python()), const_int(high.to_python())

    def fitting(self, bounds: Bounds, dtype: DType) -> Bounds:
        """The bounds; they are those of the expression where it does not wrap, and stay small enough to go on with."""
        low, high = type_range(dtype)
        assert low is not None and high is not None
        self.conditions.append(_at_least(bounds[0], const_int(max(low, -LIMIT))))
        self.conditions.append(Binary("<=", bounds[1], const_int(min(high, LIMIT)), bool_))
        return bounds

    def limit(self, dtype: DType) -> int:
        """The greatest number of an integer type, `LIMIT` at most."""
        high = type_range(dtype)[1]
        assert high is not None
        return min(high, LIMIT)

    def name(self, array: str) -> str:
        """The buffer for the largest element."""
        return f"{self.record}_{array}_largest"

    def around(self, checks: Stmt) -> Stmt:
        """`checks` where the test does not tell that they hold."""
        out: Stmt = Block((*map(self.sweep, self.used.values()), If(negated(all_of(*self.conditions)), checks)))
        for a in self.used.values():
            out = Alloc(Buffer(self.name(a.name), unsigned(a.dtype), (const_int(1),), "register"), out)
        return out

    def sweep(self, a: Array) -> Stmt:
        """The largest element of an array."""
        place, wide = (const_int(0),), unsigned(a.dtype)
        variables = [f"{self.name(a.name)}_{d}" for d in range(len(a.shape))]
        element = Load(a.name, tuple(Var(v) for v in variables), a.dtype)
        value = Binary("max", Load(self.name(a.name), place, wide), Cast(element, wide), wide)
        out: Stmt = Store(self.name(a.name), place, value, reduction="max")
        for d, (v, n) in reversed(list(enumerate(zip(variables, a.shape)))):
            kind: ForKind = "vector" if d == len(variables) - 1 else "serial"
            out = For(v, const_int(0), n, 1, out, kind, None, v)
        return Block((Store(self.name(a.name), place, Const(0, wide)), out))


def unsigned(dtype: DType) -> DType:
    """The unsigned type of as many bits."""
    return BY_NAME[f"u{dtype.bits}"]


def _at_least(e: Expr, low: Expr) -> Expr:
    return Binary(">=", e, low, bool_)
