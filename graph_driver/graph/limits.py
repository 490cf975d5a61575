"""Caps on what a model file may claim, so that a broken one is refused instead of eating the machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from polyc.graph_driver.graph.wording import human
from polyc.poly.errors import ModelError

MAX_RANK = 32
MAX_TENSOR_BYTES = 1 << 34  # of one tensor
MAX_FOLD_BYTES = 1 << 28  # of one result computed at compile time
MAX_NODES = 500_000
MAX_DEPTH = 16  # of nested control flow


def physical_memory() -> int:
    """Bytes of main memory (a very large number where the system does not say)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 1 << 62


def check_memory(what: str, nbytes: int) -> None:
    """Raise `ModelError` when `what` cannot fit into this machine's memory."""
    have = physical_memory()
    if nbytes > have:
        raise ModelError(f"{what} needs {human(nbytes)}, this machine has {human(have)}")


def check_shape(what: str, shape: Sequence[int], itemsize: int) -> None:
    """Raise `ModelError` when a shape is negative, of absurd rank, or needs too much memory."""
    if len(shape) > MAX_RANK:
        raise ModelError(f"{what} has rank {len(shape)}; the limit is {MAX_RANK}")
    total = itemsize
    for extent in shape:
        if extent < 0:
            raise ModelError(f"{what} has the negative size {extent}")
        total *= extent
    if total > MAX_TENSOR_BYTES:
        raise ModelError(f"{what} of shape {list(shape)} needs {human(total)}; the limit is {human(MAX_TENSOR_BYTES)}")
