"""Loops that count the points of a box, and arrays that are flat: the program is scheduled as the one with all its
loops and dimensions."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import ArgumentError, BoundsError, dims, empty, f32, grid, inout, op, zeros
from polyc.emit import targets
from polyc.frontend_dsl.source import register
from polyc.poly.json_io import dumps, loads
from polyc.poly.rewriting.loop_form import normal_loops
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.text import print_expr
from polyc.poly.texts.parser import parse_scop
from polyc.poly.texts.printer import exact_scop
from polyc.poly.tree import loop_names
from polyc.scheduler.strategies.auto import automatic

M, N, K = 20, 24, 28
n = dims("n")


@op
def product(A: f32[M * K], B: f32[K * N]) -> f32[M * N]:
    C = zeros((M * N,), f32)
    for i, j in grid(M, N):
        for k in range(K):
            C[i * N + j] += A[i * K + k] * B[k * N + j]
    return C


@op
def product_by_points(A: f32[M * K], B: f32[K * N]) -> f32[M * N]:
    C = empty((M * N,), f32)
    for p in range(M * N):
        s = 0.0
        for k in range(K):
            s += A[p // N * K + k] * B[k * N + p % N]
        C[p] = s
    return C


@op
def convolution(X: f32[6 * 10 * 12], W: f32[4 * 6 * 3 * 3]) -> f32[4 * 8 * 10]:
    Y = zeros((4 * 8 * 10,), f32)
    for o, y, x in grid(4, 8, 10):
        for c, r, s in grid(6, 3, 3):
            Y[o * 80 + y * 10 + x] += X[c * 120 + (y + r) * 12 + x + s] * W[o * 54 + c * 9 + r * 3 + s]
    return Y


@op
def five_points(A: f32[M, N]) -> f32[M, N]:
    B = zeros((M, N), f32)
    for p in range((M - 2) * (N - 2)):
        i = p // (N - 2) + 1
        j = p % (N - 2) + 1
        B[i, j] = 0.2 * (A[i, j] + A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])
    return B


@op
def inside(A: f32[M * N]) -> f32[M * N]:
    B = zeros((M * N,), f32)
    for p in range(M * N):
        i = p // N
        j = p - i * N
        if i > 0 and i < M - 1 and j > 0:
            B[p] = A[p - N] + A[p + N] + A[p - 1]
    return B


@op
def turned(A: f32[6, 7, 8]) -> f32[8, 6, 7]:
    B = empty((8, 6, 7), f32)
    for p in range(6 * 7 * 8):
        i = p // 56
        r = p % 56
        t = A[i, r // 8, r % 8] * 2.0
        if r % 8 > 2:
            B[r % 8, i, r // 8] = t
        else:
            B[r % 8, i, r // 8] = t + 1.0
    return B


@op
def rows_of_a_symbol(A: f32[64 * n], S: f32[n]) -> f32[n]:
    Y = zeros((n,), f32)
    for p in range(64 * n):
        Y[p // 64] += A[p] * S[p // 64]
    return Y


@op
def steps(X: inout(f32[M, 2])):
    for p in range(M * 50):
        i = p // 50
        x = X[i, 0]
        X[i, 0] = 0.9 * x - 0.1 * X[i, 1]
        X[i, 1] = 0.9 * X[i, 1] + 0.1 * x


@op
def pairs_but_equal(A: f32[M, 2]) -> f32[M, 2]:
    F = zeros((M, 2), f32)
    for p in range(M * M):
        i = p // M
        j = p % M
        if i != j:
            d = A[i, 0] - A[j, 0]
            if d < 0.5:
                F[i, 0] += d * A[i, 1]
                F[i, 1] += d
    return F


@op
def counted_down(X: inout(f32[M, N]), S: inout(f32[M])):
    for p in range(M * N - 1, -1, -1):
        i = p // N
        j = p % N
        if j < N - 1:
            X[i, j] += 0.5 * X[i, j + 1]
        if j == 0 and i < M - 1:
            S[i] = 0.5 * S[i + 1] + X[i, 0]


@op
def digits_of_a_difference(A: f32[M, N]) -> f32[M, N]:
    B = empty((M, N), f32)
    for p in range(M * N):
        B[(M * N - 1 - p) // N, (M * N - 1 - p) % N] = A[p // N, p % N]
    return B


@op
def scratch(A: f32[M, N]) -> f32[N, M]:
    T = empty((M * N,), f32)
    Y = empty((N, M), f32)
    for i, j in grid(M, N):
        T[N * i + j] = A[i, j] * 2.0
    for i, j in grid(N, M):
        Y[i, j] = T[N * j + i] + 1.0
    return Y


def random_values(*shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng()
    return tuple(generator.random(s, np.float32) for s in shapes)


CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...], int]] = {
    "product": (product, ((M * K,), (K * N,)), 5),
    "product by points": (product_by_points, ((M * K,), (K * N,)), 3),
    "convolution": (convolution, ((720,), (216,)), 9),
    "five points": (five_points, ((M, N),), 4),
    "inside": (inside, ((M * N,),), 4),
    "turned": (turned, ((6, 7, 8),), 3),
    "rows of a symbol": (rows_of_a_symbol, ((320,), (5,)), 3),
    "steps": (steps, ((M, 2),), 2),
    "pairs but equal": (pairs_but_equal, ((M, 2),), 4),
    "counted down": (counted_down, ((M, N), (M,)), 2),
    "digits of a difference": (digits_of_a_difference, ((M, N),), 2),
    "scratch": (scratch, ((M, N),), 4),
}
"""Operator, shapes of its arguments, loops of its normal form."""


def same_everywhere(operator: Any, values: tuple[np.ndarray, ...]) -> None:
    """Plain Python's results with every back end."""
    given = [v.copy() for v in values]
    made = operator.python(*given)
    wanted = given if made is None else [np.asarray(made)]
    scop = operator.scop()
    schedule = automatic(scop, targets.host())
    found = {"program": interpret(scop, scop.tree, values)}
    normal = normal_loops(scop)
    found["normal form"] = interpret(normal, normal.tree, values)
    found["schedule"] = interpret(schedule.scop, schedule.tree, values, shuffle=1)
    found |= {b: native(schedule.scop, schedule.tree, values, b) for b in NATIVE}
    for where, results in found.items():
        for result, expected in zip(results, wanted, strict=True):
            assert result.shape == expected.shape, where
            np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-6, err_msg=where)


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    operator, shapes, _ = CASES[name]
    same_everywhere(operator, random_values(*shapes))


