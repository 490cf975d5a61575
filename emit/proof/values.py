"""Does each store compute its statement's value, from the statement's elements?

The statement's expression with its iterators replaced is compared with the expression of the
loops, node by node. Index and boolean subexpressions may differ in form: then isl decides
whether they agree wherever the store runs. What neither shows may still be what `simplify_expr`
makes of the statement's expression, which is trusted here. Accesses of promoted buffers are collected: which
element each cell stands for is the subject of `buffers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import copysign, isnan

import islpy as isl

from polyc.emit.loop_ir.linear import difference, is_index
from polyc.emit.loop_ir.loops import Function, Store
from polyc.emit.passes.simplify import simplify_expr
from polyc.emit.proof.polynomials import Polynomials
from polyc.emit.proof.read_back import Lifetime, Place, WrongLoops, resolved
from polyc.poly.access import guard
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, StraightLine, Temp, Unary, Var, walk
from polyc.poly.forms.affine import NotAffine, is_affine, to_pw_aff, to_set
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement


@dataclass(frozen=True, eq=False)
class Use:
    """A statement's access of `array[element]` at `cell` of a promoted buffer (None: of the
    array itself), on the points `where`. Both subscripts are over the loop variables."""

    place: Place
    life: Lifetime | None
    array: str
    element: tuple[Expr, ...]
    cell: tuple[Expr, ...]
    where: isl.Set
    write: bool


@dataclass(frozen=True, eq=False)
class Executed:
    """A place that runs instances of a statement: `instance` `{ [loop variables] -> S[iterators] }`.

    `certain`: the store is performed at all points of the place.
    """

    place: Place
    stmt: Statement
    instance: isl.PwMultiAff
    uses: tuple[Use, ...]
    certain: bool

    @cached_property
    def relation(self) -> isl.Map:
        """`instance` at the points of the place, as one basic map where it is one.

        isl gives iterators of loops with a single iteration in cases that differ in the corners of the domain only:
        nine cases and 55 basic maps of a skewed wavefront in a narrow band, whose conflicts took 9 s.
        """
        here = isl.Map.from_pw_multi_aff(self.instance).intersect_domain(self.place.points)
        if self.instance.n_piece() == 1:
            return here
        here = here.coalesce()
        whole = isl.Map.from_basic_map(here.simple_hull())
        return whole if whole.is_equal(here) else here


def executed(scop: Scop, fn: Function, place: Place) -> Executed:
    """Match the store of `place` with the statement that it claims to be.

    Raises:
        WrongLoops: the value, an element, the condition or the reduction mark differs.
    """
    store = place.store
    assert store.instance is not None
    name, numbers = store.instance
    stmt = scop.statements.get(name)
    if stmt is None or len(numbers) != len(stmt.iters):
        raise WrongLoops("values", f"{fn.name}: a store claims to be {name}[{len(numbers)} iterators]")
    values = dict(zip(stmt.iters, numbers, strict=True))
    place, condition, match = _conditioned(stmt, values, place, fn)
    where = place.points if condition is None else guard(condition, True, place.points, place.space)[0]
    wanted = Load(stmt.array, tuple(resolved(values, e) for e in stmt.index), stmt.value.dtype)
    given = Load(store.array, store.index, store.value.dtype)
    if not match.load(wanted, given, where, write=True):
        raise _differs(fn, stmt, "writes another element")
    if not match.same(resolved(values, stmt.value), store.value, where):
        raise _differs(fn, stmt, "computes another value")
    if store.reduction not in (None, stmt.reduction) or store.mask is not None:
        raise _differs(fn, stmt, f"is marked a '{store.reduction}' reduction")
    try:
        instance = place.function(numbers, name)
    except NotAffine as e:
        raise WrongLoops("domain", f"{fn.name}: the loops around {name} are not affine ({e})") from None
    certain = condition is None and not place.opaque and not stmt.dynamic
    return Executed(place, stmt, instance, tuple(match.uses), certain)


def _differs(fn: Function, stmt: Statement, what: str) -> WrongLoops:
    where = f" [{stmt.span}]" if stmt.span is not None else ""
    return WrongLoops("values", f"{fn.name}: a store that stands for {stmt.name} {what}{where}")


def _conditioned(
    stmt: Statement, values: Mapping[str, Expr], place: Place, fn: Function
) -> tuple[Place, Expr | None, _Match]:
    """The place with its guard settled, the statement's predicate if the guard tests it, and the
    accesses of the test.

    Without a predicate, and where the predicate is always true, the guard belongs to the loops.
    """
    condition = None if stmt.predicate is None else resolved(values, stmt.predicate)
    match = _Match(place)
    if condition is None or place.guard is None or not match.same(condition, place.guard, place.points):
        if place.guard is not None:
            place = place.narrowed(place.guard)
        if condition is not None and not guard(condition, False, place.points, place.space)[0].is_empty():
            raise _differs(fn, stmt, "runs without its condition")
        condition, match = None, _Match(place)
    if place.opaque:
        raise _differs(fn, stmt, "runs under a condition of its own")
    return place, condition, match


class _Match:
    """Compares expressions at one place; `uses` are the accesses that matched."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.uses: list[Use] = []

    def same(self, e: Expr, a: Expr, where: isl.Set) -> bool:
        """Whether `a` of the loops has the value of the statement's `e` on all points `where`."""
        if isinstance(e, Load) and isinstance(a, Load):
            return self.load(e, a, where)
        if _is_number(e) and _is_number(a):
            return self.same_number(e, a, where)
        if isinstance(e, Const) and isinstance(a, Const):
            return e.dtype == a.dtype and _same_constant(e.value, a.value)
        known = len(self.uses)
        if _same_operation(e, a) and self.same_operands(e, a, where):
            return True
        del self.uses[known:]
        return self.same_otherwise(e, a, where)

    def load(self, e: Load, a: Load, where: isl.Set, write: bool = False) -> bool:
        """The same element, in its array or in a promoted buffer."""
        life = self.place.lifetimes.get(a.array)
        if e.dtype != a.dtype:
            return False
        if life is None:
            if e.array != a.array or len(e.index) != len(a.index):
                return False
            if not all(self.same(x, y, where) for x, y in zip(e.index, a.index)):
                return False
        elif not all(is_affine(x, self.place.space) for x in (*e.index, *a.index)):
            return False
        self.uses.append(Use(self.place, life, e.array, e.index, a.index, where, write))
        return True

    def same_operands(self, e: Expr, a: Expr, where: isl.Set) -> bool:
        if isinstance(e, Select) and isinstance(a, Select):
            yes, _ = guard(e.cond, True, where, self.place.space)
            no, _ = guard(e.cond, False, where, self.place.space)
            return self.same(e.cond, a.cond, where) and self.same(e.a, a.a, yes) and self.same(e.b, a.b, no)
        if isinstance(e, Binary) and e.op in ("and", "or") and isinstance(a, Binary):
            second, _ = guard(e.a, e.op == "and", where, self.place.space)
            return self.same(e.a, a.a, where) and self.same(e.b, a.b, second)
        return all(self.same(x, y, where) for x, y in zip(e.children(), a.children(), strict=True))

    def same_number(self, e: Expr, a: Expr, where: isl.Set) -> bool:
        if difference(e, a) == 0:
            return True
        try:
            agree = to_pw_aff(e, self.place.space).eq_set(to_pw_aff(a, self.place.space))
        except NotAffine:
            forms = (e, simplify_expr(e, self.place.ranges))
            return any(Polynomials(where).equal(form, a) for form in forms)
        return bool(where.is_subset(agree))

    def same_otherwise(self, e: Expr, a: Expr, where: isl.Set) -> bool:
        """Forms that the loops may have because a condition is decided by where they run."""
        if where.is_empty():
            return True  # an arm that is never taken
        if e.dtype == bool_ and a.dtype == bool_:
            try:
                one, other = to_set(e, self.place.space), to_set(a, self.place.space)
            except NotAffine:
                pass
            else:
                return bool(where.intersect(one.subtract(other).union(other.subtract(one))).is_empty())
        if isinstance(e, Select):
            for truth, arm in ((False, e.a), (True, e.b)):
                if guard(e.cond, truth, where, self.place.space)[0].is_empty():
                    return self.same(arm, a, where)
        if isinstance(e, Binary) and e.op in ("and", "or"):
            for this, other in ((e.a, e.b), (e.b, e.a)):
                if guard(this, e.op == "or", where, self.place.space)[0].is_empty():
                    return self.same(other, a, where)
        simple = simplify_expr(e, self.place.ranges)
        return simple != e and self.same(simple, a, where)


