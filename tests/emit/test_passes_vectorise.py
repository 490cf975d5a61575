"""Vectorisation of DSL programs, each loop marked by hand, against the plain-Python run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scops import TARGET

from polyc import dims, empty, f32, f64, i32, i64, inout, max, op
from polyc.emit.interpreter import interp
from polyc.emit.loop_ir.loops import Alloc, For, Function, HReduce, If, Let, Ramp, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.emit.lowering.lower import lower
from polyc.emit.passes import vectorise
from polyc.poly.binding import bind_sizes
from polyc.poly.expr import Select
from polyc.poly.expr import walk as walk_expr
from polyc.poly.tree import Band, Node, Promote
from polyc.scheduler.schedule import Schedule

M, N, K = dims("M N K")


def mark(tree: Node, kinds: dict[str, Any]) -> Node:
    """The tree with loop kinds set: `{"i": "vector", "j": ("unroll", 4)}`."""
    tree = tree.with_children(tuple(mark(c, kinds) for c in tree.children())) if tree.children() else tree
    if not isinstance(tree, Band):
        return tree
    members = []
    for m in tree.members:
        kind = kinds.get(m.name, m.kind)
        kind, factor = kind if isinstance(kind, tuple) else (kind, None)
        members.append(replace(m, kind=kind, factor=factor))
    return replace(tree, members=tuple(members))


def lowered(operator: Any, kinds: dict[str, Any], **constants: Any) -> Function:
    scop = operator.scop(**constants)
    return lower(scop, mark(scop.tree, kinds), "f", TARGET)


def agree(operator: Any, kinds: dict[str, Any], *args: Any, exact: bool = True) -> Function:
    """Interpreter after all passes = plain Python; returns the function."""
    scop = operator.scop()
    fn = lower(scop, mark(scop.tree, kinds), "f", TARGET)
    compare(scop, fn, operator, args, exact)
    return fn


def compare(scop: Any, fn: Function, operator: Any, args: Any, exact: bool) -> None:
    given = {n: np.array(a, scop.arrays[n].dtype.np) for n, a in zip(scop.args, args)}
    sizes = bind_sizes(scop, {n: a.shape for n, a in given.items()})
    mine = {n: a.copy() for n, a in given.items()}
    theirs = [a.copy() if a.ndim else a[()] for a in given.values()]
    out = operator.python(*theirs)
    out = () if out is None else out if isinstance(out, tuple) else (out,)
    for name, value in zip(scop.results, out):
        mine[name] = interp.poisoned(np.shape(value), scop.arrays[name].dtype)
    interp.run(fn, mine, sizes)
    expected = dict(zip(scop.args, theirs)) | dict(zip(scop.results, out))
    for name, array in scop.arrays.items():
        if array.kind in ("out", "inout"):
            if exact:
                np.testing.assert_array_equal(mine[name], expected[name])
            else:
                largest = np.abs(expected[name]).max(initial=0)  # sums that cancel have the error of their terms
                np.testing.assert_allclose(mine[name], expected[name], rtol=2e-5, atol=max(1e-6, 2e-6 * largest))


def kinds_of(fn: Function) -> set[str]:
    return {s.kind for s in walk(fn.body) if isinstance(s, For)}


def expressions(fn: Function) -> list[Any]:
    return [e for s in walk(fn.body) for top in stmt_exprs(s) for e in walk_expr(top)]


RNG = np.random.default_rng(7)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


# ---- pointwise ------------------------------------------------------------------------------


@op
def saxpy(a: f32, X: f32[N], Y: f32[N]) -> f32[N]:
    Z = empty((N,), f32)
    for i in range(N):
        Z[i] = a * X[i] + Y[i]
    return Z


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 37])
def test_full_chunks_and_one_masked(n: int) -> None:
    fn = agree(saxpy, {"i": "vector"}, np.float32(1.5), floats(n), floats(n))
    stores = [s for s in walk(fn.body) if isinstance(s, Store)]
    assert [s.mask is not None for s in stores] == [False, True]
    assert all(s.value.lanes == 8 for s in stores)


@pytest.mark.parametrize(
    ("n", "masked", "stores"),
    [(64, 0, 8), (128, 0, 1), (22, 0, 3), (23, 0, 3), (133, 0, 2), (7, 0, 2), (3, 0, 2), (20, 0, 3)],
)
def test_constant_extents(n: int, masked: int, stores: int) -> None:
    """The last vector ends where the loop ends: some elements are computed twice."""
    from polyc.poly.rewriting.specialise import specialise

    scop = specialise(saxpy.scop(), {"N": n})
    fn = lower(scop, mark(scop.tree, {"i": "vector"}), "f", TARGET)
    found = [s for s in walk(fn.body) if isinstance(s, Store)]
    assert len(found) == stores
    assert sum(s.mask is not None for s in found) == masked
    compare(scop, fn, saxpy, (np.float32(2), floats(n), floats(n)), True)


@pytest.mark.parametrize(("n", "masked", "stores"), [(22, 0, 4), (23, 1, 3), (133, 1, 2)])
def test_what_is_updated_in_place_is_not_computed_twice(n: int, masked: int, stores: int) -> None:
    from polyc.poly.rewriting.specialise import specialise

    @op
    def grow(Z: inout(f32[N])) -> None:
        for i in range(N):
            Z[i] = Z[i] * 2

    scop = specialise(grow.scop(), {"N": n})
    fn = lower(scop, mark(scop.tree, {"i": "vector"}), "f", TARGET)
    found = [s for s in walk(fn.body) if isinstance(s, Store)]
    assert (len(found), sum(s.mask is not None for s in found)) == (stores, masked)
    compare(scop, fn, grow, (floats(n),), True)


def test_a_multiple_of_the_lanes_needs_no_mask() -> None:
    @op
    def double(X: f32[8 * N]) -> f32[8 * N]:
        Y = empty((8 * N,), f32)
        for i in range(8 * N):
            Y[i] = X[i] + X[i]
        return Y

    fn = agree(double, {"i": "vector"}, floats(40))
    assert not any(isinstance(s, Store) and s.mask is not None for s in walk(fn.body))
    assert not any(isinstance(s, If) for s in walk(fn.body))


@op
def strided(X: f32[N, 3]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = X[i, 2] - X[N - 1 - i, 0]
    return Y


def test_strided_and_reversed_reads() -> None:
    fn = agree(strided, {"i": "vector"}, floats(21, 3))
    ramps = {e.stride for e in expressions(fn) if isinstance(e, Ramp)}
    assert {1, -1} <= ramps


@op
def every_third(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = 0.0
    for i in range(1, N, 3):
        Y[i] = X[i] + f32(i)
    return Y


@pytest.mark.parametrize("n", [1, 2, 30, 77])
def test_steps_and_iterator_values(n: int) -> None:
    agree(every_third, {"i": "vector", "i_1": "vector"}, floats(n))


@op
def backwards(X: inout(f32[N])):
    for i in range(N - 1, -1, -1):
        X[i] = X[i] * f32(i) + 1.0


def test_negative_steps() -> None:
    agree(backwards, {"i": "vector"}, floats(19))


# ---- conditions -----------------------------------------------------------------------------


@op
def clipped(X: f32[N], Y: inout(f32[N])):
    for i in range(N):
        if X[i] > 0.0:
            Y[i] = X[i] / Y[i]


@pytest.mark.parametrize("n", [3, 8, 29])
def test_predicates_become_masks(n: int) -> None:
    fn = agree(clipped, {"i": "vector"}, floats(n), floats(n))
    stores = [s for s in walk(fn.body) if isinstance(s, Store)]
    assert all(s.mask is not None or isinstance(s.value, Select) for s in stores)


@op
def guarded_gather(idx: i64[N], X: f32[M]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = X[idx[i]] if idx[i] >= 0 and idx[i] < M else -1.0
    return Y


def test_lazy_selects_mask_their_loads() -> None:
    idx = np.array([0, -5, 3, 99, 2, 4, 1, 0, 5, -1, 2], np.int64)
    agree(guarded_gather, {"i": "vector"}, idx, floats(5))


@op
def padded(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = 0.0
        for k in range(3):
            Y[i] += X[i + k - 1] if i + k >= 1 and i + k <= N else 0.0
    return Y


@pytest.mark.parametrize("n", [1, 8, 20])
def test_affine_selects_in_an_inner_loop(n: int) -> None:
    agree(padded, {"i": "vector"}, floats(n), exact=False)
    agree(padded, {"i": "vector", "k": "unroll"}, floats(n), exact=False)


@op
def lookup(X: f32[M], S: i32[N], Y: inout(f32[N])):
    for j in range(M + 2):
        for i in range(N):
            Y[i] += X[j] if S[i] > 0 and j < M else 0.5


def test_a_scalar_load_under_a_vector_condition_stays_lazy() -> None:
    """X[j] is outside for the last j, where no lane may read it."""
    agree(lookup, {"i": "vector"}, floats(3), RNG.integers(-2, 3, 13).astype(np.int32), floats(13), exact=False)


@op
def nested(X: f32[M], S: i32[N], Y: inout(f32[N])):
    for j in range(M + 2):
        for i in range(N):
            if S[i] > 0:
                Y[i] = (X[j] if j < M else X[0] * 2.0) if j > 1 else X[M - 1 - j % 2]


def test_scalar_conditions_inside_vector_ones() -> None:
    agree(nested, {"i": "vector"}, floats(5), RNG.integers(-2, 3, 13).astype(np.int32), floats(13))


@op
def divided(A: i32[N], B: i32[N]) -> i32[N]:
    C = empty((N,), i32)
    for i in range(N):
        C[i] = A[i] // B[i] if B[i] != 0 else -7
    return C


def test_integer_division_in_masked_lanes_is_harmless() -> None:
    a, b = RNG.integers(-99, 99, 21).astype(np.int32), RNG.integers(-2, 3, 21).astype(np.int32)
    fn = agree(divided, {"i": "vector"}, a, b)
    assert any(isinstance(s, Store) for s in walk(fn.body))


# ---- in place, not innermost ----------------------------------------------------------------


@op
def columns(A: f32[K, N]) -> f32[N]:
    S = empty((N,), f32)
    for j in range(N):
        S[j] = 0.0
        for k in range(K):
            S[j] += A[k, j]
    return S


@pytest.mark.parametrize("n", [5, 8, 27])
def test_serial_loops_inside_a_vector_loop(n: int) -> None:
    fn = agree(columns, {"j": "vector"}, floats(6, n), exact=False)
    assert not fn.notes
    assert any(isinstance(s, For) and s.loop == "k" for s in walk(fn.body))
    assert all(s.value.lanes == 8 for s in walk(fn.body) if isinstance(s, Store))


@op
def triangle(A: f32[N, N]) -> f32[N]:
    S = empty((N,), f32)
    for i in range(N):
        S[i] = 0.0
        for k in range(i):
            S[i] += A[i, k]
    return S


def test_bounds_that_vary_leave_the_loop_serial() -> None:
    fn = agree(triangle, {"i": "vector"}, floats(11, 11), exact=False)
    assert fn.notes == ("loop 'i' is not vectorised: the bounds of the loop 'k' inside it vary",)
    assert kinds_of(fn) == {"serial"}


@op
def diagonal(A: f32[N, N]) -> f32[N]:
    S = empty((N,), f32)
    for i in range(N):
        S[i] = A[i, i]
    return S


def test_two_varying_subscripts_leave_the_loop_serial() -> None:
    fn = agree(diagonal, {"i": "vector"}, floats(9, 9))
    assert "two subscripts of 'A' vary" in fn.notes[0]


@op
def squares(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        t = X[i] + 1.0
        u = t * t
        Y[i] = u - t
    return Y


def test_scalars_contracted_to_registers_get_a_copy_per_lane() -> None:
    scop = squares.scop()
    tree = mark(scop.tree, {"i": "vector"})
    assert isinstance(tree, Band)
    child: Node = tree.child
    for name, array in scop.arrays.items():
        if array.kind == "local":
            child = Promote(name, f"{name}_r", "register", child, copy_in=False, copy_out=False)
    fn = lower(scop, replace(tree, child=child), "f", TARGET)
    assert not fn.notes
    for n in (3, 8, 21):
        compare(scop, fn, squares, (floats(n),), True)


# ---- reductions -----------------------------------------------------------------------------


@op
def total(X: f64[N]) -> f64[()]:
    s = empty((), f64)
    s[()] = 0.0
    for i in range(N):
        s[()] += X[i]
    return s


@pytest.mark.parametrize("n", [1, 4, 5, 16, 53])
def test_a_sum_uses_several_accumulators(n: int) -> None:
    fn = agree(total, {"i": "vector"}, RNG.standard_normal(n), exact=False)
    assert sum(isinstance(e, HReduce) for e in expressions(fn)) == 1
    assert sum(isinstance(s, Alloc) for s in walk(fn.body)) == 4


@op
def scaled_total(a: f64, X: f64[N], Y: inout(f64[N])) -> f64[()]:
    s = empty((), f64)
    s[()] = 0.0
    for i in range(N):
        Y[i] = a * X[i]
        s[()] += a * X[i]
    return s


@pytest.mark.parametrize("n", [1, 4, 16, 23, 64])
def test_a_sum_beside_other_stores_uses_several_accumulators(n: int) -> None:
    """An addition has to wait for the one before: chunks of a loop that does little else add to an element each."""
    fn = agree(scaled_total, {"i": "vector"}, 0.5, RNG.standard_normal(n), np.zeros(n), exact=False)
    assert sum(isinstance(s, Alloc) for s in walk(fn.body)) == 4


@op
def extremes(X: f32[M, N]) -> tuple[f32[M], f32[M]]:
    lo = empty((M,), f32)
    hi = empty((M,), f32)
    for i in range(M):
        lo[i] = X[i, 0]
        hi[i] = X[i, 0]
        for j in range(1, N):
            lo[i] = min(lo[i], X[i, j])
            hi[i] = max(hi[i], X[i, j] if X[i, j] < 1.0 else -5.0)
    return lo, hi


@pytest.mark.parametrize("n", [1, 2, 9, 40])
def test_min_and_max(n: int) -> None:
    fn = agree(extremes, {"j": "vector"}, floats(3, n))
    assert {e.op for e in expressions(fn) if isinstance(e, HReduce)} == {"min", "max"}


@op
def dots(A: f32[M, N], x: f32[N], y: inout(f32[M])):
    for j in range(N):
        for i in range(M):
            y[i] -= A[i, j] * x[j]


def test_an_element_that_changes_inside_is_combined_in_place() -> None:
    fn = agree(dots, {"j": "vector"}, floats(3, 19), floats(19), floats(3), exact=False)
    assert not fn.notes
    assert any(isinstance(e, HReduce) for e in expressions(fn))


def test_unrolled_rows_get_an_accumulator_each() -> None:
    from polyc.poly.rewriting.specialise import specialise

    scop = specialise(dots.scop(), {"M": 3})
    fn = lower(scop, mark(scop.tree, {"j": "vector", "i": "unroll"}), "f", TARGET)
    compare(scop, fn, dots, (floats(3, 19), floats(19), floats(3)), False)
    assert sum(isinstance(e, HReduce) for e in expressions(fn)) == 3


@op
def counted(alpha: i32, X: i32[N]) -> i32[()]:
    s = empty((), i32)
    s[()] = 0
    for i in range(N):
        s[()] += alpha
    return s


@pytest.mark.parametrize("n", [1, 8, 45])
def test_an_update_that_is_the_same_in_all_lanes(n: int) -> None:
    agree(counted, {"i": "vector"}, np.int32(3), np.zeros(n, np.int32))


@op
def later_rows(X: i32[M, M]) -> i32[M]:
    R = empty((M - 1,), i32)
    Y = empty((M,), i32)
    for j in range(1, M):
        R[j - 1] = 0
        for k in range(j, M):
            R[j - 1] = max(R[j - 1], X[k, j])
    for j in range(M):
        Y[j] = R[j - 1] if j > 0 else X[0, 0]
    return Y


@pytest.mark.parametrize("m", [2, 4, 5, 9, 12])
def test_lanes_beyond_the_end_make_no_element_exist(m: int) -> None:
    """Copies of `j` side by side share the loop `k`; the last may have no iteration, and then no element of `R`."""
    schedule = Schedule.start(later_rows.scop()).vectorize("k", 2).unroll_and_jam("j", 3)
    fn = lower(schedule.scop, schedule.tree, "f", TARGET)
    x = np.random.default_rng(m).integers(0, 99, (m, m))
    compare(schedule.scop, fn, later_rows, (x,), True)


@op
def histogram(idx: i64[N], H: inout(i32[M])):
    for i in range(N):
        H[idx[i]] += 1


def test_a_scattered_reduction_stays_serial() -> None:
    fn = agree(histogram, {"i": "vector"}, RNG.integers(0, 4, 30), np.zeros(4, np.int32))
    assert "lanes may update one element of 'H'" in fn.notes[0]


@op
def parity(X: i32[N]) -> tuple[i32[()], i32[()], i32[()]]:
    a = empty((), i32)
    b = empty((), i32)
    c = empty((), i32)
    a[()] = 0
    b[()] = -1
    c[()] = 1
    for i in range(N):
        a[()] ^= X[i]
        b[()] &= X[i]
        c[()] *= X[i]
    return a, b, c


def test_integer_reductions_are_exact() -> None:
    agree(parity, {"i": "vector"}, RNG.integers(-(2**31), 2**31 - 1, 45).astype(np.int32))


# ---- data-dependent bounds ------------------------------------------------------------------


@op
def spmv(ptr: i64[M + 1], col: i64[K], val: f32[K], x: f32[N]) -> f32[M]:
    y = empty((M,), f32)
    for i in range(M):
        y[i] = 0.0
        for k in range(ptr[i], ptr[i + 1]):
            y[i] += val[k] * x[col[k]]
    return y


@pytest.mark.parametrize("kinds", [{}, {"k": "vector"}, {"i": "parallel", "k": "vector"}])
def test_sparse_rows(kinds: dict[str, Any]) -> None:
    lengths = np.array([0, 3, 17, 1, 0, 40])
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    nnz = int(ptr[-1])
    fn = agree(spmv, kinds, ptr, RNG.integers(0, 9, nnz), floats(nnz), floats(9), exact=False)
    if "k" in kinds:
        assert any(isinstance(s, Let) for s in walk(fn.body)) and any(isinstance(e, VLoad) for e in expressions(fn))


@op
def filtered(W: f32[N, N], X: f32[N], R: inout(f32[N, N])) -> f32[N]:
    Z = empty((N,), f32)
    for j in range(N):
        Z[j] = X[j]
        for k in range(N):
            Z[j] += W[k, j] * X[k]
        R[1, j] = R[0, j] + Z[j]
    return Z


@pytest.mark.parametrize("n", [9, 15, 23, 133])
def test_what_an_iteration_begins_itself_may_be_computed_twice(n: int) -> None:
    from polyc.poly.rewriting.specialise import specialise

    scop = specialise(filtered.scop(), {"N": n})
    fn = lower(scop, mark(scop.tree, {"j": "vector"}), "f", TARGET)
    assert not any(isinstance(s, Store) and s.mask is not None for s in walk(fn.body))
    compare(scop, fn, filtered, (floats(n, n), floats(n), floats(n, n)), False)


def test_what_other_iterations_wrote_is_not_computed_twice() -> None:
    from polyc.poly.rewriting.specialise import specialise

    @op
    def shifted(X: f32[N], R: inout(f32[N, N])) -> None:
        for j in range(N):
            R[1, j] = X[j]
            R[2, j] = R[1, j] + R[2, j]

    scop = specialise(shifted.scop(), {"N": 23})
    fn = lower(scop, mark(scop.tree, {"j": "vector"}), "f", TARGET)
    assert any(isinstance(s, Store) and s.mask is not None for s in walk(fn.body))
    compare(scop, fn, shifted, (floats(23), floats(23, 23)), True)


@pytest.mark.parametrize("n", [15, 20, 23, 31, 63, 100])
def test_vectors_lie_within_panels(n: int) -> None:
    """A last vector that ends where the loop ends is used where it lies in one panel, and nothing turns scalar."""

    @op
    def panels(W: f32[7, 16], X: f32[n]) -> f32[n]:
        Z = empty((n,), f32)
        for j in range(n):
            Z[j] = X[j]
            for k in range(3):
                Z[j] += W[j // 16, j % 16] * X[k]
        return Z

    scop = panels.scop()
    fn = lower(scop, mark(scop.tree, {"j": "vector"}), "f", TARGET)
    assert any(isinstance(e, VLoad) for e in expressions(fn))
    masked = any(isinstance(s, Store) and s.mask is not None for s in walk(fn.body))
    assert not masked or (n - 8) % 16 > 8  # the last eight lie in two panels
    compare(scop, fn, panels, (floats(7, 16), floats(n)), False)


def chain_in_columns(n: int, wide: str) -> Any:
    """`n` scalars, each stored into a column of its own; `wide` is the row's length as the program writes it."""
    chain = [f"        s{k} = s{k - 1} * 0.5 + X[i]\n        Y[i, {k}] = s{k}" for k in range(1, n)]
    head = ["from polyc import dims, empty, f32, op", "N = dims('N')", "@op", "def f(X: f32[N]):"]
    first = [f"    Y = empty((N, {wide}), f32)", "    for i in range(N):", "        s0 = X[i]", "        Y[i, 0] = s0"]
    return op.from_source("\n".join([*head, *first, *chain, "    return Y"]) + "\n")


@pytest.mark.parametrize(("n", "lanes"), [(4, 8), (5, 4), (12, 2), (20, 1)])
@pytest.mark.parametrize("wide", ["20", "N + 20"])
def test_lanes_store_no_more_single_elements_than_llvm_can_compare(
    n: int, lanes: int, wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectorise, "MOST_SCATTERED", 32)
    operator = chain_in_columns(n, wide)
    fn = lowered(operator, {"i": ("vector", 8)})
    widths = {e.lanes for s in walk(fn.body) if isinstance(s, Store) and s.array == "Y" for e in s.index}
    assert (widths - {1} or {1}) == {lanes}
    assert bool(fn.notes) == (lanes < 8) and all("single elements" in note for note in fn.notes)
    x = np.arange(11, dtype=np.float32)
    expected = operator.python(x)
    found = np.zeros(expected.shape, np.float32)
    interp.run(fn, {"X": x, "Y": found}, {"N": 11})
    np.testing.assert_array_equal(found[:, :n], expected[:, :n])