@pytest.mark.parametrize("name", CASES)
def test_every_digit_is_a_loop_and_a_dimension(name: str) -> None:
    operator, _, loops_then = CASES[name]
    normal = normal_loops(operator.scop())
    assert len(loop_names(normal.tree)) == loops_then
    for s in normal.statements.values():
        assert not any(sign in print_expr(e) for e in (s.target, s.value) for sign in ("//", "%", " * i", " * p"))


@pytest.mark.parametrize("name", CASES)
def test_texts_keep_shapes_and_what_is_a_copy(name: str) -> None:
    normal = normal_loops(CASES[name][0].scop())
    for again in (parse_scop(exact_scop(normal)), loads(dumps(normal)), pickle.loads(pickle.dumps(normal))):
        assert {n: (a.shape, a.given, a.expanded) for n, a in again.arrays.items()} == {
            n: (a.shape, a.given, a.expanded) for n, a in normal.arrays.items()
        }


def test_sizes_become_numbers_in_both_shapes() -> None:
    fixed = specialise(normal_loops(rows_of_a_symbol.scop()), {"n": 5})
    assert [int(e.value) for e in fixed.arrays["A"].outside] == [320]
    a, s = random_values((320,), (5,))
    (found,) = interpret(fixed, fixed.tree, [a, s])
    np.testing.assert_allclose(found, rows_of_a_symbol.python(a, s), rtol=1e-4)


def test_a_flat_product_is_one() -> None:
    for operator in (product, product_by_points):
        decisions = automatic(operator.scop(), targets.get("x86-64-v3")).decisions
        assert any(d.stage == "contraction" and d.what.startswith("contraction") for d in decisions), operator.name


def test_callers_keep_their_shapes() -> None:
    kernel = product.compile()
    a, b = random_values((M * K,), (K * N,))
    out = np.empty(M * N, np.float32)
    kernel(a, b, out=out)
    np.testing.assert_allclose(out.reshape(M, N), a.reshape(M, K) @ b.reshape(K, N), rtol=1e-4)
    with pytest.raises(ArgumentError, match="expected 1"):
        kernel(a.reshape(M, K), b)
    with pytest.raises(ArgumentError):
        kernel(a[:-1], b)


