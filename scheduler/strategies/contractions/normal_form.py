"""Strategy: nests with a product inside become nests of a contraction, however the product is spelled.

What an update adds is brought to two elements of different arrays (a sum is split into several updates; factors are
computed ahead where their elements are used often), and where something stands beside the product, the parts of the
nest get loops of their own. A nest is changed only if a product in it then gets a register tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from math import prod

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, Load, Var, loads, variables
from polyc.poly.forms.affine import constant_of, set_space, to_pw_aff
from polyc.poly.forms.ranges import extremes
from polyc.poly.products import products
from polyc.poly.records import dataclass
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.text import print_expr
from polyc.poly.tree import Filter, Node, loops_around
from polyc.poly.tree import Sequence as InOrder
from polyc.poly.words import first_line
from polyc.scheduler.cost.panels import OUTLINE_MIN_REUSE
from polyc.scheduler.cost.vector_loops import iterator
from polyc.scheduler.programs.distribution import distribute_all
from polyc.scheduler.recognition.contraction import Contraction
from polyc.scheduler.recognition.factors import Side, reuse, sides, to_outline
from polyc.scheduler.recognition.group import examine_nests
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Plan, first_loops
from polyc.scheduler.transformations.storage import users

Worth = Callable[[Scop, Contraction], bool]


def normal_form(plan: Plan, nest: Sequence[str], worth: Worth) -> bool:
    """Bring a nest at the top to one or several of contractions; whether that was done.

    Args:
        nest: its statements.
        worth: whether a contraction gets a tile.
    """
    if _as_spelled(plan, nest, worth):
        return True
    before = plan.schedule
    inlined = _factors_in_place(plan, nest)
    if inlined and _as_spelled(plan, [n for n in nest if n in plan.scop.statements], worth):
        return True
    if inlined:
        plan.schedule = before
    return False


def _factors_in_place(plan: Plan, nest: Sequence[str]) -> bool:
    """Put local scalars that are factors of a sum where they are used; whether there were any."""
    found = False
    for stmt in [plan.scop.statements[n] for n in nest]:
        for factor in [f for p in products(stmt) for f in p.factors if isinstance(f, Load)]:
            array = plan.scop.arrays.get(factor.array)
            if array is None or array.kind != "local" or len(array.shape) != array.expanded or not array.shape:
                continue
            who = users(plan.scop, factor.array)
            readers = [n for n in who if any(x.array == factor.array for x in loads(plan.scop.statements[n].value))]
            if readers == [stmt.name] and who <= set(nest):
                new = partial(Schedule.inline, array=factor.array)
                found |= plan.attempt(f"local {factor.array}", f"{factor.array} in its place", new)
    return found


def _as_spelled(plan: Plan, nest: Sequence[str], worth: Worth) -> bool:
    """The same for a nest whose factors stay where they are."""
    stmts = {n: plan.scop.statements[n] for n in nest}
    copies = {n: loops for n, s in stmts.items() if (loops := _loops_of_copies(plan, s))}
    chosen = [n for n, s in stmts.items() if _candidate(_with_copies(s, list(copies.get(n, {}).values())))]
    if not chosen:
        return False
    subject = f"product{'s' if len(chosen) > 1 else ''} {', '.join(chosen)}"
    form, refusal = _Form(plan.schedule, worth, list(chosen)), ""
    for apart in (False, True):  # factors that the nest itself computes are there when it has been taken apart
        form = _Form(plan.schedule, worth, list(chosen))
        try:
            for name in chosen:
                for loop in reversed(copies.get(name, {})):
                    form.copies(stmts[name].array, loop)
            if apart:
                form.parts_apart(chosen[0])
            for name in chosen:
                form.two_sides(name)
            if not apart and not form.reached():
                form.parts_apart(chosen[0])
        except ScheduleError as error:
            refusal = refusal or first_line(error)
        else:
            break
    else:
        plan.decline(subject, "not brought to the form of a contraction", refusal)
        return False
    if not form.reached():
        plan.decline(subject, "not brought to the form of a contraction", "it would get no register tile")
        return False
    for what, schedule in form.stages:
        plan.attempt(subject, what, _with_decisions(schedule))
    return True


def _with_decisions(new: Schedule) -> Callable[[Schedule], Schedule]:
    """The proposal of a schedule that was made already."""
    return lambda s: replace(new, decisions=s.decisions)


def _candidate(stmt: Statement) -> bool:
    """Whether the statement adds up a product of two sides, or several, whose factors may change places. Beside one
    whose sides both move along the sum there may be others of which one does (`a[k, i] * c[k, j] - m[i] * c[k, j]`)."""
    parts = _summands(stmt)
    return all(_used_often(part, len(parts) > 1) for part in parts) and any(_used_often(part, False) for part in parts)


def _loops_of_copies(plan: Plan, stmt: Statement) -> dict[str, str]:
    """Loops that move factors of a sum in a local array, but not the sum: around everything that touches the array,
    outermost first, and the iterator of the statement that each is. With a copy of the array for each iteration they
    would be loops of the product."""
    if plan.scop.arrays[stmt.array].kind != "local" or not products(stmt):
        return {}
    moved = set().union(*(variables(f) for p in products(stmt) for f in p.factors)) - set(map(_name, stmt.index))
    shared = [{m.name for m in loops_around(plan.tree, n)} for n in users(plan.scop, stmt.array)]
    around = [m for m in loops_around(plan.tree, stmt.name) if all(m.name in names for names in shared)]
    found = {m.name: i for m in around if (i := iterator(stmt, m.schedule[stmt.name])) in moved and i is not None}
    domain = stmt.domain.intersect_params(plan.scop.context)
    iters = (*found.values(), *filter(None, map(_name, stmt.index)))
    made = [domain.dim_max(stmt.iters.index(i)).add_constant_val(isl.Val(1)) for i in iters]
    arguments = (a for a in plan.scop.arrays.values() if a.kind != "local")
    if not any(_holds(plan.scop, a, made, stmt.value.dtype.bytes) for a in arguments):
        return {}  # they would be more than the program works on
    return found


def _holds(scop: Scop, array: Array, extents: Iterable[isl.PwAff], element: int) -> bool:
    """Whether an array has at least the bytes of one with these extents, for all sizes: each extent that depends on
    them is at most one of the array's own, and so are the numbers that are left together."""
    shape = (to_pw_aff(e, set_space("", (), scop.params)) for e in array.shape)
    free = [e.project_domain_on_params() for e in shape]
    for extent in extents:
        number = constant_of(extent)
        if number is not None:
            element *= number
            continue
        larger = (f for f in free if constant_of(f) is None and scop.context.is_subset(extent.le_set(f)))
        match = next(larger, None)
        if match is None:
            return False
        free.remove(match)
    least = [extremes(f.intersect_params(scop.context))[0] for f in free]
    return all(n.is_int() for n in least) and element <= prod(n.to_python() for n in least) * array.dtype.bytes


