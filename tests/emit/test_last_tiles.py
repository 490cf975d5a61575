"""Last tiles moved back to where they are full: the same results for all sizes, where doing it again is harmless."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from back_ends import ALL, execute
from hand_ir import I
from parts import in_part

from polyc import dims, empty, f64, grid, inout, op
from polyc.emit import targets
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Let, Store, walk
from polyc.emit.lowering.lower import lower
from polyc.emit.passes.last_tiles import moved_back
from polyc.poly.dtypes import bool_, f32, i64
from polyc.poly.expr import Binary, Expr, Load, Var, const_int
from polyc.scheduler.strategies.auto import automatic

N, K, W = dims("N K W")
V3 = targets.get("x86-64-v3")


@op
def columns(A: f64[24, K], B: f64[K, N]) -> f64[24, N]:
    C = empty((24, N), f64)
    for i, j in grid(24, N):
        C[i, j] = 0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op
def strided(X: f64[3, 2 * W + 3], F: f64[8, 3, 3]) -> f64[8, W]:
    Y = empty((8, W), f64)
    for o, w in grid(8, W):
        Y[o, w] = 1.0
        for c, k in grid(3, 3):
            Y[o, w] += F[o, c, k] * X[c, 2 * w + k]
    return Y


@op
def added(Y: inout(f64[24, N]), A: f64[24, 7], B: f64[7, N]):
    for i, j in grid(24, N):
        for k in range(7):
            Y[i, j] += A[i, k] * B[k, j]


def arguments(operator: Any, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng()
    shapes = {
        "columns": [(24, 9), (9, n)], "strided": [(3, 2 * n + 3), (8, 3, 3)], "added": [(24, n), (24, 7), (7, n)],
    }[operator.name]  # fmt: skip
    return [rng.random(s) for s in shapes]


@pytest.mark.parametrize("backend", in_part(ALL, lambda b: b == "llvm"))
@pytest.mark.parametrize("operator", [columns, strided, added], ids=lambda o: o.name)
def test_results(operator: Any, backend: str) -> None:
    s = automatic(operator.scop(), V3)
    for n in (*range(1, 9), 15, 16, 17, 31, 50, 64):
        args = arguments(operator, n)
        expected = [a.copy() for a in args]
        returned = operator.python(*expected)
        got = execute(s.scop, s.tree, args, backend)
        wanted = expected[0] if returned is None else returned
        np.testing.assert_allclose(got[0] if returned is None else got[-1], wanted, rtol=1e-12)


def starts(operator: Any, **sizes: int) -> list[str]:
    s = automatic(operator.scop(**sizes), V3)
    return [x.name for x in walk(lower(s.scop, s.tree, "f", V3).body) if isinstance(x, Let) and "_start" in x.name]


def test_which_tiles_move() -> None:
    assert not starts(columns)  # threads share its tiles
    assert starts(strided)
    assert not starts(added)  # sums that are there already would have their terms twice
    assert not starts(strided, W=50)  # a rest of one size has code of its own


T, SIZE, ROOM = Var("t"), 8, Var("n")
FULL = Binary(">=", Binary("-", ROOM, Binary("*", const_int(SIZE), T, i64), i64), const_int(SIZE), bool_)
FIRST = Binary("*", const_int(SIZE), T, i64)


def tile(index: Expr | None = None, array: str = "X") -> For:
    """A loop over tiles of eight elements of Y, the last one partial, each read from an array."""
    place = plus(FIRST, I) if index is None else index
    store = Store("Y", (place,), Load(array, (place,), f32))
    rest = Binary("min", const_int(SIZE), Binary("-", ROOM, FIRST, i64), i64)
    inner = For("i", const_int(0), rest, 1, store, "vector", 8)
    return For("t", const_int(0), Binary("//", plus(ROOM, const_int(7)), const_int(SIZE), i64), 1, inner)


def plus(a: Expr, b: Expr) -> Expr:
    return Binary("+", a, b, i64)


def times(n: int, a: Expr) -> Expr:
    return Binary("*", const_int(n), a, i64)


@pytest.mark.parametrize(
    ("loop", "moves"),
    [
        (tile(), True),
        (tile(array="Y"), False),  # reads what it writes
        (tile(times(2, plus(FIRST, I))), True),
        (tile(Binary("//", plus(FIRST, I), const_int(2), i64)), True),
        (tile(plus(times(2, FIRST), I)), False),  # where an element goes depends on its tile
        (tile(plus(times(12, T), I)), False),
        (tile(plus(Binary("//", FIRST, const_int(2), i64), I)), False),
        (tile(FIRST), False),
        (tile(plus(T, I)), False),
        (tile(plus(FIRST, Binary("//", I, const_int(2), i64))), False),
    ],
)
def test_what_has_to_hold(loop: For, moves: bool) -> None:
    assert isinstance(loop.body, For)
    total = Store("R", (I,), Binary("+", Load("R", (I,), f32), Load("Z", (Var("k"),), f32), f32))
    summed = For("k", const_int(0), const_int(9), 1, total, "serial")
    tile_buffer = Buffer("R", f32, (const_int(SIZE),), "register")
    whole = Alloc(tile_buffer, Block((summed, replace(loop.body, hi=const_int(SIZE)))))
    assert (moved_back(loop, [FULL], whole, V3) is not None) is moves
    assert moved_back(replace(loop, kind="parallel"), [FULL], whole, V3) is None
    assert moved_back(loop, [FULL, FULL], whole, V3) is None
    assert moved_back(replace(loop, body=whole), [FULL], whole, V3) is None  # not these are cut
    in_memory = replace(whole, buffer=replace(tile_buffer, space="local"))
    assert moved_back(loop, [FULL], in_memory, V3) is None
