"""The order of trials, with outcomes made up; and that every candidate is a legal schedule or refused."""

from __future__ import annotations

import random

import numpy as np
import pytest
from back_ends import difference, interpret

from examples.matmul import matmul
from polyc import dims, empty, f32, grid, op
from polyc.emit import targets
from polyc.poly import legality
from polyc.poly.errors import PolycError, ScheduleError
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.tuning.search import Outcome, best_of, search
from polyc.scheduler.tuning.space import Candidate, candidates, schedule_at

M, N = dims("M N")
V3 = targets.get("x86-64-v3")


@op
def swept(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i, j in grid((1, M), N):
        Y[i, j] = X[i - 1, j] + X[i, j]
    for j in range(N):
        Y[0, j] = X[0, j]
    return Y


def never() -> Schedule:
    raise AssertionError("not made")


def made_up(count: int = 12) -> list[Candidate]:
    """Two knobs; the model likes low `a` best."""
    return [
        Candidate(f"a {a}, b {b}", {"a": str(a), "b": str(b)}, 10.0 * a + b, never)
        for a in range(count // 3)
        for b in range(3)
    ]


def test_the_favourite_first_then_neighbours_of_the_best() -> None:
    space = made_up()
    order: list[str] = []

    def measure(c: Candidate) -> Outcome:
        order.append(c.name)
        return Outcome(2.0 if c.knobs["a"] == "2" else 0.9 + 0.01 * int(c.knobs["b"]), 1.0)

    outcomes = search(space, {"a 2, b 1": Outcome(1.5, 1.0)}, measure, 4, lambda *_: None)
    assert len(outcomes) == 4 and len(order) == 3  # one was known
    assert order[0] in ("a 2, b 0", "a 2, b 2", "a 0, b 1", "a 1, b 1", "a 3, b 1")  # differs by one knob
    assert best_of(space, outcomes) is not None


def test_all_are_tried_once_and_failures_count() -> None:
    space, seen = made_up(), []
    outcomes = search(space, {}, lambda c: Outcome(None, None, "no"), 1000, lambda c, o, n: seen.append((c.name, n)))
    assert len(outcomes) == len(space) == len({name for name, _ in seen}) and seen[-1][1] == len(space)
    assert best_of(space, outcomes) is None


def test_nothing_is_better_than_a_slower_one() -> None:
    space = made_up(3)
    outcomes = search(space, {}, lambda c: Outcome(0.8, 1.0), 3, lambda *_: None)
    assert best_of(space, outcomes) is None


def test_an_interrupted_search_goes_on_to_the_same_outcomes() -> None:
    space, rng = made_up(30), random.Random()
    truth = {c.name: Outcome(rng.uniform(0.5, 2.0), 1.0) for c in space}
    whole = search(space, {}, lambda c: truth[c.name], 20, lambda *_: None)
    kept: dict[str, Outcome] = {}
    calls = 0

    def dying(c: Candidate) -> Outcome:
        nonlocal calls
        calls += 1
        if calls % 4 == 0:
            raise KeyboardInterrupt
        return truth[c.name]

    for _ in range(20):
        try:
            done = search(space, kept, dying, 20, lambda c, o, n: kept.update({c.name: o}))
        except KeyboardInterrupt:
            continue
        assert done == whole
        return
    raise AssertionError("never finished")


@pytest.mark.parametrize(("operator", "sizes"), [(matmul, (40, 50, 60)), (swept, (40, 50, None))])
@pytest.mark.parametrize("threads", [1, 2])
def test_candidates_are_legal_or_refused(operator, sizes, threads: int) -> None:
    names = {n: v for n, v in zip(("M", "N", "K"), sizes, strict=True) if v is not None}
    scop = specialise(operator.scop(), names)
    found = candidates(scop, V3, threads)
    assert len({c.name for c in found}) == len(found) > 20
    assert [c.cost for c in found] == sorted(c.cost for c in found)
    made = 0
    for c in random.sample(found, 12):
        try:
            schedule = c.make()
        except PolycError:
            continue
        made += 1
        assert legality.check(scop, schedule.tree) is None
        assert Schedule.replay(scop, schedule.save()).tree == schedule.tree
    assert made


def made(point: dict[str, str], threads: int = 1, sizes: tuple[int, int, int] = (29, 45, 60)) -> Schedule:
    scop = specialise(matmul.scop(), dict(zip("MNK", sizes, strict=True)))
    return schedule_at(scop, V3, threads, point)


def test_each_parameter_of_a_product_changes_its_program() -> None:
    usual = made({}).program()
    assert usual == automatic(made({}).scop, V3, 1).program()
    assert 's.split("i", 3)' in made({"tile": "3x1"}).program() and 's.split("j", 8)' in made({"tile": "3x1"}).program()
    half, none = made({"block": "1/2"}), made({"block": "none"})
    assert 's.split("i", 12)' in half.program() and none.program() == usual  # all rows are one block
    packed = made({"packed": "other"}).program()
    assert ("B_packed" in packed) != ("B_packed" in usual)
    swapped = made({"order": "swapped"}).program()
    assert 's.permute("i.out", "j.out"' in swapped and 's.permute("j.out", "i.out"' in usual
    shared = [made({"shared": which}, threads=2).program() for which in ("outer", "inner", "none")]
    assert [text.count(".parallel(") - text.count(".serial(") for text in shared] == [1, 1, 0]


def test_each_parameter_of_other_programs_changes_it() -> None:
    scop = specialise(swept.scop(), {"M": 40, "N": 50})
    usual = schedule_at(scop, V3, 1, {})
    assert usual.program() == automatic(scop, V3, 1).program() and "lanes=8" in usual.program()
    half = schedule_at(scop, V3, 1, {"lanes": "1/2"}).program()
    assert half == usual.program().replace("lanes=8", "lanes=4")
    assert ".tile(" in schedule_at(scop, V3, 1, {"blocks": "8x128"}).program()


@pytest.mark.parametrize("threads", [1, 2])
def test_candidates_compute_the_same(threads: int) -> None:
    scop = specialise(matmul.scop(), {"M": 29, "N": 45, "K": 60})
    rng = np.random.default_rng()
    args = [rng.integers(-4, 5, shape).astype("f4") for shape in ((29, 60), (60, 45))]
    for c in random.sample(candidates(scop, V3, threads), 3):
        try:
            s = c.make()
        except PolycError as error:
            assert "\n" not in str(error)
            continue
        assert not difference(interpret(scop, s.tree, args, shuffle=1), [args[0] @ args[1]], signs=False), c.name


def test_free_sizes_cannot_be_tuned() -> None:
    with pytest.raises(ScheduleError, match="sizes are not fixed"):
        candidates(matmul.scop(), V3, 1)
