"""Digits: over 95 % are right, and the losses are those of PyTorch from the same weights on the same batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import polyc
from examples.digits import accuracy, batches, data, network, trained

pytest.importorskip("sklearn")


def split() -> tuple[np.ndarray, np.ndarray, int]:
    x, y, _ = data()
    return x, y, len(x) * 4 // 5


@pytest.mark.parametrize("kind", ["mlp", pytest.param("cnn", marks=pytest.mark.long)])
def test_digits_are_learned(kind: str) -> None:
    x, y, cut = split()
    training, losses = trained(kind, x[:cut], y[:cut], 300)
    assert losses[-1] < 0.1 * losses[0]
    assert accuracy(training, x[cut:], y[cut:]) > 0.95


def losses_of_torch(kind: str, images: np.ndarray, classes: np.ndarray, threads: int) -> tuple[np.ndarray, Any]:
    """Of 200 steps on so many threads, and the running mean of the batch norm (None without one)."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    w = {t.name: torch.tensor(numpy_helper.to_array(t).copy()) for t in network(kind).graph.initializer}
    mean, var = (w.pop(n, None) for n in ("mean", "var"))
    for value in w.values():
        value.requires_grad_(True)

    def forward(images: Any) -> Any:
        if kind == "mlp":
            hidden = functional.relu(functional.linear(images.flatten(1), w["w1"], w["b1"]))
            return functional.linear(hidden, w["w2"], w["b2"])
        a = functional.conv2d(images, w["f1"], padding=1)
        a = functional.relu(functional.batch_norm(a, mean, var, w["scale"], w["bias"], training=True))
        a = functional.relu(functional.conv2d(functional.max_pool2d(a, 2), w["f2"], w["c"], padding=1))
        return functional.linear(a.flatten(1), w["w"], w["b"])

    theirs = torch.optim.SGD(list(w.values()), lr=0.05, momentum=0.9)
    before, losses = torch.get_num_threads(), []
    torch.set_num_threads(threads)
    try:
        for feeds in batches(images, classes, 200):
            loss = functional.cross_entropy(forward(torch.tensor(feeds["x"])), torch.tensor(feeds["target"]))
            theirs.zero_grad()
            loss.backward()
            theirs.step()
            losses.append(loss.item())
    finally:
        torch.set_num_threads(before)
    return np.array(losses), None if mean is None else mean.numpy()


@pytest.mark.parametrize("kind", ["mlp", pytest.param("cnn", marks=pytest.mark.long)])
def test_the_losses_are_those_of_torch(kind: str) -> None:
    """Within 1e-4, or twice what torch's own differ by between one and two threads: a batch norm over small batches
    lets another order of additions grow to 2e-2 in 200 steps."""
    x, y, cut = split()
    expected, mean = losses_of_torch(kind, x[:cut], y[:cut], 1)
    other, _ = losses_of_torch(kind, x[:cut], y[:cut], 2)
    training, ours = polyc.training(network(kind), "SoftmaxCrossEntropyLoss", threads=1), polyc.SGD(0.05, 0.9)
    found = np.array([training.step(feeds, ours) for feeds in batches(x[:cut], y[:cut], 200)])
    assert np.abs(found - expected).max() < max(1e-4, 2 * np.abs(other - expected).max())
    if mean is not None:
        np.testing.assert_allclose(training.buffers["mean"], mean, rtol=1e-3, atol=1e-4)
