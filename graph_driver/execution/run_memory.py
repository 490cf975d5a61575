"""The memory of runs: arenas, and arrays for outputs that are used again when nobody holds them."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from polyc.graph_driver.execution import entry
from polyc.graph_driver.memory import ALIGNMENT
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Slot, Step
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

_zero = ctypes.c_int64(0)
GOING = ctypes.addressof(_zero)
"""Where the word of a run is that nothing stops."""


def aligned_bytes(size: int) -> np.ndarray:
    """`size` uninitialised bytes at a multiple of 64. Raises `ModelError` when memory is short."""
    try:
        raw = np.empty(size + ALIGNMENT, np.uint8)
    except MemoryError:
        raise ModelError(f"not enough memory for {size} bytes") from None
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + size]


def address(array: np.ndarray) -> int:
    """Where the data starts."""
    return int(array.__array_interface__["data"][0])


@dataclass(frozen=True)
class Program:
    """What is the same at all sizes of a program: native segments, kernels by symbol, what to do in turn, the steps
    with records of violated accesses, and whether there are steps that need Python."""

    native: Sequence[Callable[[int], None]]
    kernels: Mapping[str, Callable[..., None]]
    order: tuple[int, ...]
    records: Sequence[tuple[Step[int], str]]
    python: bool


class RunMemory:
    """What one run at a time needs: an arena and the addresses that the program gets."""

    def __init__(self, plan: Plan[int], weights: np.ndarray, runtime: int) -> None:
        self.table_at = entry.table_index(plan)
        self.bases = (ctypes.c_void_p * (self.table_at + 1))()
        self.bases[entry.RUNTIME] = runtime or None
        self.bases[entry.WEIGHTS] = address(weights)
        self.bases[entry.STOP] = GOING
        self.at = ctypes.addressof(self.bases)
        self.arena = aligned_bytes(0)
        self.reserve(plan.peak)

    def sized(self, size: int, table: int | None) -> None:
        """Prepare for a run of other sizes: their table, and an arena of at least `size` bytes."""
        self.bases[self.table_at] = table
        self.reserve(size)

    def reserve(self, size: int) -> None:
        """Make the arena at least `size` bytes."""
        if len(self.arena) < size or self.bases[entry.ARENA] is None:
            self.arena = aligned_bytes(size)
            self.bases[entry.ARENA] = address(self.arena)


class Shared:
    """What the runs of one program have in common, at whatever sizes: idle arenas and the turn of the pool; which of
    its inputs die before which output is written, once somebody has asked."""

    def __init__(self, runtime: int) -> None:
        self.idle: list[RunMemory] = []
        self.dead: dict[tuple[int, int], str] | None = None
        self.program: Program | None = None
        self.lock = threading.Lock()
        self.turn = threading.Lock() if runtime else contextlib.nullcontext()


class _Bytes(np.ndarray):
    """Memory of a result. NumPy lets a view refer to what its array refers to, but only if that has the type of
    the array: by this type of its own, views of a result refer to the result."""


class Results:
    """Arrays for one output, used again when nobody else holds them.

    A caller that keeps a result (or a view of it) keeps a reference to the array, so the count
    of references tells whether it may be handed out again; no copy and no page faults then.
    They start at cache lines: NumPy's own begin 16 bytes after one, and every other store of
    32 bytes would touch two.
    """

    KEPT = 4
    ALONE = 2  # the list's reference and `getrefcount`'s own

    def __init__(self, slot: Slot[int]) -> None:
        assert slot.dtype is not None and slot.shape is not None
        self.shape, self.dtype, self.size = slot.shape, BY_NAME[slot.dtype].np, slot.nbytes
        self._arrays: list[np.ndarray] = []
        self._places: list[int] = []

    def take(self) -> tuple[np.ndarray, int]:
        """An array that nobody else refers to, and where its data start (the lock of the caller is held).

        Raises:
            ModelError: there is not enough memory.
        """
        kept = self._arrays
        for k in range(len(kept)):
            if sys.getrefcount(kept[k]) == self.ALONE:
                return kept[k], self._places[k]
        try:
            memory = _Bytes(self.size + ALIGNMENT, np.uint8)
        except MemoryError:
            raise ModelError(f"not enough memory for an output of shape {list(self.shape)}") from None
        made = np.ndarray(self.shape, self.dtype, memory, -address(memory) % ALIGNMENT)
        place = address(made)
        if len(kept) < self.KEPT:
            kept.append(made)
            self._places.append(place)
        return made, place
