"""The derivative of one expression: what each element that it reads adds to the value's adjoint.

Reverse mode on the tree of an expression (Griewank and Walther, "Evaluating Derivatives", 2008, chapter 3): the
adjoint of a node goes to its operands, times the partial derivatives. Conditions stay apart from the products, so
that what is not evaluated forward is not evaluated here either: `x / y if y != 0 else 0` gives no 0 * inf.

Of `max(a, b)`, which is `b if b > a else a`, the operand that is returned gets all: the first one of equal ones, and
also when one of them is no number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field
from typing import TypeVar

from polyc.poly.adjoint.algebra import cast, compared, div, mul, neg, negated, number, total, where
from polyc.poly.adjoint.errors import NotDifferentiable
from polyc.poly.adjoint.intrinsics import COLUMN, REFUSED, power
from polyc.poly.expr import Binary, Call, Cast, Expr, Load, Select, Span, StraightLine, Temp, Unary, walk
from polyc.poly.records import dataclass

Guards = tuple[Expr, ...]
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Term:
    """`value`, under all `guards`, is added to the adjoint of the element that `load` reads."""

    load: Load
    guards: Guards
    value: Expr


@dataclass(slots=True)
class _Sweep:
    """One pass over an expression; `leaf` gets what ends at a load or at a name of a straight line."""

    active: Collection[str]
    span: Span | None
    terms: list[Term] = field(default_factory=list)
    named: dict[str, list[Expr]] = field(default_factory=dict)  # by name of a straight line
    moving: set[str] = field(default_factory=set)  # names whose values depend on active loads


def terms_of(value: Expr, seed: Expr, active: Collection[str], span: Span | None) -> list[Term]:
    """What the elements that `value` reads from `active` arrays get when the value's adjoint is `seed`.

    Raises:
        NotDifferentiable: an intrinsic without a derivative has an active argument; `span` is the place said.
    """
    sweep = _Sweep(active, span)
    _down(sweep, value, seed, ())
    return sweep.terms


def depends(e: Expr, active: Collection[str], names: Collection[str] = ()) -> bool:
    """Whether a floating-point value is read from an active array anywhere in `e`."""
    waiting = [e]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Load):
            if node.array in active:
                return True
            continue  # its subscripts are integers
        if isinstance(node, Temp) and node.name in names:
            return True
        waiting.extend(node.children())
    return False


def _down(sweep: _Sweep, e: Expr, seed: Expr, guards: Guards) -> None:
    if not e.dtype.is_float or not depends(e, sweep.active, sweep.moving):
        return
    match e:
        case Load():
            sweep.terms.append(Term(e, guards, seed))
        case Temp():
            sweep.named[e.name].append(guarded(guards, seed))
        case Unary(op="neg"):
            _down(sweep, e.a, neg(seed), guards)
        case Cast():
            if e.a.dtype.is_float:
                _down(sweep, e.a, cast(seed, e.a.dtype), guards)
        case Select():
            _down(sweep, e.a, seed, (*guards, e.cond))
            _down(sweep, e.b, seed, (*guards, negated(e.cond)))
        case Binary():
            _binary(sweep, e, seed, guards)
        case Call():
            if e.fn not in COLUMN:
                reason = REFUSED.get(e.fn, "no rule is known")
                raise NotDifferentiable(
                    f"{e.fn} has no derivative: {reason}; take it out of what is derived", sweep.span
                )
            for a, partial in zip(e.args, COLUMN[e.fn](e.args, e), strict=True):
                if partial is not None:
                    _down(sweep, a, mul(seed, partial), guards)
        case StraightLine():
            _straight(sweep, e, seed, guards)
        case _:
            raise NotDifferentiable(f"{type(e).__name__} has no derivative", sweep.span)


def _binary(sweep: _Sweep, e: Binary, seed: Expr, guards: Guards) -> None:
    a, b = e.a, e.b
    match e.op:
        case "+":
            _down(sweep, a, seed, guards)
            _down(sweep, b, seed, guards)
        case "-":
            _down(sweep, a, seed, guards)
            _down(sweep, b, neg(seed), guards)
        case "*":
            _down(sweep, a, mul(seed, b), guards)
            _down(sweep, b, mul(seed, a), guards)
        case "/":
            _down(sweep, a, div(seed, b), guards)
            _down(sweep, b, neg(mul(div(seed, b), div(a, b))), guards)
        case "min" | "max":
            second = compared("<" if e.op == "min" else ">", b, a)
            _down(sweep, a, seed, (*guards, negated(second)))
            _down(sweep, b, seed, (*guards, second))
        case "**":
            for x, partial in zip((a, b), power((a, b), e), strict=True):
                if partial is not None:
                    _down(sweep, x, mul(seed, partial), guards)
        case "%":  # a - a // b * b
            _down(sweep, a, seed, guards)
            _down(sweep, b, neg(mul(seed, Binary("//", a, b, e.dtype))), guards)
        case "//":
            pass  # steps
        case _:
            raise NotDifferentiable(f"'{e.op}' has no derivative", sweep.span)


def _straight(sweep: _Sweep, line: StraightLine, seed: Expr, guards: Guards) -> None:
    """A run of assignments: its names get adjoints of their own, the last one first."""
    moving = set(sweep.moving)
    for name, value in zip(line.names, line.values, strict=True):
        if value.dtype.is_float and depends(value, sweep.active, moving):
            moving.add(name)
    inner = _Sweep(sweep.active, sweep.span, named={n: [] for n in line.names}, moving=moving)
    _down(inner, line.result, seed, guards)
    names, values = list(line.names), list(line.values)
    taken = {*names, *(e.name for e in walk(line) if isinstance(e, Temp))}
    for name, value in zip(reversed(line.names), reversed(line.values), strict=True):
        if not (gathered := inner.named[name]):
            continue
        own = _fresh(f"d_{name}", taken)
        names.append(own)
        values.append(total(gathered))
        _down(inner, value, Temp(own, value.dtype), ())
    for load, parts in grouped(inner.terms, lambda t: t.load).items():
        result = total(guarded(t.guards, t.value) for t in parts)
        sweep.terms.append(Term(load, (), StraightLine(tuple(names), tuple(values), result, result.dtype)))


def _fresh(name: str, taken: set[str]) -> str:
    found, n = name, 0
    while found in taken:
        n += 1
        found = f"{name}_{n}"
    taken.add(found)
    return found


def guarded(guards: Guards, value: Expr) -> Expr:
    """`value` where all guards hold, else 0."""
    for cond in reversed(guards):
        value = where(cond, value, number(0.0, value.dtype))
    return value


def grouped(terms: list[Term], key: Callable[[Term], K]) -> dict[K, list[Term]]:
    """Terms by a key, in the order in which they come up."""
    out: dict[K, list[Term]] = {}
    for t in terms:
        out.setdefault(key(t), []).append(t)
    return out
