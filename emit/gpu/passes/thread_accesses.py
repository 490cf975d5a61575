"""What the threads of a launch touch: every access with its place in the text and the points where it runs.

A point is the values of the block variables, the thread variables and the serial loops around, in this
order. What is not affine is approximated from above: a bound or condition is left out, a subscript is any
element of its array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property

import islpy as isl

from polyc.emit.loop_ir.linear import operands
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Launch, Let, Ramp, Stmt, Store, VLoad
from polyc.emit.loop_ir.rewrite import stmt_exprs, with_bodies
from polyc.poly.dtypes import bool_, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Expr, Load, Select, Unary, Var, const_int, substitute
from polyc.poly.expr import walk as walk_expr
from polyc.poly.forms.affine import NotAffine, to_pw_aff, to_set
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop

SET = isl.dim_type.set
Path = tuple[tuple[Stmt, int], ...]


@dataclass(frozen=True, eq=False)
class Touch:
    """One access. `path` leads to it from the launch's body, as (statement, number of the body);
    `loops` are the loops on it."""

    array: str
    write: bool
    stmt: Stmt
    path: Path
    loops: tuple[For, ...]
    points: isl.Set
    index: tuple[Expr, ...]

    @property
    def asynchronous(self) -> bool:
        """Whether this is the write of an asynchronous copy."""
        return self.write and isinstance(self.stmt, Store) and self.stmt.asynchronous

    @cached_property
    def elements(self) -> isl.Map:
        """`{ [point] -> [element] }`."""
        space = self.points.get_space()
        rank = len(self.index)
        out = isl.Map.from_domain_and_range(self.points, isl.Set.universe(_anonymous(space, rank)))
        for d, e in enumerate(self.index):
            try:
                exact = isl.Map.from_pw_aff(to_pw_aff(e, space))
            except NotAffine:
                continue
            out = out.intersect(_at(exact, rank, d))
        return out


def _anonymous(space: isl.Space, rank: int) -> isl.Space:
    return isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, 0, rank).range().align_params(space.params())


def _at(one: isl.Map, rank: int, d: int) -> isl.Map:
    """`{ x -> [y] }` as `{ x -> [.., y, ..] }`."""
    out = one.insert_dims(isl.dim_type.out, 0, d) if d else one
    return out.insert_dims(isl.dim_type.out, d + 1, rank - d - 1) if rank - d - 1 else out


@dataclass(frozen=True)
class _At:
    path: Path
    loops: tuple[For, ...]
    points: isl.Set
    values: Mapping[str, Expr] = field(default_factory=dict)

    @property
    def space(self) -> isl.Space:
        return self.points.get_space()

    def step(self, s: Stmt, k: int) -> _At:
        return replace(self, path=(*self.path, (s, k)))

    def where(self, condition: Expr) -> _At:
        try:
            return replace(self, points=self.points.intersect(to_set(self.value(condition), self.space)))
        except NotAffine:
            return self

    def value(self, e: Expr) -> Expr:
        return substitute(e, self.values) if self.values else e

    def inside(self, s: For) -> _At:
        at = replace(self.with_dim(s.var), loops=(*self.loops, s))
        for c in _loop_conditions(s):
            at = at.where(c)
        return at

    def with_dim(self, name: str) -> _At:
        depth = self.points.dim(SET)
        return replace(self, points=self.points.add_dims(SET, 1).set_dim_name(SET, depth, name))


@dataclass(frozen=True)
class Around:
    """What the host knows where a launch stands: the `context` of the sizes, and `conditions` on the
    `names`, the sizes and the variables of the host."""

    context: isl.Set
    names: tuple[str, ...]
    conditions: tuple[Expr, ...] = ()

    def under(self, *conditions: Expr) -> Around:
        """Where these conditions hold, too."""
        return replace(self, conditions=(*self.conditions, *conditions))

    def known(self, name: str, *conditions: Expr) -> Around:
        """With one more variable."""
        return replace(self.under(*conditions), names=(*self.names, name))

    def inside(self, s: For) -> Around:
        """Inside a loop, whose bounds say something of its variable."""
        return self.known(s.var, *_loop_conditions(s))


def _loop_conditions(s: For) -> tuple[Expr, ...]:
    """What holds of the variable inside a loop, argument by argument of its bounds."""
    v = Var(s.var)
    out = [Binary(">=", v, e, bool_) for e in operands(s.lo, "max")]
    out += [Binary("<", v, e, bool_) for e in operands(s.hi, "min")]
    if s.step != 1:
        rest = Binary("%", Binary("-", v, s.lo, i64), const_int(s.step), i64)
        out.append(Binary("==", rest, const_int(0), bool_))
    return tuple(out)


def each_launch(fn: Function, scop: Scop, run: Callable[[Launch, Around], Launch]) -> Function:
    """`fn` with its launches replaced; `run` is told what the host knows where each of them stands."""

    def visit(s: Stmt, around: Around) -> Stmt:
        if isinstance(s, Launch):
            return run(s, around)
        if isinstance(s, For):
            return replace(s, body=visit(s.body, around.inside(s)))
        if isinstance(s, Let):
            return replace(s, body=visit(s.body, around.known(s.name, Binary("==", Var(s.name), s.value, bool_))))
        if isinstance(s, If):
            orelse = None if s.orelse is None else visit(s.orelse, around.under(Unary("not", s.cond, bool_)))
            return If(s.cond, visit(s.then, around.under(s.cond)), orelse)
        return with_bodies(s, tuple(visit(b, around) for b in s.bodies()))

    return replace(fn, body=visit(fn.body, Around(scop.context, fn.params)))


def touches(launch: Launch, around: Around) -> list[Touch]:
    """All accesses of a launch to memory that its threads share."""
    return read(launch, around)[0]


def read(launch: Launch, around: Around) -> tuple[list[Touch], Mapping[int, isl.Set]]:
    """The same, and the points of each loop, by its identity: the loop's variable is the last dimension."""
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=list(around.names))
    at = _At((), (), isl.Set.universe(space).intersect_params(around.context))
    for c in around.conditions:
        at = at.where(c)
    for v, n in (*launch.grid, *((v, const_int(n)) for v, n in launch.threads)):
        at = at.with_dim(v).where(Binary(">=", Var(v), const_int(0), bool_))
        for bound in operands(n, "min"):
            at = at.where(Binary("<", Var(v), bound, bool_))
    reader = _Reader()
    found = reader.visit(launch.body, at)
    same = {(t.array, t.write, id(t.stmt), t.index, id(t.points)): t for t in found}
    return list(same.values()), reader.points


