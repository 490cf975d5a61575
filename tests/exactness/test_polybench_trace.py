"""Domains, accesses, order, dependences and parallel loops of PolyBench equal a recorded run, exactly.

The recorded run is plain Python's own (`recorder`). Sizes are small in every run of the tests;
the long ones are PolyBench's MINI.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from observed import Instance, Observed, Pair, base, carried_start, instance_pairs, pairs, points, scalars, watched
from recorder import Recorder

from examples import polybench
from polyc.poly.access import accesses
from polyc.poly.dependences import flow
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Leaf, Node, Sequence
from polyc.scheduler.schedule import Schedule

SMALL = {"TSTEPS": 3, "TMAX": 3, "N": 6, "M": 5, "NI": 4, "NJ": 5, "NK": 3, "NL": 4, "NM": 3, "NQ": 3, "NR": 2,
         "NP": 4, "W": 5, "H": 4, "NX": 5, "NY": 4}  # fmt: skip
KINDS = ("RAW", "WAR", "WAW")
SIZES = ["small", pytest.param("MINI", marks=pytest.mark.long)]


@dataclass(frozen=True)
class Case:
    scop: Scop
    seen: Observed
    names: frozenset[str]

    @property
    def carried(self) -> frozenset[str]:
        """Statements that only hand a scalar's constant to a loop: no line of the source stores it there."""
        return frozenset(s.name for s in self.scop.statements.values() if carried_start(s))

    @property
    def arrays(self) -> frozenset[str]:
        """Arrays of the source."""
        return frozenset(self.scop.arrays) - scalars(self.scop, self.names)


@cache
def case(name: str, size: str) -> Case:
    """The kernel's Scop for the sizes, and what a plain-Python run of it does."""
    k = polybench.load(name)
    wanted = k.sizes["MINI"]
    sizes = wanted if size == "MINI" else {n: SMALL[n] for n in wanted}
    values = k.inputs(sizes, np.random.default_rng(0))
    constants = {n: v for n, v in values.items() if isinstance(v, int)}
    scop = k.exact.scop(**constants)
    scop = specialise(scop, {n: v for n, v in sizes.items() if n in scop.params})
    fn = k.exact.fn
    names = frozenset(fn.__code__.co_varnames)
    events = Recorder(fn, sizes, watched(scop, names)).run(values)
    return Case(scop, Observed.of(scop, events, names), names)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", polybench.MODULES)
