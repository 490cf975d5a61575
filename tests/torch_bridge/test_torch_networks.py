"""The networks of the benchmark: forward passes and gradients are those of eager mode."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

import polyc.torch  # noqa: E402
from benchmarks.torch_networks import NETWORKS, loss_of  # noqa: E402

SHORT = ("graph break",)
"""Those that `make test` runs."""


@pytest.mark.parametrize("name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.long) for n in NETWORKS])
def test_forward_and_training_step_equal_eager_mode(name: str) -> None:
    if name in ("bert", "gpt2"):
        pytest.importorskip("transformers")
    torch._dynamo.reset()
    torch.manual_seed(0)
    theirs, inputs = NETWORKS[name]()
    ours = copy.deepcopy(theirs)
    compiled = polyc.torch.compile(ours)
    got, wanted = compiled(*inputs), theirs(*inputs)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    loss_of(got).backward()
    loss_of(wanted).backward()
    largest = max(float(p.grad.abs().max()) for p in theirs.parameters() if p.grad is not None)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        if q.grad is not None:
            assert float((p.grad - q.grad).abs().max()) <= 1e-4 * largest
    for p, q in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
    ours.eval(), theirs.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), theirs(*inputs), rtol=1e-4, atol=1e-4)
