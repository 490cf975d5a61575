"""Accesses outside their arrays: one error, the same in plain Python, compiled and interpreted code."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from polyc import BoundsError, PolycError, dims, empty, f32, grid, i8, i32, i64, inout, op, u8, u32, u64, zeros
from polyc.frontend_dsl.checked_arrays import checked
from polyc.graph_driver.compile_operator import compile_operator

N, M, K = dims("N M K")


@op
def gather(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i]]
    return Y


@op
def gather_small(X: f32[N], I: i8[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i]]
    return Y


@op
def gather_unsigned(X: f32[N], I: u64[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i]]
    return Y


@op
def gather_u32(X: f32[N], I: u32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i]]
    return Y


@op
def bytes_of_table(X: f32[256], I: u8[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i]]
    return Y


@op
def histogram(X: inout(f32[N]), I: i32[M]):
    for i in range(M):
        X[I[i]] += 1


@op
def fill(A: inout(f32[N]), n: i32):
    for i in range(n):
        A[i] = 1.0


@op
def fill_from(A: inout(f32[N]), lo: i32, hi: i32):
    for i in range(lo, hi):
        A[i] = 1.0


@op
def squares(A: f32[N], Y: inout(f32[M])):
    for i in range(M):
        Y[i] = A[i * i]


@op
def sentinels(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        if I[i] >= 0:
            Y[i] = X[I[i]]
        else:
            Y[i] = -1.0
    return Y


@op
def chosen(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i]] if I[i] < N else -1.0
    return Y


@op
def nested(X: f32[N], I: i32[M], J: i64[K]) -> f32[K]:
    Y = empty(K, f32)
    for i in range(K):
        Y[i] = X[I[J[i]]]
    return Y


@op
def wrapping(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i] * 1000000]
    return Y


@op
def rows(X: f32[N, K], I: i32[M]) -> f32[M, K]:
    Y = empty((M, K), f32)
    for i, k in grid(M, K):
        Y[i, k] = X[I[i], k]
    return Y


@op
def second_axis(X: f32[N, K], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[N - 1, I[i]]
    return Y


@op
def computed(X: f32[N], I: i32[M]) -> f32[M]:
    at = empty(M, i32)
    Y = empty(M, f32)
    at[0] = I[0]
    for i in range(1, M):
        at[i] = at[i - 1] + I[i]
    for i in range(M):
        Y[i] = X[at[i]]
    return Y


@op
def spmv(ptr: i32[N + 1], col: i32[K], val: f32[K], x: f32[M]) -> f32[N]:
    y = empty(N, f32)
    for i in range(N):
        y[i] = 0.0
        for j in range(ptr[i], ptr[i + 1]):
            y[i] += val[j] * x[col[j]]
    return y


@op
def shifted(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i + 1]] if i < M - 1 else 0.0
    return Y


@op
def divided(X: f32[N], I: i32[M], J: i32[M]) -> f32[M]:
    Y = zeros(M, f32)
    for i in range(M):
        if J[i] != 0:
            Y[i] = X[I[i] // J[i]] * (X[I[i] % J[i]] if I[i] < 100 else 0.0)
    return Y


@op
def both_conditions(X: f32[N], I: i32[M]) -> f32[M]:
    Y = zeros(M, f32)
    for i in range(M):
        if I[i] >= 0 and X[I[i]] > 2.0:
            Y[i] = X[I[i]]
    return Y


@op
def chase(I: i32[N], start: i32) -> i32[1]:
    Y = empty(1, i32)
    k = start
    n = 0
    while I[k] != 0:
        k = I[k]
        n = n + 1
    Y[0] = n
    return Y


@op
def under_data(A: f32[N], B: f32[M], n: i32) -> f32[N]:
    Y = zeros(N, f32)
    for i in range(N):
        if A[i] > 0.0:
            Y[i] = B[i]
    return Y


def i_(*values: int, dtype: Any = np.int32) -> np.ndarray:
    return np.array(values, dtype)


X = np.arange(10, dtype=np.float32)
SIZES = (0, 3, 3, 5)
POINTERS, COLUMNS = i_(*SIZES), i_(0, 9, 2, 3, 4)
TABLE = np.arange(256, dtype=np.float32)

# operator, arguments, (array, axis, indices that may be named, size) or None
CASES: dict[str, tuple[Any, tuple[Any, ...], tuple[str, int, set[int], int] | None]] = {
    "inside": (gather, (X, i_(0, 9, 3)), None),
    "one beyond": (gather, (X, i_(0, 10, 3)), ("X", 0, {10}, 10)),
    "negative": (gather, (X, i_(0, -1, 3)), ("X", 0, {-1}, 10)),
    "in the last vector": (gather, (X, i_(*[3] * 40, 99)), ("X", 0, {99}, 10)),
    "smallest": (gather, (X, i_(*[3] * 40, -(2**31))), ("X", 0, {-(2**31)}, 10)),
    "i8": (gather_small, (X, i_(0, -128, dtype=np.int8)), ("X", 0, {-128}, 10)),
    "u64": (gather_unsigned, (X, i_(0, 2**64 - 1, dtype=np.uint64)), ("X", 0, {2**64 - 1}, 10)),
    "u32": (gather_u32, (X, i_(0, 2**32 - 1, dtype=np.uint32)), ("X", 0, {2**32 - 1}, 10)),
    "all bytes": (bytes_of_table, (TABLE, np.arange(256, dtype=np.uint8)), None),
    "update": (histogram, (X, i_(1, 1, -1)), ("X", 0, {-1}, 10)),
    "update inside": (histogram, (X, i_(1, 1, 9)), None),
    "scalar bound": (fill, (X[:4], 8), ("A", 0, {4, 5, 6, 7}, 4)),
    "no iteration": (fill, (X[:4], -8), None),
    "exact bound": (fill, (X[:4], 4), None),
    "lower bound": (fill_from, (X[:4], -2, 1), ("A", 0, {-2, -1}, 4)),
    "outside, but empty": (fill_from, (X[:4], 9, 7), None),
    "sentinels": (sentinels, (X, i_(0, -1, 3)), None),
    "beside sentinels": (sentinels, (X, i_(0, -1, 30)), ("X", 0, {30}, 10)),
    "select": (chosen, (X, i_(0, 2**31 - 1, 3)), None),
    "select, negative": (chosen, (X, i_(0, -7, 3)), ("X", 0, {-7}, 10)),
    "nested": (nested, (X, i_(1, 2, 99), i_(0, 1, dtype=np.int64)), None),
    "nested, outer": (nested, (X, i_(1, 2, 99), i_(0, 2, dtype=np.int64)), ("X", 0, {99}, 10)),
    "nested, inner": (nested, (X, i_(1, 2, 99), i_(0, 3, dtype=np.int64)), ("I", 0, {3}, 3)),
    "wrapped around": (wrapping, (X, i_(0, 5000)), ("X", 0, {705032704}, 10)),
    "rows": (rows, (X.reshape(5, 2), i_(0, 4)), None),
    "row beyond": (rows, (X.reshape(5, 2), i_(0, 5)), ("X", 0, {5}, 5)),
    "column beyond": (second_axis, (X.reshape(5, 2), i_(0, 2)), ("X", 1, {2}, 2)),
    "computed": (computed, (X, i_(1, 2, 6)), None),
    "computed, beyond": (computed, (X, i_(1, 2, 7, -20)), ("X", 0, {10, -10}, 10)),
    "csr": (spmv, (POINTERS, COLUMNS, X[:5], X), None),
    "csr, column": (spmv, (POINTERS, i_(0, 10, 2, 3, 4), X[:5], X), ("x", 0, {10}, 10)),
    "csr, unused padding": (spmv, (POINTERS, i_(0, 1, 2, 3, 4, -1), X[:6], X), None),
    "csr, pointer": (spmv, (i_(0, 3, 3, 7), COLUMNS, X[:5], X), ("val|col", 0, {5, 6}, 5)),
    "csr, negative pointer": (spmv, (i_(-1, 3, 3, 5), COLUMNS, X[:5], X), ("val|col", 0, {-1}, 5)),
    "csr, rows that do not run": (spmv, (i_(9, 3, 3, 5), COLUMNS, X[:5], X), None),
    "guard": (under_data, (-X, X[:4], 0), None),
    "guard that lets through": (under_data, (X, X[:4], 0), ("B", 0, {4, 5, 6, 7, 8, 9}, 4)),
    "a condition on the loop": (shifted, (X, i_(-7, 1, 2)), None),
    "a condition on the loop, beyond": (shifted, (X, i_(0, 1, 11)), ("X", 0, {11}, 10)),
    "divided": (divided, (X, i_(5, 9, 8), i_(0, 9, 1)), None),
    "divided, beyond": (divided, (X, i_(5, 9, 18), i_(0, 9, 1)), ("X", 0, {18}, 10)),
    "and": (both_conditions, (X, i_(-5, 9, 8)), None),
    "and, beyond": (both_conditions, (X, i_(-5, 9, 10)), ("X", 0, {10}, 10)),
    "while": (chase, (i_(1, 2, 3, 0), 0), None),
    "while, beyond": (chase, (i_(1, 2, 7, 0), 0), ("I", 0, {7}, 4)),
    "while, negative": (chase, (i_(1, 2, 3, 0), -7), ("I", 0, {-7}, 4)),
    "not affine": (squares, (X, X[:4]), None),
    "not affine, beyond": (squares, (X, X[:5]), ("A", 0, {16}, 10)),
    "nothing executed": (squares, (X[:0], X[:0]), None),
    "an empty array": (gather, (X[:0], i_(0)), ("X", 0, {0}, 0)),
}


def copies(arguments: tuple[Any, ...]) -> list[Any]:
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]


def outcome(run: Any, arguments: tuple[Any, ...]) -> Any:
    """The result with the arguments as they are after, or the error."""
    given = copies(arguments)
    try:
        return run(*given), given
    except BoundsError as error:
        return error


def runs(operator: Any, arguments: tuple[Any, ...], **constants: Any) -> dict[str, Any]:
    """Every way to run an operator."""
    scop = operator.scop()
    compiled = {b: compile_operator(scop, target="c" if b == "c" else None, backend=b, sizes=constants, threads=1)
                for b in ("llvm", "c", "interp")}  # fmt: skip
    return {"python": operator.python, "call": operator, **compiled}


@pytest.mark.filterwarnings("ignore:overflow encountered")  # which is what one case is about
@pytest.mark.parametrize("name", CASES)
def test_same_everywhere(name: str) -> None:
    operator, arguments, expected = CASES[name]
    if name in (
        "one beyond",
        "csr, column",
        "computed, beyond",
        "update",
        "nested, inner",
        "a condition on the loop",
        "divided",
        "and, beyond",
    ):
        made = runs(operator, arguments)
    else:
        made = {"python": operator.python, "call": operator}
    results = {way: outcome(run, arguments) for way, run in made.items()}
    for way, found in results.items():
        if expected is None:
            assert not isinstance(found, BoundsError), (way, found)
            for a, b in zip(found[1], results["python"][1]):
                np.testing.assert_array_equal(a, b, err_msg=way)
            if found[0] is not None:
                np.testing.assert_allclose(found[0], results["python"][0], rtol=1e-6, err_msg=way)
        else:
            array, axis, indices, size = expected
            assert isinstance(found, BoundsError), (way, found)
            assert (found.operator, found.axis, found.size) == (operator.name, axis, size), way
            assert found.array in array.split("|") and found.index in indices, (way, found)
            assert found.line is not None and found.array + "[" in open(__file__).read().splitlines()[found.line - 1]


def test_the_error() -> None:
    with pytest.raises(BoundsError) as caught:
        gather(X, i_(1, 12))
    error = caught.value
    assert isinstance(error, PolycError) and isinstance(error, IndexError)
    assert str(error).startswith("gather: index 12 is out of bounds for axis 0 of 'X' with size 10 (")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.index, again.size) == (str(error), 12, 10)


UNTOUCHED = {
    "update": (histogram, (X, i_(1, 1, 99))),
    "scalar bound": (fill, (X[:4], 8)),
    "lower bound": (fill_from, (X[:4], -2, 1)),
    "not affine": (squares, (X, X[:5])),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_nothing_is_half_written(name: str) -> None:
    operator, arguments = UNTOUCHED[name]
    given = copies(arguments)
    with pytest.raises(BoundsError):
        operator(*given)
    for a, b in zip(given, arguments):
        np.testing.assert_array_equal(a, b)


def test_given_results_are_not_half_written() -> None:
    for operator, arguments in ((spmv, CASES["csr, column"][1]), (computed, CASES["computed, beyond"][1])):
        y = np.full(3 if operator is spmv else 4, 7, np.float32)
        with pytest.raises(BoundsError):
            operator(*arguments, out=y)
        np.testing.assert_array_equal(y, np.full_like(y, 7))


def test_what_is_checked_where() -> None:
    def how(operator: Any) -> set[tuple[str, str]]:
        return {(c.array, c.how) for c in operator.compile().function.checks}

    assert how(gather) == {("X", "before")}
    assert how(computed) == {("X", "in the loop")}
    assert how(spmv) == {("col", "before"), ("val", "before"), ("x", "in the loop")}


def test_threads_tell_what_they_find() -> None:
    kernel = gather.compile(threads=2, schedule=gather.scop().schedule().parallel("i"))
    with pytest.raises(BoundsError, match="index 77 "):
        kernel(X, i_(*[1] * 5000, 77, *[1] * 5000))
    np.testing.assert_array_equal(kernel(X, i_(*[1] * 500)), np.ones(500, np.float32))


def test_vector_loops_keep_their_lanes() -> None:
    schedule = computed.scop().schedule()
    kernel = computed.compile(schedule=schedule.vectorize("i_1", 8))
    assert "vector" not in " ".join(kernel.report()["notes"])
    with pytest.raises(BoundsError, match="index 10 "):
        kernel(X, i_(*[0] * 29, 10, -5))


@op
def computed_bounds(I: i64[N + 1], val: f32[K]) -> f32[N]:
    at = empty(N + 1, i64)
    y = zeros(N, f32)
    at[0] = I[0]
    for i in range(1, N + 1):
        at[i] = at[i - 1] + I[i]
    for i in range(N):
        for j in range(at[i], at[i + 1]):
            y[i] += val[j]
    return y


@pytest.mark.parametrize("backend", ("llvm", "c"))
def test_a_loop_of_any_length_ends_at_the_first_violation(backend: str) -> None:
    kernel = compile_operator(computed_bounds.scop(), backend=backend, threads=1)
    with pytest.raises(BoundsError, match="index 4 is out of bounds for axis 0 of 'val' with size 4"):
        kernel(i_(0, 2, 2**60, dtype=np.int64), X[:4])
    np.testing.assert_array_equal(kernel(i_(0, 2, 2, dtype=np.int64), X[:4]), [1, 5])


@pytest.mark.parametrize("checks", (True, False))
@pytest.mark.parametrize("backend", ("interp", "llvm"))
def test_copies_touch_what_exists(backend: str, checks: bool) -> None:
    """A box of B is copied to the buffer; what lies beyond the array belongs to instances that do not run."""
    scop = under_data.scop()
    schedule = scop.schedule().split("i", 4).promote("B", "i.out")
    kernel = compile_operator(scop, schedule=schedule, backend=backend, threads=1, checks=checks)
    a = np.where(np.arange(10) < 6, 1, -1).astype(np.float32)
    np.testing.assert_array_equal(kernel(a, X[:6], 0), under_data.python(a, X[:6], 0))
    if checks:
        with pytest.raises(BoundsError, match="index 5 is out of bounds for axis 0 of 'B' with size 5"):
            kernel(a, X[:5], 0)


def test_checks_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scop = gather.scop()
    assert compile_operator(scop).function.checks
    assert not compile_operator(scop, checks=False).function.checks
    monkeypatch.setenv("POLYC_CHECK", "0")
    assert not compile_operator(scop).function.checks
    assert compile_operator(scop, checks=True).function.checks


def test_proven_accesses_cost_nothing() -> None:
    assert not bytes_of_table.compile().function.checks


def test_explain_names_every_access() -> None:
    from polyc.emit.certificates import certificates

    assert {str(c).split(" (")[0]: c.how for c in certificates(spmv.scop())} == {
        "ptr[i]": "proven", "ptr[i + 1]": "proven", "y[i]": "proven",
        "val[j]": "checked before", "col[j]": "checked before", "x[i64(col[j])]": "checked inside",
    }  # fmt: skip
    assert {c.how for c in certificates(spmv.scop(), checks=False)} == {"proven", "not checked"}


@pytest.mark.parametrize("first", ["k > 0", "k == 4", "k % 2 == 1", "k > 9", "k == 2 or k == 4"])
def test_the_end_of_a_loop_is_read_whether_or_not_an_iteration_follows(first: str) -> None:
    """The positions are computed, so the loops check them; none of the iterations left may be the first."""
    summed = op.from_source(f"""
