"""Samples at points of a grid and their derivatives, and scans by products, against torch's own."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch")

import polyc.torch  # noqa: E402
from polyc.graph_driver.torch_bridge.aten import table  # noqa: E402
from polyc.graph_driver.torch_bridge.grids import grid_sampler_backward  # noqa: E402

ATEN = torch.ops.aten
CASES = [(2, *c) for c in product(range(3), range(3), (False, True))]
CASES += [(3, *c) for c in product(range(2), range(3), (False, True))]
COMPILED = [
    (2, 0, 0, False, False), (2, 1, 2, True, True),
    *(pytest.param(*c, dynamic, marks=pytest.mark.long) for c in CASES for dynamic in (False, True)),
]  # fmt: skip
ENDS = torch.tensor([-1, 1, 0, -1.25, 1.25, -2, 2, 0.5, -0.75, 3], dtype=torch.float64)
"""Coordinates on elements, on borders and between, where a derivative has two sides."""


def _operands(axes: int, extents: list[int], dtype: torch.dtype) -> list[torch.Tensor]:
    x = torch.randn(2, 3, *extents[:axes], dtype=dtype)
    points = torch.rand(2, *[3, 4, 5][:axes], axes, dtype=torch.float64) * 5 - 2.5
    points = torch.where(torch.rand_like(points) < 0.4, ENDS[torch.randint(0, len(ENDS), points.shape)], points)
    return [x.requires_grad_(), points.to(dtype).requires_grad_()]


def _sampler(axes: int):
    return ATEN.grid_sampler_2d if axes == 2 else ATEN.grid_sampler_3d


@pytest.mark.parametrize(("axes", "mode", "padding", "align"), CASES)
def test_the_derivative_as_a_program(axes: int, mode: int, padding: int, align: bool) -> None:
    torch.manual_seed(0)
    for extents in ([4, 5, 3], [1, 1, 1], [7, 2, 1]):
        x, points = _operands(axes, extents, torch.float64)
        y = _sampler(axes)(x, points, mode, padding, align)
        dy = torch.randn_like(y)
        wanted = torch.autograd.grad(y, (x, points), dy)
        with torch.no_grad():
            found = grid_sampler_backward(dy, x, points, mode, padding, align, [True, True])
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
            half = grid_sampler_backward(dy, x, points, mode, padding, align, [False, True])
            assert half[0] is None and torch.equal(half[1], found[1])


@pytest.mark.parametrize(("axes", "mode", "padding", "align", "dynamic"), COMPILED)
def test_samples_and_their_gradients(axes: int, mode: int, padding: int, align: bool, dynamic: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(1)

    def f(x: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        return _sampler(axes)(x, points, mode, padding, align)

    before, compiled = len(polyc.torch.compilations()), torch.compile(f, backend="polyc", dynamic=dynamic)
    operands = _operands(axes, [4, 5, 3], torch.float32)
    results = [h(*operands) for h in (compiled, f)]
    dy = torch.randn_like(results[1])
    gradients = [torch.autograd.grad(y, operands, dy) for y in results]
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-4)
    assert not [str(e) for c in polyc.torch.compilations()[before:] for e in c.eager]


def test_products_so_far_and_gradients_through_zeros() -> None:
    assert "cumprod.default" in table()
    torch._dynamo.reset()
    torch.manual_seed(2)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x, 1).sum(0) + torch.prod(x, 0)

    before, compiled = len(polyc.torch.compilations()), torch.compile(f, backend="polyc")
    for zeros in (0, 1, 2):
        x = torch.randn(4, 7)
        x[:zeros, 3] = 0
        given = [x.clone().requires_grad_() for _ in range(2)]
        dy = torch.randn(7)
        found = [h(g) for h, g in zip((compiled, f), given, strict=True)]
        torch.testing.assert_close(found[0], found[1])
        torch.testing.assert_close(*(torch.autograd.grad(y, g, dy) for y, g in zip(found, given, strict=True)))
    assert not [str(e) for c in polyc.torch.compilations()[before:] for e in c.eager]
