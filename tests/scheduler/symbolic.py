"""Running a Scop of constant sizes symbolically: every value is the expression that made it.

Two programs compute the same values exactly when their symbolic values are equal. Sums are
bags of terms, so that reductions may be reordered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import brute_order
from brute_order import Instance

from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from polyc.poly.scop import Scop
from polyc.poly.tree import Node

Value = Any


@dataclass(frozen=True)
class Run:
    """What every instance stored, and what the arrays hold at the end (untouched elements left out)."""

    stores: dict[Instance, Value]
    memory: dict[tuple[str, tuple[int, ...]], Value]


def run(scop: Scop, tree: Node) -> Run:
    """The instances in the order of the tree (ties in any order)."""
    everything = [x for s in scop.statements.values() for x in brute_order.instances(s)]
    times, _ = brute_order.times(tree, everything)
    memory: dict[tuple[str, tuple[int, ...]], Value] = {}
    stores: dict[Instance, Value] = {}
    for x in sorted(everything, key=lambda x: times[x]):
        s = scop.statements[x.stmt]
        env = dict(zip(s.iters, x.point, strict=True))
        value = evaluate(s.value, env, memory)
        stores[x] = value
        memory[s.array, tuple(brute_order.evaluate(i, env) for i in s.index)] = value
    return Run(stores, memory)


def evaluate(e: Expr, env: dict[str, int], memory: dict[tuple[str, tuple[int, ...]], Value]) -> Value:
    if isinstance(e, Load):
        at = (e.array, tuple(brute_order.evaluate(i, env) for i in e.index))
        return memory.get(at, at)
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Select):
        return evaluate(e.a if truth(e.cond, env) else e.b, env, memory)
    kids = [evaluate(c, env, memory) for c in e.children()]
    if isinstance(e, Binary) and e.op == "+":
        return bag(kids)
    op = e.op if isinstance(e, (Binary, Unary)) else e.fn if isinstance(e, Call) else type(e).__name__
    assert not isinstance(e, (Var, Cast))
    return (op, *kids)


def bag(terms: list[Value]) -> Value:
    """A sum as a bag of its terms; zeros vanish."""
    total: Counter[Value] = Counter()
    for t in terms:
        if isinstance(t, tuple) and t and t[0] == "sum":
            total.update(dict(t[1]))
        elif t != 0.0:
            total[t] += 1
    if sum(total.values()) == 1:
        return next(iter(total))
    return ("sum", frozenset(total.items())) if total else 0.0


def truth(e: Expr, env: dict[str, int]) -> bool:
    """An affine condition at a point."""
    if isinstance(e, Const):
        return bool(e.value)
    assert isinstance(e, Binary)
    if e.op in ("and", "or"):
        a, b = truth(e.a, env), truth(e.b, env)
        return a and b if e.op == "and" else a or b
    x, y = brute_order.evaluate(e.a, env), brute_order.evaluate(e.b, env)
    return {"==": x == y, ">=": x >= y, "<=": x <= y, "<": x < y, ">": x > y, "!=": x != y}[e.op]
