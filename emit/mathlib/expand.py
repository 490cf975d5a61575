"""The pass that replaces intrinsic Calls by basic operations.

Formulas of this package are DAGs; here they become trees of basic operations with a `Let`
for every shared node. The `Let`s stand directly around the statement, so an argument that
was under a lazy `Select` (or `and`, `or`) would be evaluated too early: where it reads
memory it is itself guarded by the same condition.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from polyc.emit.loop_ir.loops import (
    Broadcast,
    Function,
    HReduce,
    If,
    Let,
    Stmt,
    Store,
    accesses,
)
from polyc.emit.loop_ir.rewrite import binders, over_bodies, stmt_exprs
from polyc.emit.mathlib import exp_log, pairs, power, special, trig
from polyc.emit.mathlib.build import V
from polyc.poly.dtypes import DType, bf16, bool_, f16, f32
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Select, Unary, Var, walk
from polyc.poly.records import replace

BASIC = frozenset(
    (
        "fma",
        "floor",
        "ceil",
        "round",
        "trunc",
        "abs",
        "sqrt",
        "isnan",
        "isinf",
        "bitcast",
        "dot_pairs",
        "widen_pairs",
        "dot_bytes",
        "dot_bytes_add",
    )
)

_FUNCTIONS: dict[str, Callable[..., V]] = {
    "exp": exp_log.exp,
    "exp_nonpositive": exp_log.exp_nonpositive,
    "expm1": exp_log.expm1,
    "log": exp_log.log,
    "log1p": exp_log.log1p,
    "erf": special.erf,
    "sigmoid": special.sigmoid,
    "tanh": special.tanh,
    "sinh": special.sinh,
    "cosh": special.cosh,
    "rsqrt": special.rsqrt,
    "sin": trig.sin,
    "cos": trig.cos,
    "tan": trig.tan,
    "asin": trig.asin,
    "acos": trig.acos,
    "atan": trig.atan,
    "pow": power.pow_,
    "dot_bf16": pairs.dot_bf16,
    "dot_bf16_add": pairs.dot_bf16_add,
    "pack_bf16": pairs.pack_bf16,
}
NONE: frozenset[str] = frozenset()


def expand_function(fn: Function, own: frozenset[str] = NONE) -> Function:
    """`fn` without Calls other than `BASIC` and `own`, the machine's own instructions, and without the operator `**`.

    A statement that has none of them is returned as it is.
    """
    names = (f"m{i}" for i in count())
    taken = {b.name for b in fn.buffers} | set(fn.params) | binders(fn.body)
    return replace(fn, body=_statement(fn.body, lambda: next(n for n in names if n not in taken), own))


def _statement(s: Stmt, fresh: Callable[[], str], own: frozenset[str]) -> Stmt:
    def sub(t: Stmt) -> Stmt:
        return _statement(t, fresh, own)

    if not isinstance(s, (Let, If, Store)) or not any([needs_expansion(e, own) for e in stmt_exprs(s)]):
        return over_bodies(s, sub)
    e = _Expansion(fresh, own)
    if isinstance(s, Let):
        value = e.run(s.value)
        return e.wrap(Let(s.name, value, sub(s.body)))
    if isinstance(s, If):
        cond = e.run(s.cond)
        return e.wrap(If(cond, sub(s.then), None if s.orelse is None else sub(s.orelse)))
    value = e.run(s.value)
    index = tuple(e.run(i) for i in s.index)
    mask = None if s.mask is None else e.run(s.mask)
    return e.wrap(replace(s, value=value, index=index, mask=mask))


def needs_expansion(e: Expr, own: frozenset[str] = NONE) -> bool:
    """Whether `expand_function` would change this node or one below."""
    for node in walk(e):
        if isinstance(node, Call) and node.fn not in BASIC and node.fn not in own:
            return True
        if isinstance(node, Binary) and node.op == "**":
            return True
    return False


def _reads_memory(e: Expr) -> bool:
    return bool(accesses(e))


class _Expansion:
    """Expands the expressions of one statement, collecting `Let` bindings in order."""

    def __init__(self, fresh: Callable[[], str], own: frozenset[str]) -> None:
        self.fresh = fresh
        self.own = own
        self.lets: list[tuple[str, Expr]] = []

    def run(self, e: Expr) -> Expr:
        return self.go(e, None) if needs_expansion(e, self.own) else e

    def wrap(self, s: Stmt) -> Stmt:
        """`s` inside the collected bindings."""
        for name, value in reversed(self.lets):
            s = Let(name, value, s)
        return s

    def bind(self, e: Expr, lanes: int) -> Expr:
        """A name for `e` (leaves stay as they are)."""
        if isinstance(e, (Const, Var)) or (isinstance(e, Broadcast) and isinstance(e.a, (Const, Var))):
            return e
        name = self.fresh()
        self.lets.append((name, e))
        return Var(name, e.dtype, lanes)

    def go(self, e: Expr, guard: Expr | None) -> Expr:
        """`e` expanded; `guard` (a bound condition) says when `e` is evaluated at all."""
        if not needs_expansion(e, self.own):
            return e
        if isinstance(e, Select):
            cond = self.go(e.cond, guard)
            if not (needs_expansion(e.a, self.own) or needs_expansion(e.b, self.own)):
                return Select(cond, e.a, e.b, e.dtype)
            cond, when, unless = self.branches(cond, guard)
            return Select(cond, self.go(e.a, when), self.go(e.b, unless), e.dtype)
        if isinstance(e, Binary) and e.op in ("and", "or"):
            a = self.go(e.a, guard)
            if not needs_expansion(e.b, self.own):
                return Binary(e.op, a, e.b, e.dtype)
            a, when, unless = self.branches(a, guard)
            return Binary(e.op, a, self.go(e.b, when if e.op == "and" else unless), e.dtype)
        operands = tuple(self.go(c, guard) for c in e.children())
        if isinstance(e, Call) and e.fn not in BASIC and e.fn not in self.own:
            return self.call(e.fn, operands, guard)
        if isinstance(e, Binary) and e.op == "**":
            return self.call("pow", operands, guard)
        return e.with_children(operands)

    def branches(self, cond: Expr, guard: Expr | None) -> tuple[Expr, Expr, Expr]:
        """(cond, guard and cond, guard and not cond), all bound and safe to evaluate."""
        lanes = max(cond.lanes, 1 if guard is None else guard.lanes)
        if guard is not None and _reads_memory(cond):
            cond = Select(self.wanted(guard, cond.lanes), cond, _const(False, bool_, cond.lanes), bool_)
        cond = self.bind(cond, cond.lanes)
        negated: Expr = Unary("not", cond, bool_)
        if guard is None:
            return cond, cond, self.bind(negated, lanes)
        both = self.bind(Binary("and", _widen(guard, lanes), _widen(cond, lanes), bool_), lanes)
        neither = self.bind(Binary("and", _widen(guard, lanes), _widen(negated, lanes), bool_), lanes)
        return cond, both, neither

    def wanted(self, guard: Expr, lanes: int) -> Expr:
        """`guard` for a value of `lanes` lanes: a scalar in vector code is evaluated if any lane wants it."""
        if guard.lanes <= lanes:
            return guard
        return self.bind(HReduce("or", guard, bool_), 1)

    def call(self, name: str, operands: tuple[Expr, ...], guard: Expr | None) -> Expr:
        """The expansion of one call over already expanded operands."""
        dtype = operands[0].dtype
        lanes = max(o.lanes for o in operands)
        args = []
        for o in operands:
            if guard is not None and _reads_memory(o):
                o = Select(self.wanted(guard, lanes), _widen(o, lanes), _const(0, dtype, lanes), dtype)
            args.append(V(self.bind(o, lanes), lanes))
        compute = f32 if dtype in (f16, bf16) else dtype
        wide = [a.cast(compute) for a in args]
        result = _apply(name, wide, operands).cast(dtype)
        return self.bind(self.share(result.e, lanes), lanes)

    def share(self, root: Expr, lanes: int) -> Expr:
        """The DAG below `root` as a tree: nodes with several parents are bound, in post-order."""
        uses: dict[int, int] = {}

        def tally(e: Expr) -> None:
            uses[id(e)] = uses.get(id(e), 0) + 1
            if uses[id(e)] == 1:
                for c in e.children():
                    tally(c)

        done: dict[int, Expr] = {}

        def build(e: Expr) -> Expr:
            if id(e) not in done:
                kids = e.children()
                new = e.with_children(tuple(build(k) for k in kids)) if kids else e
                done[id(e)] = self.bind(new, lanes) if uses[id(e)] > 1 else new
            return done[id(e)]

        tally(root)
        return build(root)


def _apply(name: str, args: list[V], operands: tuple[Expr, ...]) -> V:
    if name != "pow":
        return _FUNCTIONS[name](*args)
    exponent = operands[1].a if isinstance(operands[1], Broadcast) else operands[1]
    if isinstance(exponent, Cast) and isinstance(exponent.a, Const):
        exponent = exponent.a
    if isinstance(exponent, Const):
        short = power.pow_constant(args[0], float(exponent.value))
        if short is not None:
            return short
    if args[0].dtype.is_float:
        return power.pow_(args[0], args[1])
    return power.pow_integer(args[0], args[1])


def _const(value: int | bool, dtype: DType, lanes: int) -> Expr:
    literal = float(value) if dtype.is_float else value
    const = Const(literal, dtype)
    return const if lanes == 1 else Broadcast(const, lanes, dtype)


def _widen(e: Expr, lanes: int) -> Expr:
    return e if e.lanes == lanes else Broadcast(e, lanes, e.dtype)


__all__ = ["BASIC", "expand_function", "needs_expansion"]
