"""Conflicts and legality against enumeration: exact in both directions."""

from __future__ import annotations

import random

import brute
import pytest
import random_scops
import small_scops as scops

from poly.dependences import conflicts
from poly.errors import ScheduleError
from poly.legality import check, is_legal
from poly.scop import Scop
from poly.specialise import specialise
from poly.tree import Node

HAND = [
    (scops.matmul, {"M": 2, "N": 2, "K": 3}),
    (scops.lu, {"N": 4}),
    (scops.seidel, {"T": 3, "N": 5}),
]
SEEDS = range(60)


@pytest.mark.parametrize("make, sizes", HAND)
def test_conflicts_of_known_kernels_are_exactly_the_enumerated_pairs(make, sizes) -> None:
    compare_conflicts(specialise(make(), sizes))


@pytest.mark.parametrize("make, sizes", HAND)
def test_symbolic_conflicts_specialise_to_the_same_pairs(make, sizes) -> None:
    symbolic = conflicts(make()).ordering
    for name, size in sizes.items():
        import islpy as isl

        symbolic = symbolic.intersect_params(isl.Set(f"[{name}] -> {{ : {name} = {size} }}"))
    symbolic = symbolic.project_out_all_params()
    assert brute.pairs_of(symbolic) == brute.conflict_pairs(specialise(make(), sizes))[0]


def compare_conflicts(scop: Scop) -> None:
    ordered, relaxed = brute.conflict_pairs(scop)
    found = conflicts(scop)
    assert brute.pairs_of(found.ordering) == ordered
    assert brute.pairs_of(found.reductions) == relaxed
    assert brute.pairs_of(found.all) == ordered | relaxed


@pytest.mark.parametrize("seed", SEEDS)
def test_conflicts_of_random_scops_are_exactly_the_enumerated_pairs(seed: int) -> None:
    compare_conflicts(random_scops.random_scop(random.Random(seed)))


def verdicts(seed: int) -> list[tuple[bool, bool]]:
    """(accepted, legal) for several random trees of one random Scop."""
    r = random.Random(seed)
    scop = random_scops.random_scop(r)
    out = []
    for k in range(6):
        tree = random_scops.random_tree(r, scop, marks=k % 2 == 1)
        out.append((accepted(scop, tree), brute.is_legal(scop, tree)))
    return out


def accepted(scop: Scop, tree: Node) -> bool:
    try:
        check(scop, tree)
    except ScheduleError as e:
        assert not is_legal(scop, tree)
        witness = getattr(e, "witness", None)
        if witness is not None:
            check_witness(scop, witness)
        return False
    assert is_legal(scop, tree)
    return True


def check_witness(scop: Scop, w) -> None:
    """The two instances exist, conflict on that element, and are in program order."""
    ordered, relaxed = brute.conflict_pairs(scop)
    assert (w.source, w.sink) in ordered | relaxed
    source, sink = (brute.touches(scop, scop.statements[i[0]], i[1]) for i in (w.source, w.sink))
    first, second = {"RAW": (True, False), "WAR": (False, True), "WAW": (True, True)}[w.kind]
    assert any(t.write == first and (t.array, t.element) == (w.array, w.element) for t in source)
    assert any(t.write == second and (t.array, t.element) == (w.array, w.element) for t in sink)


@pytest.mark.parametrize("seed", SEEDS)
def test_accepted_if_and_only_if_no_dependence_is_violated(seed: int) -> None:
    for found, truth in verdicts(1000 + seed):
        assert found == truth


def test_random_trees_cover_both_answers() -> None:
    answers = [truth for seed in range(20) for _, truth in verdicts(1000 + seed)]
    assert 0.2 < sum(answers) / len(answers) < 0.8


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000))
def test_accepted_if_and_only_if_no_dependence_is_violated_long(seed: int) -> None:
    compare_conflicts(random_scops.random_scop(random.Random(50_000 + seed)))
    for found, truth in verdicts(5000 + seed):
        assert found == truth
