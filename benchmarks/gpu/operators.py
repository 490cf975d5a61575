"""One operator on the device: right results first, then times beside a rival's or a copy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gpu import rivals
from benchmarks.gpu.cases import Case
from benchmarks.gpu.timing import interleave
from polyc.emit.gpu.arrays import DeviceArray, empty, to_device
from polyc.emit.gpu.devices import Device

SEED = 4
LIBRARIES = ("cuBLAS", "cuDNN")
"""What torch calls for products and convolutions: rows are named after them."""


def measure(case: Case, device: Device, target: str, rounds: int) -> dict[str, Any]:
    """A row of results; `share` is polyc's speed over that of what it is compared with (None without that)."""
    arrays = case.inputs(np.random.default_rng(SEED))
    kernel = case.operator.compile(target=target)
    there = [to_device(device, a) for a in arrays]
    bound = kernel.bind(tuple(a.shape for a in there))
    results = [_poisoned(device, shape, a) for a, shape in zip(kernel.results, bound.results, strict=True)]
    specs = kernel.prepared([*there, *results], bound.values)

    def run() -> None:
        for spec in specs:
            device.launch(spec)

    run()
    wanted = rivals.exact(case, arrays)
    error = float(np.abs(results[0].numpy().astype(np.float64) - wanted).max() / np.abs(wanted).max())
    runs = {"polyc": run} | _others(case, device, arrays)
    times = interleave(device, runs, rounds)
    ours, other = times["polyc"], times.get(case.against)
    return {
        "case": case.name, "against": case.against, "wanted": case.share, "error": error, "right": error <= case.limit,
        "ms": {who: [1e3 * t.median, 1e3 * t.minimum] for who, t in times.items()},
        "tflops": 1e-12 * case.flops / ours.median, "gbytes": 1e-9 * case.moved / ours.median,
        "share": None if other is None else other.median / ours.median,
        "launches": len(specs),
    }  # fmt: skip


def _others(case: Case, device: Device, arrays: list[np.ndarray]) -> dict[str, Any]:
    """The copy of as many bytes as the operator must move, and torch where it is there."""
    found: dict[str, Any] = {}
    if case.against == "copy":
        half = int(case.moved) // 2  # a copy reads and writes
        source, target = (empty(device, (half,), _byte()) for _ in range(2))
        device.upload(source.pointer, np.random.default_rng(1).integers(0, 255, half).astype(np.uint8))
        found["copy"] = lambda: device.copy(target.pointer, source.pointer, half)
    torch = rivals.torch_on_gpu()
    if torch is not None:
        given = rivals.tensors(torch, arrays)
        found[case.against if case.against in LIBRARIES else "torch"] = lambda: case.rival(torch, *given)
    return found


def _byte() -> Any:
    from polyc.poly.dtypes import u8

    return u8


def _poisoned(device: Device, shape: tuple[int, ...], array: Any) -> DeviceArray:
    """A result full of NaN: what nobody writes is seen."""
    made = empty(device, shape, array.dtype)
    device.upload(made.pointer, np.full(made.nbytes, 0xFF, np.uint8))
    return made
