"""`for`: run-time loops over `range` and `grid`, and unrolling over everything else; `while`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from polyc.poly.dtypes import i64
from polyc.poly.expr import Expr, Load, const_int, loads
from polyc.poly.forms.affine import is_affine, set_space
from polyc.poly.scop import ENDLESS

from .annotations import Dim
from .builder import Loop, Record
from .evaluate import evaluate, native, settled
from .fold import difference
from .frame import Frame, Unavailable, Version
from .jumps import leaves
from .leaving import arrive, enter, has_left
from .liveness import assigned, stored
from .locals import hide, is_shared, keep, settle
from .values import ArrayValue, Grid, Range, Sym, TypeProblem, describe, index_expr

UNROLL_LIMIT = 4096
COUNTED_LIMIT = 256  # iterations of a loop that is unrolled because its variable must be a number


def make_range(args: Sequence[Any]) -> Range:
    """`range(...)` of 1 to 3 values. Raises `TypeProblem`."""
    if not 1 <= len(args) <= 3:
        raise TypeProblem(f"range takes 1 to 3 arguments, not {len(args)}", "write range(lo, hi, step)")
    lo, hi = (0, args[0]) if len(args) == 1 else args[:2]
    step = args[2] if len(args) == 3 else 1
    if isinstance(step, bool) or not isinstance(step, int):
        if isinstance(step, (Sym, Dim)):
            raise TypeProblem("a loop's step is known at run time only", "use a constant step")
        raise TypeProblem(f"a loop's step is {describe(step)}", "use a constant integer step")
    if step == 0:
        raise TypeProblem("a loop's step is 0", "use a positive or a negative step")
    return Range(_bound(lo), _bound(hi), step)


def _bound(value: Any) -> Expr:
    if isinstance(value, ArrayValue) and value.rank == 0:
        raise TypeProblem(f"the array {value.name} is used as a bound", f"write {value.name}[()]")
    return index_expr(value)


def make_grid(frame: Frame, args: Sequence[Any], node: ast.Call) -> Grid:
    """`grid(n, (lo, hi), ...)`."""
    ranges = []
    for n, value in enumerate(args):
        place = node.args[n] if len(node.args) == len(args) else node
        parts = value if isinstance(value, (tuple, list)) else (value,)
        if isinstance(value, Range):
            ranges.append(value)
            continue
        if isinstance(value, range):
            parts = (value.start, value.stop, value.step)
        values = [settled(frame, p, place) for p in parts]
        frame.want_number(values[2] if len(values) == 3 else None)
        try:
            ranges.append(make_range(values))
        except TypeProblem as problem:
            raise frame.error(place, *problem.args) from None
    return Grid(tuple(ranges))


# ---- the statement -------------------------------------------------------------------------


def execute_for(frame: Frame, node: ast.For, body: Callable[[], None]) -> None:
    """Translate a `for`; `body` translates its statements once."""
    items = evaluate(frame, node.iter)
    program = frame.program
    counted = isinstance(items, range) and len(items) <= COUNTED_LIMIT
    if isinstance(items, range) and node not in program.choices.unrolled:
        items = Range(const_int(items.start), const_int(items.stop), items.step)
    if isinstance(items, Range):
        if not isinstance(node.target, ast.Name):
            raise frame.error(node.target, "range gives one number at a time", "write for i in range(...)")

        def variable(values: list[Any]) -> Any:
            if counted:
                program.counted[frame.builder.loops[-1].name] = node
            return values[0]

        _run_time_loop(frame, node, [(node.target.id, items)], variable, body)
    elif isinstance(items, Grid):
        names, shape = _grid_names(frame, node.target, len(items.ranges))
        _run_time_loop(frame, node, list(zip(names, items.ranges)), shape, body)
    else:
        from .statements import bind

        values = keep(frame, list(unrolled(frame, items, node.iter)), node)
        enter(frame, leaves(node), node)
        for value in values:
            bind(frame, node.target, value, node)
            body()
            if has_left(frame, leaves(node)):
                break
        arrive(frame, leaves(node))


def execute_while(frame: Frame, node: ast.While, body: Callable[[], None]) -> None:
    """Translate a `while`, which begins with its test: Python runs it where it knows the end, else a run does."""
    choices, ends = frame.program.choices, leaves(node)
    if node in choices.endless or not choices.flagged.isdisjoint(ends):
        everything = Range(const_int(0), const_int(ENDLESS), 1)
        _run_time_loop(frame, node, [("again", everything)], tuple, body)
        if choices.flagged.isdisjoint(ends):
            raise frame.error(node, "nothing in this loop ends it", "leave it with 'break'", word="while")
        return
    enter(frame, ends, node)
    for _ in range(COUNTED_LIMIT):
        body()
        if has_left(frame, ends) or not choices.flagged.isdisjoint(ends):
            return
    choices.endless.add(node)


def known_items(frame: Frame, node: ast.expr) -> Iterator[Any]:
    """The values of an iterable known at specialisation."""
    items = evaluate(frame, node)
    if isinstance(items, (Range, Grid)):
        raise frame.error(node, "the number of iterations is known at run time only", "write a 'for' statement")
    return unrolled(frame, items, node)


def unrolled(frame: Frame, items: Any, node: ast.expr) -> Iterator[Any]:
    """The items of a Python iterable, one by one."""
    if isinstance(items, ArrayValue):
        index = "i" if items.rank == 1 else "i, ..."
        raise frame.error(
            node, f"a loop over the array {items.name}",
            f"loop over its index: for i in range({items.name}.shape[0]), then {items.name}[{index}]",
        )  # fmt: skip
    if isinstance(items, Sym):
        raise frame.error(node, "a loop over a number", "write range(...) around it")
    iterator = native(frame, node, iter, items)
    for count, item in enumerate(iterator):
        if count == UNROLL_LIMIT:
            hint = "use range(...) or grid(...): they stay loops"
            raise frame.error(node, f"more than {UNROLL_LIMIT} iterations to unroll", hint)
        yield settled(frame, item, node)


def _grid_names(frame: Frame, target: ast.expr, rank: int) -> tuple[list[str], Callable[[list[Any]], Any]]:
    """Loop names for a grid's target."""
    if isinstance(target, ast.Name):
        return [f"{target.id}{n}" for n in range(rank)], tuple
    if not isinstance(target, (ast.Tuple, ast.List)):
        raise frame.error(target, "a loop's target must be names", "write for i, j in grid(M, N)")
    names: list[str] = []
    stars = [e for e in target.elts if isinstance(e, ast.Starred)]
    plain = len(target.elts) - len(stars)
    if (plain > rank) if stars else (plain != rank):
        raise frame.error(
            target, f"{len(target.elts)} loop variables for a grid of {rank} extent{'s'[: rank != 1]}",
            "name one variable for each extent, or take the whole tuple: for i in grid(...)",
        )  # fmt: skip
    for element in target.elts:
        inner = element.value if isinstance(element, ast.Starred) else element
        if not isinstance(inner, ast.Name):
            raise frame.error(element, "a loop's target must be names", "write for i, j in grid(M, N)")
        if isinstance(element, ast.Starred):
            names += [f"{inner.id}{n}" for n in range(rank - plain)]
        else:
            names.append(inner.id)
    return names, tuple


