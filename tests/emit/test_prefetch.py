"""Hints for the next panel of a far array stand where they pay, and change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from emit import targets
from emit.compile import compile_kernel
from emit.loops import Function, Prefetch, walk
from emit.lower import lower
from emit.passes.prefetch import prefetch_panels
from emit.printer import to_text
from emit.verify import verify
from polyc import empty, f32, grid, op
from scheduler.strategies.auto import automatic

V3 = targets.get("x86-64-v3")


def make_panels(p: int, c: int, panels: int):  # type: ignore[no-untyped-def]
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
    p, c, panels = (12, 512, 40) if backend != "interp" else (12, 72, 120)
    rng = np.random.default_rng(5)
    x, w = rng.integers(-4, 5, (p, c)).astype("f"), rng.integers(-4, 5, (panels, c, 16)).astype("f")
    scop = make_panels(p, c, panels).scop()
    kernel = compile_kernel(scop, automatic(scop, V3).tree, target=V3, backend=backend)
    assert hints(kernel.function)
    np.testing.assert_array_equal(kernel(x, w), x @ w.transpose(1, 0, 2).reshape(c, -1))
