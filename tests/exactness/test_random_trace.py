"""Random programs: what a plain-Python run touches and hands on is in the model, and nothing less exact is.

Programs have data-dependent guards and subscripts, so the model may hold more; where all of
its accesses are certain it must hold exactly the recorded ones.
"""

from __future__ import annotations

import warnings
from collections import Counter

import islpy as isl
import numpy as np
import pytest
from observed import Instance, Observed, instance_pairs, pairs, points
from random_programs import generate
from recorder import Recorder

from polyc.poly.access import accesses
from polyc.poly.dependences import flow
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop

KINDS = ("RAW", "WAR", "WAW")
MOST_PAIRS = 20_000  # of a relation with data-dependent subscripts


def observe(seed: int) -> tuple[Scop, Observed, frozenset[str]]:
    """The Scop for the program's sizes, its run, and the arrays of the source."""
    program = generate(seed)
    operator = program.operator()
    fn = operator.fn
    names = frozenset(fn.__code__.co_varnames)
    scop = specialise(operator.scop(), {n: v for n, v in program.sizes.items() if n in operator.scop().params})
    arguments = dict(zip((p.name for p in operator.signature.params), program.arguments()))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        recorder = Recorder(fn, program.sizes, frozenset())
        events = recorder.run(arguments)
    # An array made anew in a loop is expanded in the Scop: only those made once are compared.
    once = {n for n, times in Counter(recorder.names.values()).items() if times == 1}
    ranks = {(recorder.names[id(a)], a.ndim) for a in recorder.kept}
    arrays = frozenset(a.name for a in scop.arrays.values() if a.name in once and (a.name, len(a.shape)) in ranks)
    return scop, Observed.of(scop, [e for e in events if e.name in arrays], names), arrays


def source_of(seed: int) -> str:
    """The program's text without its imports."""
    return generate(seed).source.partition("def ")[2]


def size(relation: isl.UnionMap) -> int:
    """The number of pairs."""
    maps: list[isl.Map] = []
    relation.foreach_map(maps.append)
    return sum(int(m.wrap().count_val().to_python()) for m in maps)


def compare(seed: int) -> bool:
    """Whether the program was exact (and compared for equality)."""
    if "where(" in source_of(seed) or not generate(seed).operator().scop().statements:
        return False  # Python reads both values that `where` chooses from, the model the chosen one
    scop, seen, arrays = observe(seed)
    here = [a for a in accesses(scop) if a.array in arrays]
    model: dict[Instance, tuple[set[object], set[object]]] = {}
    for s in scop.statements.values():
        if not s.dynamic:
            for p in points(s.domain):
                model[s.name, p] = (set(), set())
    for a in here:
        if not scop.statements[a.stmt].dynamic:
            for x, element in pairs(a.map):
                model[a.stmt, x][a.write].add((a.array, element))
    static = {s.name for s in scop.statements.values() if not s.dynamic}
    for instance, (reads, writes) in seen.touched.items():
        if instance[0] in static:
            assert instance in model, instance
            assert reads <= model[instance][0] and writes <= model[instance][1], (instance, reads, writes)
    certain = all(a.must for a in accesses(scop)) and static == set(scop.statements)
    for kind in KINDS if static == set(scop.statements) else ():
        recorded = {p for p in seen.flow(kind) if p[0] is not None}
        for value_based in (True, False):
            found = recorded if value_based else seen.memory(kind, arrays)
            relation = flow(scop, kind, value_based, arrays)
            if not certain and size(relation) > MOST_PAIRS:
                continue
            told = instance_pairs(relation, {})
            assert found <= told, (kind, value_based, found - told)
            if certain:
                assert found == told, (kind, value_based, told - found)
    return certain


@pytest.mark.parametrize("seed", [s for s in range(20) if s != 5])
def test_recorded_runs_are_in_the_model(seed: int) -> None:
    compare(seed)


@pytest.mark.long
def test_what_isl_loses_is_found_again() -> None:
    """One sink of this program, whose subscripts are remainders, has no source in isl's own data flow."""
    scop, seen, arrays = observe(1490)
    assert instance_pairs(flow(scop, "RAW", True, arrays), {}) == {p for p in seen.flow("RAW") if p[0] is not None}


@pytest.mark.long
def test_recorded_runs_are_in_the_model_long() -> None:
    exact = sum(compare(seed) for seed in range(1000, 1600))
    assert exact >= 200
