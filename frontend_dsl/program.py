"""From collected loops and stores to a `Scop`: domains, reductions, the schedule tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Expr, Load, Select, Var, const_int, loads, walk
from polyc.poly.forms.affine import NotAffine, functions, set_space, to_set
from polyc.poly.reduction import updates_once, with_reduction
from polyc.poly.scop import DYNAMIC_EXTENT, ENDLESS, Array, DynamicBound, LoopMark, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim, loop_names
from polyc.poly.tree import Sequence as SequenceNode

from .builder import Block, Builder, Loop, Record, by_data, loops_of, records_of
from .comparing import narrow_comparisons
from .errors import DslError
from .extremes import extreme, separate_places
from .fold import tidy
from .inbounds import check_in_bounds
from .induction import count_inductions
from .straight_lines import straighten
from .values import ArrayValue


def finish(
    builder: Builder, name: str, args: tuple[str, ...], results: tuple[str, ...], reassociate: bool, fast_math: bool
) -> Scop:
    """The Scop of everything the builder collected. Raises `DslError` for a subscript out of bounds."""
    count_inductions(builder, fast_math)
    if any(loop.step > 1 for loop in loops_of(builder.root)):
        from .rerolling import roll_up  # (seldom needed)

        roll_up(builder)
    straighten(builder)
    separate_places(builder, reassociate)
    records = list(records_of(builder.root))
    context = context_of(builder)
    statements: dict[str, Statement] = {}
    names: dict[int, str] = {}
    for position, record in enumerate(records):
        statement = _statement(builder, record, builder.unique(f"S{position}"), reassociate)
        names[id(record)] = statement.name
        statements[statement.name] = statement
    context = check_in_bounds(builder, statements, context)
    live = {n: s for n, s in statements.items() if not s.domain.intersect_params(context).is_empty()} or statements
    tree = _tree(builder.root, {i: n for i, n in names.items() if n in live}, live) or Leaf()
    used = {a for s in live.values() for a in _touched(s)} | set(args) | set(results)
    arrays = {n: _array(a, context, builder.params) for n, a in builder.arrays.items() if n in used}
    return Scop(
        name, builder.params, context, arrays, live, tree, args, results, reassociate, fast_math, tuple(builder.notes),
        _marks(builder, tree),
    )  # fmt: skip


def _marks(builder: Builder, tree: Node) -> tuple[LoopMark, ...]:
    """What the program says of its loops, outermost first; empty loops have gone."""
    there = set(loop_names(tree))
    return tuple(LoopMark(l.name, l.kind, l.factor) for l in loops_of(builder.root) if l.kind and l.name in there)


def _touched(s: Statement) -> set[str]:
    exprs = [s.value, *s.index, *([s.predicate] if s.predicate is not None else [])]
    exprs += [e for d in s.dynamic for e in (d.lo, d.hi)]
    return {s.array} | {load.array for e in exprs for load in loads(e)}


def _array(a: ArrayValue, context: isl.Set, params: tuple[str, ...]) -> Array:
    prefix = tuple(_not_negative(e, context, params) for e in a.prefix_shape)
    shape = (*prefix, *a.shape)
    return Array(a.name, a.dtype, shape, a.kind, a.scalar, a.span, len(prefix))  # type: ignore[arg-type]


def _not_negative(extent: Expr, context: isl.Set, params: tuple[str, ...]) -> Expr:
    """The extent of an expanded dimension: a nest that does not run needs no storage."""
    space = set_space("size", [], params)
    negative = to_set(Binary("<", extent, const_int(0), bool_), space)
    if negative.params().intersect(context).is_empty():
        return extent
    return tidy(Binary("max", extent, const_int(0), i64))


def context_of(builder: Builder) -> isl.Set:
    """Sizes are in their ranges, by default at least 1, and as what is known of several says; no array has a negative
    extent.

    Raises:
        DslError: an extent is not affine in the sizes.
    """
    space = set_space("size", [], builder.params)
    context = isl.Set.universe(space)
    for p in builder.params:
        low, high = builder.ranges.get(p, (1, None))
        context = context.intersect(to_set(Binary(">=", Var(p), const_int(low), bool_), space))
        if high is not None:
            context = context.intersect(to_set(Binary("<=", Var(p), const_int(high), bool_), space))
    for fact in builder.facts:
        if {e.name for e in walk(fact) if isinstance(e, Var)} <= set(builder.params):
            context = context.intersect(to_set(Binary(">=", fact, const_int(0), bool_), space))
    for array in builder.arrays.values():
        if array.prefix_shape:
            continue  # expansion: an empty nest needs no storage
        for extent in array.shape:
            try:
                context = context.intersect(to_set(Binary(">=", extent, const_int(0), bool_), space))
            except NotAffine:
                hint = "give the sizes: op.scop(M=512), or write the size with + - and constants"
                raise DslError(f"an extent of {array.name} is not affine in the sizes", array.span, hint) from None
    return context.params()


# ---- statements ----------------------------------------------------------------------------


def _statement(builder: Builder, record: Record, name: str, reassociate: bool) -> Statement:
    iters = tuple(v.name for v in record.loops)
    space = set_space(name, iters, builder.params)
    domain = isl.Set.universe(space)
    dynamic = []
    for position, loop in enumerate(record.loops):
        domain = domain.intersect(_loop_set(loop, space, position))
        if loop.dynamic:
            dynamic.append(_data_bound(loop))
    for guard in record.guards:
        if guard.affine is not None:
            domain = domain.intersect(to_set(guard.affine, space))
    record = _without_choice(record, domain, reassociate)
    value, predicate = narrow_comparisons(record.value, domain), record.predicate()
    if predicate is not None:
        predicate = narrow_comparisons(predicate, domain)
    return with_reduction(Statement(
        name, iters, domain.coalesce(), record.array.name, record.index, value, predicate, None, tuple(dynamic),
        record.span,
    ), reassociate)  # fmt: skip


def _data_bound(loop: Loop) -> DynamicBound:
    """The bounds of a data-dependent loop. Below a condition Python reads them only where it holds, and what they read
    may not exist elsewhere: there the loop is empty."""
    entered = by_data(loop.guards)
    reads = [any(True for _ in loads(e)) for e in (loop.lo, loop.hi)]
    if entered is None or not any(reads):
        return DynamicBound(loop.name, loop.lo, loop.hi)
    nowhere = const_int(0) if all(reads) else loop.hi if reads[0] else loop.lo
    lo, hi = (Select(entered, e, nowhere, i64) if read else e for e, read in zip((loop.lo, loop.hi), reads))
    return DynamicBound(loop.name, lo, hi)


def _loop_set(loop: Loop, space: isl.Space, position: int) -> isl.Set:
    var = isl.Aff.var_on_domain(isl.LocalSpace.from_space(space), isl.dim_type.set, position)

    def bound(expr: Expr, default: int) -> Expr:
        return expr if next(loads(expr), None) is None and expr != const_int(ENDLESS) else const_int(default)

    lo, hi = functions(bound(loop.lo, -DYNAMIC_EXTENT), bound(loop.hi, DYNAMIC_EXTENT), space)
    if isinstance(lo, isl.PwAff):
        var = isl.PwAff.from_aff(var)
    if loop.counts:
        zero = var.sub(var)
        value = var.scale_val(isl.Val(loop.step)).add(lo)
        return var.ge_set(zero).intersect(value.lt_set(hi) if loop.step > 0 else value.gt_set(hi))
    if loop.step > 0:
        return var.ge_set(lo).intersect(var.lt_set(hi))
    return var.le_set(lo).intersect(var.gt_set(hi))


def _without_choice(record: Record, domain: isl.Set, reassociate: bool) -> Record:
    """`if v > x: x = v`, `x = v if v > x else x` and the like as `x = max(x, v)`: Python's, bit for bit; with `>=` that
    of a reduction, where reductions may be reassociated: which of several zeros they give does not count."""
    here, value = Load(record.array.name, record.index, record.value.dtype), record.value
    equal = value.dtype.is_int or (reassociate and not updates_once(here, domain))
    if isinstance(value, Select) and value.b == here:
        op = extreme(value.cond, value.a, here, equal)
        return record if op is None else replace(record, value=Binary(op, here, value.a, value.dtype))
    last = next((g for g in reversed(record.guards) if g.condition is not None), None)
    if last is None or last.condition is None or not last.holds or last.condition.saved is not None:
        return record
    op = extreme(last.condition.rest, value, here, equal)
    if op is None:
        return record
    guards = tuple(g for g in record.guards if g is not last)
    return replace(record, guards=guards, value=Binary(op, here, value, value.dtype))


# ---- the schedule tree ---------------------------------------------------------------------


def _tree(block: Block, names: Mapping[int, str], statements: Mapping[str, Statement]) -> Node | None:
    """The tree of a block, or None when nothing in it is left."""
    parts: list[tuple[list[str], Node]] = []
    for item in block.items:
        below = [names[id(r)] for r in records_of(item) if id(r) in names]
        if not below:
            continue
        if isinstance(item, Record):
            parts.append((below, Leaf()))
        else:
            child = _tree(item.body, names, statements)
            assert child is not None
            parts.append((below, _band(item, below, child, statements)))
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0][1]
    return SequenceNode(tuple(Filter({s: statements[s].domain for s in below}, node) for below, node in parts))


def _band(loop: Loop, below: list[str], child: Node, statements: Mapping[str, Statement]) -> Band:
    schedule = {}
    for s in below:
        dim = loop_dim(statements[s].domain, statements[s].iters.index(loop.name))
        schedule[s] = dim if loop.step > 0 or loop.counts else dim.neg()
    member = Member(loop.name, schedule)
    if isinstance(child, Band):  # directly nested loops share one band
        return replace(child, members=(member, *child.members))
    return Band((member,), child)
