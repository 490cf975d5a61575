"""Hints for the next panel of a far array stand where they pay, and change nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyc import empty, exp, f32, grid, op
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.emit.loop_ir.loops import Function, Prefetch, walk
from polyc.emit.loop_ir.printer import to_text
from polyc.emit.loop_ir.verify import verify
from polyc.emit.lowering.lower import lower
from polyc.emit.passes.prefetch import prefetch_panels
from polyc.scheduler.strategies.auto import automatic

V3 = targets.get("x86-64-v3")


def make_panels(p: int, c: int, panels: int):
    """A product with panels of 16 columns, as constant operands are stored."""

    @op
    def product(X: f32[p, c], W: f32[panels, c, 16]) -> f32[p, panels * 16]:
        Y = empty((p, panels * 16), f32)
        for i, o in grid(p, panels * 16):
            Y[i, o] = 0.0
            for k in range(c):
                Y[i, o] += X[i, k] * W[o // 16, k, o % 16]
        return Y

    return product


def hints(fn: Function) -> list[Prefetch]:
    return [s for s in walk(fn.body) if isinstance(s, Prefetch)]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((12, 512, 40), True), ((12, 512, 4), False), ((6, 512, 40), False), ((200, 128, 200), False)],
    ids=["few tiles of a large array", "small array", "one tile", "many tiles"],
)
def test_hints_stand_where_they_pay(shape: tuple[int, int, int], expected: bool) -> None:
    scop = make_panels(*shape).scop()
    fn = prefetch_panels(lower(scop, automatic(scop, V3).tree, "f", V3), V3)
    verify(fn, "prefetch")
    assert bool(hints(fn)) == expected
    assert all(h.array == "W" for h in hints(fn))
    assert ("prefetch W[" in to_text(fn)) == expected


@pytest.mark.parametrize("backend", ["llvm", "c", "interp"])
def test_results_stay(backend: str) -> None:
    slow = backend == "interp"
    machine, (p, c, panels) = (replace(V3, l2=1 << 14), (12, 8, 40)) if slow else (V3, (12, 512, 40))
    rng = np.random.default_rng(5)
    x, w = rng.integers(-4, 5, (p, c)).astype("f"), rng.integers(-4, 5, (panels, c, 16)).astype("f")
    scop = make_panels(p, c, panels).scop()
    kernel = compile_kernel(scop, automatic(scop, machine).tree, target=machine, backend=backend)
    assert hints(kernel.function)
    np.testing.assert_array_equal(kernel(x, w), x @ w.transpose(1, 0, 2).reshape(c, -1))


def make_softmax(rows: int, n: int):
    @op
    def softmax(X: f32[rows, n]) -> f32[rows, n]:
        Y = empty((rows, n), f32)
        for r in range(rows):
            top = X[r, 0]
            for k in range(n):
                top = max(top, X[r, k])
            total = f32(0)
            for k in range(n):
                Y[r, k] = exp(X[r, k] - top)
                total += Y[r, k]
            for k in range(n):
                Y[r, k] = Y[r, k] / total
        return Y

    return softmax


@pytest.mark.parametrize(("shape", "expected"), [((512, 500), True), ((8, 500), False), ((8, 50_000), False)],
                         ids=["many rows", "small array", "long rows"])  # fmt: skip
def test_the_last_pass_over_a_row_hints_at_the_next_row(shape: tuple[int, int], expected: bool) -> None:
    operator = make_softmax(*shape)
    fn = prefetch_panels(lower(operator.scop(), automatic(operator.scop(), V3).tree, "f", V3), V3)
    verify(fn, "prefetch")
    assert {h.array for h in hints(fn)} == ({"X"} if expected else set())
    x = np.random.default_rng(9).standard_normal(shape).astype("f")
    e = np.exp(x.astype("d") - x.max(1, keepdims=True))
    np.testing.assert_allclose(operator(x), e / e.sum(1, keepdims=True), rtol=1e-5)
