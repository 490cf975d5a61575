"""Arrays that share memory: the one rule for calls, compiled or as plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from polyc.poly.errors import ArgumentError

Named = tuple[str, ndarray[Any, Any]]
WORK = 10_000  # candidate solutions that NumPy may try before two arrays count as overlapping


def overlap(a: ndarray[Any, Any], b: ndarray[Any, Any]) -> bool:
    """Whether some element of `a` shares bytes with one of `b`; True where that is too hard to tell."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=WORK))  # type: ignore[arg-type]  # NumPy's stub knows two values only
    except np.exceptions.TooHardError:
        return True


def folded(a: ndarray[Any, Any]) -> bool:
    """Whether two elements of `a` may share bytes (a broadcast, a sliding window)."""
    if a.flags.c_contiguous:
        return False
    axes = sorted((abs(stride), n) for stride, n in zip(a.strides, a.shape) if n > 1)
    if not a.size:
        return False
    reach = a.itemsize
    for stride, n in axes:
        if stride < reach:
            return True
        reach += stride * (n - 1)
    return False


def separate(name: str, written: Sequence[Named], read: Sequence[Named]) -> list[ndarray[Any, Any]]:
    """The arrays of `read`, copied where they overlap a written one: an operator reads what was there before.

    Raises:
        ArgumentError: two written arrays overlap, or one overlaps itself.
    """
    for n, (mine, x) in enumerate(written):
        if folded(x):
            raise ArgumentError(f"{name}: '{mine}' is written, but several of its elements share memory")
        for other, y in written[n + 1 :]:
            if overlap(x, y):
                raise ArgumentError(f"{name}: '{mine}' and '{other}' are both written, but share memory")
    return [y.copy() if any(overlap(x, y) for _, x in written) else y for _, y in read]
