"""Proof that affine subscripts stay inside their arrays, with a counterexample otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl

from polyc.poly.expr import Binary, Cast, Expr, Load, Select, Span
from polyc.poly.forms.affine import NotAffine, outside, to_pw_aff, to_set
from polyc.poly.scop import Statement

from .annotations import size_text
from .builder import Builder
from .errors import DslError
from .fold import tidy


def check_in_bounds(builder: Builder, statements: Mapping[str, Statement], context: isl.Set) -> isl.Set:
    """The context under which no affine subscript leaves its array.

    A subscript that is wrong only for a bounded set of sizes (`A[1]` when `N` is 1) narrows
    the context; anything else is an error. Subscripts that depend on data, and accesses
    under a data-dependent condition or loop, are not checked.

    Raises:
        DslError: with the subscript's place and a counterexample.
    """
    for s in statements.values():
        if s.predicate is not None or s.dynamic:
            continue
        for load, where in _accesses(s):
            array = builder.arrays[load.array]
            skip = len(array.prefix)
            for axis, (index, extent) in enumerate(zip(load.index[skip:], array.shape)):
                bad = _outside(index, extent, where)
                if bad is None or bad.intersect_params(context).is_empty():
                    continue
                context = _narrow(builder, context, bad.intersect_params(context), load, axis, index, extent, s)
    return context


def _outside(index: Expr, extent: Expr, where: isl.Set) -> isl.Set | None:
    try:
        return outside(index, extent, where.get_space()).intersect(where)
    except NotAffine:
        return None


def _accesses(s: Statement) -> Iterator[tuple[Load, isl.Set]]:
    yield Load(s.array, s.index, s.value.dtype, s.span), s.domain
    for expr in (s.value, *s.index):
        yield from _loads(expr, s.domain)


def _loads(expr: Expr, where: isl.Set) -> Iterator[tuple[Load, isl.Set]]:
    """Loads with the instances that perform them; those under data-dependent guards left out."""
    if isinstance(expr, Load):
        yield expr, where
    if isinstance(expr, Select) or (isinstance(expr, Binary) and expr.op in ("and", "or")):
        first, rest = (expr.cond, (expr.a, expr.b)) if isinstance(expr, Select) else (expr.a, (expr.b,))
        yield from _loads(first, where)
        try:
            holds = to_set(first, where.get_space())
        except NotAffine:
            return
        negative = isinstance(expr, Binary) and expr.op == "or"
        for n, part in enumerate(rest):
            yield from _loads(part, where.subtract(holds) if negative or n else where.intersect(holds))
        return
    for child in expr.children():
        yield from _loads(child, where)


def _narrow(
    builder: Builder, context: isl.Set, bad: isl.Set, load: Load, axis: int, index: Expr, extent: Expr, s: Statement
) -> isl.Set:
    sizes = bad.params().gist(context)
    if _bounded(sizes.intersect(context), sizes):
        left = context.subtract(sizes).coalesce()
        if not left.is_empty():
            builder.notes.append(f"assumes {size_condition(left)}: otherwise {load.array} is accessed out of bounds")
            return left
    point = bad.sample_point()
    space = bad.get_space()
    values = {
        space.get_dim_name(kind, n): int(point.get_coordinate_val(kind, n).to_python())
        for kind in (isl.dim_type.param, isl.dim_type.set)
        for n in range(space.dim(kind))
    }
    at = _value(index, point, bad)
    shown = ", ".join(f"{k} = {v}" for k, v in values.items()) or "always"
    text = _plain(index)
    what = str(at) if text is None or text == str(at) else f"{text} = {at}"
    span: Span | None = load.span or s.span
    raise DslError(
        f"subscript {axis} of {load.array} is out of bounds: {what}, the extent is {size_text(extent)} ({shown})",
        span,
        "change the loop's bounds, or guard the access with 'if'",
    )


def size_condition(context: isl.Set) -> str:
    """A set of sizes as text: `N >= 2`."""
    return str(context).split(":", 1)[-1].rsplit("}", 1)[0].strip()


def _plain(index: Expr) -> str | None:
    inner = index.a if isinstance(index, Cast) else index
    text = size_text(tidy(inner))
    return None if "?" in text else text


def _value(index: Expr, point: isl.Point, where: isl.Set) -> int:
    pieces = to_pw_aff(index, where.get_space())
    return int(pieces.eval(point).to_python())


def _bounded(sizes: isl.Set, shape: isl.Set) -> bool:
    """Whether the sizes that `shape` speaks about take finitely many values in `sizes`."""
    count = sizes.dim(isl.dim_type.param)
    keep = [n for n in range(count) if shape.involves_dims(isl.dim_type.param, n, 1)]
    for n in reversed(range(count)):
        if n not in keep:
            sizes = sizes.project_out(isl.dim_type.param, n, 1)
    left = sizes.dim(isl.dim_type.param)
    box = isl.Set.universe(isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[]).add_dims(isl.dim_type.set, 0))
    moved = box.intersect_params(sizes).move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, left)
    return bool(keep) and moved.is_bounded()
