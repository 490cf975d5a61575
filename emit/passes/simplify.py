"""Simplification: integer constant folding, linear normal form of index expressions, dead loops.

Only exact rewrites: floating-point arithmetic is left alone, and the linear rules that a
wrap-around would break apply to index expressions only (i64 over loop variables and sizes).
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_

from polyc.emit.loop_ir.linear import Interval, Linear, interval, is_index, linear, operands, rebuild
from polyc.emit.loop_ir.loops import (
    Alloc,
    Barrier,
    Block,
    Broadcast,
    EndCopies,
    For,
    Function,
    HReduce,
    If,
    Launch,
    Let,
    MatrixStatement,
    PanelProduct,
    Ramp,
    Stmt,
    Store,
    VLoad,
    WarpReduce,
)
from polyc.emit.loop_ir.rewrite import map_exprs, substitute_stmt
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import COMPARISONS, Binary, Cast, Const, Expr, Select, Unary, Var, const_int
from polyc.poly.records import replace

EMPTY = Block(())


def simplify(fn: Function) -> Function:
    """Simplify all expressions and remove loops, branches and bindings that became trivial."""
    body = simplify_stmt(fn.body, {p: (0, None) for p in fn.params})
    return replace(fn, body=body)


def simplify_expr(expr: Expr, ranges: Mapping[str, Interval] | None = None) -> Expr:
    """An equal expression; `ranges` bounds loop variables (inclusive)."""
    return _Exprs(ranges or {}).run(expr)[0]


def simplify_stmt(stmt: Stmt, ranges: Mapping[str, Interval]) -> Stmt:
    """An equivalent statement, flattened; nothing left is `Block(())`."""
    ex = _Exprs(ranges)
    if isinstance(stmt, Block):
        out: list[Stmt] = []
        for s in stmt.stmts:
            new = simplify_stmt(s, ranges)
            out.extend(new.stmts if isinstance(new, Block) else (new,))
        if len(out) == len(stmt.stmts) and all(map(is_, out, stmt.stmts)):
            return stmt if len(out) != 1 else out[0]
        return out[0] if len(out) == 1 else Block(tuple(out))
    if isinstance(stmt, For):
        return _for(stmt, ranges)
    if isinstance(stmt, If):
        return _if(stmt, ranges)
    if isinstance(stmt, Let):
        value = ex(stmt.value)
        if isinstance(value, (Const, Var)):
            return simplify_stmt(substitute_stmt(stmt.body, {stmt.name: value}), ranges)
        inner = ranges
        if value.dtype == i64 and value.lanes == 1:
            inner = {**ranges, stmt.name: interval(linear(value), ranges)}
        body = simplify_stmt(stmt.body, inner)
        if body == EMPTY:
            return EMPTY
        same = body is stmt.body and value is stmt.value
        return stmt if same else Let(stmt.name, value, body)
    if isinstance(stmt, Alloc):
        body = simplify_stmt(stmt.body, ranges)
        shape = ex.each(stmt.buffer.shape)
        if body == EMPTY:
            return EMPTY
        same = body is stmt.body and shape is stmt.buffer.shape
        return stmt if same else Alloc(replace(stmt.buffer, shape=shape), body)
    if isinstance(stmt, Launch):
        return _launch(stmt, ranges)
    if isinstance(stmt, (Barrier, EndCopies)):
        return stmt
    if isinstance(stmt, (PanelProduct, WarpReduce, MatrixStatement)):
        return map_exprs(stmt, ex)
    assert isinstance(stmt, Store)
    return _store(stmt, ex)


def _launch(stmt: Launch, ranges: Mapping[str, Interval]) -> Stmt:
    """The launch itself stays, of what size it may be: what it does is decided on the device."""
    ex = _Exprs(ranges)
    grid = tuple((name, ex(count)) for name, count in stmt.grid)
    inner = dict(ranges)
    for name, count in grid:
        most = interval(linear(count), ranges)[1]
        inner[name] = (0, None if most is None else max(0, most - 1))
    inner.update({name: (0, count - 1) for name, count in stmt.threads})
    body = simplify_stmt(stmt.body, inner)
    return EMPTY if body == EMPTY else replace(stmt, grid=grid, body=body)


def _store(stmt: Store, ex: _Exprs) -> Stmt:
    mask = None if stmt.mask is None else ex(stmt.mask)
    if isinstance(mask, Broadcast) and isinstance(mask.a, Const):
        if not mask.a.value:
            return EMPTY
        mask = None
    instance = stmt.instance
    if instance is not None:
        iters = ex.each(instance[1])
        instance = instance if iters is instance[1] else (instance[0], iters)
    index, value = ex.each(stmt.index), ex(stmt.value)
    if index is stmt.index and value is stmt.value and mask is stmt.mask and instance is stmt.instance:
        return stmt
    return replace(stmt, index=index, value=value, mask=mask, instance=instance)


def _for(stmt: For, ranges: Mapping[str, Interval]) -> Stmt:
    ex = _Exprs(ranges)
    lo, hi = ex(stmt.lo), ex(stmt.hi)
    trip = _trip(lo, hi, stmt.step, ranges)
    if trip == 0:
        return EMPTY
    if trip == 1:
        return simplify_stmt(substitute_stmt(stmt.body, {stmt.var: lo}), ranges)
    first, last = interval(linear(lo), ranges)[0], interval(linear(hi), ranges)[1]
    inner = {**ranges, stmt.var: (first, None if last is None else last - 1)}
    body = simplify_stmt(stmt.body, inner)
    until = None if stmt.until is None else simplify_expr(stmt.until, ranges)
    if body == EMPTY:
        return EMPTY
    same = body is stmt.body and lo is stmt.lo and hi is stmt.hi and until is stmt.until
    return stmt if same else replace(stmt, lo=lo, hi=hi, until=until, body=body)


def _trip(lo: Expr, hi: Expr, step: int, ranges: Mapping[str, Interval]) -> int | None:
    a, b = interval(linear(hi) - linear(lo), ranges)
    if b is not None and b <= 0:
        return 0
    if a is not None and b is not None and (a + step - 1) // step == (b + step - 1) // step:
        return (b + step - 1) // step
    return None


def _if(stmt: If, ranges: Mapping[str, Interval]) -> Stmt:
    cond = simplify_expr(stmt.cond, ranges)
    if isinstance(cond, Const):
        taken = stmt.then if cond.value else stmt.orelse
        if isinstance(taken, Store) and taken.predicated:
            taken = replace(taken, predicated=False)
        return EMPTY if taken is None else simplify_stmt(taken, ranges)
    then = simplify_stmt(stmt.then, ranges)
    orelse = None if stmt.orelse is None else simplify_stmt(stmt.orelse, ranges)
    if orelse == EMPTY:
        orelse = None
    if then == EMPTY:
        return EMPTY if orelse is None else If(Unary("not", cond, bool_), orelse)
    if cond is stmt.cond and then is stmt.then and orelse is stmt.orelse:
        return stmt
    return If(cond, then, orelse)


class _Exprs:
    """Bottom-up rewriting; `run` also tells whether the result is an index expression."""

    def __init__(self, ranges: Mapping[str, Interval]) -> None:
        self.ranges = ranges

    def __call__(self, expr: Expr) -> Expr:
        return self.run(expr)[0]

    def each(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """All of them; the very tuple where none changes."""
        new = tuple([self.run(e)[0] for e in exprs])
        return exprs if all(map(is_, new, exprs)) else new

    def run(self, expr: Expr) -> tuple[Expr, bool]:
        if isinstance(expr, (Const, Var)):
            return expr, expr.dtype == i64
        children = expr.children()
        kids = [self.run(c) for c in children]
        pure = bool(kids) and all([k[1] for k in kids])
        new = tuple([k[0] for k in kids])
        if not all(map(is_, new, children)):
            expr = expr.with_children(new)
        if isinstance(expr, (Ramp, Broadcast, HReduce)):
            return expr, False
        if isinstance(expr, VLoad) or expr.lanes > 1:
            return self.vector(expr), False
        if isinstance(expr, Binary) and expr.lanes == 1:
            return _kept(expr, self.binary(expr, pure)), pure and expr.dtype == i64
        if isinstance(expr, Unary) and expr.lanes == 1:
            return _kept(expr, self.unary(expr, pure)), pure and expr.dtype == i64
        if isinstance(expr, Select) and isinstance(expr.cond, Const):
            return (expr.a if expr.cond.value else expr.b), False
        if isinstance(expr, Cast) and expr.a.dtype == expr.dtype:
            return expr.a, kids[0][1]
        return expr, False

    def vector(self, e: Expr) -> Expr:
        """Masks that are the same in all lanes, and what they decide."""
        if isinstance(e, VLoad):
            all_on = e.mask is not None and _uniform(e.mask)
            return VLoad(e.array, e.index, None, e.count, e.dtype) if all_on else e
        if isinstance(e, Select):
            same = _uniform(e.cond)
            return e if same is None else e.a if same else e.b
        if isinstance(e, Unary) and e.op == "not" and _uniform(e.a) is not None:
            return Broadcast(Const(not _uniform(e.a), bool_), e.lanes, bool_)
        if isinstance(e, Binary) and e.op in ("and", "or"):
            for this, other in ((e.a, e.b), (e.b, e.a)):
                same = _uniform(this)
                if same is not None:
                    return this if same == (e.op == "or") else other
        if isinstance(e, Binary) and e.op in COMPARISONS:
            a, b = _lane_form(e.a), _lane_form(e.b)
            if a is not None and b is not None:
                slope, lanes = a[1] - b[1], e.lanes
                lo, hi = interval(a[0] - b[0], self.ranges)
                lo = None if lo is None else lo + min(0, slope * (lanes - 1))
                hi = None if hi is None else hi + max(0, slope * (lanes - 1))
                truth = _truth(e.op, lo, hi)
                if truth is not None:
                    return Broadcast(Const(truth, bool_), lanes, bool_)
        return e

    def unary(self, expr: Unary, pure: bool) -> Expr:
        if expr.op == "neg" and pure and expr.dtype == i64:
            return rebuild(linear(expr))
        if expr.op == "not":
            if isinstance(expr.a, Const):
                return Const(not expr.a.value, bool_)
            if isinstance(expr.a, Unary) and expr.a.op == "not":
                return expr.a.a
            flipped = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
            if isinstance(expr.a, Binary) and expr.a.op in flipped and expr.a.a.dtype.is_int:
                return Binary(flipped[expr.a.op], expr.a.a, expr.a.b, bool_)
        return expr

    def binary(self, e: Binary, pure: bool) -> Expr:
        if e.op in ("and", "or"):
            return _logical(e)
        if pure and e.a.dtype == i64:
            if e.op in ("+", "-", "*"):
                return rebuild(linear(e))
            if e.op in ("min", "max"):
                return self.min_max(e)
            if e.op in ("//", "%") and isinstance(e.b, Const) and e.b.value > 0:
                return self.divide(e.op, linear(e.a), int(e.b.value))
            if e.op in COMPARISONS:
                return self.comparison(e)
        if isinstance(e.a, Const) and isinstance(e.b, Const) and e.a.dtype.is_int and e.op in ("+", "-", "*"):
            return _wrapped(e)
        return e

    def comparison(self, e: Binary) -> Expr:
        lo, hi = interval(linear(e.a) - linear(e.b), self.ranges)
        truth = _truth(e.op, lo, hi)
        if truth is not None:
            return Const(truth, bool_)
        if e.op in ("<", "<="):  # x < min(a, b): without the arguments that x is known to be below
            left = [b for b in operands(e.b, "min") if not self.known(e.op, e.a, b)]
            if len(left) < len(operands(e.b, "min")):
                bound = left[0]
                for b in left[1:]:
                    bound = Binary("min", bound, b, i64)
                return Binary(e.op, e.a, bound, bool_)
        return e

    def known(self, op: str, a: Expr, b: Expr) -> bool:
        return _truth(op, *interval(linear(a) - linear(b), self.ranges)) is True

    def min_max(self, e: Binary) -> Expr:
        """Drop the arguments that another one makes redundant."""
        args = list(dict.fromkeys(operands(e, e.op)))
        forms = [linear(a) for a in args]
        keep: list[int] = []
        for i, form in enumerate(forms):
            beaten = False
            for j in (*keep, *range(i + 1, len(forms))):
                lo, hi = interval(form - forms[j], self.ranges)
                if e.op == "min" and lo is not None and lo >= 0 or e.op == "max" and hi is not None and hi <= 0:
                    beaten = True
            if not beaten:
                keep.append(i)
        out = args[keep[0]]
        for i in keep[1:]:
            out = Binary(e.op, out, args[i], i64)
        return out

    def divide(self, op: str, form: Linear, d: int) -> Expr:
        """`(d*q + r) // d = q + r // d` and `(d*q + r) % d = r % d`, with r reduced by its range."""
        whole = Linear(tuple((a, c // d) for a, c in form.terms if c % d == 0), form.const // d)
        rest = Linear(tuple((a, c) for a, c in form.terms if c % d), form.const % d)
        lo, hi = interval(rest, self.ranges)
        if lo is not None and hi is not None and lo // d == hi // d:
            return rebuild(whole.shift(lo // d)) if op == "//" else rebuild(rest.shift(-d * (lo // d)))
        if op == "%":
            return Binary("%", rebuild(rest), const_int(d), i64)
        return rebuild(whole + Linear(((Binary("//", rebuild(rest), const_int(d), i64), 1),), 0))


def _kept(old: Expr, new: Expr) -> Expr:
    """The old expression where the new one is equal: what does not change stays what later passes know already."""
    return old if new == old and new.dtype == i64 else new


def _uniform(mask: Expr) -> bool | None:
    """The value of a mask that is one constant in all lanes."""
    if isinstance(mask, Broadcast) and isinstance(mask.a, Const):
        return bool(mask.a.value)
    return None


def _lane_form(e: Expr) -> tuple[Linear, int] | None:
    """Lane 0 and the slope of an index vector."""
    if isinstance(e, Ramp) and is_index(e.base):
        return linear(e.base), e.stride
    if isinstance(e, Broadcast) and is_index(e.a):
        return linear(e.a), 0
    return None


def _truth(op: str, lo: int | None, hi: int | None) -> bool | None:
    """Whether `difference OP 0` is known, for a difference in [lo, hi]."""
    if op in (">", "<="):
        known = True if lo is not None and lo > 0 else False if hi is not None and hi <= 0 else None
        return known if op == ">" or known is None else not known
    if op in ("<", ">="):
        known = True if hi is not None and hi < 0 else False if lo is not None and lo >= 0 else None
        return known if op == "<" or known is None else not known
    if lo == hi == 0:
        return op == "=="
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return op == "!="
    return None


def _logical(e: Binary) -> Expr:
    for this, other in ((e.a, e.b), (e.b, e.a)):
        if isinstance(this, Const):
            absorbing = bool(this.value) == (e.op == "or")
            if absorbing and this is e.b and e.a.children():
                continue  # keep the evaluation of the first operand's loads out of the question
            return Const(e.op == "or", bool_) if absorbing else other
    return e.a if e.a == e.b else e


def decided_by_type(e: Binary) -> Expr:
    """A comparison of integers with a number that every value of the type passes or fails, as a constant: `x < 0` of an
    unsigned `x`.

    No part of simplifying: the loops' proof looks for the conditions of the program as it wrote them.
    """
    numbers = [int(x.value) if isinstance(x, Const) else None for x in (e.a, e.b)]
    if numbers == [None, None]:
        return e
    bits, signed = e.a.dtype.bits, e.a.dtype.kind == "int"
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    (a_lo, a_hi), (b_lo, b_hi) = ((least, most) if n is None else (n, n) for n in numbers)
    truth = _truth(e.op, a_lo - b_hi, a_hi - b_lo)
    return e if truth is None else Const(truth, bool_)


def _wrapped(e: Binary) -> Expr:
    assert isinstance(e.a, Const) and isinstance(e.b, Const)
    x, y = int(e.a.value), int(e.b.value)
    value = {"+": x + y, "-": x - y, "*": x * y}[e.op]
    bits = e.dtype.bits
    value &= (1 << bits) - 1
    if e.dtype.kind == "int" and value >> (bits - 1):
        value -= 1 << bits
    return Const(value, e.dtype)
