"""Seeded bugs in loop IR: every change of one thing that a code generator could get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import substitute_stmt, with_bodies
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Const, Expr, Load, Select, Unary, Var, const_int

Change = tuple[str, str, Stmt]  # kind, what, the statement afterwards


@dataclass(frozen=True)
class Mutant:
    """`fn` with one change of the given kind; `what` says where."""

    kind: str
    what: str
    fn: Function


def mutants(fn: Function) -> Iterator[Mutant]:
    """All mutants of `fn`, as generated from isl's AST."""
    promoted = {s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.promoted}
    changer = _Changer(promoted)
    for kind, what, body in changer.all(fn.body):
        yield Mutant(kind, what, replace(fn, body=body))


class _Changer:
    def __init__(self, promoted: set[str]) -> None:
        self.promoted = promoted

    def all(self, s: Stmt) -> Iterator[Change]:
        """The statement with one change, anywhere in it."""
        yield from self.here(s)
        bodies = s.bodies()
        for k, body in enumerate(bodies):
            for kind, what, new in self.all(body):
                yield kind, what, with_bodies(s, (*bodies[:k], new, *bodies[k + 1 :]))

    def here(self, s: Stmt) -> Iterator[Change]:
        if isinstance(s, For):
            yield from self.loop(s)
        elif isinstance(s, If):
            yield from self.branch(s)
        elif isinstance(s, Block):
            yield from self.block(s)
        elif isinstance(s, Store):
            yield from self.store(s)
        elif isinstance(s, Alloc) and s.buffer.promoted:
            yield from self.alloc(s)

    # ---- statements ------------------------------------------------------------------------

    def loop(self, s: For) -> Iterator[Change]:
        kind = "copy bound" if _is_copy(s.body) else "bound"
        for by in (1, -1):
            yield kind, f"{s.var}: lower bound {by:+}", replace(s, lo=_plus(s.lo, by))
            yield kind, f"{s.var}: upper bound {by:+}", replace(s, hi=_plus(s.hi, by))
        for narrower in _without_argument(s.hi):
            yield kind, f"{s.var}: upper bound without an argument", replace(s, hi=narrower)
        for wider in _without_argument(s.lo):
            yield kind, f"{s.var}: lower bound without an argument", replace(s, lo=wider)
        yield "step", f"{s.var}: step {s.step + 1}", replace(s, step=s.step + 1)
        if isinstance(s.body, For):
            yield "loops swapped", f"{s.var} and {s.body.var}", replace(s.body, body=replace(s, body=s.body.body))
        if s.kind != "parallel":
            yield "parallel mark", s.var, replace(s, kind="parallel", factor=None)
        if s.kind != "vector":
            yield "vector mark", s.var, replace(s, kind="vector", factor=4)
        later = substitute_stmt(s.body, {s.var: _plus(Var(s.var), 1)})
        yield "instance shifted", f"{s.var} + 1 in the body", replace(s, body=later)
        if isinstance(s.body, Alloc) and s.body.buffer.promoted:
            moved = replace(s.body, body=replace(s, body=s.body.body))
            yield "buffer hoisted", f"{s.body.buffer.name} out of {s.var}", moved

    def branch(self, s: If) -> Iterator[Change]:
        yield "guard dropped", str_of(s.cond), Block(s.bodies())
        for cond in _conditions(s.cond):
            yield "guard changed", str_of(s.cond), replace(s, cond=cond)
        if s.orelse is not None:
            yield "guard changed", "no else", replace(s, orelse=None)
            yield "guard changed", "arms swapped", If(s.cond, s.orelse, s.then)

    def block(self, s: Block) -> Iterator[Change]:
        for k, child in enumerate(s.stmts):
            kind = "copy dropped" if _is_copy(child) else "statement dropped"
            yield kind, f"number {k}", Block((*s.stmts[:k], *s.stmts[k + 1 :]))
            if k:
                pair = (child, s.stmts[k - 1])
                yield "statements swapped", f"{k - 1} and {k}", Block((*s.stmts[: k - 1], *pair, *s.stmts[k + 1 :]))
        yield "statement repeated", "the first", Block((*s.stmts, *s.stmts[:1]))

    def alloc(self, s: Alloc) -> Iterator[Change]:
        for d, size in enumerate(s.buffer.shape):
            if not (isinstance(size, Const) and size.value <= 1):
                shape = (*s.buffer.shape[:d], _plus(size, -1), *s.buffer.shape[d + 1 :])
                yield "extent", s.buffer.name, replace(s, buffer=replace(s.buffer, shape=shape))

    def store(self, s: Store) -> Iterator[Change]:
        for index in _indices(s.index):
            yield self.subscript(s.array), f"store to {s.array}", replace(s, index=index)
        for kind, value in self.values(s.value):
            yield kind, f"value stored to {s.array}", replace(s, value=value)
        if s.instance is not None:
            name, values = s.instance
            for claim in _indices(values):
                yield "instance claimed", name, replace(s, instance=(name, claim))

    def subscript(self, array: str) -> str:
        return "promoted offset" if array in self.promoted else "array subscript"

    # ---- expressions -----------------------------------------------------------------------

    def values(self, e: Expr) -> Iterator[tuple[str, Expr]]:
        """The expression with one node changed."""
        if isinstance(e, Load):
            for index in _indices(e.index):
                yield self.subscript(e.array), Load(e.array, index, e.dtype, e.span)
        if isinstance(e, Binary) and e.op in _OTHER:
            yield "operator", Binary(_OTHER[e.op], e.a, e.b, e.dtype)
        if isinstance(e, Binary) and e.op in ("-", "/", "//", "%") and e.a != e.b:
            yield "operator", Binary(e.op, e.b, e.a, e.dtype)
        if isinstance(e, Select):
            yield "operator", Select(e.cond, e.b, e.a, e.dtype)
            for cond in _conditions(e.cond):
                yield "operator", Select(cond, e.a, e.b, e.dtype)
        if isinstance(e, Const) and e.dtype.is_float:
            yield "operator", Const(e.value + 1.0, e.dtype)
        kids = e.children()
        for k, kid in enumerate(kids):
            for kind, new in self.values(kid):
                yield kind, e.with_children((*kids[:k], new, *kids[k + 1 :]))


