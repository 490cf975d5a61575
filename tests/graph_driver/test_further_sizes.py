"""Operators called with further sizes share a kernel: results, what is made once, bugs that must not get through."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier
from typing import Any, cast

import numpy as np
import pytest
from sized_operators import CASES, CHANGES, M, N, Sized, drawn, mutants

from polyc import empty, f32, grid, op
from polyc.emit import compile as compiling
from polyc.emit.kernel import Kernel
from polyc.graph_driver.worker import further_sizes
from polyc.graph_driver.worker.further_sizes import OWN, FurtherSizes, General, Shared, same_program
from polyc.poly import dependences
from polyc.poly.errors import PolycError
from polyc.scheduler.cost.unknown_sizes import Times
from polyc.scheduler.strategies import auto

CLOSE = 1e-4  # of the largest value: sums in another order


def running(operator: Any) -> Any:
    """The kernel of the last call with new sizes."""
    return [kernel for made in operator._kernels.values() for _, kernel in made][-1]


def agrees(case: Sized, rng: np.random.Generator, sizes: dict[str, int]) -> None:
    """The call computes what NumPy does."""
    arguments = case.arguments(rng, sizes)
    wanted = case.wanted(*(np.array(x) for x in arguments))
    found = case.operator(*arguments)
    found = arguments[0] if found is None else found
    largest = np.abs(wanted).max() if wanted.size else 1.0
    assert found.shape == wanted.shape and np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE * largest), sizes


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Sized:
    """A case whose operator has no kernels."""
    case: Sized = CASES[request.param]
    for memory in (case.operator._kernels, case.operator._quick, case.operator._families):
        memory.clear()
    return case


EDGES = 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100


@pytest.mark.parametrize("fresh", CASES, indirect=True)
def test_results_at_random_sizes(fresh: Sized) -> None:
    """Nothing, one element, around the widths of vectors and tiles, and larger."""
    rng = np.random.default_rng(5)
    names = fresh.names.split()
    edges = [max(e, fresh.least) for e in (fresh.least, *EDGES)]
    drawn_sizes = [{n: int(rng.choice(edges)) for n in names} for _ in range(24)]
    shared = 0
    for sizes in [fresh.sizes(rng, 70) for _ in range(OWN + 1)] + drawn_sizes:
        agrees(fresh, rng, sizes)
        shared += isinstance(running(fresh.operator), Shared)
    assert shared > 10


@pytest.mark.long
@pytest.mark.parametrize("fresh", CASES, indirect=True)
def test_results_at_many_sizes(fresh: Sized) -> None:
    rng = np.random.default_rng(6)
    for _ in range(60):
        agrees(fresh, rng, fresh.sizes(rng, int(rng.choice((4, 20, 70, 200)))))


@pytest.mark.parametrize("fresh", ["matmul", "norm", "softmax"], indirect=True)
def test_twenty_further_sizes_are_analysed_scheduled_and_compiled_once(
    fresh: Sized, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[str] = Counter()

    def counted(where: Any, name: str) -> None:
        before: Callable[..., Any] = getattr(where, name)

        def count(*args: Any, **named: Any) -> Any:
            made[name] += 1
            return before(*args, **named)

        monkeypatch.setattr(where, name, count)

    counted(dependences, "conflicts")
    counted(auto, "_planned")
    counted(compiling, "optimised_function")
    counted(compiling, "build")
    rng = np.random.default_rng(7)
    for _ in range(OWN):
        fresh.operator(*fresh.arguments(rng, fresh.sizes(rng, 90)))
    assert made["_planned"] == made["optimised_function"] == made["build"] == OWN
    made.clear()
    for _ in range(20):
        fresh.operator(*fresh.arguments(rng, {n: k + 10 for n, k in fresh.sizes(rng, 90).items()}))
        assert isinstance(running(fresh.operator), Shared)
    assert made["_planned"] == made["optimised_function"] == made["build"] == 1
    assert made["conflicts"] <= 1


TILED = "register tile"


@pytest.mark.parametrize("fresh", ["matmul", "conv"], indirect=True)
def test_tiles_are_made_after_a_number_of_calls(fresh: Sized, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first kernel for all sizes has none, so that no call waits long; predictions decide, not a clock."""
    seconds = further_sizes.TILES_WORTH / 2.5
    real = further_sizes.times

    def predicted(general: Any, scop: Any, target: Any, tiled: bool) -> Times | None:
        found = real(general, scop, target, tiled)
        return found if tiled or found is None else Times(found.own, seconds, found.threaded)

    monkeypatch.setattr(further_sizes, "times", predicted)
    monkeypatch.setattr(further_sizes, "WORTH", 10 * seconds)
    tiled = []
    rng = np.random.default_rng(13)
    for extra in range(7):
        agrees(fresh, rng, {n: k + 40 + extra for n, k in fresh.sizes(rng, 9).items()})
        tiled.append(any(TILED in note for note in running(fresh.operator).report()["notes"]))
    assert tiled == [True, False, False, False, True, True, True]  # one of its own, three calls without, then all


