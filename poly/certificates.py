"""Which subscripts surely stay inside their arrays, and which ones need a check when the program runs.

The front end has proved affine subscripts of statements without data-dependent conditions and refuses those that
leave their arrays. What is left is listed here as `Site`s: subscripts that load memory or are not affine, and any
subscript below a condition or loop bound that does. A site that ranges of values prove is left out, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import reduce

import islpy as isl

from polyc.poly.access import guard
from polyc.poly.cache import instances, per_scop
from polyc.poly.dtypes import DType, bool_, i64, u64
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, walk
from polyc.poly.forms.affine import is_affine, outside, set_space
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.violations import Check

Range = tuple[int | None, int | None]
TRUE = Const(True, bool_)


@dataclass(frozen=True, eq=False)
class Site:
    """One axis of one access that may leave its array.

    The subscript `index` is evaluated for the instances in `where` (as far as affine) under the conditions `when`,
    each looked at only where those before it hold; its access is inside for `0 <= index < size`. `depth` is the
    number of the statement's data-dependent loops around (`Statement.dynamic`): fewer for the bound of a loop.
    """

    statement: str
    load: Load
    axis: int
    when: tuple[Expr, ...]
    where: isl.Set
    depth: int
    write: bool
    check: Check = field(repr=False)

    @property
    def index(self) -> Expr:
        """The subscript that the source asks for on this axis: without the limits of `position`."""
        return demanded(self.load.index[self.axis])

    @property
    def size(self) -> Expr:
        """What the subscript must stay below: the array's extent on this axis."""
        return self.check.size


@per_scop
def open_sites(scop: Scop) -> tuple[Site, ...]:
    """The sites of a Scop, statement by statement in the order of evaluation."""
    return tuple(site for s in scop.statements.values() for site in _Finder(scop, s).sites())


def may_leave(scop: Scop, statement: str) -> bool:
    """Whether an access of a statement may leave its array: evaluating it then is an error, which is not to be lost."""
    return next(_Finder(scop, scop.statements[statement]).sites(), None) is not None


def errs_alike(scop: Scop, statement: str, run: isl.Set | None) -> bool:
    """Whether running a statement only in its instances `run` (None: in no certain ones) loses no error."""
    if not may_leave(scop, statement):
        return True
    return run is not None and bool(instances(scop)[statement].is_subset(run))


def open_axes(scop: Scop, s: Statement, load: Load, where: isl.Set) -> tuple[int, ...]:
    """The axes of a load that nothing proves to be inside in the instances `where` of a statement."""
    finder = _Finder(scop, s)
    pairs = enumerate(zip(load.index, scop.arrays[load.array].shape, strict=True))
    return tuple(axis for axis, (e, size) in pairs if not finder.inside(demanded(e), size, where, False))


class _Finder:
    def __init__(self, scop: Scop, stmt: Statement) -> None:
        self.scop, self.stmt = scop, stmt
        self.space = set_space(stmt.name, stmt.iters, scop.params)
        self.found: dict[tuple[str, tuple[Expr, ...], int], list[Site]] = {}

    def sites(self) -> Iterator[Site]:
        s = self.stmt
        domain = s.domain.intersect_params(self.scop.context)
        for depth, bound in enumerate(s.dynamic):
            first = s.iters.index(bound.iter)
            entered = domain.eliminate(isl.dim_type.set, first, len(s.iters) - first)
            for e in (bound.lo, bound.hi):
                yield from self.reads(e, (), entered, False, depth)
        sure, depth = s.predicate is None and not s.dynamic, len(s.dynamic)
        when: tuple[Expr, ...] = ()
        if s.predicate is not None:
            yield from self.reads(s.predicate, (), domain, False, depth)
            domain, _ = guard(s.predicate, True, domain, self.space)
            when = (s.predicate,)
        for e in (s.value, *s.index):
            yield from self.reads(e, when, domain, sure, depth)
        yield from self.access(s.target, when, domain, sure, depth, True)

    def reads(self, e: Expr, when: tuple[Expr, ...], where: isl.Set, sure: bool, depth: int) -> Iterator[Site]:
        """The sites in `e`; `sure`: the front end has looked at what is affine here."""
        if isinstance(e, Select):
            yield from self.reads(e.cond, when, where, sure, depth)
            for arm, truth in ((e.a, True), (e.b, False)):
                inside, exact = guard(e.cond, truth, where, self.space)
                holds = e.cond if truth else negated(e.cond)
                yield from self.reads(arm, (*when, holds), inside, sure and exact, depth)
        elif isinstance(e, Binary) and e.op in ("and", "or"):
            yield from self.reads(e.a, when, where, sure, depth)
            inside, exact = guard(e.a, e.op == "and", where, self.space)
            holds = e.a if e.op == "and" else negated(e.a)
            yield from self.reads(e.b, (*when, holds), inside, sure and exact, depth)
        else:
            for child in e.children():
                yield from self.reads(child, when, where, sure, depth)
            if isinstance(e, Load):
                yield from self.access(e, when, where, sure, depth, False)

    def access(
        self, load: Load, when: tuple[Expr, ...], where: isl.Set, sure: bool, depth: int, write: bool
    ) -> Iterator[Site]:
        array = self.scop.arrays[load.array]
        for axis, (index, size) in enumerate(zip(load.index, array.shape, strict=True)):
            if self.inside(demanded(index), size, where, sure):
                continue
            known = self.found.setdefault((load.array, load.index, axis), [])
            if any(when[: len(s.when)] == s.when and depth >= s.depth for s in known):
                continue  # the same subscript was looked at before
            unsigned = isinstance(index, Cast) and index.a.dtype == u64
            span = load.span or self.stmt.span
            check = Check(self.scop.name, load.array, axis - array.expanded, size, span, unsigned)
            site = Site(self.stmt.name, load, axis, when, where, depth, write, check)
            known.append(site)
            yield site

    def inside(self, index: Expr, size: Expr, where: isl.Set, sure: bool) -> bool:
        """Whether `0 <= index < size` is known for all of `where`."""
        if is_affine(index, self.space):
            return sure or outside(index, size, self.space).intersect(where).is_empty()
        lo, hi = value_range(index, where)
        return lo is not None and lo >= 0 and hi is not None and isinstance(size, Const) and hi < int(size.value)


