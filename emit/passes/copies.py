"""Register tiles: loops to be unrolled that stay loops until the vector loops inside them are vectors.

Copies of one body that differ in constant subscripts only have to be looked at once: for passes, a tile of 14 rows of
two vectors is two statements instead of 28. A loop waits if it runs a constant number of times and no pass decides
anything by its variable: that stands in subscripts alone, as a term of a sum. Rows may still differ in what is inside
an array and in which elements are the same: where it depends on rows, `vectorise` has them written out first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyc.emit.loop_ir.linear import linear, variables
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Let, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs, with_bodies
from polyc.emit.passes.bounds import full
from polyc.emit.passes.simplify import simplify_expr
from polyc.poly.dtypes import i64
from polyc.poly.expr import Const, Expr, Load, Var, const_int, substitute
from polyc.poly.records import replace


def may_wait(loop: For) -> bool:
    """Whether unrolling the loop after vectorisation gives what unrolling it before gives."""
    limit = full(loop)
    if limit is None or limit.conditions or limit.trip == 0 or not isinstance(limit.lo, Const):
        return False
    if loop.until is not None or (loop.factor is not None and limit.trip > loop.factor):
        return False
    inside = list(walk(loop.body))
    return any(isinstance(s, For) and s.kind == "vector" for s in inside) and all(_adds(s, loop.var) for s in inside)


def _adds(s: Stmt, var: str) -> bool:
    """Whether the variable stands in subscripts of the statement alone, as a term of a sum."""
    if isinstance(s, Store):
        values = (s.value,) if s.mask is None else (s.value, s.mask)
        return all(_is_term(i, var) for i in s.index) and all(_in_subscripts(e, var) for e in values)
    return isinstance(s, (Block, For, Let, Alloc, If)) and not any(var in variables(e) for e in stmt_exprs(s))


def _in_subscripts(e: Expr, var: str) -> bool:
    if isinstance(e, Var):
        return e.name != var
    if isinstance(e, Load):
        return all(_is_term(i, var) for i in e.index)
    return all(_in_subscripts(c, var) for c in e.children())


def _is_term(index: Expr, var: str) -> bool:
    return all(isinstance(a, Var) or var not in variables(a) for a, _ in linear(index).terms)


def waiting(fn: Function) -> set[str]:
    """The variables of loops that are still to be unrolled."""
    return {s.var for s in walk(fn.body) if isinstance(s, For) and s.kind == "unroll"}


def copies(fn: Function, chosen: set[str] | None = None) -> Function:
    """Every loop that waited (`chosen`: those over these variables) as straight-line code with simple subscripts."""
    tiles = _Tiles(waiting(fn) if chosen is None else chosen)
    return replace(fn, body=tiles.written_out(fn.body)) if tiles.variables else fn


class _Tiles:
    """Statements and expressions at positions in tiles; an expression is made once for each value that it can have."""

    def __init__(self, variables: set[str]) -> None:
        self.variables = variables
        self.made: dict[tuple[int, ...], Expr] = {}
        self.moving: dict[int, tuple[Expr, tuple[str, ...]]] = {}  # the expression is kept, so its id stays its own

    def written_out(self, s: Stmt) -> Stmt:
        """The statement without loops that waited; itself where there are none."""
        if isinstance(s, For) and s.var in self.variables:
            return _joined(list(self.at(s, {})))
        bodies = tuple(map(self.written_out, s.bodies()))
        new = with_bodies(s, bodies)
        return _joined([new]) if isinstance(new, Block) and new is not s else new

    def at(self, s: Stmt, position: Mapping[str, int]) -> Iterator[Stmt]:
        """The statements that one is at a position."""
        if isinstance(s, Block):
            for x in s.stmts:
                yield from self.at(x, position)
        elif isinstance(s, For) and s.var in self.variables:
            limit = full(s)
            assert limit is not None and not limit.conditions and isinstance(limit.lo, Const)
            for t in range(limit.trip):
                yield from self.at(s.body, {**position, s.var: int(limit.lo.value) + t * s.step})
        elif isinstance(s, Store):
            yield self.store(s, position)
        else:
            yield with_bodies(s, tuple(_joined(list(self.at(b, position))) for b in s.bodies()))

    def store(self, s: Store, position: Mapping[str, int]) -> Store:
        """A store at a position."""
        index = tuple([self.expr(e, position) for e in s.index])
        mask = None if s.mask is None else self.expr(s.mask, position)
        value = self.expr(s.value, position)
        return Store(s.array, index, value, mask, None, s.reduction, s.span, s.origin, s.asynchronous, rare=s.rare)

    def expr(self, e: Expr, position: Mapping[str, int]) -> Expr:
        """An expression at a position, its sums simplified."""
        moving = self.depends(e)
        if not moving:
            return e
        key = (id(e), *[position[v] for v in moving])
        made = self.made.get(key)
        if made is None:
            if e.dtype == i64 and e.lanes == 1 and not isinstance(e, Load):
                made = simplify_expr(substitute(e, {v: const_int(position[v]) for v in moving}))
            else:
                made = e.with_children(tuple([self.expr(c, position) for c in e.children()]))
            self.made[key] = made
        return made

    def depends(self, e: Expr) -> tuple[str, ...]:
        """The variables of tiles that an expression depends on."""
        known = self.moving.get(id(e))
        if known is None:
            own = [e.name] if isinstance(e, Var) and e.name in self.variables else []
            found = dict.fromkeys([*own, *(v for c in e.children() for v in self.depends(c))])
            known = self.moving[id(e)] = (e, tuple(found))
        return known[1]


def _joined(stmts: list[Stmt]) -> Stmt:
    """Statements one after another, blocks in them opened."""
    parts: list[Stmt] = []
    waiting = stmts[::-1]
    while waiting:
        s = waiting.pop()
        if isinstance(s, Block):
            waiting.extend(reversed(s.stmts))
        else:
            parts.append(s)
    return parts[0] if len(parts) == 1 else Block(tuple(parts))