@pytest.mark.parametrize("name", CASES)
def test_seeded_bugs_of_shared_programs_are_refused(name: str) -> None:
    """Over all operators more than 200; no kernel of theirs is ever called."""
    case = CASES[name]
    primes = dict(zip(case.names.split(), (37, 41, 53, 29)))
    general, scop = case.scop({}), case.scop(primes)
    assert same_program(general, primes, scop)
    kinds: Counter[str] = Counter()
    for mutant in mutants(general, Random(3)):
        assert not same_program(mutant.scop, primes, scop), (mutant.kind, str(mutant.scop))
        kinds[mutant.kind] += 1
        if kinds.total() == 60:
            break
    assert kinds.keys() >= {"stride", "trip count", "remainder", "subscript"} and kinds.keys() <= CHANGES.keys()


class _Never:
    """A kernel that must not run."""

    def bind(self, shapes: Any) -> Any:
        raise AssertionError("a kernel without a certificate was asked for its sizes")


@pytest.mark.parametrize("name", CASES)
def test_what_has_no_certificate_gets_a_kernel_of_its_own(name: str) -> None:
    case = CASES[name]
    sizes = dict(zip(case.names.split(), (37, 41, 53, 29)))
    scop = case.scop(sizes)
    shapes = tuple(tuple(int(e.value) for e in scop.arrays[n].shape) for n in scop.args)
    mutant = next(mutants(case.scop({}), Random(4)))
    family = FurtherSizes()
    family._seen = [{}] * OWN
    setting = further_sizes.platform_of("cpu", None), further_sizes.wanted(None)
    family._general = General(mutant.scop, cast(Kernel, _Never()), {}, setting)
    found = family.kernel(scop, sizes, shapes, case.scop)
    assert not isinstance(found, Shared) and found.scop.params == () and family._general is None


@pytest.mark.parametrize("fresh", ["matmul"], indirect=True)
def test_a_kernel_that_finds_other_sizes_is_not_shared(fresh: Sized) -> None:
    """The sizes that machine code gets come from shapes: they must be those of the certificate."""
    sizes = {"M": 37, "N": 41, "K": 53}
    scop = fresh.scop(sizes)
    shapes = ((37, 53), (53, 41))
    family = FurtherSizes()
    family._seen = [{}] * OWN
    assert isinstance(family.kernel(scop, sizes, shapes, fresh.scop), Shared)
    for wrong in (((37, 54), (54, 41)), ((41, 53), (53, 37)), ((53, 37), (37, 41)), ((37, 53),)):
        assert not isinstance(family._shared(scop, sizes, wrong, fresh.scop), Shared)
        family._seen = [{}] * OWN
        family._shared(scop, sizes, shapes, fresh.scop)


box = {"by": 0.0}


