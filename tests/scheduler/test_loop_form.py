"""The normal form of loops, choices and named values: spellings make no difference, results stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import BoundsError, dims, empty, f32, f64, i32, inout, op, zeros
from polyc.emit import targets
from polyc.frontend_dsl.source import register
from polyc.poly.errors import ScheduleError
from polyc.poly.rewriting.choices import with_choices
from polyc.poly.rewriting.loop_form import normal_loops
from polyc.poly.tree import loop_names
from polyc.scheduler.strategies.auto import automatic

M, N, K = dims("M N K")
HEAD = "@op\ndef program(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:\n    C = zeros((M, N), f32)\n"
PRODUCTS = {
    "from one": """
    for i in range(1, M + 1):
        for j in range(N):
            for k in range(3, K + 3):
                C[i - 1, j] += A[i - 1, k - 3] * B[k - 3, j]
""",
    "blocks": """
    for x in range(0, M, 32):
        for y in range(0, N, 16):
            for z in range(0, K, 8):
                for i in range(x, min(x + 32, M)):
                    for j in range(y, min(y + 16, N)):
                        for k in range(z, min(z + 8, K)):
                            C[i, j] += A[i, k] * B[k, j]
""",
    "one block": """
    for i in range(M):
        for x in range(0, 24, 32):
            for j in range(N):
                for k in range(K):
                    C[i, j] += A[i, k] * B[k, j]
""",
    "two blocks": """
    for i in range(M):
        for x in range(0, K, 24):
            for k in range(x, min(x + 24, K)):
                for j in range(N):
                    C[i, j] += A[i, k] * B[k, j]
""",
    "names": """
    for i in range(M):
        for j in range(N):
            for k in range(K):
                a = A[i, k]
                t = a * B[k, j]
                C[i, j] = t + C[i, j]
""",
    "a value": """
    for i in range(M):
        for j in range(N):
            for k in range(K):
                t = A[i, k] * B[k, j] + C[i, j]
                C[i, j] = t
""",
    "a condition": """
    for i in range(M + 2):
        if i >= 2:
            for k in range(K):
                a = A[i - 2, k]
                for j in range(N):
                    C[i - 2, j] = C[i - 2, j] + a * B[k, j]
