"""Complex numbers and Fourier transforms in kernels: forward and backward as in eager mode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import polyc  # noqa: E402
import polyc.torch  # noqa: E402
from polyc.graph_driver.torch_bridge.aten import of_complex, table  # noqa: E402
from polyc.graph_driver.torch_bridge.aten.complex_numbers import BY_PARTS  # noqa: E402

fft = torch.fft


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _z(*shape: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype)


def _results(program, tensors) -> list[torch.Tensor]:
    """Results, and gradients for fixed adjoints."""
    given = [t.clone().requires_grad_() for t in tensors]
    found = program(*given)
    found = found if isinstance(found, tuple) else (found,)
    torch.manual_seed(1)
    adjoints = [torch.randn_like(y) for y in found]
    return [*found, *torch.autograd.grad(found, given, adjoints)]


def _same(program, tensors, **options) -> None:
    ours = _results(polyc.torch.compile(program, **options), tensors)
    for got, wanted in zip(ours, _results(program, tensors), strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-5, atol=2e-5)


def _in_place(x):
    y = x.clone()
    y[1] = 3
    y[:, 0] *= 2j
    y.real.mul_(2)
    return y


def _rotary(x, turns):
    return torch.view_as_real(torch.view_as_complex(x.reshape(2, 3, 4, 2)) * turns).flatten(2)


def _spectral_layer(x, w):
    spectrum = fft.rfft2(x)
    made = torch.zeros(2, 2, 8, 5, dtype=spectrum.dtype)
    made[:, :, :4, :3] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :4, :3], w)
    return fft.irfft2(made, s=(8, 8))


ARITHMETIC = {
    "products": (lambda x, y: x * y + y * (2 + 3j), [_z(5, 3), _z(3)]),
    "real factors": (lambda x, y: x * y - y, [_z(5, 3), torch.randn(5, 1)]),
    "two precisions": (lambda x, y: x * y + x, [_z(5, 3), _z(3, dtype=torch.complex128)]),
    "quotients": (lambda x, y: x / y + (2 - 1j) / x, [_z(5, 3), _z(3)]),
    "real quotients": (lambda x, y: x / y + y / x, [_z(5, 3), torch.randn(5, 1)]),
    "alpha": (lambda x, y: torch.add(x, y, alpha=2) + torch.sub(x, y, alpha=2j), [_z(5, 1), _z(4)]),
    "absolute values": (lambda x: (x.abs(), x.angle(), x.sgn(), x.norm()), [_z(5, 3)]),
    "powers": (lambda x: x**3 + x.reciprocal() + x.exp(), [_z(5, 3)]),
    "matrices": (lambda x, y, z: (x @ y, x.mH @ x, torch.addmm(z, x, y)), [_z(5, 3), _z(3, 4), _z(4)]),
    "sums": (lambda x: (x.sum(0) + x.mean(), x.cumsum(1)), [_z(5, 3)]),
    "moved": (lambda x: (x[torch.tensor([1, 0, 2]), :2].t(), torch.stack([x, x * 2], -1)), [_z(5, 3)]),
    "joined": (lambda x, y: torch.cat([x, y, x.conj()]), [_z(5, 3), torch.randn(2, 3)]),
    "chosen": (lambda x: torch.where(x.real > 0, x, 0) + x.masked_fill(x.imag > 0, 1 + 2j), [_z(5, 3)]),
    "edges": (lambda x: torch.nn.functional.pad(x, (1, 2), value=3), [_z(5, 3)]),
    "of parts": (lambda x, y: torch.complex(x, y) * 2 + torch.polar(x, y), [torch.randn(5, 3), torch.randn(5, 3)]),
    "parts": (lambda x: (x.conj(), x.real, x.imag * 2, x.t(), torch.view_as_real(x)), [_z(5, 3)]),
    "in place": (_in_place, [_z(5, 3)]),
    "rotary": (_rotary, [torch.randn(2, 3, 8), _z(3, 4)]),
    "none and one": (lambda x, y: (x[:0] * 2, y * 2), [_z(3, 4), _z()]),
    "casts": (lambda x: x.to(torch.complex32).to(torch.complex64) * 2, [torch.randn(5)]),
}
TRANSFORMS = {
    "fft": (lambda x: fft.fft(x), [_z(4, 12)]),
    "ifft": (lambda x: fft.ifft(x, norm="ortho"), [_z(4, 12, dtype=torch.complex128)]),
    "fft of real": (lambda x: fft.fft(x, n=9, dim=0), [torch.randn(7, 3)]),
    "fftn": (lambda x: fft.fftn(x, norm="forward"), [_z(3, 4, 5)]),
    "rfft2": (lambda x: fft.rfft2(x, norm="ortho"), [torch.randn(2, 6, 7)]),
    "irfftn": (lambda x: fft.irfftn(x, s=(5, 7), norm="forward"), [_z(6, 5)]),
    "hfft": (lambda x: fft.hfft(x), [_z(2, 6)]),
    "shifted": (lambda x: fft.fftshift(fft.fft(x)), [_z(2, 6)]),
    "spectral layer": (_spectral_layer, [torch.randn(2, 3, 8, 8), _z(3, 2, 4, 3)]),
    "stft": (lambda x: torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True), [torch.randn(2, 64)]),
    "istft": (lambda x: torch.istft(x, 16, 4, window=torch.hann_window(16)), [_z(2, 9, 20)]),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name: str) -> None:
    _same(*ARITHMETIC[name], strict=True)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    _same(*TRANSFORMS[name], strict=True)


@pytest.mark.parametrize("name", ["shifted", "spectral layer", "istft"])
def test_torchs_library_transforms_what_kernels_compute_with(name: str) -> None:
    """Kernels are slower at transforms. What stands alone between two of torch's operators, and views, stay there."""
    before = len(polyc.torch.compilations())
    _same(*TRANSFORMS[name])
    eager = {e.operator.split(".")[1]: e.reason for c in polyc.torch.compilations()[before:] for e in c.eager}
    assert {n for n in eager if n.startswith("_fft")}
    others = {r for n, r in eager.items() if not n.startswith("_fft")}
    assert all(r.startswith(("a view of complex numbers", "between operators in eager mode")) for r in others), eager


