"""Which updates are reductions, and what reductions start from.

`A[w] op= u` is one where the instances that update an element form a chain in any order. That is so where `u` reads no
element that its own chain writes: the chain of an instance writes `A[w]` alone, so it is enough that no instance reads
the element that it updates but as the accumulator. Other elements of `A` may be read (factorizations and triangular
solves in place do); which of their updates come before is a conflict like any other, and keeps its order.
"""

from __future__ import annotations

from collections.abc import Iterable

import islpy as isl

from polyc.poly.access import guarded_loads
from polyc.poly.dtypes import DType, bool_
from polyc.poly.expr import Const, Expr, Load, loads
from polyc.poly.forms.affine import NotAffine, to_pw_aff


def identity(op: str, dtype: DType) -> Const:
    """The value that `op` leaves everything unchanged with, the sign of zero included (-0.0 + x is x)."""
    if op in ("+", "|", "^", "or"):
        return Const(False if dtype == bool_ else -0.0 if dtype.is_float else 0, dtype)
    if op == "*":
        return Const(1.0 if dtype.is_float else 1, dtype)
    if op in ("and", "&"):
        if dtype == bool_:
            return Const(True, dtype)
        return Const(-1 if dtype.kind == "int" else (1 << dtype.bits) - 1, dtype)
    sign = 1 if op == "min" else -1
    if dtype.is_float:
        return Const(sign * float("inf"), dtype)
    if dtype.kind == "uint":
        return Const((1 << dtype.bits) - 1 if op == "min" else 0, dtype)
    half = 1 << (dtype.bits - 1)
    return Const(half - 1 if op == "min" else -half, dtype)


def reads_updated(target: Load, others: Iterable[Expr], domain: isl.Set) -> Load | None:
    """A load in `others`, which an update of `target` evaluates beside it, that may be of the updated element.

    `domain` are the instances; conditions around a load count, and a subscript that is not affine may be any.
    """
    for e in others:
        if all(load.array != target.array for load in loads(e)):
            continue
        for load, where, _ in guarded_loads(e, domain, domain.get_space()):
            if load.array == target.array and not _alike(load, target, where).is_empty():
                return load
    return None


def updates_once(target: Load, domain: isl.Set) -> bool:
    """Whether each element is updated by one instance of `domain` at most: then nothing is added up."""
    space = domain.get_space()
    try:
        values = [to_pw_aff(e, space) for e in target.index]
    except NotAffine:
        return False
    written = isl.Map.from_domain(domain)
    for value in values:
        written = written.flat_range_product(isl.Map.from_pw_aff(value))
    return bool(written.is_injective())


def _alike(a: Load, b: Load, where: isl.Set) -> isl.Set:
    """The instances at which both may be one element."""
    space = where.get_space()
    for x, y in zip(a.index, b.index, strict=True):
        try:
            where = where.intersect(to_pw_aff(x, space).eq_set(to_pw_aff(y, space)))
        except NotAffine:
            continue
    return where