""",
}
PLAIN = """
    for i in range(M):
        for j in range(N):
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]
"""


def made(body: str) -> Any:
    """The operator of a body."""
    text = HEAD + body + "    return C\n"
    space = dict(globals())
    exec(compile(text, register(text, "program"), "exec"), space)
    return space["program"]


def tiles(operator: Any) -> list[str]:
    """What the contraction strategy did."""
    done = automatic(operator.scop(M=64, N=48, K=40), targets.get("x86-64-v3"))
    return [
        d.what.split(":")[1] for d in done.decisions if d.stage == "contraction" and d.what.startswith("contraction")
    ]


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_in_other_words_are_products(name: str) -> None:
    plain, other = tiles(made(PLAIN)), tiles(made(PRODUCTS[name]))
    assert [t.split(",")[0] for t in plain] == [t.split(",")[0] for t in other] != []


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_in_other_words_give_the_same(name: str) -> None:
    same_everywhere(made(PRODUCTS[name]), (rng.random((13, 24)), rng.random((24, 9))), {"M": 13, "N": 9, "K": 24})


@op
def clipped(X: f64[N], L: f64, H: f64) -> f64[N]:
    Y = empty((N,), f64)
    for i in range(2, N + 2):
        v = X[i - 2]
        if v < L:
            v = L
        if v > H:
            v = H
        w = 0.0
        if v * v > 0.25:
            w = v - 0.25
        Y[i - 2] = w * v
    return Y


@op
def bounds_in_a_scalar(X: f32[M, N], n: i32[M]) -> f32[M]:
    """The end of a loop is a copied scalar of a loop that begins late."""
    Y = zeros((M,), f32)
    for i in range(1, M):
        last = min(n[i], N)
        s = 0.0
        for j in range(last):
            s += X[i, j]
        Y[i] = s
    return Y


@op
def clamped_by_conditions(X: f32[M, N], G: f32[5]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        for j in range(N):
            s = 0.0
            for k in range(5):
                p = j + k - 2
                if p < 0:
                    p = 0
                if p > N - 1:
                    p = N - 1
                s += G[k] * X[i, p]
            Y[i, j] = s
    return Y


@op
def numbers_by_conditions(X: i32[N]) -> i32[N]:
    """What a number is where a condition of the loops holds is no extreme, or one on one side only."""
    Y = empty((N,), i32)
    for i in range(N):
        p = i
        if i > 5:
            p = 3
        q = 2 * i
        if i > 4:
            q = N
        r = 7
        if i < 7:
            r = i
        Y[i] = X[p] + i32(q) * i32(r + p)
    return Y


@op
def masked(A: f32[M, K], B: f32[M, K]) -> f32[M, M]:
    """Products on one side of the diagonal, something else on the other."""
    C = zeros((M, M), f32)
    for i in range(M):
        for j in range(M):
            if j <= i:
                C[i, j] = 0.0
                for k in range(K):
                    C[i, j] += A[i, k] * B[j, k]
            else:
                C[i, j] = -7.0
    return C


@op
def runs(X: i32[M, N]) -> i32[M, N]:
    """How long equal neighbours go on: what is replaced depends on the element before."""
    R = empty((M, N), i32)
    for b in range(0, M, 4):
        for i in range(b, min(b + 4, M)):
            R[i, 0] = 1
            for j in range(1, N):
                R[i, j] = 1
                if X[i, j] == X[i, j - 1]:
                    R[i, j] = R[i, j - 1] + 1
    return R


@op
def backwards_blocks(X: f32[N]) -> f32[N]:
    """Blocks from the last to the first one, whose order counts."""
    Y = zeros((N,), f32)
    for b in range(4):
        for i in range(8 * (3 - b), min(8 * (3 - b) + 8, N)):
            Y[i] = X[i] + (Y[i - 1] if i > 0 else 0.0)
    return Y


@op
def taps(X: f32[M, N], G: f32[7]) -> f32[M, N]:
    Y = zeros((M, N), f32)
    for i in range(M):
        for j in range(3, N - 3):
            for k in range(-3, 4):
                Y[i, j] += G[k + 3] * X[i, j + k]
    return Y


rng = np.random.default_rng()
SPELLED: list[tuple[Any, tuple[Any, ...], dict[str, int]]] = [
    (clipped, (rng.standard_normal(37), -0.5, 0.75), {"N": 37}),
    (bounds_in_a_scalar, (rng.random((7, 9)), rng.integers(0, 12, 7)), {"M": 7, "N": 9}),
    (clamped_by_conditions, (rng.random((5, 37)), rng.random(5)), {"M": 5, "N": 37}),
    (numbers_by_conditions, (rng.integers(0, 9, 23),), {"N": 23}),
    (masked, (rng.random((37, 9)), rng.random((37, 9))), {"M": 37, "K": 9}),
    (runs, (rng.integers(0, 2, (11, 40)),), {"M": 11, "N": 40}),
    (backwards_blocks, (rng.random(30),), {"N": 30}),
    (taps, (rng.random((5, 41)), rng.random(7)), {"M": 5, "N": 41}),
]


def close(found: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    """Equal but for the order of sums."""
    return all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found, wanted, strict=True))


def same_everywhere(operator: Any, values: tuple[Any, ...], sizes: dict[str, int]) -> None:
    """Plain Python's results with every back end, for known sizes and for symbols."""
    scop = operator.scop(**sizes)
    types = [scop.arrays[n].dtype.np for n in scop.args]
    args = [np.asarray(v, t)[()] for v, t in zip(values, types, strict=True)]
    wanted = [np.asarray(operator.python(*args))]
    for s in (scop, operator.scop()):
        for back in (s, normal_loops(s)):
            assert close(interpret(back, back.tree, args), wanted)
        schedule = automatic(s, targets.host())
        assert close(interpret(schedule.scop, schedule.tree, args, shuffle=1), wanted)
        for backend in NATIVE:
            assert close(native(schedule.scop, schedule.tree, args, backend), wanted)


@pytest.mark.parametrize(("operator", "values", "sizes"), SPELLED, ids=lambda v: getattr(v, "name", ""))
def test_results(operator: Any, values: tuple[Any, ...], sizes: dict[str, int]) -> None:
    same_everywhere(operator, values, sizes)


def test_blocks_whose_order_counts_stay() -> None:
    schedule = automatic(backwards_blocks.scop(N=30), targets.host())
    assert any(d.outcome == "refused" and "blocks" in d.what for d in schedule.decisions)
    assert any(name.startswith("b") for name in loop_names(schedule.tree))


# ---- choices -------------------------------------------------------------------------------------


@op
def scattered(I: i32[N], X: inout(f32[N])):
    """What replaces the value may read the element itself, before it is written."""
    for i in range(N):
        X[i] = 2.0
        if I[i] > 1:
            X[i] = X[I[i]] + 1.0


@op
def moved_between(I: inout(i32[N]), C: f32[N], X: inout(f32[N])):
    """The same subscript, but another element."""
    for i in range(N):
        X[max(0, min(I[i], N - 1))] = 1.0
        I[i] = 0
        if C[i] > 0.5:
            X[max(0, min(I[i], N - 1))] = 2.0


@op
def read_between(X: f32[N], Y: inout(f32[N])):
    for i in range(N):
        t = X[i]
        Y[i] += t
        if X[i] > 0.5:
            t = 0.0
        Y[i] *= t


@op
def overwritten_between(X: inout(f32[N])):
    for i in range(N):
        t = X[i]
        X[i] = 3.0
        if t > 0.5:
            t = X[i]
        X[i] += t


@op
def swapped(X: inout(f32[N, 2])):
    for i in range(N):
        if X[i, 0] > X[i, 1]:
            t = X[i, 0]
            X[i, 0] = X[i, 1]
            X[i, 1] = t


