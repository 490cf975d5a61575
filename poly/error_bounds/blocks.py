"""Sums in blocks: a statement whose elements are found by `i // 64` or `i % 64`, with an iterator for each.

Such subscripts come of steps that split a sum (`rfactor`): each partial sum has as many terms as its block, and this is
the depth that its rounding depends on.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Var, const_int, rewrite, substitute, walk
from polyc.poly.scop import Statement


def in_blocks(s: Statement, domain: isl.Set) -> tuple[Statement, isl.Set] | None:
    """The statement and the instances in `domain`, with `c * block + place` for each iterator that its subscripts have
    in blocks of `c`; None where there is none, or one in blocks of several sizes."""
    sizes = _sizes(s)
    if not sizes or any(len(found) > 1 for found in sizes.values()):
        return None
    width = {name: next(iter(found)) for name, found in sizes.items()}
    values = {name: _value(name, c) for name, c in width.items()}

    def changed(e: Expr) -> Expr:
        return substitute(rewrite(e, lambda part: _part(part, width)), values)

    iters = tuple(n for name in s.iters for n in (_names(name) if name in width else (name,)))
    old, new = ", ".join(s.iters), ", ".join(iters)
    ties = " and ".join(
        f"{name} = {c} {block} + {place} and 0 <= {place} < {c}"
        for name, c in width.items()
        for block, place in (_names(name),)
    )
    apart = isl.Map(f"{{ {s.name}[{old}] -> {s.name}[{new}] : {ties} }}")
    made = replace(
        s, iters=iters, domain=s.domain.apply(apart), index=tuple(changed(e) for e in s.index), value=changed(s.value),
        predicate=None if s.predicate is None else changed(s.predicate),
    )  # fmt: skip
    return made, domain.apply(apart)


def _names(iterator: str) -> tuple[str, str]:
    return f"{iterator}_block", f"{iterator}_place"


def _value(iterator: str, c: int) -> Expr:
    block, place = (Var(n, i64) for n in _names(iterator))
    return Binary("+", Binary("*", const_int(c), block, i64), place, i64)


def _sizes(s: Statement) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for e in s.index:
        for part in walk(e):
            if (split := _split(part)) is not None and split[0] in s.iters:
                found.setdefault(split[0], set()).add(split[1])
    return found


def _split(e: Expr) -> tuple[str, int] | None:
    """The iterator and the width of `i // c` and `i % c`."""
    match e:
        case Binary(op="//" | "%", a=Var() as i, b=Const() as c) if isinstance(c.value, int) and c.value > 1:
            return i.name, c.value
    return None


def _part(e: Expr, width: dict[str, int]) -> Expr:
    split = _split(e)
    if split is None or width.get(split[0]) != split[1]:
        return e
    assert isinstance(e, Binary)
    return Var(_names(split[0])[e.op == "%"], e.a.dtype)