def test_signs_and_conjugates_that_torch_puts_off() -> None:
    """Arguments whose memory has other numbers than they stand for: the sign of a real one was lost."""
    z, x = _z(5, 3), torch.randn(5, 3)
    for given in (torch._neg_view(x), z[:1, 0].conj().imag, z.conj().imag, z.conj(), z.conj().t(), z):
        torch._dynamo.reset()
        torch.testing.assert_close(polyc.torch.compile(lambda x: x * 2 + 1, strict=True)(given), given * 2 + 1)


def test_extreme_elements() -> None:
    large = torch.tensor([3e30 + 4e30j, 1e-30 + 1e-30j, complex("inf"), complex("nan"), complex(0, float("-inf"))])

    def program(x):
        return x.abs(), x / large[:1]

    for got, wanted in zip(polyc.torch.compile(program)(large), program(large), strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True)


def test_operators_in_eager_mode_take_and_give_complex_numbers() -> None:
    def program(x, y):
        z = torch.linalg.inv(x * y) @ x + (x * 2).cos()
        return z, z, torch.linalg.eigvals(y)

    x, y = _z(3, 3), torch.randn(3, 3)
    found = polyc.torch.compile(program)(x, y)
    for got, wanted in zip(found, program(x, y), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    program = polyc.torch.compile(lambda x: torch.linalg.inv(x))  # an effect: what it checks is an error
    with pytest.raises(RuntimeError, match="singular"):
        program(torch.zeros(3, 3))


def test_symbolic_sizes_and_exported_programs() -> None:
    program = polyc.torch.compile(lambda x, y: fft.ifft(fft.fft(x * y)) * 2j, dynamic=True)
    for n in (6, 8):
        x, y = _z(n, 5), torch.randn(5)
        torch.testing.assert_close(program(x, y), x * y * 2j)

    class Filter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", _z(5))

        def forward(self, x):
            return fft.irfft(fft.rfft(x) * self.w, n=8)

    module, x = Filter(), torch.randn(3, 8)
    model = polyc.compile_exported(torch.export.export(module, (x,)), strict=True)
    torch.testing.assert_close(model(x), module(x))


def test_windows() -> None:
    for shape, window in (((4, 9, 2), (1, 4, 3)), ((), (0, 1, 1)), ((5, 2), (-2, 2, 2))):
        torch._dynamo.reset()
        _same(lambda x, w=window: x.unfold(*w) * 2, [torch.randn(shape)], strict=True)


def test_what_is_done_with_either_part_is_there() -> None:
    names = [n for names in BY_PARTS.values() for n in names]
    assert set(names) <= table().keys() and set(names) <= of_complex().keys()
