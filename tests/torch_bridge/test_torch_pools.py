"""Largest elements of windows of several sizes, and small operators of real numbers, in kernels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import polyc.torch  # noqa: E402

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((2, 3, 12, 13), (5, 4)),
        ((2, 3, 12, 12), (4, 3)),
        ((3, 4, 4), (7, 6)),
        ((2, 3, 7, 8, 9), (3, None, 4)),
        ((2, 3, 17), 5),
        ((0, 3, 4, 4), (3, 3)),
    ],
    ids=str,
)
def test_adaptive_pools_of_largest_elements(shape: tuple[int, ...], size) -> None:
    """Of equal elements the first one has the adjoint."""
    pools = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
    pool = pools[1 if isinstance(size, int) else len(size)]

    def program(x):
        return pool(x * 2, size, return_indices=True)

    x = torch.randint(-2, 3, shape).float().requires_grad_()
    (ours, at), (wanted, place) = polyc.torch.compile(program, strict=True)(x), program(x)
    assert torch.equal(ours, wanted) and torch.equal(at, place)
    adjoint = torch.randn_like(wanted)
    torch.testing.assert_close(torch.autograd.grad(ours, x, adjoint), torch.autograd.grad(wanted, x, adjoint))


def test_angles_and_copies_of_ranges() -> None:
    def program(x):
        return x.angle(), (x * 2).long().angle(), torch.narrow_copy(x, 0, -3, 2)

    x = torch.tensor([1.0, -1.0, 0.0, -0.0, float("-inf"), 3.0])
    for ours, wanted in zip(polyc.torch.compile(program, strict=True)(x), program(x), strict=True):
        torch.testing.assert_close(ours, wanted)
    nan = torch.tensor([float("nan"), -1.0])
    torch.testing.assert_close(polyc.torch.compile(torch.angle, strict=True)(nan), nan.angle(), equal_nan=True)