def _run_time_loop(
    frame: Frame, node: ast.For | ast.While, parts: list[tuple[str, Range]], shape: Callable[[list[Any]], Any],
    body: Callable[[], None],
) -> None:  # fmt: skip
    """A nest of loops around `body`, with the locals settled before and forgotten after."""
    builder, program = frame.builder, frame.program
    changed = assigned(node.body)
    carried = changed & (frame.liveness.exposed(node.body) | frame.liveness.after[node])
    targets = stored(node.target) if isinstance(node, ast.For) else frozenset()
    if isinstance(node, ast.For):
        _refuse_shared(frame, node, targets)
    fixed = settle(frame, carried - targets, node)
    outer_pinned, outer_assigned = frame.pinned, program.assigned
    frame.pinned |= fixed
    hidden = hide(frame, changed - carried)
    enter(frame, leaves(node), node)
    mark = builder.mark()
    with ExitStack() as stack:
        opened = [_opened(frame, node, name, r, stack) for name, r in parts]
        if isinstance(node, ast.For):
            from .statements import bind_static

            bind_static(frame, node.target, shape([Sym(loop.value, True) for loop in opened]))
        body()
    _save_bounds(frame, opened, mark, node)
    frame.pinned = outer_pinned
    at_ends = [at for label in leaves(node) if (at := frame.places[label].assigned) is not None]
    if isinstance(node, ast.While) and at_ends:
        program.assigned = at_ends[0]  # its jumps are its only ends
    elif not all(_runs(r) for _, r in parts):
        program.assigned = outer_assigned
    arrive(frame, leaves(node))
    hide(frame, changed - carried)
    frame.env.update(hidden)
    for name in targets:
        frame.env[name] = Unavailable(
            "is a loop variable, used after its loop", "assign it to a local before the loop ends"
        )