def test_domains_are_the_instances_that_ran(name: str, size: str) -> None:
    c = case(name, size)
    ran = set(c.seen.order)
    assert len(ran) == len(c.seen.order)
    assert ran == {(s.name, p) for s in c.scop.statements.values() if s.name not in c.carried for p in points(s.domain)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", polybench.MODULES)
def test_accesses_are_the_recorded_ones(name: str, size: str) -> None:
    """Elements of arrays; of local scalars the variable."""
    c = case(name, size)
    local = scalars(c.scop, c.names)
    model: dict[Instance, tuple[set[tuple[str, tuple[int, ...]]], ...]] = {i: (set(), set()) for i in c.seen.order}
    for a in accesses(c.scop):
        assert a.must or name == "correlation"
        if a.stmt in c.carried or c.scop.arrays[a.array].scalar:
            continue
        for x, element in pairs(a.map):
            where = (base(a.array, c.names), () if a.array in local else element)
            model[a.stmt, x][a.write].add(where)
    given = {a.name for a in c.scop.arrays.values() if a.scalar}
    seen = {i: tuple({e for e in some if e[0] not in given} for some in both) for i, both in c.seen.touched.items()}
    assert seen == model


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", polybench.MODULES)
def test_the_order_of_the_tree_is_the_recorded_one(name: str, size: str) -> None:
    c = case(name, size)
    assert [i for _, i in sorted(times(c.scop, c.scop.tree).items())] == c.seen.order


def times(scop: Scop, tree: Node, skip_carried: bool = True) -> dict[tuple[int, ...], Instance]:
    """Time -> instance, computed point by point (not with isl's maps of whole trees)."""
    out: dict[tuple[int, ...], Instance] = {}
    for s in scop.statements.values():
        if skip_carried and carried_start(s):
            continue
        values = {p: list(path(tree, s.name, p)) for p in points(s.domain)}
        out.update({tuple(v): (s.name, p) for p, v in values.items()})
    depth = max(map(len, out), default=0)
    padded = {(*t, *([0] * (depth - len(t)))): i for t, i in out.items()}
    assert len(padded) == sum(
        len(points(s.domain)) for s in scop.statements.values() if not (skip_carried and carried_start(s))
    )
    return padded


def path(node: Node, stmt: str, p: tuple[int, ...]) -> Iterator[int]:
    """Loop values and positions in sequences on the way to an instance."""
    if isinstance(node, Leaf):
        return
    if isinstance(node, Band):
        for m in node.members:
            yield value(m.schedule[stmt], p)
        yield from path(node.child, stmt, p)
    elif isinstance(node, Sequence):
        for k, f in enumerate(node.filters):
            if stmt in f.domain and inside(f, stmt, p):
                yield k
                yield from path(f.child, stmt, p)
    else:
        yield from path(node.children()[0], stmt, p)


def value(pa: object, p: tuple[int, ...]) -> int:
    """A loop's value at an instance."""
    table = _tables.get(id(pa))
    if table is None:
        table = _tables[id(pa)] = (pa, {})
    if p not in table[1]:
        table[1][p] = _evaluate(pa, p)
    return table[1][p]


_tables: dict[int, tuple[object, dict[tuple[int, ...], int]]] = {}


def _evaluate(pa: object, p: tuple[int, ...]) -> int:
    import islpy as isl

    assert isinstance(pa, isl.PwAff)
    point = isl.Point.zero(pa.get_domain_space())
    for k, v in enumerate(p):
        point = point.set_coordinate_val(isl.dim_type.set, k, isl.Val(v))
    return int(pa.eval(point).to_python())


def inside(f: Filter, stmt: str, p: tuple[int, ...]) -> bool:
    """Whether the filter lets the instance pass."""
    s = f.domain[stmt]
    if s.plain_is_universe():
        return True
    import islpy as isl

    for k, v in enumerate(p):
        s = s.fix_val(isl.dim_type.set, k, isl.Val(v))
    return not s.is_empty()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", polybench.MODULES)
def test_value_based_dependences_are_the_recorded_ones(name: str, kind: str, size: str) -> None:
    """Through arrays all kinds; through local scalars what is read (WAR and WAW are expanded away)."""
    c = case(name, size)
    model = instance_pairs(flow(c.scop, kind, arrays=c.arrays), {})
    seen = c.seen.flow(kind)
    through = {e for e in c.arrays}
    only = Observed(c.scop, c.seen.order, [x for x in c.seen.events if x[1][0] in through])
    assert model == {p for p in only.flow(kind) if p[0] is not None}
    if kind == "RAW":
        whole = instance_pairs(flow(c.scop, "RAW"), {})
        assert {p for p in whole if p[0][0] not in c.carried and p[1][0] not in c.carried} == {
            p for p in seen if p[0] is not None
        }
        from_outside = {b for a, b in seen if a is None}
        assert {b for a, b in whole if a[0] in c.carried and b[0] not in c.carried} == from_outside


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", polybench.MODULES)
def test_memory_based_dependences_are_the_recorded_ones(name: str, kind: str) -> None:
    c = case(name, "small")
    assert instance_pairs(flow(c.scop, kind, value_based=False, arrays=c.arrays), {}) == c.seen.memory(kind, c.arrays)


# ---- parallel loops --------------------------------------------------------------------------------


def conflicting(c: Case) -> set[Pair]:
    """Pairs that conflict, from the recorded run; those of expanded scalars by the Scop's own elements."""
    found: set[Pair] = set()
    for kind in KINDS:
        found |= c.seen.memory(kind, c.arrays)
        local = scalars(c.scop, c.names)
        if local:
            found |= instance_pairs(flow(c.scop, kind, value_based=False, arrays=local), {})
    return found


def carrying(tree: Node, found: set[Pair]) -> dict[str, bool]:
    """Loop -> whether some pair has its first different loop value there."""
    out: dict[str, bool] = {}
    _carrying(tree, found, out)
    return out


def _carrying(node: Node, alive: set[Pair], out: dict[str, bool]) -> None:
    if isinstance(node, Band):
        for m in node.members:
            alive = {p for p in alive if p[0][0] in m.schedule and p[1][0] in m.schedule}
            same = {p for p in alive if value(m.schedule[p[0][0]], p[0][1]) == value(m.schedule[p[1][0]], p[1][1])}
            out[m.name] = out.get(m.name, False) or len(same) < len(alive)
            alive = same
        _carrying(node.child, alive, out)
    elif isinstance(node, (Sequence, Filter)):
        for f in node.filters if isinstance(node, Sequence) else (node,):
            _carrying(f.child, {p for p in alive if all(s in f.domain and inside(f, s, x) for s, x in p)}, out)
    elif not isinstance(node, Leaf):
        _carrying(node.children()[0], alive, out)


@pytest.mark.parametrize("name", polybench.MODULES)
def test_loops_reported_parallel_carry_nothing_and_no_others(name: str) -> None:
    c = case(name, "small")
    found = conflicting(c)
    s = Schedule.start(c.scop)
    for schedule in (s, tiled(s)):
        carried = carrying(schedule.tree, found)
        assert set(schedule.parallel_loops()) == {n for n, does in carried.items() if not does}


@pytest.mark.parametrize("name", polybench.MODULES)
def test_parallel_loops_are_the_same_for_symbolic_sizes(name: str) -> None:
    """The small sizes show every dependence that some size has."""
    c = case(name, "small")
    k = polybench.load(name)
    constants = {"tsteps": SMALL["TSTEPS"]} if "TSTEPS" in k.sizes["MINI"] else {}
    scop = k.exact.scop(**constants)
    assert Schedule.start(scop).parallel_loops() == Schedule.start(c.scop).parallel_loops()


def tiled(s: Schedule) -> Schedule:
    """The first permutable band in blocks of 2, if there is one."""
    from polyc.poly.errors import ScheduleError

    for band in s.permutable_bands():
        try:
            return s.tile(list(band), [2] * len(band))
        except ScheduleError:
            continue
    return s
