"""The machine: numbers, no code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Toy:
    """Sizes in bytes.

    A matrix unit multiplies tiles of at most `unit` rows, columns and products each in `unit_cycles`, out of a
    scratchpad and into it. A DMA copies between memory and scratchpad: `dma_start` cycles, then `bus` bytes a cycle. A
    scalar unit does the rest in memory, one access a cycle.
    """

    name: str = "toy"
    scratchpad: int = 16 << 10
    unit: int = 16
    unit_cycles: int = 16
    bus: int = 16
    dma_start: int = 20


MACHINES = {m.name: m for m in (Toy(), Toy("toy-2k", 2 << 10))}