class _Reader:
    def __init__(self) -> None:
        self.private: set[str] = set()
        self.points: dict[int, isl.Set] = {}

    def visit(self, s: Stmt, at: _At) -> Iterator[Touch]:
        if isinstance(s, Store):
            yield from self.store(s, at)
            return
        for e in stmt_exprs(s):
            yield from self.reads(e, s, at)
        if isinstance(s, For):
            inside = at.inside(s)
            self.points[id(s)] = inside.points
            yield from self.visit(s.body, inside.step(s, 0))
        elif isinstance(s, If):
            yield from self.visit(s.then, at.where(s.cond).step(s, 0))
            if s.orelse is not None:
                yield from self.visit(s.orelse, at.where(Unary("not", s.cond, bool_)).step(s, 1))
        elif isinstance(s, Let):
            inner = replace(at, values={**at.values, s.name: at.value(s.value)}) if s.value.lanes == 1 else at
            yield from self.visit(s.body, inner.step(s, 0))
        elif isinstance(s, Alloc):
            if s.buffer.space != "shared":
                self.private.add(s.buffer.name)
            yield from self.visit(s.body, at.step(s, 0))
        elif isinstance(s, Block):
            for k, child in enumerate(s.stmts):
                yield from self.visit(child, at.step(s, k))

    def store(self, s: Store, at: _At) -> Iterator[Touch]:
        for e in stmt_exprs(s):
            yield from self.reads(e, s, at)
        if s.array not in self.private:
            yield self.touch(s.array, True, s, at, s.index)

    def reads(self, e: Expr, s: Stmt, at: _At) -> Iterator[Touch]:
        """The loads, each where the conditions around it in the expression hold."""
        if isinstance(e, (Load, VLoad)) and e.array not in self.private:
            yield self.touch(e.array, False, s, at, e.index)
        if isinstance(e, Select) and e.lanes == 1:
            yield from self.reads(e.cond, s, at)
            yield from self.reads(e.a, s, at.where(e.cond))
            yield from self.reads(e.b, s, at.where(Unary("not", e.cond, bool_)))
        elif isinstance(e, Binary) and e.op in ("and", "or") and e.lanes == 1:
            yield from self.reads(e.a, s, at)
            first = e.a if e.op == "and" else Unary("not", e.a, bool_)
            yield from self.reads(e.b, s, at.where(first))
        else:
            for x in e.children():
                yield from self.reads(x, s, at)

    def touch(self, array: str, write: bool, s: Stmt, at: _At, index: tuple[Expr, ...]) -> Touch:
        if any(isinstance(x, Ramp) for e in index for x in walk_expr(e)):
            raise BuildError("barriers are placed before loops become vectors")
        return Touch(array, write, s, at.path, at.loops, at.points, tuple(at.value(e) for e in index))
