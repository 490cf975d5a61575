"""Joules of a run: read from the machine's own counters, or estimated from counted operations and bytes.

The counters are those of RAPL (Intel SDM volume 3, chapter "Power and thermal management"; Linux:
Documentation/power/powercap), microjoules of each package and of the memory beside it. They count whatever the machine
does meanwhile. The estimate takes the energy of one operation and of one byte from M. Horowitz, "Computing's energy
problem (and what we can do about it)", ISSCC 2014, table of 45 nm: 3.7 pJ a product and 0.9 pJ a sum of f32, 1.3 to 2.6
nJ for 64 bits of DRAM. It says which of two programs needs more, not what a meter would show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from polyc.poly.records import dataclass

POWERCAP = Path("/sys/class/powercap")
OPERATION = 2.3e-12
"""Joules of a sum or a product of f32: the mean of both."""
BYTE = 1.95e-9 / 8
"""Joules of a byte of DRAM: the middle of the range for 64 bits."""
SECONDS = 0.5
"""Of a measurement, at least: counters are updated about once a millisecond."""


@dataclass(frozen=True)
class Energy:
    """Joules of one run. `measured`: the counters that were read, by name; empty for an estimate, for `reason`."""

    joules: float
    operations: int
    bytes: int
    measured: tuple[str, ...] = ()
    reason: str = ""

    def data(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "measured": list(self.measured), "estimate": not self.measured}

    def __str__(self) -> str:
        if self.measured:
            return f"{self.joules:.4g} J a run, by the counters {', '.join(self.measured)}"
        return (
            f"{self.joules:.4g} J a run, an estimate: {self.operations} operations of {1e12 * OPERATION:.1f} pJ, "
            f"{self.bytes} bytes of {1e12 * BYTE:.0f} pJ ({self.reason})"
        )


@dataclass(frozen=True)
class Counter:
    """One domain of RAPL: microjoules since some time, from 0 again after `wrap`."""

    name: str
    file: Path
    wrap: int

    def read(self) -> int:
        """The microjoules now. Raises `OSError` or `ValueError`: it cannot be read."""
        return int(self.file.read_text())


def counters(root: Path = POWERCAP) -> list[Counter] | str:
    """The packages and their memory; or one line that says why nothing can be read here."""
    found = []
    folders = sorted(root.glob("intel-rapl:*")) if root.is_dir() else []
    if not folders:
        return f"this machine shows no energy counters in {root}"
    for folder in folders:
        try:
            name = (folder / "name").read_text().strip()
            if name.startswith("package") or name == "dram":  # cores and graphics are parts of a package
                counter = Counter(name, folder / "energy_uj", int((folder / "max_energy_range_uj").read_text()))
                counter.read()
                found.append(counter)
        except PermissionError:
            return f"the energy counters in {root} may be read by the administrator only"
        except (OSError, ValueError) as error:
            return f"the energy counters in {root} cannot be read: {error}"
    return found or f"{root} counts neither a package nor memory"


def energy_of(
    run: Callable[[], object], steps: Mapping[int, Mapping[str, Any]], root: Path = POWERCAP, seconds: float = SECONDS
) -> Energy:
    """Joules of `run`, read where they can be, else estimated.

    Args:
        run: what is measured; it is called for `seconds` at least.
        steps: what each step does, `flops` and `bytes` (of all tensors that it reads and writes).
        root: the folder of the counters.
        seconds: how long runs are measured, at least.
    """
    operations = int(sum(s.get("flops", 0) for s in steps.values()))
    moved = int(sum(s.get("bytes", 0) for s in steps.values()))
    sources = counters(root)
    if isinstance(sources, str):
        return Energy(operations * OPERATION + moved * BYTE, operations, moved, reason=sources)
    before, start, runs = [c.read() for c in sources], time.perf_counter(), 0
    while not runs or time.perf_counter() - start < seconds:
        run()
        runs += 1
    after = [c.read() for c in sources]
    micro = sum((b - a) % (c.wrap + 1) for c, a, b in zip(sources, before, after, strict=True))
    return Energy(1e-6 * micro / runs, operations, moved, tuple(c.name for c in sources))
