"""The code of a model for a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyc.emit.gpu.program import Recorded
from polyc.poly.target import GpuTarget


@dataclass(frozen=True)
class GpuCode:
    """Kernels by symbol with the names of their arrays in the order of a step's arguments; `cubins`: machine
    code that was made before, of all kernels or of none."""

    target: GpuTarget
    kernels: Mapping[str, tuple[Recorded, tuple[str, ...]]]
    cubins: Mapping[str, bytes] = field(default_factory=dict)
