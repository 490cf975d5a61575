"""Local arrays in the narrow type that their values come from.

A local array in f32 whose every value is one widened from f16 (a padded copy of an operand, say), or a constant that
f16 has, is stored in f16 and widened where it is read. No value changes: widening loses nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyc.poly.dtypes import DType
from polyc.poly.expr import Cast, Const, Expr, Load, rewrite
from polyc.poly.scop import Scop, Statement


def stored_narrow(scop: Scop) -> Scop:
    """The Scop with such arrays in the type of their values, same results to the last bit."""
    for name, array in scop.arrays.items():
        kind = _type_of_values(scop, name) if array.kind == "local" and array.dtype.is_float else None
        if kind is not None:
            scop = _stored_as(scop, name, kind)
    return scop


def _type_of_values(scop: Scop, array: str) -> DType | None:
    """The narrower floating type of which all values of the array are; None where there is none."""
    wide = scop.arrays[array].dtype
    writers = [s for s in scop.statements.values() if s.array == array]
    if not writers or any(s.reduction for s in writers):
        return None
    casts = [s.value for s in writers if isinstance(s.value, Cast)]
    kinds = {c.a.dtype for c in casts}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    others = [s.value for s in writers if not isinstance(s.value, Cast)]
    if not kind.is_float or kind.bits >= wide.bits or not all(_has(kind, v) for v in others):
        return None
    return kind


def _has(kind: DType, value: Expr) -> bool:
    """Whether the value is a constant that the type has."""
    if not isinstance(value, Const):
        return False
    with np.errstate(over="ignore"):
        return bool(np.float64(value.value).astype(kind.np).astype(np.float64) == np.float64(value.value))


def _stored_as(scop: Scop, array: str, kind: DType) -> Scop:
    old = scop.arrays[array]

    def widened(node: Expr) -> Expr:
        return Cast(replace(node, dtype=kind), old.dtype) if isinstance(node, Load) and node.array == array else node

    def moved(s: Statement) -> Statement:
        value = rewrite(s.value, widened)
        if s.array == array:
            value = (
                value.a if isinstance(value, Cast) else Const(value.value, kind) if isinstance(value, Const) else value
            )
        return replace(
            s,
            index=tuple(rewrite(e, widened) for e in s.index),
            value=value,
            predicate=None if s.predicate is None else rewrite(s.predicate, widened),
            dynamic=tuple(replace(d, lo=rewrite(d.lo, widened), hi=rewrite(d.hi, widened)) for d in s.dynamic),
        )

    statements = {n: moved(s) for n, s in scop.statements.items()}
    return replace(scop, arrays={**scop.arrays, array: replace(old, dtype=kind)}, statements=statements)
