"""Whether the local arrays of a kernel fit this machine: generated code cannot say that there is no memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod

from polyc.emit.loop_ir.loops import Alloc, Function, walk
from polyc.poly.binding import evaluate
from polyc.poly.errors import ArgumentError

ANY = 1 << 62
"""Bytes, where the system does not say what it has: beyond this sizes overflow."""


def check_room(function: Function, sizes: Mapping[str, int]) -> None:
    """Every array on the heap is within this machine's memory.

    Raises:
        ArgumentError: one is not; it is named, with its bytes.
    """
    for s in walk(function.body):
        if isinstance(s, Alloc) and s.buffer.space != "register":
            try:
                shape = [max(0, evaluate(e, sizes)) for e in s.buffer.shape]
            except ArgumentError:
                continue  # as large as a loop says: tiles
            needed = prod(shape) * s.buffer.dtype.bytes
            if needed > machine_bytes():
                extents = ", ".join(map(str, shape))
                array = f"{function.name}: the local array {s.buffer.name}[{extents}]"
                raise ArgumentError(f"{array} takes {needed} bytes, this machine has {machine_bytes()}")


def machine_bytes() -> int:
    """Bytes of this machine's memory."""
    try:
        return min(ANY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return ANY
