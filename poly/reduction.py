"""Which updates are reductions, and what reductions start from.

`A[w] op= u` is one where the instances that update an element form a chain in any order. That is so where `u` reads no
element that its own chain writes: the chain of an instance writes `A[w]` alone, so it is enough that no instance reads
the element that it updates but as the accumulator. Other elements of `A` may be read (factorizations and triangular
solves in place do); which of their updates come before is a conflict like any other, and keeps its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import islpy as isl

from polyc.poly.access import guarded_loads
from polyc.poly.dtypes import DType, bool_
from polyc.poly.expr import Binary, Const, Expr, Load, Unary, loads
from polyc.poly.forms.affine import NotAffine, to_pw_aff
from polyc.poly.scop import Scop, Statement


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


_OPERATORS = {"+": "+", "-": "+", "*": "*", "min": "min", "max": "max", "and": "and", "or": "or",
              "&": "&", "|": "|", "^": "^"}  # fmt: skip
_CHAINS = {"+": "+", "-": "+", "*": "*"}


def with_reduction(stmt: Statement, reassociate: bool) -> Statement:
    """A statement that is not known to be a reduction as the one that it is: its value with the accumulator first. The
    statement itself where it is none.

    Args:
        stmt: the statement.
        reassociate: whether sums of floats may change their order.
    """
    value = stmt.value
    if not isinstance(value, Binary) or value.op not in _OPERATORS:
        return stmt
    allowed = reassociate or not value.dtype.is_float
    here = Load(stmt.array, stmt.index, value.dtype)
    if allowed and here not in (value.a, value.b):
        value = _accumulator_first(value, here, stmt.domain)
    a, b = value.a, value.b
    if a != here and b == here and value.op != "-":
        exact = value.op in ("+", "*", "&", "|", "^") or not value.dtype.is_float
        if value.op not in ("and", "or") and (exact or allowed):
            a, b = b, a
    others = [b, *stmt.index, *([] if stmt.predicate is None else [stmt.predicate])]
    if not allowed or a != here:
        return replace(stmt, value=value)
    if any(load.array == stmt.array for e in others for load in loads(e)):
        if updates_once(here, stmt.domain) or reads_updated(here, others, stmt.domain) is not None:
            return replace(stmt, value=value)
    return replace(stmt, value=Binary(value.op, a, b, value.dtype), reduction=_OPERATORS[value.op])


def _accumulator_first(value: Binary, here: Load, domain: isl.Set) -> Binary:
    """`(s + a) - b` as `s + (a - b)`, where many instances update `s`; products alike."""
    if value.op not in _CHAINS:
        return value
    summands = list(_chain(value, _CHAINS[value.op], False))
    if sum(e == here for e, _ in summands) != 1 or (here, True) in summands or updates_once(here, domain):
        return value
    (first, negative), *rest = [part for part in summands if part[0] != here]
    added: Expr = Unary("neg", first, first.dtype) if negative else first
    for e, negative in rest:
        added = Binary("-" if negative else _CHAINS[value.op], added, e, value.dtype)
    return Binary(_CHAINS[value.op], here, added, value.dtype)


def _chain(e: Expr, op: str, negative: bool) -> Iterator[tuple[Expr, bool]]:
    """The operands of nested sums (or products), and whether they are subtracted."""
    if isinstance(e, Binary) and _CHAINS.get(e.op) == op:
        yield from _chain(e.a, op, negative)
        yield from _chain(e.b, op, negative != (e.op == "-"))
    else:
        yield e, negative


def reorders(scop: Scop, stmt: Statement) -> bool:
    """Whether the updates of an element by this reduction may change places: floats only where that is allowed."""
    return stmt.reduction is not None and (scop.reassociate or not stmt.value.dtype.is_float)


def contracts(scop: Scop) -> bool:
    """Whether sums of products round once for each product (fused multiply-add).

    A program that keeps the order of its floats has reductions of floats only where its rounding is that of the
    fused operation (`fixed_order`); one that is written so (`@op(reassociate=False)`) has none.
    """
    return scop.reassociate or any(s.reduction is not None and s.value.dtype.is_float for s in scop.statements.values())


def fixed_order(scop: Scop) -> Scop:
    """The same program, in which every sum of floats is added up in the order that stands there.

    Its bits then follow from the program alone: whatever tiles, lanes and threads run it, each element is the same
    sequence of operations.
    """
    return replace(scop, reassociate=False)


def adds_product(stmt: Statement) -> bool:
    """Whether the update adds a product, which is then contracted to a fused multiply-add."""
    value = stmt.value
    return stmt.reduction == "+" and isinstance(value, Binary) and isinstance(value.b, Binary) and value.b.op == "*"


def rounds_alike(scop: Scop, old: Statement, new: Statement) -> bool:
    """Whether putting an expression into a statement leaves its roundings: where the order of sums is fixed, a product
    that was rounded before it was added must not become a fused multiply-add, nor one of these two operations."""
    return scop.reassociate or not old.value.dtype.is_float or adds_product(old) == adds_product(new)


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
