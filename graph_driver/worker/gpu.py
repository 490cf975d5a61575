"""One group of a model as kernels of a GPU: text and launches, all sizes known."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from polyc.poly.scop import Scop

if TYPE_CHECKING:
    from polyc.emit.gpu.program import Recorded

BACKEND = "gpu:"  # followed by the target's name: what jobs and reports call it


def is_gpu_backend(backend: str) -> bool:
    """Whether a back end's name means kernels of a GPU."""
    return backend.startswith(BACKEND)


def compile_group(
    scop: Scop, backend: str, symbol: str, seconds: dict[str, float], checks: bool
) -> tuple[Recorded, tuple[str, ...], tuple[str, ...]]:
    """Kernels and launches of a Scop without parameters, its arrays (scratch memory last), notes.

    Adds the seconds of each stage to `seconds`. `checks`: of accesses that are not proven; their record is not
    among the arrays.

    Raises:
        BuildError: the Scop cannot be mapped to this target.
    """
    from polyc.emit.gpu import targets
    from polyc.emit.gpu.kernel import compile_gpu
    from polyc.emit.gpu.program import recorded
    from polyc.scheduler.strategies.auto import automatic

    target = targets.get(backend.removeprefix(BACKEND))
    start = time.perf_counter()
    schedule = automatic(scop, target)
    seconds["schedule"] = time.perf_counter() - start
    kernel = compile_gpu(schedule.scop, schedule.tree, target, symbol, schedule.notes, checks=checks)
    seconds |= kernel.report_seconds
    made = recorded(kernel.program)
    order = (*(b.name for b in kernel.function.buffers if b.name != made.record), *made.sequence.scratch)
    return made, order, kernel.notes
