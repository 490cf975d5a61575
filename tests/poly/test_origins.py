"""What results depend on, element by element, beside sets of origins carried through the program."""

from __future__ import annotations

import operator
import random

import islpy as isl
import pytest
import random_scops
import small_scops
from traced import Element, Origin, traced

from polyc.poly.forms.element_sets import count, plain, runs_of, subscripts
from polyc.poly.origins import origins
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop

PARTS = 4
EACH = 10  # programs of a part


def one(element: Element) -> dict[str, isl.Set]:
    name, at = element
    return {name: isl.Set(f"{{ {name}[{', '.join(map(str, at))}] }}")}


def members(sets: dict[str, isl.Set]) -> Origin:
    found: list[Element] = []
    for name, elements in sets.items():
        rank = elements.dim(isl.dim_type.set)
        elements.foreach_point(
            lambda p, name=name, rank=rank: found.append(
                (name, tuple(int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(rank)))
            )
        )
    return frozenset(found)


def compare(scop: Scop, r: random.Random, most: int = 12) -> tuple[int, int]:
    """Both directions for some elements: equal where no data decide, else at least what is traced. How many were
    equal, of how many."""
    expected, relations = traced(scop), origins(scop)
    right = operator.ge if relations.bounds else operator.eq
    some = r.sample(sorted(expected), min(most, len(expected)))
    equal = 0
    for element in some:
        found = members(relations.backward(one(element)))
        assert right(found, expected[element]), f"{element} of\n{scop}"
        equal += found == expected[element]
    sources = sorted({x for found in expected.values() for x in found})
    for source in r.sample(sources, min(4, len(sources))):
        reached = frozenset(e for e, found in expected.items() if source in found)
        there = members(relations.forward(one(source))) & expected.keys()
        assert right(there, reached), f"forward from {source} of\n{scop}"
    return equal, len(some)


@pytest.mark.parametrize("part", range(PARTS))
def test_origins_of_random_programs_are_those_that_are_traced(part: int) -> None:
    equal = every = 0
    for seed in range(part * EACH, part * EACH + EACH):
        r = random.Random(7000 + seed)
        more, of = compare(random_scops.random_scop(r), r)
        equal, every = equal + more, every + of
    assert equal > 0.8 * every  # data decide in many of these programs, but seldom about an element


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_origins_of_many_random_programs(part: int) -> None:
    for seed in range(part * 50, part * 50 + 50):
        r = random.Random(17000 + seed)
        compare(random_scops.random_scop(r), r)


@pytest.mark.parametrize("make", [small_scops.matmul, small_scops.lu, small_scops.seidel])
def test_origins_of_known_programs(make) -> None:  # type: ignore[no-untyped-def]
    scop = make()
    compare(specialise(scop, dict.fromkeys(scop.params, 4)), random.Random(1), 40)


def test_a_long_recurrence_is_closed_at_once() -> None:
    scop = specialise(small_scops.seidel(), {"N": 60, "T": 3}) if "T" in small_scops.seidel().params else None
    scop = scop or specialise(small_scops.seidel(), dict.fromkeys(small_scops.seidel().params, 60))
    name = next(n for n, a in scop.arrays.items() if a.kind != "local")
    rank = len(scop.arrays[name].shape)
    found = origins(scop).backward({name: isl.Set(f"{{ {name}[{', '.join(['50'] * rank)}] }}")})
    assert count(found[name]) > 50


def test_sets_read_as_subscripts() -> None:
    image = isl.Set("{ [i, j] : 0 <= i < 3 and exists (o, k : 0 <= o < 4 and 0 <= k < 2 and j = 3 * o + k) }")
    assert subscripts(isl.Set("{ A[i, j] : 2 <= i < 5 and j = 7 }")) == "2:5, 7"
    assert plain(image).is_equal(image) and count(image) == 24 and runs_of(image) is not None
    assert subscripts(isl.Set("{ [i] : exists (k : i = 4 * k + 1) and 0 <= i < 20 }")) == "1:18:4"
    triangle = isl.Set("{ [i, j] : 0 <= j <= i < 4 }")
    assert runs_of(triangle) is None and count(triangle) == 10 and plain(triangle).is_equal(triangle)
    assert subscripts(isl.Set("{ [i] : 1 = 0 }")) == "nothing" and count(isl.Set("{ [i] : 1 = 0 }")) == 0
