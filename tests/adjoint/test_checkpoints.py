"""Gradients of loops over time within a limit: the order of Revolve against all orders, sections and gradients against
the plain ones, at every number of snapshots."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from random_programs import Generator

import polyc
from examples import polybench
from polyc import dims, empty, f64, grid, i64, inout, op
from polyc.frontend_dsl.checkpointed import CheckpointedGradient, _Chain
from polyc.poly.adjoint.revolve import forward_steps, revolve
from polyc.poly.adjoint.sections import private, section, step_of, steps_of, time_loops
from polyc.poly.hooks import resolve
from polyc.poly.rewriting.specialise import specialise

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

N, T = dims("N T")
LONG = ("durbin", "trisolv", "cholesky", "gramschmidt", "lu", "correlation")


@cache
def fewest(steps: int, snapshots: int) -> int:
    """The least number of steps forwards, by trying each place for the next snapshot."""
    if steps == 1:
        return 0
    if snapshots == 1:
        return steps * (steps - 1) // 2
    return min(m + fewest(m, snapshots) + fewest(steps - m, snapshots - 1) for m in range(1, steps))


def test_no_order_runs_fewer_steps() -> None:
    """And every step is reversed once, from its own state, with no more snapshots than allowed."""
    for steps in range(1, 48):
        for snapshots in range(1, 9):
            kept: set[int] = set()
            at, left, ran = 0, steps, 0
            for a in revolve(steps, snapshots):
                if a.kind == "store":
                    assert a.step == at
                    kept.add(at)
                elif a.kind == "restore":
                    assert a.step in kept
                    at = a.step
                elif a.kind == "advance":
                    assert at == a.step < a.until
                    at, ran = a.until, ran + a.until - a.step
                elif a.kind == "reverse":
                    left -= 1
                    assert at == a.step == left
                else:
                    kept.remove(a.step)
                assert len(kept) <= snapshots
            assert left == 0 and not kept
            assert ran == fewest(steps, snapshots) == forward_steps(steps, snapshots)
    assert forward_steps(10**6, 100) < 4 * 10**6  # binomial(104, 100) > 10^6: no step runs more than four times


@op
def reaction(X: f64[N], K: f64[N], Z: f64[T]) -> f64[N]:
    """Nonlinear in its state, with coefficients of places and of times; something before the loop and after it."""
    A, B, Y = empty((N,), f64), empty((N,), f64), empty((N,), f64)
    for i in range(N):
        A[i] = X[i] * X[i]
    for t in range(T):
        for i in range(1, N - 1):
            B[i] = A[i] + K[i] * (A[i - 1] - 2.0 * A[i] + A[i + 1]) * A[i] + Z[t]
        for i in range(1, N - 1):
            A[i] = B[i] * B[i] * 0.9
    for i in range(N):
        Y[i] = A[i] * A[i]
    return Y


@op
def driven(A: inout(f64[N, N]), count: inout(i64[N]), w: f64) -> f64[N]:
    """Two arrays updated in place, one of integers that conditions read, a number, and a result of every step."""
    s = empty((N,), f64)
    for t in range(N):
        s[t] = 0.0
        for i, j in grid(N, N):
            A[i, j] = A[i, j] * A[j, i] * w if count[i] % 2 == 0 else A[i, j] + A[i, j] * A[i, j]
            s[t] += A[i, j]
        for i in range(N):
            count[i] = count[i] + i
    return s


def same(operator: Any, arguments: list[Any], seeds: list[Any], constants: dict[str, Any], snapshots: int,
         ) -> CheckpointedGradient:  # fmt: skip
    """The gradients with so many snapshots are the plain ones."""
    expected = operator.grad()(*arguments, *seeds, **constants)
    made = polyc.checkpointed_grad(operator, snapshots=snapshots, threads=1)
    found = made(*arguments, *seeds, **constants)
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (expected, found)), strict=True)
    for want, got in pairs:
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    return made


def test_gradients_are_the_plain_ones() -> None:
    rng = np.random.default_rng(0)
    x, k, s = (rng.standard_normal(8) * 0.3 for _ in range(3))
    z = rng.standard_normal(17) * 0.1
    expected = reaction.grad()(x, k, z, s)
    made = polyc.checkpointed_grad(reaction, snapshots=1, threads=1)
    made(x, k, z, s)
    (plan,) = made._plans.values()
    assert isinstance(plan, _Chain)
    for plan.snapshots in (1, 2, 4, 17, 30):
        for want, got in zip(expected, made(x, k, z, s), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9)
        chain = 17 + 1  # what comes after the loop is one more step
        assert made.ran["forward"] == forward_steps(chain, plan.snapshots) and made.ran["reverse"] == 17
        assert made.ran["snapshots"] <= plan.snapshots


@pytest.mark.long
def test_the_gradient_by_one_argument() -> None:
    rng = np.random.default_rng(0)
    x, k, s = (rng.standard_normal(8) * 0.3 for _ in range(3))
    z = rng.standard_normal(17) * 0.1
    only = polyc.checkpointed_grad(reaction, "Z", snapshots=3, threads=1)(x, k, z, s)
    np.testing.assert_allclose(only, reaction.grad("Z")(x, k, z, s), rtol=1e-9)


def test_arrays_in_place_integers_and_numbers() -> None:
    rng = np.random.default_rng(2)
    a, count, w = rng.uniform(0.2, 0.6, (6, 6)), np.arange(6), 0.7
    seeds = [rng.standard_normal(6), rng.standard_normal((6, 6))]
    before = a.copy(), count.copy()
    made = same(driven, [a, count, w], seeds, {}, 2)
    assert made.ran["forward"] == forward_steps(6, 2)
    np.testing.assert_array_equal(a, before[0])  # a derivative updates nothing
    np.testing.assert_array_equal(count, before[1])


@pytest.mark.parametrize("name", ["trmm", *(pytest.param(n, marks=pytest.mark.long) for n in LONG)])
def test_polybench(name: str) -> None:
    """Loops whose steps have other sizes each."""
    kernel = polybench.load(name)
    sizes = {k: 7 - n for n, k in enumerate(kernel.sizes["MINI"])}
    values = kernel.inputs(sizes, np.random.default_rng(1))
    constants = {k: v for k, v in values.items() if isinstance(v, int)}
    arguments = [v for k, v in values.items() if k not in constants]
    made = same(kernel.operator, arguments, _seeds(kernel.operator, arguments, constants), constants, 2)
    assert made.ran["reverse"] > 1


@pytest.mark.parametrize("seed", [5, 19, *(pytest.param(n, marks=pytest.mark.long) for n in (18, 42, 45, 46, 59))])
def test_random_programs(seed: int) -> None:
    """Also by the automatic schedule of the plain gradient (19: it stopped at a time that is half an iterator)."""
    program = Generator(seed).program()
    operator = polyc.op.from_source(re.sub(r"\b(f32|f16)\b", "f64", program.source), name="kernel")
    rng = np.random.default_rng(seed)
    arguments = [rng.uniform(-1.2, 1.2, v.shape) if np.asarray(v).dtype.kind == "f" else v for v in program.arguments()]
    same(operator, arguments, _seeds(operator, arguments, {}), {}, 2)


def _seeds(operator: Any, arguments: list[Any], constants: dict[str, Any]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    made = operator(*[np.array(v) for v in arguments], **constants)
    found = [] if made is None else list(made) if isinstance(made, tuple) else [made]
    found += [v for p, v in zip(operator.signature.params, arguments, strict=True) if p.inout]
    return [rng.standard_normal(np.shape(v)) for v in found if np.asarray(v).dtype.kind == "f"]


def test_sections_do_what_the_program_does() -> None:
    scop = specialise(reaction.scop(), {"N": 8, "T": 9})
    (loop,) = [x for x in time_loops(scop) if x.name == "t"]
    assert (loop.first, loop.steps) == (0, 9)
    assert private(step_of(scop, loop), {"A", "Y"}) == {"B"}  # every step writes it before it reads it
    assert private(step_of(scop, loop), {"A", "B"}) == set()
    rng = np.random.default_rng(4)
    now = {n: rng.standard_normal(9 if n == "Z" else 8) * 0.3 for n in scop.arrays}
    expected = reaction(now["X"], now["K"], now["Z"])
    build = resolve("compile_operator")
    for part, known in (
        (section(scop, loop.before, "before"), {}),
        *((steps_of(scop, loop), {"begin": b, "end": e}) for b, e in ((0, 4), (4, 5), (5, 9))),
        (section(scop, loop.after, "after"), {}),
    ):
        kernel = build(part, threads=1)
        arrays = [now[n] for n in part.args]
        kernel.run(arrays, kernel.bind(tuple(x.shape for x in arrays), known))
    np.testing.assert_allclose(now["Y"], expected, rtol=1e-12)


def test_a_limit_decides_and_says_why() -> None:
    rng = np.random.default_rng(0)
    x, k, s = (rng.standard_normal(8) * 0.3 for _ in range(3))
    z = rng.standard_normal(17) * 0.1
    plenty = polyc.checkpointed_grad(reaction, memory_limit=10**6, threads=1)
    assert plenty.explain(x, k, z, s).startswith("all values are kept: tapes of 2,944 bytes, of 1,000,000 that")
    made = polyc.checkpointed_grad(reaction, memory_limit=3 * 64 + 10, threads=1)
    text = made.explain(x, k, z, s)
    assert "loop t: 17 steps; its state is A, 64 bytes" in text
    again = forward_steps(18, 3)
    assert f"3 snapshots of 64 bytes and a tape of 0 bytes for one step: {again} steps run forwards" in text
    for want, got in zip(reaction.grad()(x, k, z, s), made(x, k, z, s), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)
    assert made.ran["snapshots"] == 3 and made.ran["forward"] == again
    with pytest.raises(polyc.ArgumentError, match=r"limit of 50 bytes has no room for one state of the loop t \("):
        polyc.checkpointed_grad(reaction, memory_limit=50)(x, k, z, s)


@op
def product(A: f64[N, N], B: f64[N, N]) -> f64[N, N]:
    C = empty((N, N), f64)
    for i, j in grid(N, N):
        C[i, j] = 0.0
        for k in range(N):
            C[i, j] += A[i, k] * B[k, j]
    return C


def test_refusals_and_programs_without_a_tape() -> None:
    a = np.random.default_rng(0).standard_normal((4, 4))
    without = polyc.checkpointed_grad(product, snapshots=1, threads=1)
    np.testing.assert_allclose(without(a, a, a)[0], a @ a.T)
    assert without.explain(a, a, a).startswith("no outermost loop has a tape: all values are kept (0 bytes)")
    for given in ({}, {"memory_limit": 1, "snapshots": 1}):
        with pytest.raises(polyc.ArgumentError, match="takes memory_limit, in bytes, or snapshots, a number"):
            polyc.checkpointed_grad(product, **given)
    with pytest.raises(polyc.ArgumentError, match="snapshots is a number of at least 1, not 0"):
        polyc.checkpointed_grad(product, snapshots=0)
    with pytest.raises(polyc.PolycError, match="takes an operator made by @op, not int"):
        polyc.checkpointed_grad(3, snapshots=1)
