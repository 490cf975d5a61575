"""What runs for a changed region is what runs for one elsewhere, moved: for which places, isl says once.

A region at one place is looked at in full: which results depend on it, which instances make them, what these read.
All of that follows relations from set to set, so it is the same at another place if each relation is the same there on
the sets that it starts from. For moves by any number of steps the places where it is not are one set of isl's.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import mul

import islpy as isl

from polyc.graph_driver.incremental.regions import Region, elements
from polyc.poly.access import accesses
from polyc.poly.forms.ranges import bounds
from polyc.poly.origins import Origins, origins
from polyc.poly.rewriting.part import Part
from polyc.poly.rewriting.translations import (
    Directions,
    Key,
    Moved,
    Steps,
    branches,
    conditions,
    directions,
    independent,
)
from polyc.poly.scop import Scop

Relation = tuple[isl.Map, isl.Set, tuple[str, str]]
"""A relation, the set that it starts from, and whether its sides are instances or elements."""
INTO, OUT, WITHIN = ("element", "instance"), ("instance", "element"), ("instance", "instance")


class Places:
    """Where else the same happens as for one changed region.

    Args:
        scop: of the kernel.
        shapes: of its arrays.
        changed: the region of each argument that changes.
        part: what runs for it.
    """

    def __init__(
        self, scop: Scop, shapes: Mapping[str, tuple[int, ...]], changed: Mapping[str, Region], part: Part
    ) -> None:
        self.changed = changed
        sets = {n: elements(n, r) for n, r in changed.items()}
        found = origins(scop)
        seen = found.readers(sets)
        keys: list[Key] = [("element", n, d) for n, r in changed.items() for d in range(len(r))]
        moves = directions(scop, {*seen, *part.runs}, _still(scop, shapes, changed, part))
        self.moves = independent(moves, keys)
        self.steps = Steps(self.moves, keys)
        names = [*scop.args, *scop.results]
        self.rows = {n: [self.moves.row(("element", n, d)) for d in range(len(shapes[n]))] for n in names}
        self.where = _where(self.moves, _relations(scop, found, sets, seen, part)) if self.moves.steps else []

    def at(self, changed: Mapping[str, Region]) -> dict[str, tuple[int, ...]] | None:
        """How far arguments and results are from here to a region of the same size; None: it is not the same there."""
        targets: dict[Key, int] = {
            ("element", n, d): begin - self.changed[n][d][0]
            for n, r in changed.items()
            for d, (begin, _) in enumerate(r)
        }
        by = self.steps.to(targets) if self.where else None
        if by is None or not any(_holds(tests, by) for tests in self.where):
            return None
        return {n: tuple(sum(map(mul, row, by)) for row in rows) for n, rows in self.rows.items()}


def _still(scop: Scop, shapes: Mapping[str, tuple[int, ...]], changed: Mapping[str, Region], part: Part) -> list[Key]:
    """What is there from end to end cannot move."""
    boxes = [*changed.items(), *part.boxes.items()]
    still: list[Key] = [
        ("element", n, d) for n, box in boxes for d, side in enumerate(box) if tuple(side) == (0, shapes[n][d])
    ]
    for name, some in part.runs.items():
        whole = scop.statements[name].domain
        ranks = range(whole.dim(isl.dim_type.set))
        still += [("instance", name, d) for d in ranks if bounds(whole, d) == bounds(some, d)]
    return still


def _relations(
    scop: Scop, found: Origins, changed: Mapping[str, isl.Set], seen: Mapping[str, isl.Set], part: Part
) -> list[Relation]:
    """All that the part was found by."""
    out: list[Relation] = [(m.reverse(), changed[a], INTO) for (_, a), m in found.fed.items() if a in changed]
    out += [(m, seen[a], WITHIN) for (a, _), m in found.flow.items() if a in seen]
    out += [(m, seen[a], OUT) for a, m in found.last.items() if a in seen]
    wanted = {r: elements(r, tuple(part.boxes[r])) for r in scop.results}
    touched = [a for a in accesses(scop) if a.stmt in part.runs]
    for a in touched:
        if not a.write:
            read = a.map.intersect_domain(part.runs[a.stmt]).range()
            wanted[a.array] = wanted[a.array].union(read) if a.array in wanted else read
    out += [(a.map.reverse(), wanted[a.array], INTO) for a in accesses(scop) if a.write and a.array in wanted]
    out += [(a.map, part.runs[a.stmt], OUT) for a in touched]
    for name, some in part.runs.items():
        out += [(c.identity(), some, WITHIN) for c in conditions(scop.statements[name])]
    out += [(d.identity(), part.runs[n], WITHIN) for n, d in branches(scop.tree) if n in part.runs]
    return out


def _where(moves: Directions, relations: list[Relation]) -> list[list[tuple[bool, tuple[int, ...], int]]]:
    """The steps `q` for which all relations are the same after the move, as alternatives of conditions
    `factors * q + constant >= 0` (True: `= 0`). What has no such form is left out."""
    moved = Moved(moves, None)
    other: isl.Set | None = None
    for relation, some, kinds in relations:
        start = isl.Set.from_basic_set(some.simple_hull())  # the same on more is the same on these
        here = relation.intersect_domain(start)
        there = moved.map(relation, kinds).intersect_domain(start)
        here = here.align_params(there.get_space())
        for differs in (here.subtract(there).params(), there.subtract(here).params()):
            other = differs if other is None else other.union(differs).coalesce()
    assert other is not None
    same = other.complement().coalesce()
    found = []
    for part in same.get_basic_sets():
        if not part.dim(isl.dim_type.div):
            found.append([_test(c, moved.params) for c in part.get_constraints()])
    return found


def _test(c: isl.Constraint, params: list[str]) -> tuple[bool, tuple[int, ...], int]:
    places = [c.get_space().find_dim_by_name(isl.dim_type.param, p) for p in params]
    factors = tuple(int(c.get_coefficient_val(isl.dim_type.param, k).to_python()) for k in places)
    return c.is_equality(), factors, int(c.get_constant_val().to_python())


def _holds(tests: list[tuple[bool, tuple[int, ...], int]], by: tuple[int, ...]) -> bool:
    for equal, factors, constant in tests:
        value = constant + sum(f * q for f, q in zip(factors, by, strict=True))
        if value < 0 or (equal and value):
            return False
    return True
