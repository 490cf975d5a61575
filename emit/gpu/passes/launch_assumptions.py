"""Conditions on sizes that a launch may assume, because the host checks them and has another launch for all others.

Rows of arrays whose sizes come with a call begin anywhere. Where accesses of 16 bytes are worth it, the host
chooses between two versions of a launch: one for sizes that are multiples of a whole access, and so small that
index arithmetic fits in 32 bits, and one for all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from math import gcd

from polyc.emit.loop_ir.linear import linear, rebuild, variables
from polyc.emit.loop_ir.loops import Buffer, For, Stmt, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int
from polyc.poly.expr import walk as walk_expr
from polyc.poly.target import WIDEST_ACCESS

MOST_ELEMENTS = 2**31 - 1
LARGEST_SIZE = 2**28  # sums of several subscripts still fit in 32 bits


def multiples(given: Iterable[Expr]) -> dict[str, int]:
    """The known divisors of sizes, from conditions `size % n == 0`."""
    out: dict[str, int] = {}
    for e in given:
        if isinstance(e, Binary) and e.op == "==" and isinstance(e.a, Binary) and e.a.op == "%":
            if isinstance(e.a.a, Var) and isinstance(e.a.b, Const) and e.b == const_int(0):
                out[e.a.a.name] = int(e.a.b.value)
    return out


def limits(given: Iterable[Expr]) -> dict[str, int]:
    """The largest values of sizes, from conditions `size <= n`."""
    return {
        e.a.name: int(e.b.value)
        for e in given
        if isinstance(e, Binary) and e.op == "<=" and isinstance(e.a, Var) and isinstance(e.b, Const)
    }


def divisor(e: Expr, known: Mapping[str, int]) -> int:
    """A number that divides the value of an index expression (0: the value is 0)."""
    if isinstance(e, Binary) and e.op == "*":
        return divisor(e.a, known) * divisor(e.b, known)
    form = linear(e)
    parts = [c * (known.get(a.name, 1) if isinstance(a, Var) else 1) for a, c in form.terms]
    return reduce(gcd, parts, abs(form.const))


def elements(buffer: Buffer) -> Expr:
    """How many elements an array has."""
    count: Expr = const_int(1)
    for e in buffer.shape:
        count = rebuild(linear(Binary("*", count, e, i64)))
    return count


def worthwhile(
    s: Stmt, arrays: Mapping[str, Buffer], sizes: frozenset[str], single: frozenset[str]
) -> tuple[Expr, ...]:
    """The conditions on sizes under which a launch of `s` has wider accesses than in general; () when never.
    `single`: buffers that are copied element by element."""
    if not any(_wants_lanes(x, single) for x in walk(s)):
        return ()
    used = [arrays[n] for n in sorted(_accessed(s)) if n in arrays]
    whole: dict[str, int] = {}
    for b in used:
        row, lanes = b.shape[-1] if len(b.shape) > 1 else None, WIDEST_ACCESS // b.dtype.bytes
        if isinstance(row, Var) and row.name in sizes and lanes > 1:
            whole[row.name] = max(lanes, whole.get(row.name, 1))
    symbolic = [b for b in used if any(variables(e) for e in b.shape)]
    names = sorted({v for b in symbolic for e in b.shape for v in variables(e)})
    if not whole or not set(names) <= sizes:
        return ()
    zero = const_int(0)
    even = [Binary("==", Binary("%", Var(n), const_int(c), i64), zero, bool_) for n, c in sorted(whole.items())]
    small = [Binary("<=", Var(n), const_int(LARGEST_SIZE), bool_) for n in names]
    few = [Binary("<=", elements(b), const_int(MOST_ELEMENTS), bool_) for b in symbolic if len(b.shape) > 1]
    return tuple(dict.fromkeys((*even, *small, *few)))


def _wants_lanes(s: Stmt, single: frozenset[str]) -> bool:
    """Whether this is a loop over lanes, or a copy that may become one."""
    if isinstance(s, For):
        return s.kind == "vector" and not all(x.origin and x.origin.buffer in single
                                              for x in walk(s) if isinstance(x, Store))  # fmt: skip
    return isinstance(s, Store) and s.instance is None and not (s.origin and s.origin.buffer in single)


def _accessed(s: Stmt) -> set[str]:
    out = {x.array for x in walk(s) if isinstance(x, Store)}
    for x in walk(s):
        out |= {e.array for top in stmt_exprs(x) for e in walk_expr(top) if isinstance(e, Load | VLoad)}
    return out


def both(conditions: Sequence[Expr]) -> Expr:
    """All of the conditions."""
    return reduce(lambda a, b: Binary("and", a, b, bool_), conditions)
