"""`torch.compile(backend=polyc_backend)`: forward passes and training steps are those of eager mode."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

import polyc.torch  # noqa: E402

Module = torch.nn.Module


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def trained(module: Module, run: Module, batches: list, steps: int, rate: float = 0.05) -> list[float]:
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    losses = []
    for k in range(steps):
        x, y = batches[k % len(batches)]
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(run(x), y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def test_training_an_mlp_gives_the_losses_of_eager_mode() -> None:
    nn = torch.nn
    ours = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 32), nn.GELU(), nn.Linear(32, 10))
    theirs = copy.deepcopy(ours)
    batches = [(torch.randn(16, 24), torch.randint(0, 10, (16,))) for _ in range(4)]
    before = len(polyc.torch.compilations())
    got = trained(ours, polyc.torch.compile(ours, strict=True), batches, 60)
    assert got == pytest.approx(trained(theirs, theirs, batches, 60), abs=1e-4)
    made = polyc.torch.compilations()[before:]
    assert [c.pass_ for c in made] == ["forward", "backward"]
    assert all(not c.program.model.report().host for c in made)
