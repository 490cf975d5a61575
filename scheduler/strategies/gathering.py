"""Strategy: the updates of a nest that scatter, over the elements that they update where that is faster.

An update whose subscript mixes loops (`X[2 * o + k] += ...`, what the derivative of a convolution or of pooling is)
meets other iterations of every loop in the subscript: threads cannot share them, a product is none that a register tile
has. Its other forms (step `gather`, with or without phases) are proposed where the cost model says that they pay, each
update for itself; without sizes to compute with, where they make a loop parallel that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Expr
from polyc.poly.forms.ranges import points_of_box
from polyc.poly.rewriting.gather import scatters
from polyc.poly.scop import Scop
from polyc.poly.tree import Node, loops_around, loops_below
from polyc.poly.words import first_line
from polyc.scheduler.cost.gather_forms import CLEARLY, cycles
from polyc.scheduler.decision import rounded
from polyc.scheduler.programs.gathering import Form, gather_sums, in_loops_of_their_own, partial_sums, rows_together
from polyc.scheduler.questions.coincidence import all_pairs, analyse, ordered_pairs
from polyc.scheduler.recognition.contraction import recognise
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner, as_one
from polyc.scheduler.transformations import gathering

FORMS: tuple[Form, ...] = ("elements", "phases")


def gather(plan: Planner) -> None:
    """Choose a form for every update at the top that scatters; updates that meet in their loops get loops each."""
    _forwards(plan)
    for loop in plan.top():
        inside = list(plan.member(loop).schedule)
        names = [n for n in inside if _scatters(plan.scop, n)]
        if names and _nest(plan, loop, names):
            continue
        if len(inside) > 1 and (plan.threads > 1 or _meet(plan, inside)):
            _apart(plan, loop)


def _forwards(plan: Planner) -> None:
    """Loops that run backwards and need not, as those of a derivative, run forwards: then they join others."""
    members = [m for m in loops_below(plan.tree) if all(_falls(pa) for pa in m.schedule.values())]
    if not members:
        return
    carried = analyse(plan.tree, ordered_pairs(plan.scop))
    free = [m.name for m in members if carried[m.name].parallel]
    if free:
        steps = [("reverse", {"loop": name}) for name in free]
        plan.attempt(f"loops {', '.join(free)}", f"forwards: {', '.join(free)}", as_one(steps))


def _falls(time: isl.PwAff) -> bool:
    """Whether a loop's time is the negative of an iterator."""
    if time.n_piece() != 1:
        return False
    aff = time.get_pieces()[0][1]
    numbers = [aff.get_coefficient_val(isl.dim_type.in_, k) for k in range(aff.dim(isl.dim_type.in_))]
    moving = [n for n in numbers if not n.is_zero()]
    return len(moving) == 1 and moving[0].is_negone() and not aff.dim(isl.dim_type.div)


def _meet(plan: Planner, names: Sequence[str]) -> bool:
    """Whether several statements of one innermost loop update elements of one array by different subscripts, as what a
    stencil's derivative makes of one statement does."""
    seen: dict[tuple[str, str | None, str], tuple[Expr, ...]] = {}
    for s in (plan.scop.statements[n] for n in names):
        if s.reduction is not None:
            inner = loops_around(plan.tree, s.name)[-1].name
            if seen.setdefault((s.array, s.reduction, inner), s.index) != s.index:
                return True
    return False


def _apart(plan: Planner, loop: str) -> None:
    """Loops of their own for the parts of a nest in which an update has no parallel loop, if more have one then."""
    names = list(plan.member(loop).schedule)
    updates = {n for n in names if plan.scop.statements[n].reduction is not None}
    before = _parallel(plan.scop, plan.tree, names) if updates else set(names)
    if updates <= before:
        return
    subject = f"updates in loop {loop}"
    try:
        apart = in_loops_of_their_own(plan.schedule, loop)
    except ScheduleError as error:
        plan.decline(subject, "stay together", first_line(error))
        return
    after = _parallel(apart.scop, apart.tree, names)
    figures = {"statements": len(names), "parallel_before": len(before), "parallel": len(after)}
    if len(after) <= len(before):
        plan.decline(subject, "stay together", "no more of them would have a parallel loop", **figures)
        return
    if _rows_together(plan, loop, names, len(after), figures):
        return
    plan.attempt(subject, f"loops of their own for the updates in loop {loop}",
                 partial(in_loops_of_their_own, loop=loop), **figures)  # fmt: skip


