"""Misses as formulas in the sizes, against a simulated cache at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from test_misses import N, counted_misses, f32, lru_misses, touched_lines, transposed

from examples.matmul import matmul
from examples.polybench.jacobi_1d import jacobi_1d
from examples.polybench.jacobi_2d import jacobi_2d
from polyc import empty, op
from polyc.emit import targets
from polyc.frontend_dsl.operator import Operator
from polyc.graph_driver.bench.operator_time import OperatorTime
from polyc.graph_driver.explaining import explain
from polyc.graph_driver.explaining.explain import MOST_TEXT, explain_schedule, operator_lines
from polyc.poly.rewriting.specialise import specialise, specialise_tree
from polyc.scheduler.questions.miss_formulas import Case
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

LINE = 16  # bytes: four numbers
WITHIN = 0.1


@op
def summed(X: f32[N, N]) -> f32[N]:
    Y = empty(N, f32)
    for i in range(N):
        Y[i] = 0.0
        for j in range(N):
            Y[i] += X[j, i]
    return Y


def check(operator: object, sizes: dict[str, int]) -> int:
    """Each case of all statements in a cache in which it clearly holds, and the one before it clearly does not; how
    many there were."""
    scop = operator.scop()  # type: ignore[attr-defined]
    fixed = Schedule.start(specialise(scop, sizes))
    before, seen = 1 << 40, 0
    for case in Schedule.start(scop).miss_formulas(LINE):
        if case.touched is None or case.statements:
            break
        touched = case.touched({n: sizes.get(n, 0) for n in case.touched.names})  # loops at their first iteration
        room = -(-touched * 5 // 4)
        if before >= 2 * room:
            found = sum(counted_misses(fixed, room * LINE, LINE).values())
            said = sum(f(sizes) for f in case.fetched.values())
            assert abs(said - found) <= WITHIN * found, (sizes, room, str(case), found)
            seen += 1
        before = touched
    return seen


@pytest.mark.parametrize("sizes", [{"M": 12, "N": 16, "K": 20}, {"M": 9, "N": 24, "K": 40}, {"M": 5, "N": 64, "K": 11}])
def test_products(sizes: dict[str, int]) -> None:
    assert check(matmul, sizes) >= 2


@pytest.mark.parametrize("n", [16, 24, 40, 64])
def test_a_transposition(n: int) -> None:
    assert check(transposed, {"N": n}) >= 1
    assert check_all_caches(Schedule.start(transposed.scop()), [{"N": n}], (2, 4, *ROOMS)) > 2.0


@pytest.mark.parametrize("n", [16, 40, 64])
def test_sums_of_columns(n: int) -> None:
    assert check(summed, {"N": n}) >= 1
    assert check_all_caches(Schedule.start(summed.scop()), [{"N": n}], (2, 4, *ROOMS)) > 2.0


def test_the_closed_forms() -> None:
    cases = Schedule.start(matmul.scop()).miss_formulas(64)
    assert [(c.loop, *c.statements) for c in cases] == [("i",), ("j",), (None, "S0"), ("k", "S1"), (None, "S1")]
    assert str(cases[1].fetched["B"]) == "K*M*((N + 15)//16)"
    assert str(cases[0].fetched["B"]) == "K*((N + 15)//16)"


# ---- orders with tiles, parts, stencils: every cache ----------------------------------------------


def expected(cases: Sequence[Case], room: int, sizes: Mapping[str, int], handed_on: bool = False) -> float:
    """The lines that the cases say a cache of `room` lines fetches; with `handed_on`, if what several parts touch is
    fetched by one of them alone."""
    whole = next((c for c in cases if not c.statements and _stays(c, room, sizes)), None)
    chosen = [whole] if whole is not None else []
    for part in dict.fromkeys(c.statements for c in cases if c.statements) if whole is None else ():
        chosen.append(next(c for c in cases if c.statements == part and _stays(c, room, sizes)))
    assert chosen, room
    by_array: dict[str, list[float]] = {}
    for c in chosen:
        for array, f in c.fetched.items():
            by_array.setdefault(array, []).append(f(sizes))
    return sum(max(n) if handed_on else sum(n) for n in by_array.values())


def _stays(case: Case, room: int, sizes: Mapping[str, int]) -> bool:
    if case.touched is None:
        return True
    return case.touched.largest(**{n: sizes[n] for n in case.touched.names if n in sizes}) <= room


def check_all_caches(s: Schedule, sizes: Sequence[Mapping[str, int]], rooms: Sequence[int]) -> float:
    """For every cache, the counted lines are at most those of the case whose iteration fits twice, and at least those
    of the case that a cache of twice the size would have; by which factor they fall from the least to the largest."""
    cases, falls = s.miss_formulas(LINE), []
    for given in sizes:
        touched = touched_lines(Schedule(specialise(s.scop, given), specialise_tree(s.tree, given)), LINE)
        found = []
        for room in rooms:
            counted = sum(lru_misses(touched, room).values())
            most, least = expected(cases, room // 2, given), expected(cases, 2 * room, given, handed_on=True)
            assert (1 - WITHIN) * least <= counted <= (1 + WITHIN) * most, (given, room, least, counted, most)
            found.append(counted)
        falls.append(max(found) / min(found))
    return min(falls)


ROOMS = (8, 12, 18, 27, 40, 60, 90, 135, 200, 300, 450, 700, 1000, 1500, 2300)


def test_tiled_products() -> None:
    tiled = Schedule.start(matmul.scop()).tile(["i", "j", "k"], [8, 12, 8])
    assert check_all_caches(tiled, [{"M": 24, "N": 40, "K": 28}, {"M": 37, "N": 29, "K": 31}], ROOMS) > 2.0


def test_the_automatic_order_of_a_product() -> None:
    """Loops part in it: sums begin at nought in loops of their own."""
    found = automatic(matmul.scop(), targets.get("x86-64-v3"), 1)
    cases = found.miss_formulas(LINE)
    assert {c.statements for c in cases} == {(), ("S0",), ("S1",)}
    assert check_all_caches(found, [{"M": 30, "N": 48, "K": 26}], ROOMS) > 1.5


@pytest.mark.parametrize("tile", [None, pytest.param((8, 8), marks=pytest.mark.long)])
def test_a_stencil(tile: tuple[int, int] | None) -> None:
    s = Schedule.start(jacobi_2d.scop(tsteps=3))
    if tile is not None:
        s = s.tile(["i", "j"], list(tile)).tile(["i_1", "j_1"], list(tile))
    assert check_all_caches(s, [{"N": 18}, {"N": 33}, {"N": 41}], ROOMS) > 2.0


def skewed(operator: Operator, tsteps: int, tile: tuple[int, int]) -> Schedule:
    """Both sweeps of a step in one loop, tiled over time and space."""
    s = Schedule.start(operator.scop(tsteps=tsteps)).fuse("i", "i_1", shift=1)
    return s.skew("i", "t", 2).tile(["t", "i"], list(tile))


def test_skewed_tiles() -> None:
    """Here the cases are exact."""
    tiled = skewed(jacobi_1d, 4, (2, 4))
    assert all(f.exact for case in tiled.miss_formulas(LINE) for f in case.fetched.values())
    assert check_all_caches(tiled, [{"N": 33}, {"N": 90}], (4, 6, *ROOMS)) > 4.0


@pytest.mark.long
def test_skewed_tiles_of_a_plane() -> None:
    """Inner cases are bounds where counting would be too hard: never below what a cache fetches."""
    tiled = skewed(jacobi_2d, 4, (2, 4))
    assert not all(f.exact for case in tiled.miss_formulas(LINE) for f in case.fetched.values())
    assert check_all_caches(tiled, [{"N": 18}, {"N": 33}], (4, 6, *ROOMS)) > 4.0


@pytest.mark.parametrize("room", [4, 2000])
def test_parts_of_one_statement_are_counted_once(room: int) -> None:
    """Both filters of a loop that is cut have the same statement."""
    cut = Schedule.start(transposed.scop()).index_split("i", 8)
    fixed = Schedule(specialise(cut.scop, {"N": 32}), specialise_tree(cut.tree, {"N": 32}))
    counted = counted_misses(fixed, room * LINE, LINE)
    assert fixed.misses(room * LINE, LINE) == counted
    cases = cut.miss_formulas(LINE)
    last = [c for c in cases if c.loop is None]
    assert len(last) == 2 and sum(f(N=32) for c in last for f in c.fetched.values()) == 2 * 32 * 32


def test_cases_that_no_cache_meets_are_left_out() -> None:
    tiled = Schedule.start(matmul.scop()).tile(["i", "j", "k"], [32, 64, 16])
    every, some = tiled.miss_formulas(64), tiled.miss_formulas(64, always=512)
    assert [c.loop for c in some] == ["i.out", "j.out", "k.out"] and len(every) == 7
    assert [str(c) for c in some] == [str(c) for c in every[:3]]
    assert str(some[1].fetched["B"]) == "K*((M + 31)//32)*((N + 15)//16)"


def test_explain_has_the_formulas_of_both_orders() -> None:
    target = targets.get("x86-64-v3")
    for made in (automatic(matmul.scop(), target, 1), automatic(jacobi_2d.scop(tsteps=100), target, 1)):
        data = explain_schedule(made, target, {}, OperatorTime(None, None, 1))
        text = "\n".join(operator_lines(data))
        assert "that the program's own order fetches" in text and "that this schedule fetches" in text
        for kind in ("given", "scheduled"):
            assert data["misses"][kind] and all(len(line) <= MOST_TEXT for line in data["misses"][kind])


def test_explain_shortens_nothing_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MOST_TEXT", 120)
    target, tiled = targets.get("x86-64-v3"), Schedule.start(matmul.scop()).tile(["i", "j", "k"], [32, 64, 16])
    for verbose in (False, True):
        times = OperatorTime(None, None, 1)
        found = explain_schedule(tiled, target, {}, times, verbose=verbose)["misses"]["scheduled"]
        if verbose:
            assert found == [str(c) for c in tiled.miss_formulas(64, always=512)]
        else:
            assert found[-1].endswith("have over 120 characters: --verbose has them")
            assert all(len(line) <= 120 for line in found[:-1])
