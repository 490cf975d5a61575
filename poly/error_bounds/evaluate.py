"""A Scop run on enclosures instead of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import islpy as isl
import numpy as np

from polyc.poly.cache import per_scop
from polyc.poly.dtypes import DType, f64
from polyc.poly.error_bounds import functions as fn
from polyc.poly.error_bounds.blocks import in_blocks
from polyc.poly.error_bounds.dominance import Dominance
from polyc.poly.error_bounds.enclosure import (
    Array,
    Enclosure,
    added,
    anything,
    compared,
    divided,
    larger,
    literal,
    multiplied,
    negated,
    point,
    selected,
    smaller,
    squared,
    tidy,
)
from polyc.poly.error_bounds.iterations import Grid, NotBounded, grid
from polyc.poly.error_bounds.order import Steps, Stepwise, Whole, steps_of
from polyc.poly.error_bounds.reductions import reduced
from polyc.poly.error_bounds.storage import Memory
from polyc.poly.expr import (
    COMPARISONS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    StraightLine,
    Temp,
    Unary,
    Var,
    loads,
)
from polyc.poly.scop import Array as ScopArray
from polyc.poly.scop import Scop, Statement

BLOCK = 1 << 20
"""Instances that are looked at at once."""
MOST_STEPS = 20_000
"""Statements that run one after the other, at most."""


def enclosed(scop: Scop, given: Mapping[str, Enclosure]) -> dict[str, Enclosure]:
    """The results of a Scop at fixed sizes, and its arrays that are updated in place.

    Args:
        given: of the arguments, in their shapes.

    Raises:
        NotBounded: the Scop does something that has no enclosure.
    """
    if scop.params:
        raise NotBounded(f"{scop.name} has sizes that are not known: {', '.join(scop.params)}")
    with np.errstate(all="ignore"):
        run = Run(scop, given)
        run.steps(_order(scop), {})
        wanted = [n for n, a in scop.arrays.items() if n in scop.results or a.kind == "inout"]
        return {n: run.memory.arrays[n] for n in wanted}


@per_scop
def _order(scop: Scop) -> Steps:
    return steps_of(scop)


class Run:
    """One Scop on given enclosures."""

    def __init__(self, scop: Scop, given: Mapping[str, Enclosure]) -> None:
        self.scop, self.memory, self.done = scop, Memory(), 0
        self.dominance = Dominance(scop)
        for name, array in scop.arrays.items():
            if name in given:
                self.memory.arrays[name] = given[name]
            else:
                self.memory.allocate(name, _shape(array))

    def steps(self, steps: Steps, where: Mapping[str, isl.Set]) -> None:
        """The order's steps, each statement on its instances in `where` (or all)."""
        for step in steps:
            if isinstance(step, Whole):
                s = self.scop.statements[step.statement]
                self.statement(s, where.get(s.name, s.domain))
            else:
                self.stepwise(step, where)

    def stepwise(self, step: Stepwise, where: Mapping[str, isl.Set]) -> None:
        """One iteration of a loop after the other."""
        domains = {s: where.get(s, self.scop.statements[s].domain) for s in step.times}
        times = {s: isl.Map.from_pw_aff(t).intersect_domain(domains[s]) for s, t in step.times.items()}
        ends = [m.range() for m in times.values() if not m.is_empty()]
        if not ends:
            return
        low = min(int(e.dim_min_val(0).to_python()) for e in ends)
        high = max(int(e.dim_max_val(0).to_python()) for e in ends)
        for t in range(low, high + 1):
            here = isl.Set(f"{{ [{t}] }}")
            inside = {s: m.intersect_range(here).domain() for s, m in times.items()}
            self.steps(step.steps, {**where, **inside})

    def statement(self, s: Statement, domain: isl.Set) -> None:
        """The instances of a statement in a domain. Raises `NotBounded`: data decide how many there are."""
        self.done += 1
        if self.done > MOST_STEPS:
            raise NotBounded(f"more than {MOST_STEPS} statements that wait for each other")
        if s.dynamic:
            raise NotBounded(f"the loop {s.dynamic[0].iter} has bounds that depend on data")
        points = grid(domain, s.iters)
        if points is None:
            return
        self.dominance.written(s)
        if s.reduction is not None and self.reduction(s, points, domain):
            return
        if points.size > BLOCK and max(points.extents) > 1:
            _, axis, at = points.halves()
            for part in (domain.upper_bound_val(isl.dim_type.set, axis, isl.Val(at - 1)),
                         domain.lower_bound_val(isl.dim_type.set, axis, isl.Val(at))):  # fmt: skip
                self.statement(s, part)
            return
        value = self.value(s.value, points, {}, s)
        if s.predicate is not None:
            value = selected(self.value(s.predicate, points, {}, s), value, self.value(s.target, points, {}, s))
        if any(True for e in s.index for _ in loads(e)):
            self.scattered(s, points, value)
        else:
            self.memory.write(s.array, s.index, points, value)
        self.dominance.after(s, domain)

    def reduction(self, s: Statement, points: Grid, domain: isl.Set) -> bool:
        """Run a reduction, block by block where its elements are found so; whether it was one."""
        blocks = in_blocks(s, domain)
        if blocks is None:
            return reduced(self, s, points, domain)
        inside = grid(blocks[1], blocks[0].iters)
        assert inside is not None
        return reduced(self, blocks[0], inside, blocks[1])

    def scattered(self, s: Statement, points: Grid, value: Enclosure) -> None:
        """A store at subscripts that data decide: any element may have it, or what was there."""
        old = self.memory.arrays[s.array]
        axes = tuple(range(np.ndim(value.lo)))
        lo, hi = np.minimum(old.lo, value.lo.min(axes)), np.maximum(old.hi, value.hi.max(axes))
        clo, chi = np.minimum(old.clo, value.clo.min(axes)), np.maximum(old.chi, value.chi.max(axes))
        where = [self.value(e, points, {}, s) for e in s.index]
        err = np.maximum(old.err, value.err.max(axes))
        if not all(w.same for w in where):
            err = np.maximum(err, np.maximum(chi - lo, hi - clo))
        self.memory.arrays[s.array] = tidy(lo, hi, clo, chi, err, old.why or value.why)

    # ---- expressions -----------------------------------------------------------------------------

    def value(self, e: Expr, points: Grid, temps: Mapping[str, Enclosure], s: Statement) -> Enclosure:
        """An expression at all instances; the arrays have one element along axes that it does not depend on.

        Raises:
            NotBounded: it has an operation without an enclosure.
        """
        match e:
            case Const():
                return _ranked(literal(float(e.value), e.dtype), points)
            case Var():
                return point(points.values[e.name])
            case Temp():
                return temps[e.name]
            case StraightLine():
                known = dict(temps)
                for name, part in zip(e.names, e.values, strict=True):
                    known[name] = self.value(part, points, known, s)
                return self.value(e.result, points, known, s)
            case Load():
                return self.load(e, points, temps, s)
            case Cast():
                return fn.converted(self.value(e.a, points, temps, s), e.a.dtype, e.dtype)
            case Select():
                return self.select(e, points, temps, s)
            case Unary():
                return self.unary(e, self.value(e.a, points, temps, s))
            case Call():
                return self.call(e, [self.value(a, points, temps, s) for a in e.args])
            case Binary():
                return self.binary(e, points, temps, s)
        raise NotBounded(f"an expression of kind {type(e).__name__}")

    def load(self, e: Load, points: Grid, temps: Mapping[str, Enclosure], s: Statement) -> Enclosure:
        """Elements of an array; of an element that data decide, all those that it may be."""
        if not any(True for i in e.index for _ in loads(i)):
            return self.memory.read(e.array, e.index, points)
        found = self.memory.arrays[e.array]
        places: list[Array] = []
        same = True
        for axis, i in enumerate(e.index):
            n = np.shape(found.lo)[axis]
            if not any(True for _ in loads(i)):
                places.append(np.clip(points.integers(i), 0, n - 1))
                continue
            at = self.value(i, points, temps, s)
            if at.known and np.isfinite(at.lo).all():
                places.append(np.clip(at.lo, 0, n - 1).astype(np.int64))
                continue
            first = int(np.clip(np.nan_to_num(min(at.lo.min(), at.clo.min()), nan=0), 0, n - 1))
            last = int(np.clip(np.nan_to_num(max(at.hi.max(), at.chi.max()), nan=n - 1), 0, n - 1))
            same = same and at.same
            found = _any_along(found, axis, first, last)
            places.append(np.zeros((1,) * len(points.iters), np.int64))
        spots = tuple(places)
        found = found.each(lambda a: a[spots])
        if same:
            return found
        apart = np.maximum(found.chi - found.lo, found.hi - found.clo)
        return tidy(found.lo, found.hi, found.clo, found.chi, np.maximum(found.err, apart), found.why)

    def select(self, e: Select, points: Grid, temps: Mapping[str, Enclosure], s: Statement) -> Enclosure:
        """A choice. Where rounding may decide a comparison with a number, the arms are near each other if they are so
        around that number: they are looked at there alone."""
        cond = self.value(e.cond, points, temps, s)
        a, b = self.value(e.a, points, temps, s), self.value(e.b, points, temps, s)
        made = selected(cond, a, b)
        if not (np.any(cond.err > 0) and isinstance(e.cond, Binary) and isinstance(e.cond.a, Load | Temp)):
            return made
        x, limit = self.value(e.cond.a, points, temps, s), self.value(e.cond.b, points, temps, s)
        if not limit.known or e.cond.op not in COMPARISONS or isinstance(e.cond.a, Temp):
            return made
        near = tidy(np.maximum(x.lo, limit.lo - x.err), np.minimum(x.hi, limit.lo + x.err),
                    np.maximum(x.clo, limit.lo - x.err), np.minimum(x.chi, limit.lo + x.err), x.err, x.why)  # fmt: skip
        marked = Temp("@near", e.cond.a.dtype)
        inside = {**temps, "@near": near}
        arms = [self.value(_replaced(arm, e.cond.a, marked), points, inside, s) for arm in (e.a, e.b)]
        p, q = arms
        across = np.maximum(np.maximum(p.chi - q.lo, q.hi - p.clo), np.maximum(q.chi - p.lo, p.hi - q.clo))
        err = np.where(cond.err > 0, np.maximum(np.maximum(a.err, b.err), across), made.err)
        return tidy(made.lo, made.hi, made.clo, made.chi, np.fmin(err, made.err), made.why)

    def unary(self, e: Unary, a: Enclosure) -> Enclosure:
        """A sign, a negation."""
        if e.op == "neg":
            return negated(a) if e.dtype.is_float else fn.fitting(negated(a), e.dtype)
        if e.op == "not":
            return Enclosure(1 - a.hi, 1 - a.lo, 1 - a.chi, 1 - a.clo, a.err, a.why)
        return self.exactly(e.op, [a], e.dtype, lambda x: np.invert(x))

    def call(self, e: Call, args: list[Enclosure]) -> Enclosure:
        """A function. Raises `NotBounded`: it has no enclosure."""
        if e.fn in ("isnan", "isinf"):
            sure = np.isfinite(args[0].err) & np.isfinite(args[0].magnitude)
            return Enclosure(
                np.zeros(sure.shape), np.where(sure, 0.0, 1.0), np.zeros(sure.shape), np.where(sure, 0.0, 1.0),
                np.where(sure, 0.0, 1.0), args[0].why,
            )  # fmt: skip
        if e.fn == "position":
            return smaller(larger(args[0], point(0.0)), added_integers(args[1], point(-1.0)))
        if e.fn == "fma":
            product = multiplied(args[0], args[1], f64)
            return added(product, args[2], e.dtype)
        if e.fn == "pow" and args[1].known and np.size(args[1].lo) == 1:
            power = float(args[1].lo.reshape(-1)[0])
            if power in (2.0, 0.5, 1.0):
                made = {2.0: lambda: squared(args[0], e.dtype), 1.0: lambda: args[0],
                        0.5: lambda: fn.applied("sqrt", args[0], e.dtype)}[power]()  # fmt: skip
                assert made is not None
                return _looser(made, e.dtype, 4.0) if power != 1.0 else made
        if e.dtype.is_float and len(args) == 1:
            made = fn.applied(e.fn, args[0], e.dtype)
            if made is not None:
                return made
        if e.fn == "abs":
            return fn.fitting(fn.absolute(args[0]), e.dtype)
        raise NotBounded(f"the function {e.fn}")

    def binary(self, e: Binary, points: Grid, temps: Mapping[str, Enclosure], s: Statement) -> Enclosure:
        """An operation of two operands. Raises `NotBounded`: it has no enclosure."""
        a, b = self.value(e.a, points, temps, s), self.value(e.b, points, temps, s)
        if e.op in COMPARISONS:
            return compared(e.op, a, b)
        if e.op in ("and", "or"):
            return smaller(a, b) if e.op == "and" else larger(a, b)
        if e.op in ("min", "max"):
            return smaller(a, b) if e.op == "min" else larger(a, b)
        if not e.dtype.is_float:
            return self.integer(e, a, b)
        if e.op == "+":
            return added(a, b, e.dtype)
        if e.op == "-":
            if e.a == e.b and np.isfinite(a.magnitude).all() and np.isfinite(a.err).all():
                return point(np.zeros((1,) * len(points.iters)))
            made = added(a, negated(b), e.dtype)
            if self.dominance.holds(e, s):
                return tidy(made.lo, np.minimum(made.hi, 0.0), made.clo, np.minimum(made.chi, 0.0), made.err, made.why)
            return made
        if e.op == "*":
            return squared(a, e.dtype) if e.a == e.b else multiplied(a, b, e.dtype)
        if e.op == "/":
            return divided(a, b, e.dtype)
        if e.op == "**" and isinstance(e.b, Const):
            return self.call(Call("pow", (e.a, e.b), e.dtype), [a, b])
        raise NotBounded(f"the operation {e.op} of {e.dtype}")

    def integer(self, e: Binary, a: Enclosure, b: Enclosure) -> Enclosure:
        """Integers are exact as long as they are in range. Raises `NotBounded`: it has no enclosure."""
        if e.op == "+":
            return fn.fitting(added_integers(a, b), e.dtype)
        if e.op == "-":
            return fn.fitting(added_integers(a, negated(b)), e.dtype)
        if e.op == "*":
            made = multiplied(a, b, f64)
            err = np.where((a.err == 0) & (b.err == 0), 0.0, made.err)
            return fn.fitting(tidy(made.lo, made.hi, made.clo, made.chi, err, made.why), e.dtype)
        if e.op == "//" and b.known and np.all(b.lo > 0):
            return fn.stepped(np.floor, divided(a, b, f64)) if not a.same else _floor_divided(a, b)
        operations: Mapping[str, Any] = {
            "//": np.floor_divide, "%": np.mod, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
            "<<": np.left_shift, ">>": np.right_shift,
        }  # fmt: skip
        if e.op in operations:
            return self.exactly(e.op, [a, b], e.dtype, operations[e.op])
        raise NotBounded(f"the operation {e.op} of {e.dtype}")

    def exactly(self, op: str, args: list[Enclosure], dtype: DType, compute: Any) -> Enclosure:
        """An operation of integers: computed where they are known, any number of the type where they are exact."""
        if all(a.known and np.all(np.abs(a.lo) < 2.0**53) for a in args):
            kind = np.bool_ if dtype.kind == "bool" else dtype.np
            return point(compute(*(a.lo.astype(kind) for a in args)).astype(np.float64))
        shape = np.broadcast_shapes(*(np.shape(a.lo) for a in args))
        if dtype.kind == "bool":
            low, high = 0.0, 1.0
        elif dtype.kind == "int":
            low, high = -(2.0 ** (dtype.bits - 1)), 2.0 ** (dtype.bits - 1)
        else:
            low, high = 0.0, 2.0**dtype.bits
        exact = all(a.same for a in args)
        ends = [np.broadcast_to(v, shape) for v in (low, high)]
        err = np.broadcast_to(0.0 if exact else high - low, shape)
        return Enclosure(ends[0], ends[1], ends[0], ends[1], err, next((a.why for a in args if a.why), ""))


