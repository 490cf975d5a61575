"""How much a schedule computes and touches, as formulas in the sizes.

Questions about what is not there (a loop, statement, array or quantity) are a `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

import islpy as isl

from polyc.poly.access import Access, accesses
from polyc.poly.cache import instances
from polyc.poly.closed_forms.counting import count_or_bound, parametric_image
from polyc.poly.closed_forms.formula import Formula
from polyc.poly.closed_forms.operations import operations
from polyc.poly.closed_forms.pieces import CountingError
from polyc.poly.errors import ScheduleError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Filter, Member, Node, time_map
from polyc.scheduler.transformations.tree_edit import Path, locate, outer_members

What = Literal["flops", "instances", "loads", "stores", "bytes", "traffic"]
WHATS: tuple[What, ...] = ("flops", "instances", "loads", "stores", "bytes", "traffic")


@dataclass(frozen=True)
class Region:
    """The instances of one iteration of some loops (`names`; none: the whole program).

    `times[stmt]` is `{ [loop values] -> stmt[iters] }`.
    """

    scop: Scop
    names: tuple[str, ...]
    times: dict[str, isl.Map]
    context: isl.Set

    def points(self, stmt: str, where: isl.Set) -> isl.Set:
        """The instances in `where` as a set whose parameters are the sizes and the loop values."""
        return parametric_image(self.times[stmt].intersect_range(where), self.names)

    def nothing(self) -> Formula:
        """The formula 0."""
        return Formula((), _names(self.context), self.context)


def region(scop: Scop, tree: Node, at: str | None) -> Region:
    """One iteration of the loop `at` and of those around it. Raises `ScheduleError`: no such loop."""
    members: list[Member] = []
    active = dict(instances(scop))
    if at is not None:
        spot = locate(tree, at)
        members = [*outer_members(spot.path), *spot.band.members[: spot.index + 1]]
        active = _filtered(spot.path, {s: active[s] for s in spot.member.schedule})
    names = tuple(m.name for m in members)
    times = {s: _time(members, s, d).reverse() for s, d in active.items()}
    context = scop.context
    if names:
        values = [t.domain() for t in times.values()]
        happens = values[0]
        for v in values[1:]:
            happens = happens.union(v)
        context = parametric_image(isl.Map.from_domain(happens), names).params()
    return Region(scop, names, times, context)


def _filtered(path: Path, active: dict[str, isl.Set]) -> dict[str, isl.Set]:
    for node, _ in path:
        if isinstance(node, Filter):
            active = {s: d.intersect(node.domain[s]) for s, d in active.items() if s in node.domain}
    return active


def _time(members: Iterable[Member], stmt: str, domain: isl.Set) -> isl.Map:
    return time_map(domain, [m.schedule[stmt] for m in members])


def _names(context: isl.Set) -> tuple[str, ...]:
    return tuple(context.get_dim_name(isl.dim_type.param, k) for k in range(context.dim(isl.dim_type.param)))


# ---- counts ------------------------------------------------------------------------------------


def count(scop: Scop, tree: Node, what: str, at: str | None, statements: Iterable[str] | None) -> Formula:
    """See `Questions.count`."""
    if what not in WHATS:
        raise ScheduleError(f"cannot count '{what}': the choices are {', '.join(WHATS)}")
    here = region(scop, tree, at)
    chosen = list(here.times) if statements is None else list(statements)
    for s in chosen:
        if s not in here.times:
            where = f"inside loop '{at}'" if at else "in the program"
            raise ScheduleError(f"no statement '{s}' {where}: the statements there are {', '.join(here.times)}")
    _refuse_dynamic(scop, chosen)
    if what == "bytes":
        return _moved_once(here, chosen)
    total = here.nothing()
    for name in chosen:
        for factor, where, sure in _events(scop, scop.statements[name], what):
            part = count_or_bound(here.points(name, where), here.context) * factor
            total = total + (part if sure else part.bounded(f"in {name} the number depends on data"))
    return total


def _events(scop: Scop, s: Statement, what: str) -> Iterator[tuple[int, isl.Set, bool]]:
    """What is counted, merged where the same instances do it: (how many, instances, surely)."""
    merged: list[tuple[int, isl.Set, bool]] = []
    for amount, where, sure in _single_events(scop, s, what):
        for k, (n, other, flag) in enumerate(merged):
            if flag == sure and where.plain_is_equal(other):
                merged[k] = (n + amount, other, flag)
                break
        else:
            merged.append((amount, where, sure))
    yield from merged


def _single_events(scop: Scop, s: Statement, what: str) -> Iterator[tuple[int, isl.Set, bool]]:
    domain = s.domain.intersect_params(scop.context)
    if what == "instances":
        yield 1, domain, not s.dynamic
    elif what == "flops":
        yield from operations(scop, s)
    else:
        for a in accesses(scop):
            if a.stmt == s.name and what in ("traffic", "stores" if a.write else "loads"):
                size = scop.arrays[a.array].dtype.bytes if what == "traffic" else 1
                # An element that is not known exactly is still one element: only a guard makes it unsure.
                yield size, a.map.domain(), a.must or _performed(s, a)
    return


def _performed(s: Statement, a: Access) -> bool:
    """Whether the access happens in every instance of its map although its element is not known."""
    return not s.dynamic and s.predicate is None and bool(s.domain.is_subset(a.map.domain()))


def _refuse_dynamic(scop: Scop, stmts: Iterable[str]) -> None:
    for name in stmts:
        bounds = scop.statements[name].dynamic
        if bounds:
            raise CountingError(f"not counted: the loop '{bounds[0].iter}' of {name} has bounds that depend on data")


# ---- elements ----------------------------------------------------------------------------------


def footprint(scop: Scop, tree: Node, array: str, at: str | None, reads: bool = True, writes: bool = True) -> Formula:
    """See `Questions.footprint`."""
    if array not in scop.arrays:
        raise ScheduleError(f"no array '{array}': the arrays are {', '.join(scop.arrays)}")
    here = region(scop, tree, at)
    _refuse_dynamic(scop, here.times)
    chosen = [a for a in accesses(scop) if a.array == array and (writes if a.write else reads)]
    return _elements(here, [a for a in chosen if a.stmt in here.times])


def _elements(here: Region, chosen: Iterable[Access]) -> Formula:
    touched: isl.Set | None = None
    sure = True
    for a in chosen:
        part = parametric_image(here.times[a.stmt].apply_range(a.map), here.names)
        touched = part if touched is None else touched.union(part)
        sure = sure and a.must
    if touched is None:
        return here.nothing()
    formula = count_or_bound(touched, here.context)
    return formula if sure else formula.bounded("which elements are touched depends on data")


def _moved_once(here: Region, stmts: Iterable[str]) -> Formula:
    """Every element of an argument that is read, and every one of a result that is written, once."""
    names = set(stmts)
    total = here.nothing()
    for array in here.scop.arrays.values():
        if array.kind == "local":
            continue
        for write in (False, True):
            if (write and array.kind == "in") or (not write and array.kind == "out"):
                continue
            own = [a for a in accesses(here.scop) if a.array == array.name and a.write == write and a.stmt in names]
            if own:
                total = total + _elements(here, own) * array.dtype.bytes
    return total


def touches(scop: Scop, tree: Node, array: str, at: str | None) -> Formula:
    """Accesses (loads and stores) of one array in one iteration of `at`."""
    here = region(scop, tree, at)
    _refuse_dynamic(scop, here.times)
    total = here.nothing()
    for a in accesses(scop):
        if a.array == array and a.stmt in here.times:
            part = count_or_bound(here.points(a.stmt, a.map.domain()), here.context)
            total = total + (part if a.must else part.bounded("the number of accesses depends on data"))
    return total


def over_sizes(formula: Formula, sizes: Iterable[str]) -> Formula:
    """The same formula that also accepts these sizes."""
    return replace(formula, names=tuple(dict.fromkeys((*formula.names, *sizes))))
