"""Factors that several terms of a sum share are multiplied once.

    a*b*c + a*b*d + a*c*d      =>      a * (b * (c + d) + c * d)

The factor that most terms have comes first, then the same for what it is multiplied with and for the rest (the greedy
scheme for multivariate polynomials: Ceberio and Kreinovich, "Greedy algorithms for optimizing multivariate Horner
schemes", SIGSAM Bulletin 2004). Sums end with what is left, so that sums of fewer terms are parts of longer ones. Only
with `fast_math`, since rounding changes, where it saves operations, and before products and sums become `fma`. What a
loop hands on from iteration to iteration stays as it is: it would be awaited by more operations, one after another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from polyc.emit.loop_ir.loops import Alloc, For, Function, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import over_bodies
from polyc.poly.dtypes import DType, f32, f64
from polyc.poly.expr import Binary, Expr, Unary, loads
from polyc.poly.records import replace

Term = tuple[bool, tuple[Expr, ...]]
"""Whether it is subtracted, and its factors."""
MOST_TERMS = 64


def factors(fn: Function) -> Function:
    """`fn` with the sums that its stores evaluate in that form."""
    return replace(fn, body=_visit(fn.body, frozenset())) if fn.fast_math else fn


def _visit(s: Stmt, handed_on: frozenset[str]) -> Stmt:
    """`handed_on`: arrays that the innermost loop around writes, other than those of one iteration."""
    if isinstance(s, For):
        own = {x.buffer.name for x in walk(s.body) if isinstance(x, Alloc)}
        handed_on = frozenset(x.array for x in walk(s.body) if isinstance(x, Store)) - own
    if isinstance(s, Store):
        if s.reduction is not None or any(x.array in handed_on for x in loads(s.value)):
            return s
        made = factored(s.value)
        return s if made is s.value else replace(s, value=made)
    return over_bodies(s, _visit, handed_on)


def factored(e: Expr) -> Expr:
    """`e`, a sum of products, with common factors taken out; itself where that saves nothing."""
    if not isinstance(e, Binary) or e.op not in ("+", "-") or e.dtype not in (f32, f64):
        return e
    terms = _terms(e, False)
    if not 2 < len(terms) <= MOST_TERMS:
        return e
    made, cost = _nested(terms, e.dtype)
    return made if cost < _cost(terms) else e


def _terms(e: Expr, minus: bool) -> list[Term]:
    if isinstance(e, Binary) and e.op in ("+", "-") and e.dtype in (f32, f64):
        return [*_terms(e.a, minus), *_terms(e.b, minus != (e.op == "-"))]
    return [(minus, _factors(e))]


def _factors(e: Expr) -> tuple[Expr, ...]:
    return (*_factors(e.a), *_factors(e.b)) if isinstance(e, Binary) and e.op == "*" else (e,)


def _cost(terms: Sequence[Term]) -> int:
    """Operations of the sum as it stands: an addition and a product before it are one, and the first product of two
    factors is made once where terms begin alike."""
    begun = {f[:2] for _, f in terms if len(f) > 2}
    products = sum(len(f) - 1 - (len(f) > 2) for _, f in terms) + len(begun)
    return products + len(terms) - 1 - min(len(terms) - 1, sum(len(f) > 1 for _, f in terms))


def _nested(terms: Sequence[Term], dtype: DType) -> tuple[Expr, int]:
    """The sum in nested form, and its operations; a product that is added counts as one."""
    shared = Counter(f for _, fs in terms if len(fs) > 1 for f in dict.fromkeys(fs))
    most = max(shared.values(), default=0)
    if most < 2:
        return _sum(terms, dtype), _cost(terms)
    factor = next(f for f, count in shared.items() if count == most)
    inside, rest = [], []
    for minus, fs in terms:
        if len(fs) > 1 and factor in fs:
            k = fs.index(factor)
            inside.append((minus, (*fs[:k], *fs[k + 1 :])))
        else:
            rest.append((minus, fs))
    inner, cost = _nested(inside, dtype)
    product = Binary("*", factor, inner, dtype)
    if not rest:
        return product, cost + 1
    other, more = _nested(rest, dtype)
    return Binary("+", product, other, dtype), cost + more + 1


def _sum(terms: Sequence[Term], dtype: DType) -> Expr:
    """The terms from the last one to the first, so that sums with the same end share it."""
    last = next((k for k in reversed(range(len(terms))) if not terms[k][0]), None)
    if last is None:
        return Unary("neg", _sum([(False, fs) for _, fs in terms], dtype), dtype)
    out = _product(terms[last][1], dtype)
    for minus, fs in reversed([*terms[:last], *terms[last + 1 :]]):
        value = _product(fs, dtype)
        out = Binary("-", out, value, dtype) if minus else Binary("+", value, out, dtype)
    return out


def _product(fs: Sequence[Expr], dtype: DType) -> Expr:
    out = fs[0]
    for f in fs[1:]:
        out = Binary("*", out, f, dtype)
    return out