@op
def scaled(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * box["by"]
    return B


def test_what_the_operator_reads_may_change() -> None:
    """Also in ways that compare as equal: the sign of zero."""
    rng, n = np.random.default_rng(8), 20
    for value in (0.0, -0.0, 2.0, 3.0, 0.0):
        box["by"] = value
        for _ in range(OWN + 2):
            n += 1
            X = np.abs(drawn(rng, n))
            found, wanted = scaled(X), X * np.float32(value)
            assert np.array_equal(found, wanted) and np.array_equal(np.signbit(found), np.signbit(wanted))
        assert isinstance(running(scaled), Shared)


@op
def by_parity(A: f32[N], *, times: int = 1) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * times if i % 2 == N % 2 else A[i] - 1.0
    return B


def test_a_size_that_makes_another_program_leaves_the_shared_kernel_to_the_others() -> None:
    """A loop that runs once, or never, may be no loop of the program any more."""

    @op
    def heads(A: f32[N, M]) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = A[i, 0] + 1.0
            for j in range(1, M):
                if j < N:
                    B[i] = B[i] * 0.5 + A[i, j]
        return B

    rng = np.random.default_rng(12)
    kernels = []
    for n, m in ((5, 6), (6, 7), (7, 8), (1, 1), (9, 1), (1, 9), (8, 9), (30, 3)):
        X = drawn(rng, n, m)
        assert np.allclose(heads(X), heads.python(X))
        kernels.append(running(heads))
    assert kernels[2]._kernel.native is kernels[6]._kernel.native is kernels[7]._kernel.native


def test_constants_have_families_of_their_own() -> None:
    rng = np.random.default_rng(9)
    for times in (1, 2, 1, 2):
        for n in rng.integers(0, 90, 6):
            X = drawn(rng, int(n))
            i = np.arange(n)
            wanted = np.where(i % 2 == n % 2, X * np.float32(times), X - np.float32(1))
            assert np.array_equal(by_parity(X, times=times), wanted)


def test_sizes_that_stay_the_same_are_numbers() -> None:
    @op
    def added(A: f32[M, N]) -> f32[M, N]:
        B = empty((M, N), f32)
        for i, j in grid(M, N):
            B[i, j] = A[i, j] + 1.0
        return B

    rng = np.random.default_rng(10)

    def call(m: int, n: int) -> Any:
        X = drawn(rng, m, n)
        assert np.array_equal(added(X), X + np.float32(1))
        return running(added)

    call(5, 40), call(6, 40)
    assert call(7, 40)._kernel.scop.params == ("M",)
    assert call(8, 40)._kernel.native is call(9, 40)._kernel.native
    assert call(8, 41)._kernel.scop.params == ("M", "N")  # one more
    assert call(30, 50)._kernel.native is call(31, 40)._kernel.native


def test_a_size_that_is_used_much_gets_its_own_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a number of calls that follows from predictions; the report says which one runs."""
    monkeypatch.setattr(further_sizes, "_worth", lambda *_: Times(0.0, further_sizes.WORTH / 3.5, True))

    @op
    def less(A: f32[N]) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = A[i] - 1.0
        return B

    for n in (5, 7):
        less(np.ones(n, np.float32))
    shared = running(less)
    X = np.arange(7, dtype=np.float32)
    for calls in range(2, 6):
        assert np.array_equal(less(X), X - 1)
        general = calls <= 3
        assert bool(shared._kernel.scop.params) == general
        assert any("for all values of N" in note for note in less.notes) == general
        assert any("for all values of N" in note for note in shared.report()["notes"]) == general


def test_threads_change_to_its_own_kernel_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them compiles; the others go on with the general kernel, and none meets half a change."""
    monkeypatch.setattr(further_sizes, "_worth", lambda *_: Times(0.0, further_sizes.WORTH / 3.5, True))

    @op
    def doubled(A: f32[N]) -> f32[N]:
        B = empty((N,), f32)
        for i in grid(N):
            B[i] = A[i] * 2.0
        return B

    made: list[Any] = []
    real = further_sizes.compile_operator
    monkeypatch.setattr(further_sizes, "compile_operator", lambda scop: made.append(scop) or slow(real, scop))
    for n in (5, 7, 9):
        doubled(np.ones(n, np.float32))
    made.clear()
    start = Barrier(8)

    def calls() -> bool:
        start.wait()
        return all((doubled(np.full(9, k, np.float32)) == 2 * k).all() for k in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(f.result() for f in [pool.submit(calls) for _ in range(8)])
    assert len(made) == 1


def slow(compile_it: Callable[[Any], Any], scop: Any) -> Any:
    kernel = compile_it(scop)
    time.sleep(0.05)
    return kernel


def test_little_work_stays_on_one_thread() -> None:
    @op
    def twice(A: f32[M, N]) -> f32[M, N]:
        B = empty((M, N), f32)
        for i, j in grid(M, N):
            B[i, j] = A[i, j] + A[i, j]
        return B

    for m, n in ((3, 4), (5, 6), (7, 8), (400, 300)):
        X = np.ones((m, n), np.float32)
        assert np.array_equal(twice(X), X + X)
        kernel = running(twice)
        if m > 5:
            assert kernel._kernel.threads == (1 if m == 7 else kernel_threads(twice))


def kernel_threads(operator: Any) -> int:
    found: int = operator.compile().threads
    return found


def test_sums_that_keep_their_order_have_the_same_bits() -> None:
    @op(reassociate=False)
    def total(A: f32[M, N]) -> f32[M]:
        B = empty((M,), f32)
        for i in range(M):
            B[i] = 0.0
            for j in range(N):
                B[i] += A[i, j] * 1.25
        return B

    rng = np.random.default_rng(11)
    for _ in range(12):
        X = drawn(rng, *rng.integers(1, 60, 2))
        assert np.array_equal(total(X), total.python(X))
    assert isinstance(running(total), Shared)


def test_where_the_proof_was_given_up_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyc.emit.proof import proven

    monkeypatch.setattr(proven, "QUOTA", 1)

    @op
    def more(A: f32[N]) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = A[i] + 1.0
        return B

    for n in range(5, 10):
        assert np.array_equal(more(np.ones(n, np.float32)), np.full(n, 2, np.float32))
        assert not isinstance(running(more), Shared)


def test_a_program_that_needs_numbers_gets_them() -> None:
    @op
    def spread(A: f32[N]) -> f32[N * N]:
        B = empty((N * N,), f32)
        for i, j in grid(N, N):
            B[i * N + j] = A[i] - A[j]
        return B

    for n in range(2, 8):
        X = np.arange(n, dtype=np.float32)
        try:
            assert np.array_equal(spread(X), (X[:, None] - X[None, :]).ravel())
        except PolycError as error:
            pytest.fail(str(error))
