"""Sums of products of narrow integers in words of two or four numbers: exact for all values, whatever is left over."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, no-untyped-def"

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, execute, interpret

from polyc import dims, empty, f32, grid, i8, i16, i32, inout, op, u8, u16, zeros
from polyc.emit import targets
from polyc.poly.dtypes import DType
from polyc.poly.errors import ScheduleError
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

M, N, K = dims("M N K")
SIZES = [{"M": 9, "N": 19, "K": 16}, {"M": 17, "N": 8, "K": 21}, {"M": 8, "N": 33, "K": 3}, {"M": 5, "N": 6, "K": 1}]


def product(A: DType, B: DType, turned: bool = False) -> Any:
    @op
    def narrow_product(X: A[M, K], Y: B[N, K] if turned else B[K, N]) -> i32[M, N]:
        C = zeros((M, N), i32)
        for i, j in grid(M, N):
            for k in range(K):
                if turned:
                    C[i, j] += i32(X[i, k]) * i32(Y[j, k])
                else:
                    C[i, j] += i32(X[i, k]) * i32(Y[k, j])
        return C

    return narrow_product


def less_zero_points() -> Any:
    @op
    def from_zero(X: u8[M, K], Y: i8[K, N], x: u8, y: i8[N]) -> i32[M, N]:
        C = zeros((M, N), i32)
        for i in range(M):
            for j in range(N):
                s = i32(0)
                for k in range(K):
                    s += (i32(X[i, k]) - i32(x)) * (i32(Y[k, j]) - i32(y[j]))
                C[i, j] = s
        return C

    return from_zero


@op
def of_differences(X: u8[M, K], Y: i8[K, N], x: u8) -> i32[M, N]:
    D = empty((M, K), i32)
    C = zeros((M, N), i32)
    for i, k in grid(M, K):
        D[i, k] = i32(X[i, k]) - i32(x)
    for i, j in grid(M, N):
        for k in range(K):
            C[i, j] += D[i, k] * i32(Y[k, j])
    return C


def extreme_values(t: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers, many of them the least and the largest."""
    info, rng = np.iinfo(t.np), np.random.default_rng()
    numbers = rng.integers(info.min, info.max + 1, shape)
    return np.where(rng.random(shape) < 0.5, rng.choice([info.min, info.max], shape), numbers).astype(t.np)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("a", "b", "count"), [
    (u8, i8, 4), (i8, u8, 4), (u8, i8, 2), (i8, i8, 2), (u8, u8, 2), (i16, i16, 2), (i16, u8, 2),
])  # fmt: skip
def test_products(a: DType, b: DType, count: int, turned: bool, sizes: dict[str, int]) -> None:
    operator = product(a, b, turned)
    m, n, k = (sizes[x] for x in "MNK")
    x, y = extreme_values(a, (m, k)), extreme_values(b, (n, k) if turned else (k, n))
    wanted = (x.astype(np.int64) @ (y.T if turned else y).astype(np.int64)).astype(np.int32)
    for scop in (operator.scop(), operator.scop(**sizes)):
        words = Schedule.of(scop).in_words("S1", count)
        (found,) = interpret(words.scop, words.tree, [x, y])
        np.testing.assert_array_equal(found, wanted)
        schedule = automatic(scop, targets.host())
        for backend in ("interp", *NATIVE):
            (found,) = execute(schedule.scop, schedule.tree, [x, y], backend)
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_zero_points(sizes: dict[str, int]) -> None:
    operator = less_zero_points()
    m, n, k = (sizes[x] for x in "MNK")
    x, y, zero, zeros_of_y = (extreme_values(t, s) for t, s in ((u8, (m, k)), (i8, (k, n)), (u8, ()), (i8, (n,))))
    wanted = (x.astype(np.int64) - zero) @ (y.astype(np.int64) - zeros_of_y)
    for scop in (operator.scop(), operator.scop(**sizes)):
        schedule = automatic(scop, targets.host())
        for backend in ("interp", *NATIVE):
            (found,) = execute(schedule.scop, schedule.tree, [x, y, zero, zeros_of_y], backend)
            np.testing.assert_array_equal(found, wanted)


def test_local_arrays_hold_what_they_are_given() -> None:
    assert numbers_in_words(of_differences, "znver4") == ["2 in a word"]
    x, y, zero = (extreme_values(t, s) for t, s in ((u8, (9, 21)), (i8, (21, 17)), (u8, ())))
    schedule = automatic(of_differences.scop(), targets.host())
    for backend in ("interp", *NATIVE):
        (found,) = execute(schedule.scop, schedule.tree, [x, y, zero], backend)
        np.testing.assert_array_equal(found, (x.astype(np.int32) - zero) @ y.astype(np.int32))


def numbers_in_words(operator: Any, target: str, **sizes: int) -> list[str]:
    """What the strategy did."""
    decisions = automatic(operator.scop(**sizes), targets.get(target)).decisions
    return [d.what for d in decisions if d.stage == "words" and d.outcome == "done"]


@pytest.mark.parametrize(("a", "b", "wide", "narrow"), [
    (u8, i8, "4 in a word", "2 in a word"), (i8, i8, "2 in a word", "2 in a word"), (i16, u16, None, None),
    (u8, i16, "2 in a word", "2 in a word"), (u16, u16, None, None), (i32, i8, None, None),
])  # fmt: skip
def test_as_many_as_the_machine_multiplies(a: DType, b: DType, wide: str | None, narrow: str | None) -> None:
    operator = product(a, b)
    for target, wanted in (("x86-64-v3", narrow), ("znver4", wide), ("neoverse-n1", None)):
        assert numbers_in_words(operator, target) == ([wanted] if wanted else [])
        assert numbers_in_words(operator, target, M=64, N=64, K=64) == ([wanted] if wanted else [])
        assert not numbers_in_words(operator, target, M=4, N=64, K=64)  # packing costs as much


