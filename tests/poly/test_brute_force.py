"""Conflicts and legality against enumeration: exact in both directions."""

from __future__ import annotations

import random

import brute
import islpy as isl
import pytest
import random_scops
import small_scops as scops

from polyc.poly.dependences import conflicts, flow
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.legality import check, check_parallel, is_legal
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Node

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


@pytest.mark.parametrize("kind", ["RAW", "WAR", "WAW"])
@pytest.mark.parametrize("seed", range(25))
def test_flow_is_exactly_the_enumerated_one(seed: int, kind) -> None:
    scop = random_scops.random_scop(random.Random(200 + seed))
    found = flow(scop, kind)
    assert brute.pairs_of(found) == brute.flow_pairs(scop, kind)
    ordered, relaxed = brute.conflict_pairs(scop)
    every = brute.pairs_of(flow(scop, kind, value_based=False))
    assert brute.pairs_of(found) <= every <= ordered | relaxed


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


def swapped(scop: Scop) -> Node:
    """The two outer loops of the first band exchanged."""
    band = scop.tree
    assert isinstance(band, Band)
    return Band((band.members[1], band.members[0], *band.members[2:]), band.child)


def test_witness_has_the_smallest_sizes_and_says_where_it_is_legal() -> None:
    scop = scops.seidel()
    with pytest.raises(IllegalSchedule) as error:
        check(scop, swapped(scop))
    w = error.value.witness
    assert w is not None and (w.params, w.kind, w.touched) == ({"T": 2, "N": 4}, "RAW", "A[2]")
    assert (w.source, w.sink) == (("S0", (0, 2)), ("S0", (1, 1)))
    assert str(error.value.legal_if) == "N <= 3 or T <= 1"
    for t in range(4):
        for n in range(6):
            small = specialise(scop, {"T": t, "N": n})
            legal = brute.is_legal(small, swapped(small))
            assert legal == error.value.legal_if.holds(T=t, N=n)
            assert legal or (t, n) >= (2, 4)
    text = str(error.value)
    for part in ("with T=2, N=4", "S0[t=1, i=1] reads A[2]", "S0[t=0, i=2] writes", "(RAW)", "loop 'i'", "legal if"):
        assert part in text
    assert "\n" not in text


def test_parallel_and_vector_differ_on_reductions_only() -> None:
    scop = scops.matmul()
    assert check_parallel(scop, scop.tree, "i") is None and check_parallel(scop, scop.tree, "k", vector=True) is None
    violation = check_parallel(scop, scop.tree, "k")
    assert violation is not None and violation.witness is not None
    assert violation.witness.params == {"M": 1, "N": 1, "K": 2}
    with pytest.raises(ScheduleError, match="no loop 'q'"):
        check_parallel(scop, scop.tree, "q")
