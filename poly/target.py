"""What a schedule or an emitter needs to know of a machine: data, no code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU. Sizes in bytes, widths in bits; `fma_units` = vector FMAs started per cycle.

    `triple`, `cpu` and `features` are LLVM's names (`features` as `+avx2,+fma,...`).
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    l1: int
    l2: int
    l3: int
    line: int
    fma_units: int
    threads: int
    isa: str = "x86-64"

    def lanes(self, bits: int) -> int:
        """Vector lanes for elements of `bits` bits (at least 1)."""
        return max(1, self.vector_bits // max(8, bits))
