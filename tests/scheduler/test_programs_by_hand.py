"""Schedule programs on operators that the library does not have, in other spellings: each result is plain Python's."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, assignment"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from back_ends import difference, execute

import polyc
from polyc import dims, empty, exp, f32, grid, inout, max, op, zeros
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.scheduler.programs import interleave_sweeps, share_blocks, tile_product, time_tiles
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import first_loops

M, N, K, B, T = dims("M N K B T")


@op
def reduction_first(X: f32[M, K], W: f32[K, N]) -> f32[M, N]:
    R = zeros((M, N), f32)
    for k, j, i in grid(K, N, M):
        R[i, j] += X[i, k] * W[k, j]
    return R


@op
def rows_downwards(X: f32[M, K], W: f32[N, K]) -> f32[M, N]:
    R = empty((M, N), f32)
    for i in range(M - 1, -1, -1):
        for j in range(N):
            R[i, j] = 0.0
            for k in range(K - 1, -1, -1):
                R[i, j] += W[j, k] * X[i, k]
    return R


@op
def all_in_one_nest(X: f32[K, M], W: f32[K, N], bias: f32[N]) -> f32[M, N]:
    S = empty((M, N), f32)
    R = empty((M, N), f32)
    for i, j in grid(M, N):
        S[i, j] = bias[j]
        for k in range(K):
            S[i, j] += X[k, i] * W[k, j]
        R[i, j] = max(S[i, j], f32(0))
    return R


@op
def beside_another(X: f32[M, K], W: f32[K, N], V: inout(f32[M])) -> f32[M, N]:
    R = empty((M, N), f32)
    for i in range(M):
        V[i] = 2.0 * V[i]
        for j in range(N):
            R[i, j] = 0.0
            for k in range(K):
                R[i, j] += X[i, k] * W[k, j]
    return R


@op
def batches_innermost(X: f32[M, K, B], W: f32[K, N, B]) -> f32[B, N, M]:
    R = zeros((B, N, M), f32)
    for i, j, k, b in grid(M, N, K, B):
        R[b, j, i] += X[i, k, b] * W[k, j, b]
    return R


@op
def windows(X: f32[N + 4, M], F: f32[5, K]) -> f32[N, K, M]:
    R = zeros((N, K, M), f32)
    for t, x, c, m in grid(5, N, K, M):
        R[x, c, m] += F[t, c] * X[x + t, m]
    return R


@op
def with_a_vector(X: f32[M, K], v: f32[K]) -> f32[M]:
    y = zeros((M,), f32)
    for k, i in grid(K, M):
        y[i] += X[i, k] * v[k]
    return y


@op
def two_products(X: f32[M, K], W: f32[K, N], V: f32[N, K]) -> f32[M, K]:
    H = zeros((M, N), f32)
    R = zeros((M, K), f32)
    for i, j, k in grid(M, N, K):
        H[i, j] += X[i, k] * W[k, j]
    for i, j in grid(M, N):
        H[i, j] = max(H[i, j], f32(0))
    for j, i, k in grid(N, M, K):
        R[i, k] += H[i, j] * V[j, k]
    return R


@op
def softened(X: f32[M, N]) -> f32[M, N]:
    E = empty((M, N), f32)
    R = empty((M, N), f32)
    for j, i in grid(N, M):
        E[i, j] = exp(X[i, j])
    for i, j in grid(M, N):
        R[i, j] = E[i, j] + E[i, N - 1 - j]
    return R


@op
def heat(A: inout(f32[N, M]), C: inout(f32[N, M])):
    for t in range(6):
        for i in range(1, N - 1):
            for j in range(M):
                C[i, j] = A[i - 1, j] + A[i, j] + A[i + 1, j]
        for k in range(1, N - 1):
            for j in range(M):
                A[k, j] = 0.25 * C[k, j]


@op
def in_place(A: inout(f32[N, M])):
    for t in range(7):
        for i in range(1, N - 1):
            for j in range(1, M - 1):
                A[i, j] = 0.2 * (A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j])


@op
def swapped_ends(A: inout(f32[N]), C: inout(f32[N])):
    for t in range(6):
        for i in range(N):
            C[i] = A[i] + 1.0
        for k in range(N):
            A[k] = 0.5 * C[N - 1 - k]


SIZES = {"M": 13, "N": 21, "K": 9, "B": 3}


def arguments(operator: Any) -> list[np.ndarray]:
    """Small integers, with which sums of any order are the same."""
    rng = np.random.default_rng(11)
    shapes = [[int(eval(str(d), {}, SIZES)) for d in p.shape] for p in operator.signature.params]
    return [rng.integers(-3, 4, shape).astype("f4") for shape in shapes]


def right(operator: Any, s: Schedule) -> None:
    """The schedule gives plain Python's results, interpreted and compiled."""
    plain = arguments(operator)
    made = operator.python(*plain)
    changed = [a for a, p in zip(plain, operator.signature.params, strict=True) if "inout" in repr(p).lower()]
    wanted = [*changed, *([] if made is None else [made])]
    for backend in ("interp", "llvm"):
        close = execute(s.scop, s.tree, arguments(operator), backend)
        assert not difference(close, wanted, signs=False) or np.allclose(close[-1], wanted[-1], 1e-5), backend


