"""How much a function of the loop IR does at most: iterations of its loops, and local arrays on the stack.

A nest of loops is a set of integer points, whose number is a formula in the sizes (`polyc.poly.closed_forms.counting`).
Where the bounds of a loop do not depend on others, the numbers of the loops are multiplied. Otherwise the points of the
whole nest are counted: triangles, tiles and their rests, what a condition on sizes leaves; where that is too hard, for
one iteration of the outer loops, and the formula is a sum over these. Data are taken not to end a loop or to skip it. A
loop whose ends are data runs at most as often as its subscripts are inside of arrays. Such a formula is marked as a
bound, as is one with the worst iteration of the loops around for all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import islpy as isl

from polyc.emit.loop_ir.data_loops import reaches
from polyc.emit.loop_ir.linear import operands
from polyc.emit.loop_ir.loops import Alloc, For, Function, If, Let, Stmt, walk
from polyc.poly.closed_forms.counting import count_or_bound
from polyc.poly.closed_forms.formula import Formula
from polyc.poly.closed_forms.operations import operations
from polyc.poly.closed_forms.pieces import CountingError
from polyc.poly.closed_forms.summed import Summed, count_in_sums
from polyc.poly.closed_forms.sums import Sum
from polyc.poly.expr import Binary, Const, Expr, Var, substitute, variables
from polyc.poly.forms.affine import NotAffine, set_space, to_pw_aff, to_set
from polyc.poly.records import dataclass
from polyc.poly.scop import ENDLESS, Scop

OPERATIONS = 2_000_000
"""isl operations for one nest of loops (a tenth of a second)."""
TERMS = 150
"""Of the formula of one nest, in all cases; what has more would fill pages."""
CASES = 3
"""So many times more may all cases have before equal ones are found."""
INSIDE = "data end the loop {}: at most as often as its subscripts are inside of arrays"
"""Why a loop has a bound."""


@dataclass(frozen=True, eq=False, slots=True)
class Work:
    """`iterations` of all loops together; bytes of local arrays on the `stack` at once. None: data decide how often a
    loop runs, and there is no bound; `why` says which. `inside`: the number is of a call whose subscripts are all
    inside of arrays, as those of one that returns without an error are."""

    iterations: Sum | None
    stack: int
    why: str = ""
    inside: bool = False


def work_of(fn: Function, context: isl.Set) -> Work:
    """What one call of a function of host code does at most. `context`: of its sizes, a set of parameters."""
    counter, stack = _Counter(context, fn), stack_bytes(fn.body)
    try:
        return Work(counter.total(), stack, inside=counter.inside)
    except CountingError as error:
        return Work(None, stack, str(error))


def context_of(scop: Scop) -> isl.Set:
    """The sizes that a Scop is for, as a set of parameters."""
    return scop.context.params() if scop.context.dim(isl.dim_type.set) else scop.context


def operations_of(scop: Scop) -> Formula | None:
    """Operations of floats that a program does, as its text has them; None where data decide how often."""
    if any(s.dynamic for s in scop.statements.values()):
        return None
    context = context_of(scop)
    total = Formula((), _names(context), context)
    try:
        for s in scop.statements.values():
            for amount, where, sure in operations(scop, s):
                part = count_or_bound(where, context) * amount
                total = total + (part if sure else part.bounded(f"in {s.name} data decide"))
    except CountingError:
        return None
    return total


def stack_bytes(s: Stmt) -> int:
    """The most bytes of local arrays of constant size that exist at once."""
    inside = max((stack_bytes(b) for b in s.bodies()), default=0)
    if not isinstance(s, Alloc) or not all(isinstance(e, Const) for e in s.buffer.shape):
        return inside
    count = 1
    for e in s.buffer.shape:
        assert isinstance(e, Const)
        count *= int(e.value)
    return inside + max(1, count) * s.buffer.dtype.bytes


def _names(context: isl.Set) -> tuple[str, ...]:
    return tuple(context.get_dim_name(isl.dim_type.param, k) for k in range(context.dim(isl.dim_type.param)))


@dataclass(frozen=True, eq=False, slots=True)
class _Place:
    """Where a statement stands: loops around it and their values, how often it runs, `Let`s, why that is a bound."""

    around: tuple[str, ...]
    where: isl.Set
    times: Formula | Summed
    lets: dict[str, Expr]
    why: str

    @property
    def known(self) -> bool:
        """Whether `where` has what really runs: without data."""
        return not self.why


class _Counter:
    """Counts loops, outermost first."""

    def __init__(self, context: isl.Set, fn: Function) -> None:
        self.context, self.names, self.fn = context, _names(context), fn
        self.buffers = {b.name: b for b in fn.buffers} | {s.buffer.name: s.buffer for s in walk(fn.body)
                                                          if isinstance(s, Alloc)}  # fmt: skip
        self.trips: dict[str, Formula] = {}
        self.counted: dict[str, Formula | Summed | None] = {}
        self.inside = False

    def total(self) -> Sum:
        """Of the whole function. Raises `CountingError`: the end of a loop depends on data, or is too hard."""
        universe = isl.Set.universe(set_space("", (), self.names)).intersect_params(self.context)
        once = Formula.constant(1, self.names, self.context)
        return self.sum(self.stmt(self.fn.body, _Place((), universe, once, {}, "")))

    def sum(self, found: list[Formula | Summed]) -> Sum:
        """Of all loops."""
        return Sum.of([Formula((), self.names, self.context), *found])

    def stmt(self, s: Stmt, at: _Place) -> list[Formula | Summed]:
        """The iterations of the loops in a statement, loop by loop."""
        if not any(isinstance(x, For) for x in walk(s)):
            return []
        if isinstance(s, For):
            return self.loop(s, at)
        if isinstance(s, If):
            return self.condition(s, at)
        lets = at.lets
        if isinstance(s, Let) and s.value.dtype.is_int and s.value.lanes == 1:
            lets = {**lets, s.name: substitute(s.value, lets)}
        inside = _Place(at.around, at.where, at.times, lets, at.why)
        return [part for body in s.bodies() for part in self.stmt(body, inside)]

    def loop(self, s: For, at: _Place) -> list[Formula | Summed]:
        """Those of a loop and of what is in it."""
        lo, hi = substitute(s.lo, at.lets), substitute(s.hi, at.lets)
        if isinstance(hi, Const) and hi.value == ENDLESS:
            return self.ended_by_data(s, at, lo, hi)
        depends = (variables(lo) | variables(hi)) & set(at.around)
        why = at.why or ("data may end a loop early" if s.until is not None else "")
        k, names = len(at.around), (*at.around, s.var)
        space = set_space("", names, self.names)
        grown = _in(at.where.insert_dims(isl.dim_type.set, k, 1), space)
        try:
            low, high = to_pw_aff(lo, space), to_pw_aff(hi, space)
        except NotAffine:
            return self.ended_by_data(s, at, lo, hi)
        done = to_pw_aff(Var(s.var), space).sub(low)
        grown = grown.intersect(low.le_set(low.add(done))).intersect(low.add(done).lt_set(high))
        if s.step > 1:
            grown = grown.intersect(done.mod_val(isl.Val(s.step)).eq_set(low.sub(low)))
        if depends and (own := self.points(_Place(names, grown, at.times, at.lets, why))) is not None:
            return [own, *self.stmt(s.body, _Place(names, grown, own, at.lets, why))]
        why = why or (f"the worst iteration of {', '.join(sorted(depends))} counts for all" if depends else "")
        values = isl.Map.from_pw_aff(done).intersect_domain(grown).range()
        most = values.dim_max_val(0)  # a number, if there is one for all sizes: the rest of a tile is at most a tile
        if most.is_int() and (why or (isinstance(lo, Const) and isinstance(hi, Const))):
            times = at.times * (int(most.to_python()) // s.step + 1 if not values.is_empty() else 0)
        else:
            key = str(values)
            if key not in self.trips:
                self.trips[key] = count_or_bound(values.coalesce(), self.context)
            times = at.times * self.trips[key]
        own = times.bounded(why) if why else times
        return [own, *self.stmt(s.body, _Place(names, grown, times, at.lets, why))]

    def ended_by_data(self, s: For, at: _Place, lo: Expr, hi: Expr) -> list[Formula | Summed]:
        """Of a loop whose ends data decide. Raises `CountingError`: it has no subscript that limits it."""
        names = (*at.around, s.var)
        space = set_space("", names, self.names)
        grown = _in(at.where.insert_dims(isl.dim_type.set, len(at.around), 1), space)
        known = reaches(s, self.buffers, at.lets)
        v = to_pw_aff(Var(s.var), space)
        for e in operands(lo, "max"):
            grown = _where(grown, e, space, lambda a: v.ge_set(a))
        for e in operands(hi, "min"):
            grown = _where(grown, e, space, lambda a: v.lt_set(a))
        for r in known:
            grown = _where(grown, r.index, space, lambda a: a.ge_set(a.sub(a)))
            grown = _where(grown, Binary("-", r.index, r.size, r.index.dtype), space, lambda a: a.lt_set(a.sub(a)))
        if grown.is_empty():
            return []
        line = set_space("", (s.var,), self.names)
        nth = to_pw_aff(Var(s.var), line)
        values = nth.ge_set(nth.sub(nth)).intersect_params(self.context)
        limits = 0
        for r in known:
            try:
                size = to_pw_aff(r.size, line)
            except NotAffine:
                continue
            values = values.intersect(nth.scale_val(isl.Val(abs(r.factor) * s.step)).lt_set(size))
            limits += 1
        if not limits:
            raise CountingError(f"data end the loop {s.var}, and no subscript limits it")
        self.inside = True
        why = at.why or INSIDE.format(s.var)
        times = at.times * count_or_bound(values.coalesce(), self.context)
        return [times.bounded(why), *self.stmt(s.body, _Place(names, grown, times, at.lets, why))]

    def points(self, at: _Place) -> Formula | Summed | None:
        """How often a place is reached, if that is known; as a sum over loops around it where it is hard to count."""
        if not at.known or set(at.around) & set(self.names):
            return None
        where = at.where.coalesce()
        for k, name in enumerate(at.around):
            where = where.set_dim_name(isl.dim_type.set, k, name)
        key = str(where)
        if key not in self.counted:
            closed = isinstance(at.times, Formula)  # a nest in one that has none has none, as a rule
            self.counted[key] = count_in_sums(where, self.context, OPERATIONS, TERMS, CASES, closed)
        return self.counted[key]

    def condition(self, s: If, at: _Place) -> list[Formula | Summed]:
        """Those of both sides."""
        space = set_space("", at.around, self.names)
        try:
            holds = to_set(substitute(s.cond, at.lets), space)
            sides = [at.where.intersect(holds), at.where.subtract(holds)]
        except NotAffine:
            sides, sure = [at.where, at.where], False
        else:
            sure = True
        bodies = [s.then] if s.orelse is None else [s.then, s.orelse]
        counts = [self.points(_Place(at.around, where, at.times, at.lets, at.why)) if sure else None for where in sides]
        found = []
        for body, where, count in zip(bodies, sides, counts, strict=False):
            times, why = (at.times, at.why or "as if all conditions held") if count is None else (count, at.why)
            found.append(self.stmt(body, _Place(at.around, where, times, at.lets, why)))
        if self.names or any(count is not None for count in counts):
            return [part for side in found for part in side]
        return max(found, key=lambda side: self.sum(side)())  # each time one of both runs


def _where(points: isl.Set, e: Expr, space: isl.Space, holds: Callable[[isl.PwAff], isl.Set]) -> isl.Set:
    """The points where something holds of an expression, all of them if it has data."""
    try:
        return points.intersect(holds(to_pw_aff(e, space)))
    except NotAffine:
        return points


def _in(s: isl.Set, space: isl.Space) -> isl.Set:
    s = s.align_params(space)
    for k in range(space.dim(isl.dim_type.set)):
        s = s.set_dim_name(isl.dim_type.set, k, space.get_dim_name(isl.dim_type.set, k))
    return s.set_tuple_name("")