def _name(e: Expr) -> str | None:
    return e.name if isinstance(e, Var) else None


def _with_copies(stmt: Statement, iters: Sequence[str]) -> Statement:
    """The statement as it will be with a copy of its array for each value of some iterators."""
    target = Load(stmt.array, (*map(Var, iters), *stmt.index), stmt.value.dtype)
    value = stmt.value
    if iters and isinstance(value, Binary):
        value = Binary(value.op, target, value.b, value.dtype)
    return replace(stmt, index=target.index, value=value)


def _summands(stmt: Statement) -> list[Statement]:
    """The statement as one for each summand."""
    return [replace(stmt, value=stmt.value.with_children((stmt.target, p.value()))) for p in products(stmt)]


def _used_often(stmt: Statement, one_along: bool) -> bool:
    pair = sides(stmt, one_along)
    return pair is not None and all(reuse(stmt, side) >= OUTLINE_MIN_REUSE for side in pair)


@dataclass
class _Form:
    """A schedule on the way to contractions: `stages` are what was done and the schedule afterwards, `updates` the
    products."""

    schedule: Schedule
    worth: Worth
    updates: list[str]
    stages: list[tuple[str, Schedule]] = field(default_factory=list)

    def reached(self) -> bool:
        """Whether a product is a contraction with a nest of its own now, and gets a tile."""
        scop = self.schedule.scop
        nests = [list(f.domain) for f in filters_of(self.schedule.tree, scop)]
        for k in range(len(nests)):
            found = examine_nests(scop, nests, k)
            if not isinstance(found, str) and found[0].contraction.update.name in self.updates:
                if self.worth(scop, found[0].contraction):
                    return True
        return False

    def two_sides(self, name: str) -> None:
        """The statement as updates by two elements each."""
        parts = [name]
        if len(products(self.schedule.scop.statements[name])) > 1:
            known = set(self.schedule.scop.statements)
            self._take(f"the sum of {name} as several updates", self.schedule.split_sum(name))
            parts += [n for n in self.schedule.scop.statements if n not in known]
            self.updates += parts[1:]
        for part in parts:
            stmt = self.schedule.scop.statements[part]
            pair = sides(stmt, len(parts) > 1)
            for side in to_outline(stmt, pair) if pair is not None else ():
                what = f"{_text(side)} of {part} computed ahead"
                self._take(what, self.schedule.outline(part, list(side.loops)))

    def copies(self, array: str, loop: str) -> None:
        """The array once for each iteration of a loop."""
        self._take(f"a copy of {array} for each iteration of {loop}", self.schedule.expand(array, loop))

    def parts_apart(self, name: str) -> None:
        """The parts of the statement's nest in loops of their own."""
        scop, tree = self.schedule.scop, self.schedule.tree
        loops = [first_loops(f.child) for f in filters_of(tree, scop) if name in f.domain]
        for loop in (names[0] for names in loops if names):
            new = self.schedule.in_one_check(partial(distribute_all, loop=loop), f"distribute_all({loop!r})")
            self._take(f"loops of their own for the parts of loop {loop}", new)

    def _take(self, what: str, schedule: Schedule) -> None:
        self.schedule = schedule
        self.stages.append((what, schedule))


def _text(side: Side) -> str:
    return " * ".join(print_expr(f) for f in side.factors)


def filters_of(tree: Node, scop: Scop) -> list[Filter]:
    """The parts of a tree's outermost sequence (one part when there is no sequence)."""
    if isinstance(tree, InOrder):
        return list(tree.filters)
    return [Filter({n: s.domain for n, s in scop.statements.items()}, tree)]