def _shape(array: ScopArray) -> tuple[int, ...]:
    return tuple(int(e.value) if isinstance(e, Const) else _unknown(array.name) for e in array.shape)


def _unknown(name: str) -> int:
    raise NotBounded(f"the size of {name} is not known")


def added_integers(a: Enclosure, b: Enclosure) -> Enclosure:
    """`a + b` without rounding, in range of f64."""
    err = a.err + b.err
    return tidy(a.lo + b.lo, a.hi + b.hi, a.clo + b.clo, a.chi + b.chi, err, a.why or b.why)


def _floor_divided(a: Enclosure, b: Enclosure) -> Enclosure:
    ends = [np.floor_divide(x, b.lo) for x in (a.lo, a.hi, a.clo, a.chi)]
    return Enclosure(ends[0], ends[1], ends[2], ends[3], np.broadcast_to(0.0, np.shape(ends[0])), a.why)


def _looser(a: Enclosure, dtype: DType, ulps: float) -> Enclosure:
    from polyc.poly.error_bounds.enclosure import rounded

    return rounded(a.lo, a.hi, a.clo, a.chi, a.err, dtype, a.why, ulps)


def _ranked(a: Enclosure, points: Grid) -> Enclosure:
    return a.each(lambda x: np.asarray(x).reshape((1,) * len(points.iters)))


def _replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    from polyc.poly.expr import rewrite

    return rewrite(e, lambda x: new if x == old else x)


def _any_along(a: Enclosure, axis: int, first: int, last: int) -> Enclosure:
    """Any of the elements between two places of an axis, which has one element then."""
    part = a.each(lambda x: x.take(range(first, last + 1), axis))
    if not math.prod(np.shape(part.lo)):
        return anything(np.shape(part.lo), "no element")

    def least(x: Array) -> Array:
        return np.asarray(x.min(axis, keepdims=True))

    def most(x: Array) -> Array:
        return np.asarray(x.max(axis, keepdims=True))

    return Enclosure(least(part.lo), most(part.hi), least(part.clo), most(part.chi), most(part.err), a.why)
