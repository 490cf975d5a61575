"""Interleaved timing with the device's own events."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from polyc.emit.gpu.devices import Device

LEAST = 5e-3  # seconds between two events: many short launches are timed together


@dataclass(frozen=True)
class Timing:
    """Seconds of one run: the median and the minimum over the rounds."""

    median: float
    minimum: float


def interleave(device: Device, runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Timing]:
    """Run everything in turn, `rounds` times, so that drift of the machine hits all alike. Each puts work into
    the default stream, in which the events are, too."""
    counts = {name: _count(device, run) for name, run in runs.items()}
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(_timed(device, run, counts[name]))
    return {name: Timing(statistics.median(s), min(s)) for name, s in found.items()}


def _timed(device: Device, run: Callable[[], object], count: int) -> float:
    start = device.event()
    for _ in range(count):
        run()
    return device.elapsed(start, device.event()) / count


def _count(device: Device, run: Callable[[], object]) -> int:
    """Runs that fill `LEAST`, after two to warm up."""
    _timed(device, run, 2)
    return max(1, min(1000, round(LEAST / max(_timed(device, run, 1), 1e-9))))