def demanded(index: Expr) -> Expr:
    """What a subscript really asks for: without the limits of `position`."""
    inner = index.a if isinstance(index, Cast) else index
    if not (isinstance(inner, Call) and inner.fn == "position"):
        return index
    return inner.args[0] if inner.dtype == i64 else Cast(inner.args[0], i64)


def is_position(e: Expr) -> bool:
    """Whether `e` is a subscript that must be inside."""
    return isinstance(e, Call) and e.fn == "position"


def expressions(s: Statement) -> tuple[Expr, ...]:
    """All that a statement evaluates."""
    bounds = (e for b in s.dynamic for e in (b.lo, b.hi))
    return (*bounds, *(() if s.predicate is None else (s.predicate,)), s.value, *s.index)


def limited(e: Expr) -> Expr:
    """`e` with `position` written out."""
    if not (isinstance(e, Call) and e.fn == "position"):
        return e
    j, size = e.args
    one = Const(1, e.dtype)
    last = Const(int(size.value) - 1, e.dtype) if isinstance(size, Const) else Binary("-", size, one, e.dtype)
    return Binary("max", Binary("min", j, last, e.dtype), Const(0, e.dtype), e.dtype)


# ---- conditions ----------------------------------------------------------------------------


def negated(e: Expr) -> Expr:
    """The opposite of a condition."""
    return e.a if isinstance(e, Unary) and e.op == "not" else Unary("not", e, bool_)


def all_of(*conditions: Expr) -> Expr:
    """Their conjunction: each is looked at only where those before it hold."""
    some = list(dict.fromkeys(c for c in conditions if c != TRUE))
    return reduce(lambda a, b: Binary("and", a, b, bool_), some) if some else TRUE


def within(index: Expr, size: Expr) -> Expr:
    """`0 <= index < size`, as one comparison: a negative number is a large one without its sign."""
    return Binary("<", Cast(index, u64), Cast(size, u64), bool_)


# ---- ranges of values ----------------------------------------------------------------------


def type_range(dtype: DType) -> Range:
    """The values that an integer type can hold."""
    if dtype.kind == "bool":
        return 0, 1
    if not dtype.is_int:
        return None, None
    signed = dtype.kind == "int"
    return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if signed else (0, (1 << dtype.bits) - 1)


def value_range(e: Expr, where: isl.Set) -> Range:
    """Constant bounds of an integer expression for all points of `where`, as far as they are easily known."""
    limits = type_range(e.dtype)
    found = _range(e, where)
    if found[0] is None or found[1] is None or limits[0] is None or limits[1] is None:
        return limits
    if found[0] < limits[0] or found[1] > limits[1]:
        return limits  # the arithmetic may wrap
    return found


def _range(e: Expr, where: isl.Set) -> Range:
    if isinstance(e, Const) and not e.dtype.is_float:
        return int(e.value), int(e.value)
    if isinstance(e, Var):
        return _extremes(e.name, where)
    if isinstance(e, Cast):
        return value_range(e.a, where)
    if isinstance(e, Select):
        return _hull(value_range(e.a, where), value_range(e.b, where))
    if not isinstance(e, Binary):
        return None, None
    (a, b), (c, d) = value_range(e.a, where), value_range(e.b, where)
    if a is None or b is None or c is None or d is None:
        return None, None
    if e.op == "+":
        return a + c, b + d
    if e.op == "-":
        return a - d, b - c
    if e.op == "*":
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if e.op in ("min", "max"):
        pick = min if e.op == "min" else max
        return pick(a, c), pick(b, d)
    if e.op == "%" and c > 0:
        return (a, b) if 0 <= a and b < c else (0, d - 1)
    if e.op == "//" and c > 0:
        return min(a // c, a // d), max(b // c, b // d)
    if e.op == "&" and (c >= 0 or a >= 0):
        return 0, min(x for x, low in ((b, a), (d, c)) if low >= 0)
    return None, None


def _hull(x: Range, y: Range) -> Range:
    (a, b), (c, d) = x, y
    if a is None or b is None or c is None or d is None:
        return None, None
    return min(a, c), max(b, d)


def _extremes(name: str, where: isl.Set) -> Range:
    dim = where.find_dim_by_name(isl.dim_type.set, name)
    if dim < 0 or where.is_empty():
        return type_range(i64)
    low, high = where.dim_min_val(dim), where.dim_max_val(dim)
    if not (low.is_int() and high.is_int()):
        return type_range(i64)
    return int(low.to_python()), int(high.to_python())


def loads_memory(e: Expr) -> bool:
    """Whether the value needs a load."""
    return any(isinstance(x, Load) for x in walk(e))
