"""Accesses outside their arrays: one error, the same in plain Python, compiled and interpreted code."""

from __future__ import annotations

import linecache
import pickle
from typing import Any

import numpy as np
import pytest
from bounds_cases import (
    CASES,
    X,
    assert_outside,
    bytes_of_table,
    computed_bounds,
    copies,
    fill,
    fill_from,
    gather,
    histogram,
    i_,
    outcome,
    squares,
    under_data,
)

from examples.indirection import gather_at_sums, spmv
from polyc import BoundsError, PolycError, dims, empty, f64, i64, op
from polyc.frontend_dsl.checked_arrays import checked
from polyc.graph_driver.worker.compile_operator import compile_operator

M, N = dims("M N")

ON_EVERY_BACK_END = (  # the others as plain Python and as a call: compiling takes most of the time
    "one beyond", "csr, column", "computed, beyond", "update", "nested, inner", "a condition on the loop", "divided",
    "and, beyond",
)  # fmt: skip


def compiled(operator: Any) -> dict[str, Any]:
    """A kernel of each back end."""
    return {b: compile_operator(operator.scop(), target="c" if b == "c" else None, backend=b, threads=1)
            for b in ("llvm", "c", "interp")}  # fmt: skip


@pytest.mark.filterwarnings("ignore:overflow encountered")  # which is what one case is about
@pytest.mark.parametrize("name", CASES)
def test_same_everywhere(name: str) -> None:
    operator, arguments, expected = CASES[name]
    made = {"python": operator.python, "call": operator}
    made |= compiled(operator) if name in ON_EVERY_BACK_END else {}
    results = {way: outcome(run, arguments) for way, run in made.items()}
    for way, found in results.items():
        if expected is None:
            assert not isinstance(found, BoundsError), (way, found)
            for a, b in zip(found[1], results["python"][1]):
                np.testing.assert_array_equal(a, b, err_msg=way)
            if found[0] is not None:
                np.testing.assert_allclose(found[0], results["python"][0], rtol=1e-6, err_msg=way)
        else:
            assert_outside(found, operator, expected, way)
            line = linecache.getline(found.place.rsplit(":", 2)[0], found.line)
            assert f"{found.array}[" in line, (way, found)


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
    for operator, arguments in ((spmv, CASES["csr, column"][1]), (gather_at_sums, CASES["computed, beyond"][1])):
        y = np.full(3 if operator is spmv else 4, 7, np.float32)
        with pytest.raises(BoundsError):
            operator(*arguments, out=y)
        np.testing.assert_array_equal(y, np.full_like(y, 7))


def test_what_is_checked_where() -> None:
    def how(operator: Any) -> set[tuple[str, str]]:
        return {(c.array, c.how) for c in operator.compile().function.checks}

    assert how(gather) == {("X", "before")}
    assert how(gather_at_sums) == {("x", "in the loop")}
    assert how(spmv) == {("col", "before"), ("val", "before"), ("x", "in the loop")}


def test_threads_tell_what_they_find() -> None:
    kernel = gather.compile(threads=2, schedule=gather.scop().schedule().parallel("i"))
    with pytest.raises(BoundsError, match="index 77 "):
        kernel(X, i_(*[1] * 5000, 77, *[1] * 5000))
    np.testing.assert_array_equal(kernel(X, i_(*[1] * 500)), np.ones(500, np.float32))


def test_vector_loops_keep_their_lanes() -> None:
    schedule = gather_at_sums.scop().schedule()
    kernel = gather_at_sums.compile(schedule=schedule.vectorize("i_1", 8))
    assert "vector" not in " ".join(kernel.report()["notes"])
    with pytest.raises(BoundsError, match="index 10 "):
        kernel(X, i_(*[0] * 29, 10, -5))


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
    np.testing.assert_array_equal(kernel(a, X[:6]), under_data.python(a, X[:6]))
    if checks:
        with pytest.raises(BoundsError, match="index 5 is out of bounds for axis 0 of 'B' with size 5"):
            kernel(a, X[:5])


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
    assert {c.how for c in certificates(spmv.scop(), gpu=True)} == {"proven", "checked inside"}


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


def test_a_subscript_of_one_arm_is_asked_again_in_the_other() -> None:
    """It is named where its arm is evaluated, and 0 elsewhere: the other arm once read element 0 by that name."""

    @op
    def chosen(X: f64[N], C: f64[M], I: i64[M]) -> f64[M]:
        Y, J = empty(M, f64), empty(M, i64)
        for i in range(M):
            J[I[i] - 1] = I[i]
            Y[i] = (X[J[i]] if C[i] > 0.0 else 1.0) + (X[J[i]] if C[i] < 0.0 else 2.0)
        return Y

    x, c, places = np.arange(1.0, 6.0), np.array([1.0, -1.0, 0.0, -2.0]), np.array([1, 2, 3, 4])
    np.testing.assert_array_equal(chosen(x, c, places), chosen.python(x, c, places))


def test_checks_walk_along_memory() -> None:
    @op
    def down_columns(U: f64[N, M], X: f64[N]) -> f64[N, M]:
        Y = empty((N, M), f64)
        for j in range(M):
            for i in range(N):
                Y[i, j] = X[i64(U[i, j])]
        return Y

    assert "U[check0_i, ramp(" in down_columns.compile(N=64, M=64).source("loops")
    places, x = np.random.default_rng().integers(0, 7, (7, 9)).astype(np.float64), np.arange(7.0)
    np.testing.assert_array_equal(down_columns(places, x), places)
    places[6, 8] = 7
    with pytest.raises(BoundsError, match="index 7"):
        down_columns(places, x)
