"""Ranges of activations on given data: their extremes, percentiles of them, or those that lose least information."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

METHODS = ("minmax", "percentile", "entropy")
BINS = 2048
LEVELS = 128  # of codes on one side of zero, for the entropy
KEPT = 99.99  # percent of elements between the ends of the range
STEPS = 64  # thresholds that are tried


@dataclass(frozen=True)
class Scale:
    """Codes of 8 bits: a real number is `(code - zero) * step`."""

    step: float
    zero: int


class Observed:
    """Histograms of tensors over all samples; the first run finds extremes, the second one counts."""

    def __init__(self) -> None:
        self.ends: dict[str, tuple[float, float]] = {}
        self.counts: dict[str, np.ndarray] = {}

    def widen(self, values: Mapping[str, np.ndarray]) -> None:
        """Extremes with one more sample.

        Raises:
            ArgumentError: a value is no finite number.
        """
        for name, value in values.items():
            if value.size == 0:
                continue
            low, high = float(value.min()), float(value.max())
            if not np.isfinite(low) or not np.isfinite(high):
                raise ArgumentError(f"the data makes '{name}' infinite or NaN: nothing can be calibrated by it")
            before = self.ends.get(name, (0.0, 0.0))
            self.ends[name] = min(before[0], low), max(before[1], high)

    def count(self, values: Mapping[str, np.ndarray]) -> None:
        """One more sample in the histograms."""
        for name, value in values.items():
            found = np.histogram(value, BINS, self.ends[name])[0] if self.ends.get(name, (0, 0)) != (0, 0) else 0
            self.counts[name] = self.counts.get(name, np.zeros(BINS, np.int64)) + found

    def scale(self, name: str, method: str) -> Scale:
        """The codes of a tensor, from 0 to 255, in which 0 is exact."""
        low, high = self.ends[name]
        if method == "percentile":
            low, high = _percentile(self.counts[name], low, high)
        elif method == "entropy":
            low, high = _least_divergence(self.counts[name], low, high)
        step = np.float32((high - low) / 255) if high > low else np.float32(1)
        return Scale(float(step), int(np.clip(np.rint(-low / step), 0, 255)))


def _percentile(counts: np.ndarray, low: float, high: float) -> tuple[float, float]:
    edges, share = np.linspace(low, high, BINS + 1), np.cumsum(counts) / max(int(counts.sum()), 1)
    outside = (100 - KEPT) / 200
    first, last = int(np.searchsorted(share, outside)), int(np.searchsorted(share, 1 - outside))
    return min(float(edges[first]), 0.0), max(float(edges[min(last + 1, BINS)]), 0.0)


def _least_divergence(counts: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Ends cut off at the magnitude where quantised and clipped magnitudes differ least (Kullback-Leibler).

    Migacz, 8-bit inference with TensorRT, GPU Technology Conference 2017.
    """
    middles = (np.linspace(low, high, BINS + 1)[:-1] + (high - low) / BINS / 2).astype(np.float64)
    top = max(-low, high)
    if top == 0:
        return low, high
    sizes = np.bincount(np.minimum((np.abs(middles) / top * BINS).astype(int), BINS - 1), counts, BINS)
    best, most = float("inf"), BINS
    for last in np.linspace(LEVELS, BINS, STEPS).astype(int):
        divergence = _divergence(sizes, int(last))
        if divergence < best:
            best, most = divergence, int(last)
    limit = top * most / BINS
    return max(low, -limit), min(high, limit)


def _divergence(sizes: np.ndarray, last: int) -> float:
    """How much clipping to the first bins and quantising these to `LEVELS` differs from what is there."""
    clipped = sizes[:last].copy()
    clipped[-1] += sizes[last:].sum()
    level = np.arange(last) * LEVELS // last
    there = sizes[:last] > 0
    totals, filled = np.bincount(level, sizes[:last], LEVELS), np.bincount(level, there, LEVELS)
    spread = np.where(there, (totals / np.maximum(filled, 1))[level], 0.0)
    p, q = clipped / max(clipped.sum(), 1e-30), spread / max(spread.sum(), 1e-30)
    used = p > 0
    return float(np.sum(p[used] * np.log(p[used] / np.maximum(q[used], 1e-12))))


def samples(data: Mapping[str, np.ndarray], names: Sequence[str], sizes: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """The data, cut along the first axis into what the model takes at once (one sample where it leaves that free).

    Raises:
        ArgumentError: an input has no data, arrays are of different lengths, or shapes do not fit.
    """
    missing = [n for n in names if n not in data]
    if missing:
        raise ArgumentError(f"the data has no array '{missing[0]}' (it has {', '.join(data) or 'none'})")
    lengths = {n: len(data[n]) if np.ndim(data[n]) else 0 for n in names}
    batch = next((s[0] for s in sizes.values() if s and isinstance(s[0], int)), 1) or 1
    count = min(lengths.values(), default=0)
    if count < batch or len(set(lengths.values())) != 1:
        raise ArgumentError(f"the data needs as many samples for each input, {batch} at least: it has {lengths}")
    return [{n: data[n][k : k + batch] for n in names} for k in range(0, count - batch + 1, batch)]