@op
def triangle(X: u8[M, M], Y: i8[M, M]) -> i32[M, M]:
    C = zeros((M, M), i32)
    for i, j in grid(M, M):
        for k in range(i + 1):
            C[i, j] += i32(X[i, k]) * i32(Y[k, j])
    return C


@op
def changing(X: inout(u8[M, M]), Y: i8[M, M]) -> i32[M, M]:
    C = zeros((M, M), i32)
    for i in range(M):
        for j in range(M):
            for k in range(M):
                C[i, j] += i32(X[i, k]) * i32(Y[k, j])
        for k in range(M):
            X[0, k] = u8(C[i, k])
    return C


@op
def real(X: f32[M, K], Y: f32[K, N]) -> f32[M, N]:
    C = zeros((M, N), f32)
    for i, j in grid(M, N):
        for k in range(K):
            C[i, j] += X[i, k] * Y[k, j]
    return C


@op
def squares(X: u8[M, K]) -> i32[M]:
    C = zeros((M,), i32)
    for i in range(M):
        for k in range(K):
            C[i] += i32(X[i, k]) * i32(X[i, k])
    return C


@op
def outside(X: u8[M, K], I: i32[K], Y: i8[K, N]) -> i32[M, N]:
    C = zeros((M, N), i32)
    for i, j in grid(M, N):
        for k in range(K):
            C[i, j] += i32(X[i, I[k]]) * i32(Y[k, j])
    return C


@pytest.mark.parametrize(("operator", "reason"), [
    (triangle, "bounds of 'k' depend on other loops"), (changing, "changes what it reads"), (real, "no sum of 32-bit"),
    (product(i16, i16), "larger than 8 bits"), (outside, "may leave its array"),
])  # fmt: skip
def test_refused(operator: Any, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        Schedule.of(operator.scop()).in_words("S1", 4)
    automatic(operator.scop(), targets.host())


def test_one_factor_twice_and_wrong_arguments() -> None:
    schedule = Schedule.of(squares.scop()).in_words("S1", 2)
    x = extreme_values(u8, (7, 13))
    (found,) = interpret(schedule.scop, schedule.tree, [x])
    np.testing.assert_array_equal(found, (x.astype(np.int32) ** 2).sum(1))
    with pytest.raises(ScheduleError, match="2 or 4"):
        Schedule.of(squares.scop()).in_words("S1", 3)
    with pytest.raises(ScheduleError, match="no statement"):
        Schedule.of(squares.scop()).in_words("S9", 2)
    turned = Schedule.of(product(u8, i8).scop()).interchange("j", "k")
    x, y = extreme_values(u8, (7, 13)), extreme_values(i8, (13, 9))
    words = turned.in_words("S1", 4)
    (found,) = interpret(words.scop, words.tree, [x, y])
    np.testing.assert_array_equal(found, x.astype(np.int32) @ y.astype(np.int32))
    with pytest.raises(ScheduleError, match="say how loops run"):
        turned.vectorize("j", 8).in_words("S1", 4)


@op
def two_products(X: u8[M, K], Y: i8[K, N], V: i8[K, N]) -> (i32[M, N], i32[M, N]):
    C, D = zeros((M, N), i32), zeros((M, N), i32)
    for i, j in grid(M, N):
        for k in range(K):
            C[i, j] += i32(X[i, k]) * i32(Y[k, j])
        for k in range(K):
            D[i, j] += i32(V[k, j]) * i32(X[i, k])
    return C, D


def test_two_products_of_one_nest() -> None:
    assert numbers_in_words(two_products, "znver4") == ["4 in a word"] * 2
    x, y, v = (extreme_values(t, s) for t, s in ((u8, (9, 22)), (i8, (22, 17)), (i8, (22, 17))))
    schedule = automatic(two_products.scop(), targets.host())
    for backend in ("interp", *NATIVE):
        found = execute(schedule.scop, schedule.tree, [x, y, v], backend)
        for result, factor in zip(found, (y, v), strict=True):
            np.testing.assert_array_equal(result, x.astype(np.int32) @ factor.astype(np.int32))


@op
def sums_in_a_scalar(X: i8[M, K], Y: i8[N, K]) -> i32[M, N]:
    C = zeros((M, N), i32)
    for i in range(M):
        for j in range(N):
            s = i32(0)
            for k in range(K):
                s += i32(X[i, k]) * i32(Y[j, k])
            C[i, j] = s
    return C


def test_sums_in_a_scalar_get_register_tiles() -> None:
    decisions = automatic(sums_in_a_scalar.scop(M=64, N=64, K=64), targets.get("x86-64-v3")).decisions
    assert any(d.stage == "contraction" and "register tile" in d.what and d.outcome == "done" for d in decisions)
    x, y = extreme_values(i8, (9, 22)), extreme_values(i8, (17, 22))
    schedule = automatic(sums_in_a_scalar.scop(M=9, N=17, K=22), targets.host())
    for backend in ("interp", *NATIVE):
        (found,) = execute(schedule.scop, schedule.tree, [x, y], backend)
        np.testing.assert_array_equal(found, x.astype(np.int32) @ y.T.astype(np.int32))