def start(operator: Any) -> Schedule:
    return Schedule.start(operator.scop())


CALLS: dict[str, Callable[[Schedule], Schedule]] = {
    "nothing said": tile_product,
    "small": lambda s: tile_product(s, rows=3, columns=8, lanes=4),
    "in blocks, cut": lambda s: tile_product(s, rows=2, columns=8, block=6, depth=4),
}
PRODUCTS = [reduction_first, rows_downwards, all_in_one_nest, beside_another, batches_innermost, windows]


@pytest.mark.parametrize("operator", PRODUCTS, ids=lambda o: o.name)
@pytest.mark.parametrize("call", CALLS)
def test_products_in_any_spelling(operator: Any, call: str) -> None:
    s = CALLS[call](start(operator))
    right(operator, s)
    assert "to register" in str(s.tree) and "vector" in str(s) and all(t.name != "set_order" for t in s.trace)


def test_what_belongs_to_a_product_joins_its_tile() -> None:
    s = tile_product(start(all_in_one_nest), rows=4, columns=8)
    assert s.loops[:2] == ("j.out", "i.out") and len(top(s)) == 1 and "contract S" in str(s.tree)
    s = tile_product(start(beside_another), rows=4, columns=8)
    assert s.loops[0] == "i" and s.loops[1].endswith(".out")  # the other statement keeps a loop of its own


def test_a_vector_has_a_tile_of_one_row() -> None:
    s = tile_product(start(with_a_vector), columns=8)
    right(with_a_vector, s)
    assert s.loops == ("y_init_0.out", "y_init_0.in", "k", "i.in")


