"""`outline`, `split_sum`, `expand`, `distribute_all`: the same results on random programs, and refused exactly where
they would not be. Integers, so that results are equal whatever the order of the operations."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from back_ends import interpret
from differential import oracle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyc import dims, empty, f64, grid, i64, inout, op, u8, zeros
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.scheduler.programs import distribute_all
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations import outlining

N, M, K = dims("N M K")
SEEDS = st.integers(0, 10**6)
QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
SIZE = 6


def program(r: random.Random) -> Any:
    """A product in three loops, triangular perhaps, with a local array, and something that may write its operands."""
    j = r.choice(["range(6)", "range(i + 1)", "range(i, 6)"])
    k = r.choice(["range(6)", "range(i)", "range(i + 1, 6)"])
    sums = [
        "(m[i + k] if i + k < 6 else u)",
        "A[min(2 * i + k, 5), i]",
        "(C[k, i - k] - m[5 - i + k] if 0 <= i - k else 0)",
    ]
    a = r.choice(["A[i, k]", "A[k, i]", "C[k, i]", "(A[i, k] - m[i])", *sums])
    b = r.choice(["B[k, j]", "A[j, k]", "C[k, j]", "B[j, k] * m[k]"])
    other = r.choice(["", "", " + B[i, k] * A[k, j]", " - m[k]"])
    target = r.choice(["C[i, j]", "C[i, j]", "t[j]"])
    writes = r.choice(
        ["A[i, j] = t[j]", "A[5 - i, j] = t[j] + C[i, j]", "B[j, i] = t[j]", "m[i] = m[i] + t[j]", "pass"]
    )
    place = r.choice([["            "], ["        for j in range(6):", "            "]])
    lines = [
        "@op", "def f(A: inout(i64[6, 6]), B: inout(i64[6, 6]), C: inout(i64[6, 6]), m: inout(i64[6]), u: i64):",
        "    t = empty(6, i64)", "    for j in range(6):", "        t[j] = m[j]",
        "    for i in range(6):", f"        for j in {j}:", *(["            t[j] = u"] * r.randint(0, 1)),
        f"            for k in {k}:", f"                {target} {r.choice(['+=', '-='])} {a} * u * {b}{other}",
        *place[:-1], place[-1] + writes,
    ]  # fmt: skip
    return op.from_source("\n".join(lines), scope={"op": op, "i64": i64, "inout": inout, "empty": empty})


def arguments(r: random.Random) -> list[Any]:
    rng = np.random.default_rng(r.randrange(1 << 30))
    matrices = [rng.integers(-9, 10, (SIZE, SIZE)) for _ in range(3)]
    return [*matrices, rng.integers(-9, 10, SIZE), np.int64(3)]


def run(scop: Any, tree: Any, args: list[Any]) -> list[Any]:
    return [x.tolist() for x in interpret(scop, tree, args)]


def check_outline(seed: int) -> bool | None:
    """Whether outlining some factors is accepted (None: it makes no sense); that is when results stay the same."""
    r = random.Random(seed)
    f = program(r)
    scop, args = f.scop(), arguments(r)
    update = next((s for s in scop.statements.values() if len(s.iters) == 3), None)
    assert update is not None
    loops = r.sample(update.iters, r.randint(1, 2))
    at = r.choice([None, None, "i"])
    s = Schedule.start(scop)
    try:
        if r.random() < 0.5:
            s = s.split_sum(update.name)
        done = outlining.outline(s.scop, s.tree, update.name, loops, None, at)
    except ScheduleError:
        return None
    wanted = run(scop, scop.tree, args)
    assert run(s.scop, s.tree, args) == wanted
    same = run(done.scop, done.tree, args) == wanted
    assert same == (done.violation is None), f"{scop}\n{loops} {at}\n{done.scop}\n{done.violation}"
    return same


def check_expand(seed: int) -> bool | None:
    """The same for a copy of the local array for each iteration of a loop."""
    r = random.Random(seed)
    f = program(r)
    scop, args = f.scop(), arguments(r)
    s = Schedule.start(scop)
    try:
        s = s.expand("t", r.choice(s.loops))
    except ScheduleError as error:
        assert "outside of loop" in str(error) or "has written in another" in str(error)
        return False
    assert run(s.scop, s.tree, args) == run(scop, scop.tree, args)
    return True


def check_distribute(seed: int) -> bool | None:
    r = random.Random(seed)
    scop, args = program(r).scop(), arguments(r)
    s = Schedule.start(scop)
    try:
        new = s.in_one_check(lambda s: distribute_all(s, "i"))
    except IllegalSchedule:
        raise  # parts are in an order of their dependences
    except ScheduleError:
        return False
    assert run(new.scop, new.tree, args) == run(scop, scop.tree, args)
    return True


@given(seed=SEEDS)
@settings(QUICK, max_examples=20)
def test_factors_are_computed_ahead_exactly_where_values_stay(seed: int) -> None:
    check_outline(seed)


@given(seed=SEEDS)
@settings(QUICK, max_examples=10)
def test_copies_of_an_array_and_parts_in_loops_of_their_own(seed: int) -> None:
    check_expand(seed)
    check_distribute(seed)


@pytest.mark.parametrize("check", [check_outline, check_expand, check_distribute])
def test_both_verdicts_occur(check: Any) -> None:
    assert {check(seed) for seed in range(120)} >= {True, False}


@pytest.mark.long
@given(seed=SEEDS)
@settings(QUICK, max_examples=1000)
def test_at_length(seed: int) -> None:
    for check in (check_outline, check_expand, check_distribute):
        check(seed)


@op
def scaled(u: f64, A: f64[N, K], B: f64[K, M], C: inout(f64[N, M])):
    for i, k, j in grid(N, K, M):
        C[i, j] -= u * A[i, k] * B[k, j]


def test_what_is_made_of_a_scaled_product() -> None:
    s = scaled.scop().schedule().outline("S0", ["i", "k"])
    made, update = s.scop.statements["S0_A_part"], s.scop.statements["S0"]
    assert (made.array, s.scop.arrays["A_part"].shape) == ("A_part", scaled.scop().arrays["A"].shape)
    assert update.value.op == "+" and made.value.a.op == "neg"  # type: ignore[attr-defined]
    rng = np.random.default_rng()
    args = [1.5, rng.random((5, 7)), rng.random((7, 4)), rng.random((5, 4))]
    expected = oracle(scaled, args)
    for new in (s, scaled.scop().schedule().outline("S0", ["k", "j"], array="P", at="i")):
        np.testing.assert_allclose(interpret(new.scop, new.tree, args), expected)
    assert Schedule.replay(scaled.scop(), s.save()).scop == s.scop


@pytest.mark.parametrize(
    "do, why",
    [
        (lambda s: s.outline("S9", ["i"]), "no statement 'S9'"),
        (lambda s: s.outline("S0", ["x"]), "loops are some of i, k, j, not x"),
        (lambda s: s.outline("S0", ["i", "j"]), "no factors of S0 are moved by i, j alone"),
        (lambda s: s.outline("S0", ["i", "k"], array="A"), "'A' is no new name"),
        (lambda s: s.promote("A", "i").outline("S0", ["i", "k"]), "is promoted already: outline first"),
        (lambda s: s.split_sum("S0"), "S0 adds one product: nothing to split"),
        (lambda s: s.expand("C", "i"), "'C' is no local array"),
    ],
)
def test_what_makes_no_sense(do: Any, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        do(scaled.scop().schedule())


def test_factors_keep_their_places_without_reassociation() -> None:
    @op(reassociate=False)
    def kept(u: f64, A: f64[N, K], B: f64[K, M], C: inout(f64[N, M])):
        for i, k, j in grid(N, K, M):
            C[i, j] += u * A[i, k] * B[k, j]

    with pytest.raises(ScheduleError, match="S0 adds up nothing|forbids reassociation"):
        kept.scop().schedule().outline("S0", ["i", "k"])


def test_a_refusal_names_what_overwrites_a_factor() -> None:
    @op
    def halved(A: inout(f64[N, K]), B: f64[K, M], C: inout(f64[N, M])):
        for i in range(N):
            for k in range(K):
                A[i, k] = A[i, k] * 0.5
            for k, j in grid(K, M):
                C[i, j] += A[i, k] * B[k, j] * 2.0

    with pytest.raises(IllegalSchedule, match="computed ahead, the factors of S1 would miss that value") as caught:
        halved.scop().schedule().outline("S1", ["i", "k_1"])
    assert caught.value.witness is not None
    halved.scop().schedule().outline("S1", ["i", "k_1"], at="i")


@op
def rows(A: inout(f64[N, M]), carried: i64):
    t = empty(M, f64)
    for i in range(N):
        for j in range(M):
            t[j] = A[i, j] if carried == 0 or i == 0 else t[j] + A[i, j]
        for j in range(M):
            A[i, j] = t[M - 1 - j]


def test_a_value_of_another_iteration_keeps_an_array_as_it_is() -> None:
    with pytest.raises(ScheduleError, match="in one iteration S0 reads what S0 has written in another"):
        rows.scop().schedule().expand("t", "i")


def test_a_loop_that_never_runs_has_no_copies() -> None:
    @op
    def never(A: inout(f64[N])):
        for i in range(4, 2):
            t = empty(3, f64)
            for j in range(3):
                t[j] = A[i]
            A[i] = t[0]

    s = never.scop().schedule()
    for loop in s.loops:
        with pytest.raises(ScheduleError):
            s.expand("t", loop)


@op
def flipped(A: inout(f64[N, M])):
    t = empty(M, f64)
    for i in range(N):
        for j in range(M):
            t[j] = A[i, j]
        for j in range(M):
            A[i, j] = t[M - 1 - j]


def test_a_copy_for_each_iteration_lets_them_run_at_once() -> None:
    s = flipped.scop().schedule()
    with pytest.raises(IllegalSchedule):
        s.parallel("i")
    s = s.expand("t", "i").parallel("i").distribute("i")
    a = np.random.default_rng().random((5, 7))
    assert interpret(s.scop, s.tree, [a])[0].tolist() == a[:, ::-1].tolist()


def test_distribution_puts_parts_into_an_order_of_their_dependences() -> None:
    """symm's nest: the sum of each element, and the scattered one, which waits for what the element begins with."""
    from examples.polybench.symm import symm

    s = symm.scop().schedule().in_one_check(lambda s: distribute_all(s, "i"))
    assert [sorted(f.domain) for f in s.tree.filters] == [["S0"], ["S2"], ["S3"], ["S1"]]  # type: ignore[attr-defined]


