"""Giving parameters values: the same Scop for known sizes, without those parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from polyc.poly.dtypes import DType
from polyc.poly.errors import ArgumentError, ScopError
from polyc.poly.expr import Binary, Cast, Const, Expr, Unary, Var, const_int, rewrite
from polyc.poly.integers import ARITHMETIC
from polyc.poly.scop import Array, Origin, Scop, Statement
from polyc.poly.tree import Band, Filter, Node

LARGEST = 2**63 - 1  # subscripts are 64-bit numbers


def specialise(scop: Scop, sizes: Mapping[str, int]) -> Scop:
    """`scop` with the parameters in `sizes` replaced by numbers (others stay symbolic).

    Context, domains, tree, shapes and expressions all lose the parameters; integer
    arithmetic on constants is folded.

    Raises:
        ArgumentError: a name in `sizes` is not a parameter of the Scop.
        ScopError: the sizes contradict the Scop's context.
    """
    unknown = [n for n in sizes if n not in scop.params]
    if unknown:
        known = ", ".join(scop.params) or "none"
        raise ArgumentError(f"{scop.name}: '{unknown[0]}' is not a size of this operator (sizes: {known})")
    if not sizes:
        return scop
    for name, value in sizes.items():
        if not -LARGEST <= value <= LARGEST:
            raise ArgumentError(f"{scop.name}: {name} = {value} needs more than 64 bits")
    context = fix_params(scop.context, sizes)
    if context.is_empty():
        given = ", ".join(f"{n} = {v}" for n, v in sizes.items())
        raise ScopError(f"{scop.name} cannot run with {given}: its sizes must satisfy {scop.context}")
    constants: dict[str, Expr] = {n: const_int(v) for n, v in sizes.items()}
    return replace(
        scop,
        params=tuple(p for p in scop.params if p not in sizes),
        context=context,
        arrays={n: _array(a, constants) for n, a in scop.arrays.items()},
        statements={n: _statement(s, sizes, constants) for n, s in scop.statements.items()},
        tree=specialise_tree(scop.tree, sizes),
        origin=None if scop.origin is None else _origin(scop.origin, constants),
    )


def _origin(origin: Origin, constants: Mapping[str, Expr]) -> Origin:
    """The sizes fixed now belong to what the Scop was made from."""
    shapes = {n: tuple(_apply(e, constants) for e in shape) for n, shape in origin.shapes.items()}
    sizes = {n: _apply(e, constants) for n, e in origin.sizes.items()}
    return Origin(origin.constants, {**constants, **sizes}, shapes)


def fix_params(s: isl.Set, sizes: Mapping[str, int]) -> isl.Set:
    """The set for these parameter values, its space without them."""
    for name, value in sizes.items():
        position = s.find_dim_by_name(isl.dim_type.param, name)
        if position >= 0:
            s = s.fix_val(isl.dim_type.param, position, isl.Val(value)).project_out(isl.dim_type.param, position, 1)
    return s


def fix_pw_aff(pa: isl.PwAff, sizes: Mapping[str, int]) -> isl.PwAff:
    """The function for these parameter values, its space without them."""
    for name, value in sizes.items():
        position = pa.find_dim_by_name(isl.dim_type.param, name)
        if position < 0:
            continue
        if pa.involves_dims(isl.dim_type.param, position, 1):
            # No isl function substitutes a parameter of a PwAff: go through its graph.
            graph = isl.Map.from_pw_aff(pa).fix_val(isl.dim_type.param, position, isl.Val(value))
            graph = graph.project_out(isl.dim_type.param, position, 1)
            pa = isl.PwMultiAff.from_map(graph).get_at(0)
        else:
            pa = pa.drop_dims(isl.dim_type.param, position, 1)
    return pa


def specialise_tree(node: Node, sizes: Mapping[str, int]) -> Node:
    """The schedule tree for these parameter values."""
    if isinstance(node, Band):
        members = tuple(
            replace(m, schedule={s: fix_pw_aff(pa, sizes) for s, pa in m.schedule.items()}) for m in node.members
        )
        return Band(members, specialise_tree(node.child, sizes), node.permutable)
    if isinstance(node, Filter):
        return Filter({s: fix_params(d, sizes) for s, d in node.domain.items()}, specialise_tree(node.child, sizes))
    children = node.children()
    return node.with_children(tuple(specialise_tree(c, sizes) for c in children)) if children else node


def fold(expr: Expr) -> Expr:
    """Index (i64) arithmetic on constants done now, neutral elements (`e + 0`, `e * 1`) removed.

    What would leave the range of i64 stays as it is and wraps at run time.
    """
    return rewrite(expr, _fold_node)


def _fold_node(e: Expr) -> Expr:
    if isinstance(e, Unary) and e.op == "neg" and isinstance(e.a, Const) and _is_index(e.dtype):
        return const_int(-int(e.a.value))
    if isinstance(e, Cast) and isinstance(e.a, Const) and _is_index(e.a.dtype):
        return Const(e.dtype(e.a.value).item(), e.dtype)
    if not isinstance(e, Binary) or not _is_index(e.dtype):
        return e
    if isinstance(e.a, Const) and isinstance(e.b, Const):
        a, b = int(e.a.value), int(e.b.value)
        if e.op in ARITHMETIC and not (e.op in ("//", "%") and b == 0):
            value = int(ARITHMETIC[e.op](a, b))
            return const_int(value) if -(2**63) <= value < 2**63 else e
    if isinstance(e.b, Const) and (e.op, int(e.b.value)) in (("+", 0), ("-", 0), ("*", 1), ("//", 1)):
        return e.a
    if isinstance(e.a, Const) and (e.op, int(e.a.value)) in (("+", 0), ("*", 1)):
        return e.b
    return e


def _is_index(dtype: DType) -> bool:
    return dtype.kind == "int" and dtype.bits == 64


def _apply(expr: Expr, constants: Mapping[str, Expr]) -> Expr:
    """Substitute and fold, leaving expressions without these parameters untouched."""

    def sub(node: Expr) -> Expr:
        if isinstance(node, Var):
            return constants.get(node.name, node)
        return node

    new = rewrite(expr, sub)
    return expr if new is expr else fold(new)


def _array(a: Array, constants: Mapping[str, Expr]) -> Array:
    given = None if a.given is None else tuple(_apply(e, constants) for e in a.given)
    return replace(a, shape=tuple(_apply(e, constants) for e in a.shape), given=given)


def _statement(s: Statement, sizes: Mapping[str, int], constants: Mapping[str, Expr]) -> Statement:
    return replace(
        s,
        domain=fix_params(s.domain, sizes),
        index=tuple(_apply(e, constants) for e in s.index),
        value=_apply(s.value, constants),
        predicate=None if s.predicate is None else _apply(s.predicate, constants),
        dynamic=tuple(replace(d, lo=_apply(d.lo, constants), hi=_apply(d.hi, constants)) for d in s.dynamic),
    )
