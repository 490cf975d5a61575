"""Sums and products whose last operand is the one that a loop waits for.

    for i: a[i] = a[i - 1] + b[i] + c[i]      =>      for i: a[i] = b[i] + c[i] + a[i - 1]

Each iteration waits for what the one before has stored. In the order of the source all operations of the sum follow
that value, so that an iteration takes as long as all of them; with the value last only one of them does, and the others
overlap with earlier iterations (recurrence-constrained cycle time: Rau, "Iterative modulo scheduling", MICRO 1994; the
reassociation is that of height reduction: Kuck, "The Structure of Computers and Computations", 1978). What comes from
an iteration farther back stands before what comes from a nearer one.

    for i: a[i] = b[i - 1] + x; b[i] = a[i] + y      =>      for i: a[i] = b[i - 1] + x; b[i] = x + y + b[i - 1]

A sum that an iteration has itself just stored, and that waits, is computed again where it is read: then what waits for
`b[i - 1]` is one operation, not two.

Only with `fast_math`, since rounding changes, and before products and sums become `fma`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.emit.loop_ir.linear import difference, linear
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Let, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import over_bodies, with_bodies
from polyc.poly.expr import Binary, Expr, Load, Unary, Var
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import replace

Term = tuple[bool, Expr]
"""An operand of a sum, and whether it is subtracted."""

MOST_AGAIN = 24
"""Nodes of a sum that is computed twice, so that what waits for it is shorter."""


def recurrences_last(fn: Function) -> Function:
    """`fn` with the sums and products of serial innermost loops so ordered."""
    if not fn.fast_math:
        return fn

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind == "serial" and not any(isinstance(x, For) for x in walk(s.body)):
            return _Loop(s).ordered()
        return over_bodies(s, visit)

    return replace(fn, body=visit(fn.body))


class _Loop:
    """One innermost loop; `near`: how soon a value is awaited, 0 for what the loop does not store, 1 / d for what d
    iterations before have stored."""

    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.stores = [s for s in walk(loop.body) if isinstance(s, Store)]
        self.done: list[tuple[Store, float]] = []  # the stores before a statement in its own iteration
        self.names: dict[str, float] = {}
        self.sums: list[Store] = []  # those whose elements still hold the sum, and whose sums still have its value

    def ordered(self) -> For:
        """The loop with its expressions in order."""
        return replace(self.loop, body=self._stmt(self.loop.body))

    def _stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Let):
            value = self._expr(s.value)
            self.names[s.name] = self._near(value)
            body = self._stmt(s.body)
            self.sums = [x for x in self.sums if Var(s.name, value.dtype) not in walk_expr(x.value)]
            return replace(s, value=value, body=body)
        if isinstance(s, Store):
            made = s if s.reduction is not None else replace(s, value=self._expr(s.value))
            self.done.append((made, self._near(made.value)))
            self._changed(made)
            if _is_sum(made.value) and made.mask is None and not self._may_read(made.value, made):
                self.sums.append(made)
            return made
        if isinstance(s, (Block, Alloc)):
            return over_bodies(s, self._stmt)
        if isinstance(s, If):
            before, bodies = list(self.sums), []
            for b in s.bodies():
                self.sums = list(before)
                bodies.append(self._stmt(b))
            self.sums = before
            for x in walk(s):
                if isinstance(x, Store):
                    self._changed(x)
            return with_bodies(s, tuple(bodies))
        return s

    def _changed(self, s: Store) -> None:
        """Forget the sums of which a store may change the element or an operand."""
        element = [Load(x.array, x.index, x.value.dtype) for x in self.sums]
        self.sums = [
            x for x, own in zip(self.sums, element) if not self._may_read(own, s) and not self._may_read(x.value, s)
        ]

    def _may_read(self, e: Expr, s: Store) -> bool:
        """Whether the element that a store writes may be read by an expression in the same iteration."""
        reads = [x for x in walk_expr(e) if isinstance(x, Load) and x.array == s.array]
        return not all(any(difference(a, b) for a, b in zip(s.index, x.index, strict=True)) for x in reads)

    def _opened(self, terms: Sequence[Term]) -> list[Term]:
        """Operands of a sum; of those that this iteration has stored and that wait, the operands of their own sums."""
        out: list[Term] = []
        for minus, x in terms:
            known = [s for s in self.sums if isinstance(x, Load) and (s.array, s.index) == (x.array, x.index)]
            opened = bool(known) and self._near(x) > 0 and sum(1 for _ in walk_expr(known[0].value)) <= MOST_AGAIN
            out += _summands(known[0].value, minus) if opened else [(minus, x)]
        return out

    def _near(self, e: Expr) -> float:
        if isinstance(e, Var):
            return self.names.get(e.name, 0.0)
        if isinstance(e, Load):
            return max((self._awaited(e, s) for s in self.stores if s.array == e.array), default=0.0)
        return max(map(self._near, e.children()), default=0.0)

    def _awaited(self, e: Load, s: Store) -> float:
        distance = _iterations_between(s.index, e.index, self.loop)
        if distance is None or distance < 0:
            return 0.0
        if distance > 0:
            return 1.0 / distance
        return max((near for x, near in self.done if x.array == s.array and x.index == s.index), default=0.0)

    def _expr(self, e: Expr) -> Expr:
        if isinstance(e, Load) or not self._near(e):
            return e
        if isinstance(e, Binary) and e.dtype.is_float and e.op in ("+", "-"):
            return self._last(e, self._opened(_summands(e, False)), _sum)
        if isinstance(e, Binary) and e.dtype.is_float and e.op == "*":
            return self._last(e, [(False, f) for f in _factors(e)], _product)
        return e.with_children(tuple(map(self._expr, e.children())))

    def _last(self, e: Binary, terms: Sequence[Term], joined: Callable[[Sequence[Term]], Expr]) -> Expr:
        """The operands with those that are awaited longest at the end; `e` itself where they stand so already."""
        own = [(minus, self._expr(x)) for minus, x in terms]
        order = sorted(own, key=lambda t: self._near(t[1]))
        stays = order == own == list(terms) and _is_chain(e)
        return e if stays else joined(order)


def _iterations_between(stored: Sequence[Expr], read: Sequence[Expr], loop: For) -> int | None:
    """How many iterations before an element is stored that is read; None where that differs, or never happens."""
    found: set[int] = set()
    atom = Var(loop.var)
    for a, b in zip(stored, read, strict=True):
        apart, slope = linear(a) - linear(b), linear(a).coefficient(atom) * loop.step
        if not apart.is_const or (apart.const if slope == 0 else apart.const % slope):
            return None
        if slope:
            found.add(apart.const // slope)
    return 1 if not found else found.pop() if len(found) == 1 else None


def _is_sum(e: Expr) -> bool:
    return isinstance(e, Binary) and e.dtype.is_float and e.op in ("+", "-")


def _summands(e: Expr, minus: bool) -> list[Term]:
    if isinstance(e, Binary) and e.op in ("+", "-"):
        return [*_summands(e.a, minus), *_summands(e.b, minus is not (e.op == "-"))]
    return [(minus, e)]


def _factors(e: Expr) -> list[Expr]:
    return [*_factors(e.a), *_factors(e.b)] if isinstance(e, Binary) and e.op == "*" else [e]


def _sum(terms: Sequence[Term]) -> Expr:
    (minus, out), *rest = terms
    if minus:
        out = Unary("neg", out, out.dtype)
    for less, x in rest:
        out = Binary("-" if less else "+", out, x, x.dtype)
    return out


def _product(terms: Sequence[Term]) -> Expr:
    (_, out), *rest = terms
    for _, x in rest:
        out = Binary("*", out, x, x.dtype)
    return out


def _is_chain(e: Binary) -> bool:
    """Whether the operands are taken one by one from the left."""
    ops = ("*",) if e.op == "*" else ("+", "-")
    inner = isinstance(e.b, Binary) and e.b.op in ops
    return not inner and (not (isinstance(e.a, Binary) and e.a.op in ops) or _is_chain(e.a))