def _refuse_shared(frame: Frame, node: ast.For, targets: Iterable[str]) -> None:
    """Refuse a loop variable that is a local scalar, too."""
    for name in sorted(targets):
        current = frame.env.get(name)
        if isinstance(current, Version) and is_shared(frame, current):
            hint = "give the loop a variable of its own"
            raise frame.error(node.target, f"{name} is a local scalar and a loop variable", hint)


def _opened(frame: Frame, node: ast.For | ast.While, name: str, r: Range, stack: ExitStack) -> Loop:
    """The loop over a range, left with the stack."""
    dynamic = not isinstance(node, ast.For) or _check_bounds(frame, r, node)
    unique = frame.builder.unique(name.lstrip("_") or "it")
    return stack.enter_context(
        frame.builder.loop(unique, r.lo, r.hi, r.step, frame.span(node), dynamic, r.kind, r.factor)
    )


def _runs(r: Range) -> bool:
    """Whether it is known to have an iteration."""
    gap = difference(r.hi, r.lo)
    return gap is not None and (gap > 0 if r.step > 0 else gap < 0)


def _check_bounds(frame: Frame, r: Range, node: ast.For) -> bool:
    """Whether the loop is data-dependent. Raises `DslError` for bounds outside the language."""
    builder = frame.builder
    if any(True for e in (r.lo, r.hi) for _ in loads(e)):
        if r.step != 1:
            frame.want_number(Sym(r.lo, True))
            frame.want_number(Sym(r.hi, True))
            raise frame.error(node.iter, f"step {r.step} of a loop whose bounds depend on data", "use step 1")
        return True
    space = set_space("S", [v.name for v in builder.loops], builder.params)
    if not (is_affine(r.lo, space) and is_affine(r.hi, space)):
        frame.want_number(Sym(r.lo, True))
        frame.want_number(Sym(r.hi, True))
        raise frame.error(
            node.iter, "a loop bound is not affine in loop variables and sizes",
            "bounds may use + - min max, constants times a variable, and // or % by a constant",
        )  # fmt: skip
    return False


def _save_bounds(frame: Frame, opened: list[Loop], mark: tuple[Any, int], node: ast.stmt) -> None:
    """Python evaluates bounds once: keep those that the body would change, and those that it would not always ask for
    though they may leave an array."""
    builder = frame.builder
    written = {r.array.name for r in builder.records_since(mark)}
    always = builder.always_reached(mark, len(opened))
    for loop in opened:
        for side in ("lo", "hi"):
            bound: Expr = getattr(loop, side)
            lost = not always and any(map(builder.may_leave, loads(bound)))
            if not lost and not any(load.array in written for load in loads(bound)):
                continue
            prefix, extents = builder.expansion()
            array = ArrayValue("bound", i64, (), "local", frame.span(node), prefix, extents)
            builder.add_array(array)
            record = Record(builder.loops, builder.guards, array, prefix, bound, frame.span(node))
            mark[0].items.insert(mark[1], record)
            setattr(loop, side, Load(array.name, prefix, i64, frame.span(node)))
            mark = (mark[0], mark[1] + 1)