@pytest.mark.parametrize(
    "operator", [scattered, moved_between, read_between, overwritten_between, swapped], ids=lambda o: o.name
)
def test_no_choice_where_the_value_is_seen(operator: Any) -> None:
    scop = operator.scop(N=6)
    assert len(with_choices(scop).statements) == len(scop.statements)
    arrays = {"I": rng.integers(0, 6, 6).astype(np.int32), "X": rng.random((6, 2) if operator is swapped else 6)}
    args = [np.asarray(arrays.get(n, rng.random(6)), scop.arrays[n].dtype.np) for n in scop.args]
    theirs = [a.copy() for a in args]
    operator.python(*theirs)
    wanted = [a for n, a in zip(scop.args, theirs, strict=True) if scop.arrays[n].kind == "inout"]
    schedule = automatic(scop, targets.host())
    assert close(interpret(schedule.scop, schedule.tree, args), wanted)


def test_choices_are_values() -> None:
    scop = with_choices(clipped.scop(N=9))
    assert all(s.predicate is None for s in scop.statements.values())
    assert len(scop.statements) == 3  # v, w and Y


def chain(length: int) -> Any:
    """A scalar that many statements change in turn, each on its condition."""
    steps = "".join(f"        if X[i, {k}] > 7:\n            h = h * 3 + X[i, {k}]\n" for k in range(length))
    text = f"@op\ndef program(X: i32[N, {length}]) -> i32[N]:\n    Y = empty((N,), i32)\n    for i in range(N):\n"
    space = dict(globals())
    text += f"        h = X[i, 0]\n{steps}        Y[i] = h\n    return Y\n"
    exec(compile(text, register(text, "program"), "exec"), space)
    return space["program"]


def test_long_chains_stay_statements() -> None:
    """One value of all of them would double with each step."""
    assert 2 < len(with_choices(chain(20).scop(N=3)).statements) < 21
    scop = chain(80).scop(N=3)
    assert with_choices(scop) is scop
    x = rng.integers(0, 14, (3, 20)).astype(np.int32)
    assert np.array_equal(chain(20)(x), chain(20).python(x))


def test_clamped_subscripts_are_extremes() -> None:
    scop = with_choices(clamped_by_conditions.scop(M=4, N=64))
    (value,) = (str(s.value) for s in scop.statements.values() if s.array == "p")
    assert value.count("max") == value.count("min") == 1 and "Select" not in value


@op
def replaced_after_it_was_read(X: f32[M], I: i32[N], C: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        t = X[I[i]]
        if C[i] > 0.0:
            t = 0.0
        Y[i] = t
    return Y


@op
def read_and_seldom_used(X: f32[M], I: i32[N], C: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        t = X[I[i]]
        Y[i] = 1.0 if C[i] > 0.0 else t
    return Y


@pytest.mark.parametrize("operator", [replaced_after_it_was_read, read_and_seldom_used], ids=lambda o: o.name)
def test_an_access_outside_is_an_error_also_where_nobody_uses_it(operator: Any) -> None:
    x, c = np.zeros(5, np.float32), np.ones(3, np.float32)
    for run in (operator, operator.python):
        with pytest.raises(BoundsError, match="index 9 is out of bounds"):
            run(x, np.array([0, 9, 2], np.int32), c)
    assert np.array_equal(
        operator(x, np.array([0, 4, 2], np.int32), c), operator.python(x, np.arange(3, dtype=np.int32), c)
    )


# ---- the steps -----------------------------------------------------------------------------------


def test_normalise_is_for_the_order_of_the_program() -> None:
    schedule = taps.scop().schedule()
    with pytest.raises(ScheduleError, match="earlier steps have changed the order"):
        schedule.interchange("j", "k").normalise()
    with pytest.raises(ScheduleError, match="have their normal form"):
        schedule.normalise().normalise()


def test_unsplit_keeps_what_orders_instances() -> None:
    schedule = taps.scop().schedule()
    assert str(schedule.strip_mine("j", 8).unsplit("j.out")) == str(schedule.strip_mine("j", 8).unsplit("j.out"))
    with pytest.raises(ScheduleError, match="share a time"):
        schedule.split("j", 8).unsplit("j.out")
    with pytest.raises(ScheduleError, match="share a time"):
        schedule.unsplit("i")


def test_one_block_around_several_parts() -> None:
    """Without the loop over blocks its parts are parts of the sequence around it: this was an internal error."""

    @op
    def best(X: f32[M, N]) -> i32[M]:
        I = empty((M,), i32)
        for i in range(M):
            most = X[i, 0]
            where = 0
            for b in range(0, N, 32):
                for k in range(b, min(b + 32, N)):
                    if k >= 1:
                        if X[i, k] > most:
                            most = X[i, k]
                            where = k
            I[i] = where
        return I

    for n in (9, 40):
        x = rng.random((7, n)).astype(np.float32)
        np.testing.assert_array_equal(best.compile(threads=1, M=7, N=n)(x), x.argmax(1))
