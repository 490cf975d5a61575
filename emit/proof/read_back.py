"""The loop IR as a model of its own: every store with the loops, conditions and buffers around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property

import islpy as isl

from polyc.emit.loop_ir.linear import Interval, interval_of, operands
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Function, If, Let, Stmt, Store
from polyc.emit.loop_ir.rewrite import substitute_stmt
from polyc.poly.dtypes import bool_
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Expr, Unary, Var, const_int, substitute
from polyc.poly.forms.affine import NotAffine, linear_aff, set_space, to_pw_aff, to_set
from polyc.poly.records import dataclass
from polyc.poly.reduction import contracts
from polyc.poly.scop import Scop


class WrongLoops(BuildError):
    """The loops are not the Scop; `rule` is the part of the proof that failed."""

    code = "P306"

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


@dataclass(frozen=True, eq=False)
class Lifetime:
    """A promoted buffer from its `Alloc` to the end of that: new with each iteration of `loops`.

    `outer` are the lifetimes around it, outermost first.
    """

    buffer: Buffer
    loops: tuple[For, ...]
    outer: tuple[Lifetime, ...]


@dataclass(frozen=True, eq=False)
class Place:
    """One store of the text. `points` `{ [loop variables] }`: where it runs, as far as affine.

    `branches` leads to it from the root, as (statement, number of the body). `guard` is the
    condition that directly encloses the store, and not part of `points`; `opaque` are conditions
    that isl cannot express.
    """

    store: Store
    branches: tuple[tuple[Stmt, int], ...] = ()
    loops: tuple[For, ...] = ()
    points: isl.Set = None
    guard: Expr | None = None
    opaque: tuple[Expr, ...] = ()
    lifetimes: Mapping[str, Lifetime] = field(default_factory=dict)

    @property
    def space(self) -> isl.Space:
        """The space of the loop variables."""
        return self.points.get_space()

    @cached_property
    def ranges(self) -> Mapping[str, Interval]:
        """Constant bounds of loop variables and sizes, where they have any."""
        out: dict[str, Interval] = {p: (0, None) for p in self.space.get_var_names(isl.dim_type.param)}
        for loop in self.loops:
            last = interval_of(loop.hi, out)[1]
            out[loop.var] = interval_of(loop.lo, out)[0], None if last is None else last - 1
        return out

    def narrowed(self, condition: Expr) -> Place:
        """The place under one more condition."""
        try:
            return replace(self, points=self.points.intersect(to_set(condition, self.space)))
        except NotAffine:
            return replace(self, opaque=(*self.opaque, condition))

    def function(self, values: tuple[Expr, ...], name: str | None = None) -> isl.PwMultiAff:
        """`{ [loop variables] -> name[values] }`. Raises `NotAffine`."""
        out = isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, 0, len(values)).range().align_params(self.space.params())
        if name is not None:
            out = out.set_tuple_name(isl.dim_type.set, name)
        space, whole = self.space, self.space.map_from_domain_and_range(out)
        linear = [linear_aff(value, space) for value in values]
        if any(aff is None for aff in linear):
            result = isl.MultiPwAff.zero(whole)
            for d, value in enumerate(values):
                result = result.set_pw_aff(d, to_pw_aff(value, space))
            return isl.PwMultiAff.from_multi_pw_aff(result)
        one_piece = isl.MultiAff.zero(whole)
        for d, aff in enumerate(linear):
            one_piece = one_piece.set_aff(d, aff)
        return isl.PwMultiAff.from_multi_aff(one_piece)


def read_back(scop: Scop, fn: Function) -> list[Place]:
    """All stores of `fn`, in the order of the text.

    Raises:
        WrongLoops: arguments, sizes or local arrays are not the Scop's; a bound is not affine.
    """
    _interface(scop, fn)
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=list(fn.params))
    start = Place(Store("", (), const_int(0)), points=isl.Set.universe(space).intersect_params(scop.context))
    return list(_Reader(scop, fn.name).visit(fn.body, start))


def _interface(scop: Scop, fn: Function) -> None:
    wanted = [(a.name, a.dtype, a.shape, a.kind != "in") for a in scop.arrays.values() if a.kind != "local"]
    given = [(b.name, b.dtype, b.shape, b.writable) for b in fn.buffers]
    if wanted != given or fn.params != scop.params:
        raise WrongLoops("interface", f"{fn.name}: the arguments are not those of '{scop.name}'")
    if (fn.fma and not contracts(scop)) or (fn.fast_math and not scop.fast_math):
        raise WrongLoops("interface", f"{fn.name}: floating-point rules are laxer than those of '{scop.name}'")


class _Reader:
    def __init__(self, scop: Scop, kernel: str) -> None:
        self.scop = scop
        self.kernel = kernel

    def visit(self, s: Stmt, at: Place) -> Iterator[Place]:
        """The stores in `s`, which stands at `at`."""
        if isinstance(s, Store):
            yield replace(at, store=s)
        elif isinstance(s, For):
            yield from self.visit(s.body, self.inside(s, at))
        elif isinstance(s, If):
            yield from self.branch(s, at)
        elif isinstance(s, Let):
            yield from self.visit(substitute_stmt(s.body, {s.name: s.value}), at)
        elif isinstance(s, Alloc):
            yield from self.visit(s.body, self.allocated(s.buffer, at))
        else:
            assert isinstance(s, Block), type(s)
            for k, child in enumerate(s.stmts):
                yield from self.visit(child, replace(at, branches=(*at.branches, (s, k))))

    def branch(self, s: If, at: Place) -> Iterator[Place]:
        then = replace(at, branches=(*at.branches, (s, 0)))
        if isinstance(s.then, Store) and s.orelse is None:
            yield replace(then, store=s.then, guard=s.cond)
            return
        yield from self.visit(s.then, then.narrowed(s.cond))
        if s.orelse is not None:
            other = replace(at, branches=(*at.branches, (s, 1)))
            yield from self.visit(s.orelse, other.narrowed(Unary("not", s.cond, bool_)))

    def inside(self, s: For, at: Place) -> Place:
        v = Var(s.var)
        if at.space.find_dim_by_name(isl.dim_type.set, s.var) >= 0 or s.var in self.scop.params:
            raise WrongLoops("interface", f"{self.kernel}: the variable '{s.var}' is bound twice")
        # argument by argument: `max` and `min` as functions would cut the set in pieces
        conditions = [Binary(">=", v, e, bool_) for e in operands(s.lo, "max")]
        conditions += [Binary("<", v, e, bool_) for e in operands(s.hi, "min")]
        if s.step != 1:
            remainder = Binary("%", Binary("-", v, s.lo, v.dtype), const_int(s.step), v.dtype)
            conditions.append(Binary("==", remainder, const_int(0), bool_))
        depth = len(at.loops)
        points = at.points.add_dims(isl.dim_type.set, 1).set_dim_name(isl.dim_type.set, depth, s.var)
        try:
            for c in conditions:
                points = points.intersect(to_set(c, points.get_space()))
        except NotAffine as e:
            raise WrongLoops("domain", f"{self.kernel}: the bounds of loop '{s.loop}' are not affine ({e})") from None
        return replace(at, branches=(*at.branches, (s, 0)), loops=(*at.loops, s), points=points)

    def allocated(self, buffer: Buffer, at: Place) -> Place:
        array = self.scop.arrays.get(buffer.name)
        if array is None:
            life = Lifetime(buffer, at.loops, tuple(at.lifetimes.values()))
            rest = {n: x for n, x in at.lifetimes.items() if n != buffer.name}
            return replace(at, lifetimes={**rest, buffer.name: life})
        same = (array.kind, array.dtype) == ("local", buffer.dtype) and self.equal(array.shape, buffer.shape)
        if not same or at.branches or buffer.name in at.lifetimes:
            raise WrongLoops("interface", f"{self.kernel}: '{buffer.name}' is not the local array of that name")
        return at

    def equal(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
        """Whether two shapes are the same for all sizes, however they are written."""
        space = set_space("", (), self.scop.params)
        return len(a) == len(b) and all(
            x == y or to_pw_aff(x, space).is_equal(to_pw_aff(y, space)) for x, y in zip(a, b, strict=True)
        )


def resolved(values: Mapping[str, Expr], e: Expr) -> Expr:
    """`e` of a statement with its iterators replaced."""
    return substitute(e, values) if values else e
