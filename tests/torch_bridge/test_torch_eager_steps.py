"""Steps that torch runs: results that are empty or unread, numbers that data decide, pools at random places."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import polyc  # noqa: E402
import polyc.torch  # noqa: E402

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _same(program, *args) -> None:
    torch.testing.assert_close(polyc.torch.compile(program)(*args), program(*args), rtol=1e-4, atol=1e-5)
    assert polyc.torch.compilations()[-1].eager


def test_empty_results_that_are_read() -> None:
    def returned(x):
        q, r = torch.linalg.qr(x + 1, mode="r")
        return q, r * 2, q.numel()

    def joined(x):
        q, r = torch.linalg.qr(x + 1, mode="r")
        return torch.cat([q, (r * 2).flatten()]), torch.special.bessel_j0(q).sum()

    def alone(x):
        return torch.special.bessel_j0(x[:0] * 2) * 3

    for program in (returned, joined, alone):
        _same(program, torch.randn(4, 3))
    _same(alone, torch.randn(0, 3))


def test_results_that_nobody_reads_are_not_stored() -> None:
    _same(lambda x: torch.linalg.qr(x)[1] + 1, torch.randn(40, 3))
    model = polyc.torch.compilations()[-1].program.model
    (step,) = (s for s in model.plan.steps if s.kind == "host")
    assert len(step.results) == 1


def test_a_number_that_data_decide_is_an_error() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    model = polyc.compile_exported(torch.export.export(Scaled(), (torch.ones(3),)))
    with pytest.raises(polyc.ModelError, match=r"test_torch_eager_steps.py.*x.sum\(\).item.*: data decide this number"):
        model(torch.ones(3))


@pytest.mark.parametrize("shape", [(2, 3, 12, 13), (3, 12, 13), (2, 3, 7, 8, 9)], ids=str)
def test_pools_at_random_places_are_those_of_eager_mode(shape: tuple[int, ...]) -> None:
    """The samples of `_random_samples=None`: the places are drawn by torch's generator, in the program's order."""

    def program(x):
        pool = F.fractional_max_pool3d if len(shape) == 5 else F.fractional_max_pool2d
        axes = len(shape) - 2 if len(shape) > 3 else 2
        return pool(x, 2, output_ratio=(0.6,) * axes) + 1, torch.rand(3), pool(F.dropout(x), 3, output_size=4)

    def run(f, x):
        torch.manual_seed(7)
        results = f(x)
        return [*results, torch.get_rng_state(), *torch.autograd.grad(results[0].square().sum(), x)]

    x = torch.randn(shape, requires_grad=True)
    for got, wanted in zip(run(polyc.torch.compile(program), x), run(program, x), strict=True):
        assert torch.equal(got, wanted)


def test_torchs_samples_do_not_depend_on_what_is_drawn_meanwhile() -> None:
    pytest.importorskip("expecttest", reason="torch's own samples need it")
    from tests.opinfo.cases import cases, samples

    (op, *_) = cases(["rand"])["rand"]

    def inputs(between: int) -> list[torch.Tensor]:
        found = []
        for sample in samples(op):
            found.append(sample.input)
            torch.rand(between)
        return found

    for a, b in zip(inputs(0), inputs(5), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.to(torch.complex64),
        lambda x: x.to(torch.complex128) * 2,
        lambda x: x.to(torch.complex64).conj(),
        lambda x: torch.view_as_real(x.to(torch.complex64).conj().resolve_conj()),
        lambda x: x.to(torch.complex64).imag,
    ],
)
@pytest.mark.parametrize("shape", [(), (5,), (7, 3)])
def test_gradients_through_complex_numbers(program, shape: tuple[int, ...]) -> None:
    """The backward pass returns a part of an argument in the same memory, read as another type, or its conjugate."""
    x = torch.randn(shape, requires_grad=True)
    wanted, got = program(x), polyc.torch.compile(program)(x)
    torch.testing.assert_close(got, wanted)
    adjoint = torch.randn_like(wanted)
    torch.testing.assert_close(torch.autograd.grad(got, x, adjoint), torch.autograd.grad(wanted, x, adjoint))


@pytest.mark.parametrize(
    "program", [lambda z: z.conj(), lambda z: z.real, lambda z: z.imag * 2, lambda z: z.conj().imag]
)
def test_gradients_of_complex_arguments(program) -> None:
    z = torch.randn(7, 3, dtype=torch.complex64, requires_grad=True)
    wanted, got = program(z), polyc.torch.compile(program)(z)
    torch.testing.assert_close(got, wanted)
    adjoint = torch.randn_like(wanted)
    torch.testing.assert_close(torch.autograd.grad(got, z, adjoint), torch.autograd.grad(wanted, z, adjoint))


def test_bits_as_another_type_are_no_view_of_the_argument() -> None:
    x = torch.randn(5, 8)
    for program in (lambda x: x.view(torch.int32), lambda x: (x.view(torch.int32), x + 1)):
        torch.testing.assert_close(polyc.torch.compile(program)(x), program(x))