@pytest.mark.parametrize("said", [
    {"row": "j", "column": "i"}, {"order": ["i", "j"]}, {"parallel": "j"}, {"parallel": "i", "block": 6},
    {"pack": "W"}, {"pack": ["W", "X"]}, {"pack": ["X"], "row": "j", "column": "i"}, {"columns": 1, "rows": 1},
    {"columns": 64, "rows": 20}, {"depth": 100},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("operator", [reduction_first, rows_downwards], ids=lambda o: o.name)
def test_what_is_said_is_done(operator: Any, said: dict[str, Any]) -> None:
    s = tile_product(start(operator), **said)
    right(operator, s)
    if "order" in said:
        assert "i // 4" in str(s).splitlines()[0]
    assert str(s.tree).count("to heap") == len([x for x in said.get("pack", ()) if x in "XW"])


@pytest.mark.parametrize("said, why", [
    ({"update": "S7"}, "no statement 'S7', only S0, S1"),
    ({"update": "S0"}, "S0 is no product: it is not recognised as a reduction"),
    ({"row": "k"}, "'k' does not move the result, only i, j"),
    ({"row": "i", "column": "i"}, "'i' is either the row or the column"),
    ({"order": ["i"]}, "order names each of i, j once, not i"),
    ({"parallel": "k"}, "'k' cannot be parallel, only"),
    ({"pack": "Q"}, "'Q' is no operand, only X, W"),
    ({"rows": 0}, "rows is a positive integer, not 0"),
    ({"lanes": 0}, "lanes is a positive integer, not 0"),
    ({"columns": 2.5}, "columns is a positive integer, not 2.5"),
    ({"thread": (8, 8), "lanes": 4}, "lanes is for CPUs, thread for GPUs"),
    ({"thread": (8,)}, "thread is rows and columns"),
    ({"thread": (3, 4), "rows": 32, "columns": 32}, "do not fill a block"),
    ({"thread": (4, 2), "rows": 32, "columns": 32}, "a multiple of 4 columns"),
], ids=str)  # fmt: skip
def test_a_product_is_refused_in_one_line(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ScheduleError) as error:
        tile_product(start(reduction_first), **said)
    assert why in str(error.value) and "\n" not in str(error.value)


def test_loops_that_are_cut_are_named() -> None:
    with pytest.raises(ScheduleError, match="no loop around S1 goes over 'i' one by one: it is cut or skewed already"):
        tile_product(start(reduction_first).split("i", 4))


def test_several_products_are_told_apart() -> None:
    with pytest.raises(ScheduleError, match=r"several statements are products \(S2, S4\): say which is meant"):
        tile_product(start(two_products))


def test_programs_are_composed() -> None:
    """Tiles of two products in blocks of rows that both share; what is between them is a buffer of a block."""
    s = start(two_products)
    s = tile_product(s, "S2", rows=3, columns=8, block=6, order=["i", "j"])
    s = tile_product(s, "S4", rows=3, columns=8, block=6, order=["i_2", "k_1"])
    first, second = top(s)  # what goes over H point by point has joined the first one's tiles
    s = share_blocks(s, first, second, keep="H", run="parallel")
    right(two_products, s)
    assert len(top(s)) == 1 and "contract H[6H_init_0.out : 6, 0 : N]" in str(s.tree)


def top(s: Schedule) -> list[str]:
    return first_loops(s.tree)


@pytest.mark.parametrize("size", [None, 1, 4, 100])
@pytest.mark.parametrize("run", ["serial", "parallel"])
def test_blocks_are_shared(size: int | None, run: Any) -> None:
    s = start(softened).interchange("j", "i")
    s = share_blocks(s, "i", "i_1", size=size, keep="E", run=run)
    right(softened, s)
    assert len(top(s)) == 1 and "contract E" in str(s.tree) and "copy" not in str(s.tree)


def test_blocks_are_refused_in_one_line() -> None:
    s = start(softened).interchange("j", "i")
    with pytest.raises(IllegalSchedule) as illegal:
        share_blocks(s, ["i", "j"], ["i_1", "j_1"])  # the second nest reads the other end of the row
    assert illegal.value.witness is not None and "\n" not in str(illegal.value)
    assert str(illegal.value).startswith("share_blocks of j, j_1 is illegal")
    for nests, said, why in [
        (("i",), {}, "two or more nests"), (("i", ["i_1", "j_1"]), {}, "equally many loops"),
        (("i", "i_1"), {"keep": "Q"}, "no array 'Q'"),
        (("i", "i_1"), {"run": ["serial", "serial"]}, "2 kinds of loops"),
        (("i", "i_9"), {}, "no loop 'i_9'"), (("i", "i_1"), {"size": 0}, "must be"),
    ]:  # fmt: skip
        with pytest.raises(ScheduleError, match=why) as error:
            share_blocks(s, *nests, **said)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("said", [{}, {"sweeps": 2, "rows": 3}, {"sweeps": 6, "rows": 100, "skew": 3}], ids=str)
def test_sweeps_in_blocks(said: dict[str, int]) -> None:
    s = time_tiles(start(heat), "t", **said)
    right(heat, s)
    assert s.loops[:4] == ("t.out", "i.out", "t.in", "i.in")


@pytest.mark.parametrize("sizes", [(2, 3), (4, 8)])
def test_blocks_of_sweeps_on_all_threads(sizes: tuple[int, int]) -> None:
    s = time_tiles(start(heat), "t", *sizes, parallel=True)
    right(heat, s)
    assert s.loops[:4] == ("i.out", "t.out", "t.in", "i.in")


@pytest.mark.parametrize("said", [{}, {"sweeps": 3}, {"sweeps": 4, "rows": 3, "parallel": True}], ids=str)
def test_sweeps_side_by_side(said: dict[str, Any]) -> None:
    s = interleave_sweeps(start(in_place), "t", **said)
    right(in_place, s)
    assert s.loops[-1] == "t.in"
    with pytest.raises(IllegalSchedule):
        interleave_sweeps(start(in_place), "t", skew=0)
    with pytest.raises(ScheduleError, match="not nested perfectly"):
        interleave_sweeps(start(heat), "t")


def test_sweeps_are_refused_in_one_line() -> None:
    for operator, said, why in [
        (swapped_ends, {}, "no constant shift makes it legal"), (heat, {"skew": 0}, "is illegal"),
        (heat, {"sweeps": 0}, "must be"), (reduction_first, {"outer": "j_2"}, "no loop 'j_2'"),
    ]:  # fmt: skip
        with pytest.raises(ScheduleError, match=why) as error:
            time_tiles(start(operator), **{"outer": "t", **said})
        assert "\n" not in str(error.value)


def test_the_library_is_public() -> None:
    assert polyc.programs.tile_product is tile_product
    assert all(getattr(polyc.programs, name).__doc__ for name in polyc.programs.__all__)
    for name in polyc.programs.__all__:
        doc = getattr(polyc.programs, name).__doc__
        assert "Arguments:" in doc and "Before -> after:" in doc and "Refused when:" in doc, name