@op
def padded(X: f64[N], W: f64[M, 3]) -> f64[M, N]:
    """A window of a row that zeros surround, at any position."""
    Y = empty((M, N), f64)
    for m in range(M):
        for i in range(N):
            s = 0.0
            for a in range(3):
                v = X[i + a - 1] if 0 <= i + a - 1 < N else 0.0
                s += v * W[m, a]
            Y[m, i] = s
    return Y


def test_sums_of_loops_are_subscripts() -> None:
    """The padded row, not its windows."""
    s = padded.scop(N=40, M=8).schedule().inline("v")
    (update,) = (n for n, x in s.scop.statements.items() if len(x.iters) == 3)
    s = s.outline(update, ["i", "a"])
    (part,) = (a for n, a in s.scop.arrays.items() if n.endswith("_part"))
    assert [int(e.value) for e in part.shape] == [42]  # type: ignore[attr-defined]
    x, w = np.arange(40.0), np.arange(24.0).reshape(8, 3)
    assert np.array_equal(padded.compile(schedule=s)(x, w), padded.python(x, w))


@op
def cut_off(X: f64[N], W: f64[M, 3]) -> f64[M, N]:
    """Eight bits of a sum of loops are no sum: two sums may have the same, and be different."""
    Y = empty((M, N), f64)
    for m in range(M):
        for i in range(N):
            s = X[i]
            for a in range(3):
                s += W[m, a] * f64(u8(100 * i + 100 * a))
            Y[m, i] = s
    return Y


def test_what_a_narrow_type_cuts_is_no_sum_of_loops() -> None:
    x, w = np.zeros(100), np.random.default_rng(1).integers(-9, 9, (64, 3)).astype(float)
    assert np.array_equal(cut_off(x, w), cut_off.python(x, w))


@op
def padded_by_if(X: f64[N], W: f64[M, 3]) -> f64[M, N]:
    """The value that a condition of the loops replaces."""
    Y = zeros((M, N), f64)
    for m in range(M):
        for i in range(N):
            for a in range(3):
                v = 0.0
                if i + a >= 1 and i + a <= N:
                    v = X[i + a - 1]
                Y[m, i] += W[m, a] * v
    return Y


@pytest.mark.parametrize("padded", [padded, padded_by_if], ids=lambda o: o.name)
def test_products_with_what_is_read_on_a_condition_get_tiles(padded: Any) -> None:
    assert any("register tile" in note for note in padded.compile(N=100, M=64, threads=1).report()["notes"])
    for n in (100, 97):
        x, w = np.random.default_rng(n).integers(-9, 9, n).astype(float), np.arange(64 * 3.0).reshape(64, 3)
        assert np.array_equal(padded(x, w), padded.python(x, w))
