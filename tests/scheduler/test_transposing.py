"""What is read along one loop and written along another passes through blocks in registers, by shuffles."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from back_ends import difference, interpret

from polyc import dims, empty, f32, max, op, zeros
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.frontend_dsl.library.movement import make_transpose
from polyc.poly.dtypes import DType, f16, f64, i8
from polyc.poly.json_io import dump_tree
from polyc.poly.tree import Promote, walk
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

V3 = targets.get("x86-64-v3")
HERE = targets.get(None)
M, N = dims("M N")


def promoted(schedule: Schedule) -> set[str]:
    """Arrays with buffers in registers that are copied in."""
    return {n.array for n in walk(schedule.tree) if isinstance(n, Promote) and n.space == "register" and n.copy_in}


def shuffles(schedule: Schedule) -> int:
    """Instructions that interleave; there must be no gathers."""
    text = compile_kernel(schedule.scop, schedule.tree, V3).source("asm")
    assert "gather" not in text
    return len(re.findall(r"unpck|punpck", text))


def random(dtype: DType, shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).integers(-99, 99, shape).astype(dtype.np)


def check(schedule: Schedule, backend: str, wanted: Any, *args: Any) -> None:
    kernel = compile_kernel(schedule.scop, schedule.tree, HERE, backend=backend)
    out = np.full(wanted.shape, 77, wanted.dtype)
    np.testing.assert_array_equal(kernel(*args, out=out), wanted)


@pytest.mark.parametrize("shape, perm", [((37, 21), (1, 0)), ((2, 19, 5, 9), (0, 2, 3, 1)), ((70, 131), (1, 0))])
@pytest.mark.parametrize("dtype", [f32, f64, f16, i8])
def test_transposes_are_exact(dtype: DType, shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    schedule = automatic(make_transpose(dtype, shape, perm).scop(), HERE)
    x = random(dtype, shape, sum(shape))
    for backend in ("llvm", "interp") if x.size < 2000 else ("llvm",):
        check(schedule, backend, np.ascontiguousarray(x.transpose(perm)), x)


@pytest.mark.parametrize(
    "shape, perm", [((64, 64), (1, 0)), ((1, 64, 4, 16), (0, 2, 3, 1)), ((1, 6, 32, 8), (0, 3, 1, 2))]
)
def test_their_code_is_shuffles(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    schedule = automatic(make_transpose(f32, shape, perm).scop(), V3)
    assert promoted(schedule) == {"X"}
    assert shuffles(schedule) >= 16


@op
def scaled(X: f32[N, M], Z: f32[M, N], b: f32[M]) -> f32[M, N]:
    T = empty((M, N), f32)
    for i in range(M):
        for j in range(N):
            T[i, j] = max(X[j, i], 0.0)
    Y = empty((M, N), f32)
    for i in range(M):
        for j in range(N):
            Y[i, j] = T[i, j] + Z[i, j] * b[i]
    return Y


@op
def padded(X: f32[N, M]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        for j in range(N):
            Y[i, j] = X[j - 1, i] if j > 0 else 0.0
    return Y


@op
def both(X: f32[N, N]) -> f32[N, N]:
    Y = empty((N, N), f32)
    for i in range(N):
        for j in range(N):
            Y[i, j] = X[i, j] + X[j, i]
    return Y


@op
def lower(X: f32[N, N]) -> f32[N, N]:
    Y = zeros((N, N), f32)
    for i in range(N):
        for j in range(i):
            Y[i, j] = X[j, i]
    return Y


def test_other_statements_around_it() -> None:
    schedule, with_padding = scaled.schedule(), padded.schedule()
    assert promoted(schedule) == {"X"}
    for n, m in ((1, 1), (8, 16), (13, 71), (66, 5)):
        x, z, b = random(f32, (n, m), n), random(f32, (m, n), m), random(f32, (m,), 3)
        check(schedule, "llvm", scaled.python(x, z, b), x, z, b)
        check(with_padding, "llvm", padded.python(x), x)


@pytest.mark.parametrize("program", [both, lower])
def test_one_array_read_in_two_ways_and_triangles_stay(program: Any) -> None:
    schedule = program.schedule()
    assert not promoted(schedule)
    x = random(f32, (21, 21), 5)
    check(schedule, "llvm", program.python(x), x)


@pytest.mark.parametrize("program", [scaled, padded])
def test_the_schedule_is_a_program_whose_every_prefix_is_legal_and_right(program: Any) -> None:
    automatically = automatic(program.scop(N=19, M=37), V3)
    names = [step.name for step in automatically.trace]
    assert promoted(automatically) and "serial" in names and "set_order" not in names
    shapes = [(19, 37), (37, 19), (37,)][: len(program.signature.params)]
    args = [random(f32, shape, k) for k, shape in enumerate(shapes)]
    wanted = program.python(*args)
    s = Schedule.start(automatically.original)
    for step in automatically.trace:
        s = getattr(s, step.name)(**step.args)
        assert not difference(interpret(s.scop, s.tree, args), [wanted], signs=False), step
    assert dump_tree(s.tree) == dump_tree(automatically.tree)
