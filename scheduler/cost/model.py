"""Predicted time of a kernel from its arithmetic, its bytes per level of memory, and the cost of a call.

The roofline (Williams, Waterman & Patterson, "Roofline", CACM 2009) with a roof for every level of memory, refined as
in the execution-cache-memory model (Stengel, Treibig, Hager & Wellein, ICS 2015): within the caches all levels work at
the same time and the slowest decides; what memory delivers is waited for,

    T = call + entries * entry + max(T_core, T_l2, T_l3) + T_memory

`T_core` is arithmetic at the share of the peak that the register tiles reach, and what vector code does besides,
while all data are in L1. `T_level` is the bytes that come from (or go to) that level over what it delivers (measured
on kernels of ResNet-50: products whose weights come from memory take the sum, 1.17 ms, not the maximum, 0.76 ms).
More threads share `T_core` and `T_l2` (an L2 cache is private to its core); L3 and memory are shared already.

Units: cycles, bytes and bytes per cycle, of one core; `Prediction.seconds` are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, Literal

from polyc.poly.dtypes import f32
from polyc.poly.records import dataclass
from polyc.poly.target import Target

Level = Literal["l2", "l3", "memory"]
LEVELS: tuple[Level, ...] = ("l2", "l3", "memory")
Bound = Literal["call", "arithmetic", "l2", "l3", "memory"]


@dataclass(frozen=True, slots=True)
class Machine:
    """What one core does, and what it costs to call it.

    `hertz`: cycles a second. `fma_flops`: f32 operations a cycle in multiply-adds (f64: half of it). `operations`:
    simple operations a cycle, on scalars or whole vectors. `read` and `write`: bytes a cycle by level. `call`:
    cycles of an empty kernel called from Python. `entry`: cycles to share a loop among threads and end it.
    """

    hertz: float
    fma_flops: float
    operations: float
    read: Mapping[str, float]
    write: Mapping[str, float]
    call: float
    entry: float

    @property
    def flops_per_second(self) -> float:
        """Of f32, in multiply-adds."""
        return self.hertz * self.fma_flops

    @property
    def copied_per_second(self) -> float:
        """Bytes read and written each second when memory is copied."""
        return 2.0 * self.hertz / (1.0 / self.read["memory"] + 1.0 / self.write["memory"])

    def data(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Machine:
        """The machine of `data()`.

        Raises:
            KeyError, TypeError, ValueError: it is none, or its figures are not positive.
        """
        read, write = ({str(n): float(data[k][n]) for n in LEVELS} for k in ("read", "write"))
        hertz, flops, simple, call, entry = (
            float(data[n]) for n in ("hertz", "fma_flops", "operations", "call", "entry")
        )
        if not all(0.0 < v < MOST for v in (hertz, flops, simple, call, entry, *read.values(), *write.values())):
            raise ValueError("a machine's figures are positive")
        return Machine(hertz, flops, simple, read, write, call, entry)


HERTZ = 3e9  # cycles a second
OPERATIONS = 2.0  # simple ones a cycle
CYCLES_OF_L2, CYCLES_OF_L3 = 2, 4  # for the bytes of a vector
MEMORY_READ, MEMORY_WRITE = 6.0, 3.0  # bytes a cycle
CALL, ENTRY = 100.0, 3000.0  # cycles of an empty kernel, and of sharing a loop among threads
MOST = 1e15  # of any figure that was measured


def nominal(target: Target) -> Machine:
    """A machine from a target's data alone, the same on every computer: decisions that must not change from run to
    run (which implementation a node gets) are taken with it. Bytes a cycle are those of common cores."""
    flops = 2.0 * target.lanes(f32.bits) * target.fma_units
    near = {"l2": target.vector_bytes / CYCLES_OF_L2, "l3": target.vector_bytes / CYCLES_OF_L3}
    read, write = near | {"memory": MEMORY_READ}, near | {"memory": MEMORY_WRITE}
    return Machine(HERTZ, flops, OPERATIONS, read, write, CALL, ENTRY)


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel asks of a machine.

    `flops`: of multiply-adds, each divided by the share of the peak that its register tile reaches (so that 0.8 of
    the peak makes 1.25 times as many); f64 counts twice. `operations`: scalar operations, or vector ones, of all
    else, accesses of L1 included. `read`, `write`: bytes by level. `entries` of parallel loops.
    """

    flops: float = 0.0
    operations: float = 0.0
    read: Mapping[str, float] = field(default_factory=dict)
    write: Mapping[str, float] = field(default_factory=dict)
    entries: float = 0.0

    def __add__(self, other: Work) -> Work:
        def both(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
            return {k: a.get(k, 0.0) + b.get(k, 0.0) for k in (*a, *(k for k in b if k not in a))}

        return Work(
            self.flops + other.flops, self.operations + other.operations, both(self.read, other.read),
            both(self.write, other.write), self.entries + other.entries,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prediction:
    """`seconds` in all; `cycles` of each part (`call`, `arithmetic`, `l2`, `l3`, `memory`); `bound`: the largest."""

    seconds: float
    cycles: Mapping[str, float]
    bound: Bound

    def data(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "seconds": self.seconds,
            "cycles": {k: round(v, 1) for k, v in self.cycles.items()},
            "bound": self.bound,
        }


def predict(work: Work, machine: Machine, threads: int = 1) -> Prediction:
    """The time of a kernel on a machine."""
    many = max(1, threads if work.entries else 1)
    cycles = {
        "call": machine.call + (work.entries * machine.entry if many > 1 else 0.0),
        "arithmetic": (work.flops / machine.fma_flops + work.operations / machine.operations) / many,
    }
    for level in LEVELS:
        moved = work.read.get(level, 0.0) / machine.read[level] + work.write.get(level, 0.0) / machine.write[level]
        cycles[level] = moved / (many if level == "l2" else 1)
    total = cycles["call"] + max(cycles[part] for part in ("arithmetic", "l2", "l3")) + cycles["memory"]
    bound: Any = max(cycles, key=lambda part: cycles[part])
    return Prediction(total / machine.hertz, cycles, bound)


def at_level(nbytes: float, target: Target) -> Level | None:
    """The level that data of this size are in when they are used again: half of a cache is for other things.
    None: L1, whose accesses `Work.operations` has."""
    if nbytes <= target.l1 // 2:
        return None
    if nbytes <= target.l2 // 2:
        return "l2"
    return "l3" if nbytes <= target.l3 // 2 else "memory"
