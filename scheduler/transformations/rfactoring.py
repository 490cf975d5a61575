"""`rfactor`: a reduction in two stages, partial results per iteration of a loop, then their combination.

After Suriana, Adams & Kamil, "Parallel Associative Reductions in Halide" (CGO 2017), on any
schedule tree. With the updates `A[f(x)] op= u(x)` in a loop of value `v(x)`:

    part[e, v] = identity       for all elements e and values v, before the loop
    part[f(x), v(x)] op= u(x)   instead of the update
    A[e] op= part[e, v]         after the loop

That is the same result, up to the order of the operations, unless something in the loop
looks at `A` after an update: the update would not be there yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import islpy as isl

from polyc.poly.access import Access, accesses, accumulator_of, array_elements
from polyc.poly.dependences import conflicts
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, Load, Var
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.ordering.order import in_order
from polyc.poly.records import dataclass, replace
from polyc.poly.reduction import identity
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim, promotions_below
from polyc.poly.witnesses.violation import Violation
from polyc.scheduler.transformations.added import (
    following,
    minus,
    named,
    new_name,
    program,
    put_with,
    taken,
    unique,
    value_range,
    with_statements,
)
from polyc.scheduler.transformations.tree_edit import (
    Spot,
    band_of,
    flatten,
    fresh,
    locate,
    outer_members,
    reaching,
    refuse_dynamic,
    sequence,
)


@dataclass(frozen=True)
class Factored:
    """The Scop with the two stages and its tree; with a `violation` its result differs."""

    scop: Scop
    tree: Node
    violation: Violation | None = None


def rfactor(scop: Scop, tree: Node, loop: str, first: bool = False) -> Factored:
    """Both stages for every reduction that `loop` carries in the legal `tree` (see `Schedule.rfactor`)."""
    refuse_dynamic(scop, locate(tree, loop).member, "rfactor")
    for name in _carried(scop, tree, loop):
        stage = _Stage(scop, tree, locate(tree, loop), scop.statements[name], first)
        violation = stage.violation()
        scop, tree = stage.scop_and_tree()
        if violation is not None:
            return Factored(scop, tree, violation)
    return Factored(scop, tree)


def _carried(scop: Scop, tree: Node, loop: str) -> list[str]:
    """The reductions whose updates of one element are spread over iterations of the loop."""
    spot = locate(tree, loop)
    around = [*outer_members(spot.path), *spot.band.members[: spot.index]]
    active = reaching(scop, spot.path)
    found = []
    for (name, other), pairs in conflicts(scop).relaxed.items():
        if name == other and name in active:
            here = _same_times(pairs.intersect_domain(active[name]).intersect_range(active[name]), around, name, name)
            value = spot.member.schedule[name]
            if not here.intersect(value.lt_map(value).union(value.gt_map(value))).is_empty():
                found.append(name)
    if found:
        return found
    if not scop.reassociate and any(scop.statements[s].value.dtype.is_float for s in active):
        raise ScheduleError(f"loop '{loop}' runs over no reduction: '{scop.name}' forbids reassociation")
    raise ScheduleError(f"loop '{loop}' runs over no reduction")


def _same_times(pairs: isl.Map, loops: Sequence[Member], a: str, b: str) -> isl.Map:
    for m in loops:
        pairs = pairs.intersect(m.schedule[a].eq_map(m.schedule[b]))
    return pairs


@dataclass(frozen=True)
class _Stage:
    """One reduction statement and the loop that it is factored over."""

    scop: Scop
    tree: Node
    spot: Spot
    update: Statement
    value_first: bool

    # ---- the proof -------------------------------------------------------------------------

    def violation(self) -> Violation | None:
        """Accesses in the loop that would miss updates which come before them.

        Raises:
            ScheduleError: the tree keeps the array or the updates in several places.
        """
        name, array = self.update.name, self.update.array
        if any(n.array == array for n in promotions_below(self.tree)):
            raise ScheduleError(f"array '{array}' is promoted already: rfactor first")
        if self.update.dynamic:
            raise ScheduleError(f"rfactor: {name} runs in a loop whose bounds depend on data")
        if not self.scop.statements[name].domain.intersect_params(self.scop.context).is_subset(self.active[name]):
            raise ScheduleError(f"some instances of {name} run outside of loop '{self.spot.member.name}'")
        faults = list(self.early())
        if not faults:
            return None
        sizes = reduce(lambda a, b: a.union(b), (m.params() for m in faults))
        detail = f"its part of the sum would reach {array} only after the loop '{self.spot.member.name}'"
        return Violation(
            self.scop, self.scop.tree, "delayed", faults[0], sizes, self.spot.member.name, detail, array=array
        )

    def early(self) -> Iterator[isl.Map]:
        """`{ S[x] -> T[y] }`: in one run of the loop, y looks at an element that x has updated before."""
        write = self.write()
        for other in accesses(self.scop):
            own = other.stmt == self.update.name and other.accumulator
            if other.array == self.update.array and other.stmt in self.active and not own:
                key = (self.update.name, other.stmt)
                pairs = write.map.apply_range(other.map.reverse()).intersect_range(self.active[other.stmt])
                pairs = _same_times(pairs.intersect_domain(self.active[key[0]]), self.around, *key)
                found = in_order(self.scop, {key: pairs}).get(key)
                if found is not None:
                    yield found

    def write(self) -> Access:
        return next(a for a in accesses(self.scop) if a.stmt == self.update.name and a.write)

    @property
    def around(self) -> list[Member]:
        return [*outer_members(self.spot.path), *self.spot.band.members[: self.spot.index]]

    @property
    def active(self) -> Mapping[str, isl.Set]:
        return reaching(self.scop, self.spot.path)

    # ---- the two stages --------------------------------------------------------------------

    def scop_and_tree(self) -> tuple[Scop, Node]:
        """The Scop with its program order, and the tree (marks and promotions kept)."""
        update, member = self.update, self.spot.member
        value = member.schedule[update.name]
        low, extent = self.range(value)
        part = new_name(self.scop, self.tree, f"{update.array}_part")
        old = self.scop.arrays[update.array]
        array = Array(part, old.dtype, self.with_value(old.shape, extent), "local", span=old.span)
        place = function_expr(value, update.iters, update.domain.intersect_params(self.scop.context))
        partial = Load(part, self.with_value(update.index, minus(place, low)), old.dtype, update.span)
        first, last, space = self.ends(part, low)
        changed = replace(update, array=part, index=partial.index, value=_with_accumulator(update, partial))
        statements = {**self.scop.statements, update.name: changed, first.name: first, last.name: last}
        arrays = {**self.scop.arrays, part: array}
        scop = replace(self.scop, arrays=arrays, statements=statements)
        tree = self.placed(first, last, space)
        return replace(scop, tree=program(tree)), tree

    def with_value(self, element: Sequence[Expr], value: Expr) -> tuple[Expr, ...]:
        """Subscripts, or sizes, of the partial results."""
        return (value, *element) if self.value_first else (*element, value)

    def range(self, value: isl.PwAff) -> tuple[Expr, Expr]:
        """The smallest value of the loop and the number of values up to the largest, in sizes."""
        values = isl.Map.from_pw_aff(value).intersect_domain(self.active[self.update.name]).range()
        return value_range(self.scop, values, f"loop '{self.spot.member.name}'")

    def ends(self, part: str, low: Expr) -> tuple[Statement, Statement, int]:
        """The statements that begin and combine the partial results, and how many of their
        iterators are the loops around.

        Their instances are the loops' values, the elements (as far as these do not follow from
        them) and the loop's value.
        """
        update, member, scop = self.update, self.spot.member, self.scop
        domain, touched = self.active[update.name], self.write().map.reset_tuple_id(isl.dim_type.out)
        if not domain.plain_is_equal(update.domain.intersect_params(scop.context)):
            touched = touched.intersect_domain(domain)  # (each time, isl would hold the conditions on divisions anew)
        outer = isl.Map.from_domain(isl.Set.universe(domain.get_space()))
        for m in self.around:
            outer = outer.flat_range_product(isl.Map.from_pw_aff(m.schedule[update.name]))
        values = isl.Map.from_pw_aff(member.schedule[update.name])
        points = outer.flat_range_product(touched).flat_range_product(values).range()
        count, rank = len(self.around), len(update.index)
        labels = unique(
            [m.name for m in self.around] + [f"e{d}" for d in range(rank)] + [member.name], taken(scop, self.tree)
        )
        index: list[Expr] = []
        for d in reversed(range(rank)):
            known = following(points, count, count + d)
            if known is None:
                index.insert(0, Var(labels[count + d]))
            else:
                index.insert(0, function_expr(known, labels[:count], known.domain()))
                points = points.project_out(isl.dim_type.set, count + d, 1)
                del labels[count + d]
        self.in_bounds(touched.range())
        own = self.with_value(index, minus(Var(labels[-1]), low))
        dtype = scop.arrays[update.array].dtype
        op = update.reduction
        assert op is not None
        partial = Load(part, own, dtype, update.span)
        total = Load(update.array, tuple(index), dtype, update.span)
        made = []
        for suffix, array, subscripts, value, kind in (
            ("init", part, own, identity(op, dtype), None),
            ("join", update.array, tuple(index), Binary(op, total, partial, dtype), op),
        ):
            name = new_name(scop, self.tree, f"{update.name}_{suffix}")
            where = named(points, name, labels, scop)
            made.append(Statement(name, tuple(labels), where, array, subscripts, value, None, kind, (), update.span))
        return made[0], made[1], count

    def in_bounds(self, elements: isl.Set) -> None:
        """Data-dependent conditions may keep updates inside the array; the stages do not see those."""
        array = self.scop.arrays[self.update.array]
        if not elements.is_subset(array_elements(array, self.scop.params).reset_tuple_id()):
            raise ScheduleError(f"which elements of '{array.name}' {self.update.name} updates depends on data")

    def placed(self, first: Statement, last: Statement, outer: int) -> Node:
        """The tree with the first stage before the loop and the second after it."""
        head, tail = self.spot.band.members[: self.spot.index], self.spot.band.members[self.spot.index :]
        body: Node = Band(tail, self.spot.band.child, self.spot.band.permutable)
        scratch, parts = self.tree, [Filter(dict(self.active), body)]
        for s, suffix in ((first, "init"), (last, "join")):
            loops = []
            for k in range(outer, len(s.iters)):
                name = fresh(scratch, f"{s.iters[k] if k < len(s.iters) - 1 else self.spot.member.name}.{suffix}")
                loops.append(Member(name, {s.name: loop_dim(s.domain, k)}))
                scratch = Band((loops[-1],), scratch)
            part = Filter({s.name: s.domain}, band_of(loops, Leaf()))
            parts = [part, *parts] if s is first else [*parts, part]
        node = band_of(
            [with_statements(m, outer - len(head) + j, (first, last)) for j, m in enumerate(head)], sequence(parts)
        )
        return flatten(put_with(self.spot.path, node, (first, last), outer - len(head)))


def _with_accumulator(update: Statement, partial: Load) -> Expr:
    """The updated value, on the partial result."""
    own = accumulator_of(update)
    children = tuple(partial if c is own else c for c in update.value.children())
    return update.value.with_children(children)
