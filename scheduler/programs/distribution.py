"""`distribute_all`: every part of a nest in loops of its own.

The parts of a body are put into an order in which all their dependences, those that loops carry included, run forwards
(after Allen & Kennedy, "Automatic translation of Fortran programs to vector form", TOPLAS 1987), and the loops are
distributed over them, the inner ones first.
"""

from __future__ import annotations

from polyc.poly.dependences import conflicts
from polyc.poly.errors import ScheduleError
from polyc.poly.tree import Band, Filter, Sequence
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import chain_of, outer_members, reaching


def distribute_all(s: Schedule, loop: str) -> Schedule:
    """Give every part of a nest loops of its own.

    Arguments: `loop`, the outermost one of the nest.
    Before -> after: `i: (S0; j: (S1; k: S2))` -> `i: S0; i_1: j: S1; i_2: j_1: k: S2`, in an order of S0, S1, S2 that
    dependences allow.
    Refused when: dependences of some parts lead around in a circle, so that they share a loop.
    """
    chain = chain_of(s.tree, loop)
    if not isinstance(chain.child, Sequence):
        return s
    for part in chain.child.filters:
        if isinstance(part.child, Band):
            s = distribute_all(s, part.child.members[0].name)
    s = _in_order(s, loop)
    return s.distribute(loop)


def _in_order(s: Schedule, loop: str) -> Schedule:
    """The parts of the loop's body so that no dependence leads from one to an earlier one."""
    chain = chain_of(s.tree, loop)
    body = chain.child
    assert isinstance(body, Sequence)
    members = chain.members[: chain.position(loop)]
    around = [*outer_members(chain.path), *members]
    active = reaching(s.scop, chain.path)
    part_of = {stmt: k for k, f in enumerate(body.filters) for stmt in f.domain}
    later: dict[int, set[int]] = {k: set() for k in range(len(body.filters))}
    for (a, b), pairs in conflicts(s.scop).ordered.items():
        if a in part_of and b in part_of and part_of[a] != part_of[b] and part_of[b] not in later[part_of[a]]:
            pairs = pairs.intersect_domain(active[a]).intersect_range(active[b])
            for m in around:
                pairs = pairs.intersect(m.schedule[a].eq_map(m.schedule[b]))
            if not pairs.is_empty():
                later[part_of[a]].add(part_of[b])
    order = _topological(later)
    if order is None:
        raise ScheduleError(f"dependences of the parts of loop '{loop}' lead around in a circle: they share it")
    if order == sorted(order):
        return s
    return s.reorder_statements([_name(body.filters[k]) for k in order])


def _topological(later: dict[int, set[int]]) -> list[int] | None:
    """The numbers in an order that all arrows follow, the smallest first where there is a choice."""
    left, order = set(later), list[int]()
    while left:
        free = [k for k in sorted(left) if not any(k in later[other] for other in left if other != k)]
        if not free:
            return None
        order.append(free[0])
        left.remove(free[0])
    return order


def _name(part: Filter) -> str:
    """A statement that stands for a part."""
    return next(iter(part.domain))