_OTHER = {"+": "-", "-": "+", "*": "+", "/": "*", "min": "max", "max": "min", "&": "|", "|": "&"}
_COMPARE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": ">=", "!=": "=="}


def _conditions(e: Expr) -> Iterator[Expr]:
    """The condition with one comparison changed."""
    if isinstance(e, Binary) and e.op in _COMPARE:
        yield Binary(_COMPARE[e.op], e.a, e.b, bool_)
        if e.a.dtype == i64:
            yield Binary(e.op, e.a, _plus(e.b, 1), bool_)
            yield Binary(e.op, e.a, _plus(e.b, -1), bool_)
    elif isinstance(e, Binary) and e.op in ("and", "or"):
        yield e.a
        yield e.b
        for a in _conditions(e.a):
            yield Binary(e.op, a, e.b, bool_)
        for b in _conditions(e.b):
            yield Binary(e.op, e.a, b, bool_)
    elif isinstance(e, Unary) and e.op == "not":
        yield e.a


def _indices(index: tuple[Expr, ...]) -> Iterator[tuple[Expr, ...]]:
    """The subscripts with one off by one, or two neighbours exchanged."""
    for d, e in enumerate(index):
        for by in (1, -1):
            yield (*index[:d], _plus(e, by), *index[d + 1 :])
        if d and index[d - 1] != e:
            yield (*index[: d - 1], e, index[d - 1], *index[d + 1 :])


def _without_argument(e: Expr) -> Iterator[Expr]:
    """A bound that has lost one argument of its `min` or `max`."""
    if isinstance(e, Binary) and e.op in ("min", "max"):
        yield e.a
        yield e.b


def _plus(e: Expr, by: int) -> Expr:
    if isinstance(e, Const):
        return const_int(e.value + by)
    return Binary("+" if by > 0 else "-", e, const_int(abs(by)), i64)


def _is_copy(s: Stmt) -> bool:
    """Whether all stores in it are copies."""
    return all(x.instance is None for x in walk(s) if isinstance(x, Store))


def str_of(e: Expr) -> str:
    """The expression as text."""
    from polyc.emit.loop_ir.printer import expr_text

    return expr_text(e)