from polyc import dims, empty, f32, i32, inout, op
N, M = dims("N M")
@op
def summed(J: i32[N], ptr: i32[M], V: f32[M], A: inout(f32[N])):
    at = empty(N, i32)
    at[0] = J[0]
    for c in range(1, N):
        at[c] = at[c - 1] + J[c]
    for i in range(N):
        for k in range(ptr[at[i]]):
            if {first}:
                A[i] += V[k]
""")
    ptr, V = np.array([1, 3, 4, 5, 5], np.int32), np.arange(5, dtype=np.float32)
    kernels = [compile_operator(summed.scop(), backend=b, threads=1) for b in ("llvm", "interp")]
    inside, outside = np.array([0, 1, 1, 2], np.int32), np.array([0, 1, 1, 100], np.int32)
    wanted = np.zeros(4, np.float32)
    summed.python(inside, ptr, V, wanted)
    for run in kernels:
        A = np.zeros(4, np.float32)
        run(inside, ptr, V, A)
        np.testing.assert_array_equal(A, wanted)
    for run in (summed.python, *kernels):
        with pytest.raises(BoundsError, match="index 102 is out of bounds for axis 0 of 'ptr' with size 5"):
            run(outside, ptr, V, np.zeros(4, np.float32))


def test_arrays_are_printed_inside_plain_python() -> None:
    """NumPy prints by subscripts from the end, which are none of the program's."""
    X, Y = checked(np.arange(3.0), "X"), checked(np.zeros((2, 3)), "Y")
    shown = (repr(X), str(X), f"{X}", np.array2string(X), repr(Y[:2]))
    assert shown == ("array([0., 1., 2.])", *["[0. 1. 2.]"] * 3, "array([[0., 0., 0.],\n       [0., 0., 0.]])")
    with pytest.raises(BoundsError):
        X[-int(X.size)]
