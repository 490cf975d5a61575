"""Handwritten digits behind PyTorch: an MLP and a small CNN, trained by `torch.compile` with polyc and in eager mode.

`python examples/digits_torch.py`; `--steps N` trains shorter or longer. The 1,797 pictures of 8x8 pixels are
scikit-learn's (read from its file, it is not imported). Both runs have the same initial weights and batches: their
losses are the same, and so is what they learn.
"""

import argparse
import copy
import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import nn

import polyc.torch

STEPS, BATCH, RATE = 300, 128, 0.05


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures, `f32[1797, 1, 8, 8]` from 0 to 1, and the digits that they show, mixed as in `digits.py`."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise SystemExit("the pictures are in scikit-learn: pip install scikit-learn")
    table = np.loadtxt(Path(spec.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    pictures = torch.from_numpy(table[:, :64].astype("f") / 16).reshape(-1, 1, 8, 8)
    order = torch.from_numpy(np.random.default_rng(2).permutation(len(table)))  # the file goes by writers
    return pictures[order], torch.from_numpy(table[:, 64].astype("i8"))[order]


def mlp() -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48), nn.GELU(), nn.Linear(48, 10))


def cnn() -> nn.Module:
    """Two convolutions with a batch norm and pools."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def trained(module: nn.Module, run: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int) -> list[float]:
    """The losses of training `module`, called as `run`."""
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)
    order = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        some = torch.randint(0, len(x), (BATCH,), generator=order)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(run(x[some]), y[some])
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def main() -> None:
    """Train both networks both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    steps = parser.parse_args().steps
    x, y = digits()
    cut = len(x) * 4 // 5
    rest, held = slice(0, cut), slice(cut, None)
    for make in (mlp, cnn):
        torch.manual_seed(0)
        ours = make()
        theirs = copy.deepcopy(ours)
        losses = trained(ours, polyc.torch.compile(ours, strict=True), x[rest], y[rest], steps)
        wanted = trained(theirs, theirs, x[rest], y[rest], steps)
        apart = max(abs(a - b) for a, b in zip(losses, wanted))
        ours.eval()
        with torch.no_grad():
            right = float((polyc.torch.compile(ours)(x[held]).argmax(-1) == y[held]).float().mean())
        print(f"{make.__name__}: loss {losses[0]:.3f} to {losses[-1]:.3f}, at most {apart:.1e} from eager mode's;")
        print(f"  {right:.1%} of {len(x) - cut} pictures that it has not seen are right")


if __name__ == "__main__":
    main()
