"""How far values of a narrow model are from those in f32, and whether its answers are the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def root(difference: float, whole: float) -> float:
    """The root of a sum of squared differences relative to that of squares (of zeros: itself)."""
    return float(np.sqrt(difference / whole)) if whole > 0 else float(np.sqrt(difference))


def relative_error(wanted: Sequence[np.ndarray], made: Sequence[np.ndarray]) -> float:
    """The root of the mean squared difference of all arrays, relative to that of the values."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(wanted, made, strict=True)]
    return root(sum(np.square(a - b).sum() for a, b in pairs), sum(np.square(a).sum() for a, _ in pairs))


def same_answers(wanted: Sequence[np.ndarray], made: Sequence[np.ndarray]) -> float | None:
    """The share of rows with the same largest element; None where there are no classes."""
    if any(w.ndim < 2 or w.shape[-1] < 2 for w in wanted):
        return None
    same = [w.argmax(-1) == m.argmax(-1) for w, m in zip(wanted, made, strict=True)]
    return float(np.mean(np.concatenate([s.reshape(-1) for s in same])))