def _is_number(e: Expr) -> bool:
    """An index expression, cases included."""
    return is_index(e) or (e.dtype == i64 and not any(isinstance(x, (Load, Call, Temp)) for x in walk(e)))


def _same_operation(e: Expr, a: Expr) -> bool:
    """The same node, but for its operands."""
    if type(e) is not type(a) or e.dtype != a.dtype:
        return False
    if isinstance(e, Var):
        return e == a
    if isinstance(e, (Binary, Unary)):
        return e.op == getattr(a, "op", None)
    if isinstance(e, Call) and isinstance(a, Call):
        return e.fn == a.fn and len(e.args) == len(a.args)
    if isinstance(e, Temp):
        return e == a
    if isinstance(e, StraightLine) and isinstance(a, StraightLine):
        return e.names == a.names
    return isinstance(e, (Select, Cast))


def _same_constant(x: object, y: object) -> bool:
    """Equal bit for bit, but any NaN is any NaN."""
    if isinstance(x, float) and isinstance(y, float):
        return (isnan(x) and isnan(y)) or (x == y and copysign(1, x) == copysign(1, y))
    return type(x) is type(y) and x == y


def is_copy(store: Store) -> bool:
    """Whether the store moves an element between an array and a buffer."""
    return store.instance is None and isinstance(store.value, Load) and store.mask is None


__all__ = ["Executed", "Use", "executed", "is_copy"]
