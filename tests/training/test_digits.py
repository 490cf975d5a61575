"""Digits: over 95 % are right, and the losses are those of PyTorch from the same weights on the same batches."""

from __future__ import annotations

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


@pytest.mark.parametrize("kind", ["mlp", pytest.param("cnn", marks=pytest.mark.long)])
def test_the_losses_are_those_of_torch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x, y, cut = split()
    w = {t.name: torch.tensor(numpy_helper.to_array(t).copy()) for t in network(kind).graph.initializer}
    mean, var = (w.pop(n, None) for n in ("mean", "var"))
    for value in w.values():
        value.requires_grad_(True)

    def forward(images: object) -> object:
        if kind == "mlp":
            hidden = functional.relu(functional.linear(images.flatten(1), w["w1"], w["b1"]))
            return functional.linear(hidden, w["w2"], w["b2"])
        a = functional.conv2d(images, w["f1"], padding=1)
        a = functional.relu(functional.batch_norm(a, mean, var, w["scale"], w["bias"], training=True))
        a = functional.relu(functional.conv2d(functional.max_pool2d(a, 2), w["f2"], w["c"], padding=1))
        return functional.linear(a.flatten(1), w["w"], w["b"])

    theirs = torch.optim.SGD(list(w.values()), lr=0.05, momentum=0.9)
    training, ours = polyc.training(network(kind), "SoftmaxCrossEntropyLoss", threads=1), polyc.SGD(0.05, 0.9)
    for feeds in batches(x[:cut], y[:cut], 200):
        loss = functional.cross_entropy(forward(torch.tensor(feeds["x"])), torch.tensor(feeds["target"]))
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        assert abs(training.step(feeds, ours) - loss.item()) < 1e-4
    if mean is not None:
        np.testing.assert_allclose(training.buffers["mean"], mean.numpy(), rtol=1e-3, atol=1e-4)