@op
def doubled(A: f32[M]) -> f32[2 * M]:
    B = empty((2 * M,), f32)
    for p in range(2 * M):
        B[p] = A[p // 2]
    return B


@op
def over_the_edge(A: f32[M * N]) -> f32[M * N]:
    B = zeros((M * N,), f32)
    for i in range(M - 1):
        for j in range(N):
            B[i * N + j] = A[i * N + j + 1]
    return B


@op
def not_whole_rows(A: f32[M, N]) -> f32[M, N]:
    B = zeros((M, N), f32)
    for p in range(M * N - 5):
        B[p // N, p % N] = A[p // N, p % N]
    return B


@op
def perhaps_outside(A: f32[M * N], B: f32[M * N - 8], C: f32[M * N]) -> f32[M * N]:
    Y = zeros((M * N,), f32)
    for i in range(M):
        for j in range(8):
            if C[i] > 0.0:
                Y[i * 8 + j] = A[i * 8 + j] + B[i * 8 + j + 320]
    return Y


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [(doubled, ((M,),)), (over_the_edge, ((M * N,),)), (not_whole_rows, ((M, N),))],
    ids=lambda v: getattr(v, "name", ""),
)
def test_what_has_no_such_form(operator: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    same_everywhere(operator, random_values(*shapes))
    normal, plain = normal_loops(operator.scop()), operator.scop()
    assert normal.arrays["A"].shape == plain.arrays["A"].shape


def test_errors_name_the_subscript_of_the_program() -> None:
    a, b, c = random_values((M * N,), (M * N - 8,), (M * N,))
    for run in (perhaps_outside.python, perhaps_outside):
        with pytest.raises(BoundsError) as caught:
            run(a, b, c)
        assert (caught.value.array, caught.value.axis, caught.value.size) == ("B", 0, M * N - 8)
        assert caught.value.index >= M * N - 8


def drawn(seed: int) -> tuple[Any, str]:
    """A program that copies, shifts and turns a box, its loops or arrays flat at random."""
    r = random.Random(seed)
    extents = [r.randint(2, 7) for _ in range(r.randint(2, 3))]
    order = r.sample(range(len(extents)), len(extents))
    names = ["i", "j", "k"][: len(extents)]
    lines, pad = [], "    "
    if r.random() < 0.6:
        total = int(np.prod(extents))
        lines.append(f"{pad}for p in range({r.choice([total, f'{total - 1}, -1, -1'])}):")
        pad += "    "
        below = total
        for name, extent in zip(names, extents, strict=True):
            below //= extent
            text = f"p // {below} % {extent}" if r.random() < 0.5 else f"(p % {below * extent}) // {below}"
            lines.append(f"{pad}{name} = {text}")
    else:
        for name, extent in zip(names, extents, strict=True):
            lines.append(f"{pad}for {name} in range({extent}):")
            pad += "    "

    def subscript(axes: list[int], shift: list[int], flat: bool) -> str:
        parts = [f"({names[a]} + {s})" if s else names[a] for a, s in zip(axes, shift, strict=True)]
        if not flat:
            return ", ".join(parts)
        text = parts[0]
        for a, s, part in zip(axes[1:], shift[1:], parts[1:], strict=True):
            text = f"({text}) * {extents[a] + s} + {part}"
        return text

    shift = [r.randint(0, 1) for _ in order]
    flats = [r.random() < 0.6 for _ in range(2)]
    axes = list(range(len(extents)))
    if r.random() < 0.3:
        lines.append(f"{pad}if {names[-1]} > 0:")
        pad += "    "
    lines.append(f"{pad}Y[{subscript(order, [0] * len(order), flats[1])}] += 2 * X[{subscript(axes, shift, flats[0])}]")
    sizes = [e + s for e, s in zip(extents, shift, strict=True)]

    def shape(values: list[int], flat: bool) -> str:
        return str(int(np.prod(values))) if flat else ", ".join(map(str, values))

    out = shape([extents[a] for a in order], flats[1])
    text = f"@op\ndef program(X: f32[{shape(sizes, flats[0])}]) -> f32[{out}]:\n    Y = zeros(({out},), f32)\n"
    text += "\n".join(lines) + "\n    return Y\n"
    space = dict(globals())
    exec(compile(text, register(text, "program"), "exec"), space)
    return space["program"], text


@pytest.mark.parametrize("_", range(8))
def test_random_programs(_: int) -> None:
    seed = random.randrange(10**9)
    operator, text = drawn(seed)
    shape = tuple(int(e.value) for e in operator.scop().arrays["X"].shape)
    try:
        same_everywhere(operator, random_values(shape))
    except AssertionError as error:
        raise AssertionError(f"{seed}\n{text}") from error
