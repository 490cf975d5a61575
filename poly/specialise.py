"""Fixing sizes: the same Scop with some parameters replaced by numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import islpy as isl

from poly.expr import Expr, const_int, substitute
from poly.scop import DynamicBound, Scop, Statement
from poly.tree import Band, Filter, Member, Node

T = TypeVar("T", isl.Set, isl.PwAff)


def specialise(scop: Scop, sizes: Mapping[str, int]) -> Scop:
    """`scop` with the given parameters fixed and gone from all spaces (others stay symbolic).

    Raises:
        ValueError: a name in `sizes` is no parameter of the Scop.
    """
    unknown = sorted(set(sizes) - set(scop.params))
    if unknown:
        raise ValueError(f"{scop.name} has no size named {unknown[0]} (it has {', '.join(scop.params) or 'none'})")
    if not sizes:
        return scop
    values: dict[str, Expr] = {n: const_int(v) for n, v in sizes.items()}
    return replace(
        scop,
        params=tuple(p for p in scop.params if p not in sizes),
        context=fix(scop.context, sizes),
        arrays={n: replace(a, shape=tuple(substitute(e, values) for e in a.shape)) for n, a in scop.arrays.items()},
        statements={n: _statement(s, sizes, values) for n, s in scop.statements.items()},
        tree=specialise_tree(scop.tree, sizes),
    )


def specialise_tree(node: Node, sizes: Mapping[str, int]) -> Node:
    """The schedule tree with parameters fixed."""
    children = tuple(specialise_tree(c, sizes) for c in node.children())
    if isinstance(node, Band):
        members = tuple(_member(m, sizes) for m in node.members)
        return Band(members, children[0], node.permutable)
    if isinstance(node, Filter):
        return Filter({s: fix(d, sizes) for s, d in node.domain.items()}, children[0])
    return node.with_children(children)


def _member(m: Member, sizes: Mapping[str, int]) -> Member:
    return replace(m, schedule={s: fix(pa, sizes) for s, pa in m.schedule.items()})


def _statement(s: Statement, sizes: Mapping[str, int], values: Mapping[str, Expr]) -> Statement:
    def sub(e: Expr) -> Expr:
        return substitute(e, values)

    return replace(
        s,
        domain=fix(s.domain, sizes),
        index=tuple(sub(e) for e in s.index),
        value=sub(s.value),
        predicate=None if s.predicate is None else sub(s.predicate),
        dynamic=tuple(DynamicBound(d.iter, sub(d.lo), sub(d.hi)) for d in s.dynamic),
    )


def fix(obj: T, sizes: Mapping[str, int]) -> T:
    """Set parameters of an isl set or piecewise affine expression and drop them from its space."""
    out: Any = obj
    for name, value in sizes.items():
        pos = out.find_dim_by_name(isl.dim_type.param, name)
        if pos < 0:
            continue
        if isinstance(out, isl.Set):
            out = out.fix_val(isl.dim_type.param, pos, isl.Val(value)).project_out(isl.dim_type.param, pos, 1)
        else:
            out = _fix_pw_aff(out, pos, value)
    return out.coalesce()  # type: ignore[no-any-return]


def _fix_pw_aff(pa: isl.PwAff, pos: int, value: int) -> isl.PwAff:
    """As a map: fix, project the parameter out, and read the function back."""
    m = isl.Map.from_pw_aff(pa).fix_val(isl.dim_type.param, pos, isl.Val(value))
    return isl.PwMultiAff.from_map(m.project_out(isl.dim_type.param, pos, 1)).get_at(0)
