"""ResNet-50 on the device beside torch.compile, both replaying CUDA graphs, f32 without tf32."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import polyc
from benchmarks.gpu import rivals
from benchmarks.gpu.timing import interleave
from polyc.emit.gpu.arrays import to_device
from polyc.emit.gpu.devices import Device

LIMIT = 1e-4  # of the largest logit


def measure(batch: int, device: Device, target: str, rounds: int) -> dict[str, Any]:
    """A row of results for this batch.

    Raises:
        RuntimeError: there is no torch with a GPU, which makes the network and is the rival.
    """
    torch = rivals.torch_on_gpu()
    if torch is None:
        raise RuntimeError("ResNet-50 is exported from torch, which is not here with a GPU")
    network, model, seconds = _models(batch, target)
    pixels = np.random.default_rng(batch).standard_normal((batch, 3, 224, 224)).astype(np.float32)
    given = {"pixels": to_device(device, pixels)}
    cuda = torch.from_numpy(pixels).cuda()
    with torch.no_grad():
        wanted = network.double()(cuda.double()).cpu().numpy()
        network = network.float().cuda()
        start = time.perf_counter()
        rival = torch.compile(network, mode="max-autotune")
        theirs = rival(cuda).cpu().numpy()
        rival_seconds = time.perf_counter() - start
        ours = next(iter(model(given).values())).numpy()
        errors = [float(np.abs(x - wanted).max() / np.abs(wanted).max()) for x in (ours, theirs)]

        def run_rival() -> None:
            rival(cuda)

        times = interleave(device, {"polyc": lambda: model(given), "torch.compile": run_rival}, rounds)
    return {
        "case": f"ResNet-50 batch {batch}", "against": "torch.compile", "wanted": None, "error": errors[0],
        "right": errors[0] <= LIMIT, "rival error": errors[1],
        "ms": {who: [1e3 * t.median, 1e3 * t.minimum] for who, t in times.items()},
        "share": times["torch.compile"].median / times["polyc"].median, "recording": model.executor().recording,
        "compile seconds": {"polyc": seconds, "torch.compile": rival_seconds},
    }  # fmt: skip


def _models(batch: int, target: str) -> tuple[Any, Any, float]:
    """The network in torch, the same compiled by polyc, and how long that took."""
    from benchmarks.exports import export_images, resnet50

    network = resnet50()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.onnx"
        export_images(network, path)
        start = time.perf_counter()
        model = polyc.compile_model(path, target=target, shapes={"pixels": (batch, 3, 224, 224)})
        model.executor()
    return network.cuda(), model, time.perf_counter() - start
