"""The strategies for a GPU; `polyc.scheduler.strategies.auto` runs them, and a CPU's schedule does without."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.scheduler.strategies.gpu.chains import gpu_chains
from polyc.scheduler.strategies.gpu.contraction import gpu_contractions
from polyc.scheduler.strategies.gpu.mapping import bind_nests
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.gpu.row_residency import hold_rows
from polyc.scheduler.strategies.gpu.storage import keep_near
from polyc.scheduler.strategies.joining import join
from polyc.scheduler.strategies.loop_form import normal_form_of_loops
from polyc.scheduler.strategies.waste import eliminate

__all__ = ["GPU_STRATEGIES", "GpuPlan"]

GPU_STRATEGIES: Mapping[str, Callable[[GpuPlan], None]] = {
    "waste": eliminate,
    "loops": normal_form_of_loops,
    "chains": gpu_chains,
    "contraction": gpu_contractions,
    "fusion": join,
    "mapping": bind_nests,
    "storage": keep_near,
    "rows": hold_rows,
}
"""In this order; the names are the stages of the decisions."""