def _rows_together(plan: Planner, loop: str, names: Sequence[str], most: int, figures: dict[str, int]) -> bool:
    """Only those updates apart that the loop carries, where the others have no product that wants a nest of its own,
    and as many have a parallel loop then as with all apart."""
    found = (recognise(plan.scop.statements[n]) for n in names)
    if any(c is not None and all(o.own for o in c.operands) for c in found):
        return False
    try:
        made = plan.schedule.in_one_check(lambda s: rows_together(s, loop))
    except ScheduleError:
        return False
    if len(_parallel(made.scop, made.tree, names)) < most:
        return False
    if _sums_of_blocks(plan, loop, [n for n in names if not _shares_rows(made, loop, n)]):
        return True
    what = f"loops of their own for what loop {loop} carries"
    return plan.attempt(f"updates in loop {loop}", what,
                        lambda s: s.in_one_check(lambda new: rows_together(new, loop)), **figures)  # fmt: skip


def _shares_rows(apart: Schedule, loop: str, name: str) -> bool:
    """Whether a statement is in the rows that share the loop again, not among the updates that it carries."""
    head = loops_around(apart.tree, name)[0]
    carried = analyse(apart.tree, all_pairs(apart.scop, set(head.schedule)))
    return carried[head.name].parallel


def _sums_of_blocks(plan: Planner, loop: str, sums: Sequence[str]) -> bool:
    """Sums of their own for the rows of each thread, where loops of their own would read large arrays again."""
    row = plan.member(loop)
    extent = plan.extent(row)
    if plan.threads < 2 or extent is None or extent < plan.threads:
        return False
    from polyc.scheduler.cost.partial_sums import bytes_of_both, bytes_of_sums  # (a first product does without)

    again = bytes_of_both(plan.scop, sums, [n for n in row.schedule if n not in sums], plan.target)
    if not again:
        return False
    own = bytes_of_sums(plan.scop, sums, plan.threads)
    subject, rows = f"rows of loop {loop}", -(-extent // plan.threads)
    figures = {"bytes_read_again": again, "bytes_of_sums": own}
    if own >= again:
        plan.decline(subject, "no sums of their own for threads", "they would move more than they save", **figures)
        return False
    what = f"sums of their own for each {rows} rows of loop {loop}, in parallel"
    return plan.attempt(subject, what, partial(partial_sums, loop=loop, rows=rows), **figures)


def _scatters(scop: Scop, name: str) -> bool:
    s = scop.statements[name]
    return s.reduction is not None and not s.dynamic and scatters(s, scop)


def _nest(plan: Planner, loop: str, names: Sequence[str]) -> bool:
    """Choose for the updates of a nest, and propose what was chosen; whether that was done."""
    subject = f"update{'s' if len(names) > 1 else ''} {', '.join(names)}"
    try:
        apart = in_loops_of_their_own(plan.schedule, loop)
    except ScheduleError:
        apart = plan.schedule
    chosen: dict[str, Form] = {}
    figures: dict[str, dict[str, float]] = {}
    for name in names:
        form, costs = _best(apart.scop, apart.tree, name, plan)
        figures[name] = costs
        if form is not None:
            chosen[name] = form
    shown = {f"{n}_{k}": rounded(v) for n, costs in figures.items() for k, v in costs.items()}
    if not chosen:
        plan.decline(subject, "stays a scatter", "no other form costs clearly less", **shown)
        return False
    forms = ", ".join(f"{n} over {'its elements' if f == 'elements' else 'its elements in phases'}"
                      for n, f in chosen.items())  # fmt: skip
    return plan.attempt(subject, f"gathered: {forms}", partial(gather_sums, loop=loop, forms=chosen), **shown)


def _best(scop: Scop, tree: Node, name: str, plan: Planner) -> tuple[Form | None, dict[str, float]]:
    """The form that an update should get (None: as it is), and what each costs in cycles."""
    was = cycles(scop, [name], _parallel(scop, tree, [name]), plan.target, plan.threads)
    costs = {} if was is None else {"scatter": was}
    best, least, count = None, was, points_of_box(scop.statements[name].domain)
    for form in FORMS:
        try:
            made = gathering.gather(scop, tree, name, None, form == "phases", None)
        except ScheduleError:
            continue
        new = [n for n in made.scop.statements if n not in scop.statements or n == name]
        parallel = _parallel(made.scop, made.tree, new)
        cost = cycles(made.scop, new, parallel, plan.target, plan.threads, count)
        if cost is not None and was is not None:
            costs[form] = cost
            if cost < CLEARLY * was and (least is None or cost < least):
                best, least = form, cost
        elif best is None and parallel and not _parallel(scop, tree, [name]):
            best = form
    return best, costs


def _parallel(scop: Scop, tree: Node, names: Sequence[str]) -> set[str]:
    """Those statements that have a loop around them which carries nothing."""
    together = {s for n in names for m in loops_around(tree, n)[:1] for s in m.schedule}  # no others are in their loops
    carried = analyse(tree, all_pairs(scop, together))
    return {n for n in names if any(carried[m.name].parallel for m in loops_around(tree, n))}
