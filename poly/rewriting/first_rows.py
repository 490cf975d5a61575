"""A Scop that reads some rows of an argument, for these rows wherever they begin: the first one becomes a parameter.

Scops that differ in nothing but where they begin to read, say the slices of one tensor, become the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import islpy as isl

from polyc.poly.access import accesses_of
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Load, Var, compare, const_int, rewrite
from polyc.poly.forms.affine import constant_of, set_space, to_set
from polyc.poly.scop import Array, Scop, Statement


def any_first_rows(scop: Scop) -> tuple[Scop, dict[str, int]]:
    """The Scop with a parameter for the first row of each argument of which not all rows are read, and the values of
    these parameters that give the Scop back (none: it is the Scop itself). A row is what one value of the first
    subscript stands for.

    In the new Scop such an argument ends with the last row that is read, so that nothing is left of how long it was.
    """
    windows = {name: rows for name in scop.args if (rows := _window(scop, scop.arrays[name])) is not None}
    if not windows:
        return scop, {}
    taken = {*scop.params, *scop.arrays, *(i for s in scop.statements.values() for i in s.iters)}
    names: dict[str, str] = {}
    for array in windows:
        names[array] = _unlike(f"first_{array}", taken)
    params = (*scop.params, *names.values())
    space = set_space("", (), params)
    context = scop.context
    for name in names.values():
        context = context.intersect(to_set(compare(">=", Var(name), const_int(0)), space).params())
    arrays = dict(scop.arrays)
    for array, (first, last) in windows.items():
        old = arrays[array]
        end = Binary("+", Var(names[array]), const_int(last - first + 1), i64)
        arrays[array] = replace(old, shape=(end, *old.shape[1:]))

    def moved(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.array not in windows:
            return e
        row = _plus(e.index[0], -windows[e.array][0], Var(names[e.array]))
        return replace(e, index=(row, *e.index[1:]))

    statements = {n: _rewritten(s, params, moved) for n, s in scop.statements.items()}
    found = replace(scop, params=params, context=context, arrays=arrays, statements=statements)
    return found, {names[a]: first for a, (first, _) in windows.items()}


def _window(scop: Scop, array: Array) -> tuple[int, int] | None:
    """The first and the last row that are read of a read-only argument; None where that is all of them, depends on more
    than constants, or may be outside (that stays to be found)."""
    if array.kind != "in" or not array.shape or not isinstance(array.shape[0], Const):
        return None
    parts = [
        a.map.range().project_out(isl.dim_type.set, 1, len(array.shape) - 1)
        for (_, name), found in accesses_of(scop).items() if name == array.name for a in found
    ]  # fmt: skip
    if not parts:
        return None
    rows = parts[0]
    for more in parts[1:]:
        rows = rows.union(more)
    rows = rows.project_out(isl.dim_type.param, 0, rows.dim(isl.dim_type.param)).coalesce()
    if rows.is_empty() or not rows.is_bounded():
        return None
    first, last = constant_of(rows.dim_min(0)), constant_of(rows.dim_max(0))
    if first is None or last is None:
        return None
    end = int(array.shape[0].value)
    return (first, last) if 0 <= first and last < end and last - first + 1 < end else None


def _plus(row: Expr, shift: int, name: Var) -> Expr:
    """`row + shift + name`, with one constant at most."""
    rest: Expr | None = row
    if isinstance(row, Const):
        rest, shift = None, shift + int(row.value)
    elif isinstance(row, Binary) and row.op in ("+", "-") and isinstance(row.b, Const):
        rest, shift = row.a, shift + int(row.b.value) * (1 if row.op == "+" else -1)
    found: Expr = name if rest is None else Binary("+", rest, name, i64)
    return found if shift == 0 else Binary("+", found, const_int(shift), i64)


def _rewritten(s: Statement, params: tuple[str, ...], moved: Callable[[Expr], Expr]) -> Statement:
    return replace(
        s,
        domain=s.domain.align_params(set_space(s.name, s.iters, params)),
        index=tuple(rewrite(e, moved) for e in s.index),
        value=rewrite(s.value, moved),
        predicate=None if s.predicate is None else rewrite(s.predicate, moved),
        dynamic=tuple(replace(d, lo=rewrite(d.lo, moved), hi=rewrite(d.hi, moved)) for d in s.dynamic),
    )


def _unlike(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
