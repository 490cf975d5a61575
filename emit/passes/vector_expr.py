"""Scalar expressions of a loop body as vectors over consecutive iterations.

Lane l of the vector stands for iteration `base + l * step` of the vector variable. What does
not depend on it stays scalar and enters vectors through `Broadcast`. `Select`, `and` and `or`
stay lazy: loads under them are masked by their conditions.

What has no vector form is a `Cannot`, with the reason that the report gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from polyc.emit.loop_ir.linear import is_index, linear, nonnegative, rebuild, variables
from polyc.emit.loop_ir.loops import Broadcast, Buffer, Ramp, VLoad
from polyc.poly.dtypes import DType, bool_, i64
from polyc.poly.expr import Binary, Const, Expr, Load, Select, Unary, Var, const_int, loads, substitute
from polyc.poly.records import dataclass, replace


class Cannot(Exception):
    """Why a loop is not vectorised (internal signal, becomes a note)."""


@dataclass(frozen=True)
class Lanes:
    """The vector variable in one chunk, and what is known around it.

    `wide` are Let names that hold vectors, `expanded` buffers with one copy per lane (their last
    subscript is the lane), `tail` the mask of a partial chunk, `guard` the vector condition under
    which the code runs and `scalar_guard` the scalar one of an enclosing Select.
    """

    var: str
    base: Expr
    step: int
    count: int
    buffers: Mapping[str, Buffer]
    bounds: Mapping[str, tuple[Expr, Expr]]
    wide: frozenset[str] = frozenset()
    expanded: frozenset[str] = frozenset()
    tail: Expr | None = None
    guard: Expr | None = None
    scalar_guard: Expr | None = None
    aligned: bool = field(default=False)  # base is a multiple of `count` and step is 1
    doubted: set[str] = field(default_factory=set)  # variables on which it depends what is inside its array

    # ---- what depends on the vector variable -----------------------------------------------

    def varies(self, e: Expr) -> bool:
        """Whether the value differs between lanes."""
        if isinstance(e, Var):
            return e.name == self.var or e.name in self.wide
        if isinstance(e, Load) and e.array in self.expanded:
            return True
        return any(self.varies(c) for c in e.children())

    def mask(self) -> Expr | None:
        """The lanes that may touch memory."""
        masks = [m for m in (self.tail, self.guard) if m is not None]
        if self.scalar_guard is not None:
            masks.append(Broadcast(self.scalar_guard, self.count, bool_))
        return _all(masks)

    def under(self, cond: Expr) -> Lanes:
        """The same place, under one more condition (scalar or vector)."""
        if cond.lanes > 1:
            return replace(self, guard=_all([m for m in (self.guard, cond) if m is not None]))
        return replace(self, scalar_guard=_all([m for m in (self.scalar_guard, cond) if m is not None]))

    # ---- expressions -----------------------------------------------------------------------

    def wide_expr(self, e: Expr) -> Expr:
        """`e` as a vector."""
        return self.splat(self.expr(e))

    def splat(self, e: Expr) -> Expr:
        """A scalar in every lane; a vector as it is."""
        return e if e.lanes > 1 else Broadcast(e, self.count, e.dtype)

    def expr(self, e: Expr) -> Expr:
        """`e`: scalar if it is the same in all lanes, else a vector."""
        if not self.varies(e):
            return self.invariant(e)
        if isinstance(e, Var):
            if e.name in self.wide:
                return Var(e.name, e.dtype, self.count)
            return Ramp(self.base, self.step, self.count, i64)
        if isinstance(e, Load):
            return self.load(e)
        if e.dtype == i64 and is_index(e):
            ramp = self.ramp(e)
            if ramp is not None:
                return ramp
        if isinstance(e, Select):
            return self.select(e)
        if isinstance(e, Binary):
            return self.binary(e)
        return e.with_children(tuple(self.wide_expr(c) for c in e.children()))

    def invariant(self, e: Expr) -> Expr:
        """A value that is the same in all lanes, its loads kept lazy under the conditions around it."""
        reads = list(loads(e))
        if self.guard is not None and not all(self.in_bounds(x) for x in reads):
            # no lane may run: each load must be masked like any other
            if isinstance(e, Load):
                index = tuple(self.invariant(i) for i in e.index)
                if all(i.lanes == 1 for i in index):
                    index = (*index[:-1], self.splat(index[-1]))
                return VLoad(e.array, one_varies(e.array, index), self.mask(), self.count, e.dtype)
            if isinstance(e, Select):
                return self.select(e)
            if isinstance(e, Binary):
                return self.binary(e)
            return e.with_children(tuple(self.wide_expr(c) for c in e.children()))
        if self.scalar_guard is not None and reads:
            return Select(self.scalar_guard, e, Const(False if e.dtype == bool_ else 0, e.dtype), e.dtype)
        return e

    def in_bounds(self, load: Load) -> bool:
        """Whether the subscripts are inside the buffer wherever the loops around run."""
        shape = self.buffers[load.array].shape
        return all(is_index(e) and self.between(e, n) for e, n in zip(load.index, shape))

    def between(self, e: Expr, n: Expr) -> bool:
        """Whether `0 <= e < n` wherever the loops around run."""
        if isinstance(e, Const) and isinstance(n, Const):
            return bool(0 <= e.value < n.value)
        above = (linear(n) - linear(e)).shift(-1)
        inside = nonnegative(linear(e), self.bounds) and nonnegative(above, self.bounds)
        if not inside:
            self.doubted.update(variables(e))
        return inside

    def ramp(self, e: Expr) -> Expr | None:
        """An index expression that is linear in the vector variable, or constant in the chunk."""
        form = linear(e)
        slope = form.coefficient(Var(self.var))
        rest = [a for a, _ in form.terms if a != Var(self.var) and self.varies(a)]
        if not rest:
            base = substitute(rebuild(form), {self.var: self.base})
            return Ramp(rebuild(linear(base)), slope * self.step, self.count, i64)
        if len(rest) == 1 and slope == 0:
            part = self.aligned_division(rest[0])
            if part is not None:
                others = replace(form, terms=tuple((a, c) for a, c in form.terms if a != rest[0]))
                factor = form.coefficient(rest[0])
                scalar = rebuild(linear(rebuild(others)) + linear(part[0]).scale(factor))
                return scalar if part[1] == 0 else Ramp(scalar, part[1] * factor, self.count, i64)
        return None

    def aligned_division(self, e: Expr) -> tuple[Expr, int] | None:
        """`x // d` and `x % d` of a chunk within one block of `d`: the value in lane 0 and the slope."""
        if not isinstance(e, Binary) or e.op not in ("//", "%") or not isinstance(e.b, Const):
            return None
        form, divisor = linear(e.a), int(e.b.value)
        if form.coefficient(Var(self.var)) * self.step != 1 or divisor <= 0:
            return None
        if any(self.varies(a) for a, _ in form.terms if a != Var(self.var)):
            return None
        whole = all(c % self.count == 0 for a, c in form.terms if a != Var(self.var)) and form.const % self.count == 0
        start = linear(substitute(e.a, {self.var: self.base}))
        known = not start.terms and start.const % divisor + self.count <= divisor
        if not known and not (self.aligned and whole and divisor % self.count == 0):
            return None
        first = substitute(e, {self.var: self.base})
        return first, 0 if e.op == "//" else 1

    def select(self, e: Select) -> Expr:
        """Each arm under its side of the condition: lanes of the other side load nothing and divide by nothing."""
        cond = self.expr(e.cond)
        other = negated(cond)
        a, b = self.under(cond).wide_expr(e.a), self.under(other).wide_expr(e.b)
        return Select(self.splat(cond), a, b, e.dtype)

    def binary(self, e: Binary) -> Expr:
        """Both operands, of `and` and `or` the second under the first; lanes that do not run divide by 1."""
        a = self.expr(e.a)
        if e.op in ("and", "or"):
            b = self.under(a if e.op == "and" else negated(a)).wide_expr(e.b)
            return Binary(e.op, self.splat(a), b, bool_)
        b = self.expr(e.b)
        if e.op in ("//", "%") and e.dtype.is_int and not isinstance(e.b, Const):
            mask = self.mask()
            if mask is not None:  # a lane that does not run must not divide by zero
                b = Select(mask, self.splat(b), Broadcast(Const(1, e.dtype), self.count, e.dtype), e.dtype)
        return Binary(e.op, self.splat(a), self.splat(b), e.dtype)

    # ---- accesses --------------------------------------------------------------------------

    def subscripts(self, array: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Vector subscripts; at most one varies."""
        out = tuple(self.expr(e) for e in index)
        wide = sum(e.lanes > 1 for e in out)
        if array in self.expanded:
            if wide:
                raise Cannot(f"'{array}' has a copy per lane and a subscript that varies")
            return (*out, Ramp(const_int(0), 1, self.count, i64))
        return one_varies(array, out)

    def load(self, e: Load) -> Expr:
        """A scalar load where no subscript varies, else a vector load, masked unless it stays inside the buffer."""
        index = self.subscripts(e.array, e.index)
        if all(i.lanes == 1 for i in index):
            return Load(e.array, index, e.dtype, e.span)
        mask = None if self.always_inside(e.array, index) else self.mask()
        return VLoad(e.array, index, mask, self.count, e.dtype)

    def always_inside(self, array: str, index: tuple[Expr, ...]) -> bool:
        """Whether a whole vector is inside the buffer, masked lanes too."""
        if array in self.expanded:
            return True
        buffer = self.buffers[array]
        for e, n in zip(index, buffer.shape):
            ends = [e]
            if isinstance(e, Ramp):
                ends = [e.base, rebuild(linear(e.base).shift(e.stride * (e.count - 1)))]
            if not all(is_index(end) and self.between(end, n) for end in ends):
                return False
        return True


def one_varies(array: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The subscripts, if a vector access can have them."""
    if sum(e.lanes > 1 for e in index) > 1:
        raise Cannot(f"two subscripts of '{array}' vary")
    return index


def negated(cond: Expr) -> Expr:
    """The opposite of a scalar or vector condition."""
    if isinstance(cond, Unary) and cond.op == "not":
        return cond.a
    return Unary("not", cond, bool_)


def _all(masks: list[Expr]) -> Expr | None:
    if not masks:
        return None
    out = masks[0]
    for m in masks[1:]:
        out = Binary("and", out, m, bool_)
    return out


def widest(dtypes: list[DType]) -> int:
    """Bits of the widest type."""
    return max((d.bits for d in dtypes), default=32)
