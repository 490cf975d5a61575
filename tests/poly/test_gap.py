"""Which distances two arrays may overlap at: every one, on every small shape, against a run in shared memory."""

# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

import brute
import numpy as np
import pytest
from execute import value

from polyc import dims, empty, f32, grid, op
from polyc.poly.errors import ScopError
from polyc.poly.inplace import clash, gap
from polyc.poly.scop import Scop

N = dims("N")


def transpose(n: int, m: int) -> Scop:
    @op
    def program(X: f32[n, m]) -> f32[m, n]:
        Y = empty((m, n), f32)
        for i, j in grid(m, n):
            Y[i, j] = X[j, i]
        return Y

    return program.scop()


def stencil(n: int, m: int) -> Scop:
    @op
    def program(X: f32[n + 2, m]) -> f32[n, m]:
        Y = empty((n, m), f32)
        for i, j in grid(n, m):
            Y[i, j] = X[i, j] + X[i + 1, j] + X[i + 2, j]
        return Y

    return program.scop()


def concat(n: int, m: int) -> Scop:
    @op
    def program(X: f32[n, m], B: f32[n]) -> f32[n, m + 1]:
        Y = empty((n, m + 1), f32)
        for i in range(n):
            for j in range(m):
                Y[i, j] = X[i, j]
            Y[i, m] = B[i]
        return Y

    return program.scop()


def part(n: int, m: int) -> Scop:
    @op
    def program(X: f32[n + 1, m + 2]) -> f32[n, m]:
        Y = empty((n, m), f32)
        for i, j in grid(n, m):
            Y[i, j] = X[i + 1, j + 1]
        return Y

    return program.scop()


def pooling(n: int, m: int) -> Scop:
    @op
    def program(X: f32[2 * n, 2 * m]) -> f32[n, m]:
        Y = empty((n, m), f32)
        for i, j in grid(n, m):
            Y[i, j] = 0.0
            for a, b in grid(2, 2):
                Y[i, j] += X[2 * i + a, 2 * j + b]
        return Y

    return program.scop()


def padded(n: int, m: int) -> Scop:
    @op
    def program(X: f32[n, m]) -> f32[n + 2, m]:
        Y = empty((n + 2, m), f32)
        for i, j in grid(n + 2, m):
            Y[i, j] = 0.0
        for i, j in grid(n, m):
            Y[i + 1, j] = X[i, j]
        return Y

    return program.scop()


def mirrored(n: int, m: int) -> Scop:
    @op
    def program(X: f32[n, m]) -> f32[n]:
        Y = empty((n,), f32)
        for i in range(n - 1, -1, -1):
            Y[i] = 0.0
            for j in range(m):
                Y[i] += X[i, j]
        return Y

    return program.scop()


def right_at(scop: Scop, distance: int) -> bool:
    """Whether a run in one memory, with Y `distance` elements behind X, gives what a run in two gives."""
    shapes = {n: tuple(brute.value(e, {}) for e in a.shape) for n, a in scop.arrays.items()}
    sizes = {n: int(np.prod(shape)) for n, shape in shapes.items()}
    rng = np.random.default_rng(1)
    others = {n: rng.standard_normal(shape).astype("f") for n, shape in shapes.items()}
    first = min(0, distance)
    one = np.full(max(sizes["X"], distance + sizes["Y"]) - first, np.nan, "f")
    x = one[-first : -first + sizes["X"]].reshape(shapes["X"])
    y = one[distance - first : distance - first + sizes["Y"]].reshape(shapes["Y"])
    x[...] = others["X"]
    runs = brute.times(scop.tree, brute.instances(scop))
    order = sorted((t, i) for i, ts in runs.items() for t in ts)
    for shared in (True, False):
        memory = others | ({"X": x, "Y": y} if shared else {"Y": np.full(shapes["Y"], np.nan, "f")})
        for _, (name, at) in order:
            s = scop.statements[name]
            env = dict(zip(s.iters, at, strict=True))
            memory[s.array][tuple(int(value(e, env, memory)) for e in s.index)] = value(s.value, env, memory)
        if not shared:
            return bool(np.array_equal(memory["Y"], y))
    raise AssertionError


@pytest.mark.parametrize("make", [transpose, stencil, concat, part, pooling, padded, mirrored])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (3, 2)])
def test_every_distance(make: object, shape: tuple[int, int]) -> None:
    scop = make(*shape)
    sizes = {n: int(np.prod([brute.value(e, {}) for e in scop.arrays[n].shape])) for n in ("X", "Y")}
    wrong = []
    for distance in range(-sizes["Y"] - 1, sizes["X"] + 2):
        problem = clash(scop, "X", "Y", distance=distance)
        assert (problem is None) == right_at(scop, distance), f"{distance}: {problem}"
        if problem is not None:
            wrong.append(distance)
            assert problem.writer is not None and problem.reader is not None
    assert gap(scop, "X", "Y") == ((min(wrong) - 1, max(wrong) + 1) if wrong else None)


def test_a_stencil_may_begin_two_rows_before_its_operand() -> None:
    low, high = gap(stencil(5, 4), "X", "Y") or (0, 0)
    assert low == 0 and high == 28  # a row of the operand is dead when the row of the result at its place is written
    assert clash(stencil(5, 4), "X", "Y", distance=0) is None


def test_what_has_no_distance_is_refused() -> None:
    @op
    def copy(X: f32[N]) -> f32[N]:
        Y = empty(N, f32)
        for i in range(N):
            Y[i] = X[i]
        return Y

    with pytest.raises(ScopError, match="sizes are numbers"):
        gap(copy.scop(), "X", "Y")
    assert "sizes differ" in str(clash(copy.scop(), "X", "Y", distance=1))
