"""GPUs: a Scop becomes a sequence of launches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyc.emit.gpu import targets
from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.protocol import Backend
from polyc.graph_driver.fusion.machine import Fusing, rows_at_a_time
from polyc.poly.target import GpuTarget

if TYPE_CHECKING:
    from polyc.emit.kernel import Kernel
    from polyc.poly.scop import Scop
    from polyc.scheduler.schedule import Schedule


class GpuBackend(Backend):
    """Kernels of a GPU; the image of a group is a `Recorded` as JSON: text, and launches with all sizes known."""

    name = "gpu"
    numbers_because = "on a GPU all sizes are numbers"
    ignored = {
        "threads": "they are those of a CPU",
        "tasks": "they are threads of a CPU",
        "tuned": "schedules are tuned for CPUs",
        "contiguous": "contiguous tensors are for the arena of a CPU",
        "layouts": "its kernels read images as the model has them",
    }
    abilities = frozenset(("known machine",))
    has_program_order = False  # loops that nothing maps to threads have no kernel

    def targets(self) -> tuple[str, ...]:
        """`cuda` for the device that is here, and those with a file."""
        return tuple(targets.names())

    def find(self, target: object) -> GpuTarget | None:
        """A GPU by name (perhaps with `+tf32`) or file."""
        if isinstance(target, GpuTarget):
            return target
        return targets.get(str(target)) if targets.is_gpu(target) else None

    def machine_from(self, data: Mapping[str, Any]) -> GpuTarget:
        """The GPU back from its fields."""
        given = dict(data)
        return targets.from_data(str(given.pop("name")), given, "the manifest")

    def fusing(self, machine: GpuTarget) -> Fusing:
        """A contraction's panels are copied to shared memory, blocks of scores stay there."""
        return Fusing(copies_panels=True, cached=-1, near="a block", chain=rows_at_a_time(machine))

    def schedule(self, scop: Scop, machine: GpuTarget, threads: int) -> Schedule:
        """That of the scheduler's strategies for GPUs."""
        from polyc.scheduler.strategies.auto import automatic

        return automatic(scop, machine)

    def compile(self, schedule: Schedule, machine: GpuTarget, threads: int, symbol: str, checks: bool) -> Compiled:
        """Text and launches. The record of violated accesses is not among the arrays: a model has one for all."""
        from polyc.emit.gpu.kernel import compile_gpu
        from polyc.emit.gpu.program import recorded

        kernel = compile_gpu(schedule.scop, schedule.tree, machine, symbol, schedule.notes, checks=checks)
        made = recorded(kernel.program)
        scratch = made.sequence.scratch
        order = (*(b.name for b in kernel.function.buffers if b.name != made.record), *scratch)
        image = made.to_json().encode()
        return Compiled(symbol, order, image, kernel.notes, kernel.report_seconds, False, tuple(scratch.items()))

    def kernel(self, schedule: Schedule, machine: GpuTarget, threads: int, checks: bool | None) -> Kernel:
        """A `GpuKernel`, which needs no device before it is called."""
        from polyc.emit.gpu.kernel import compile_gpu

        return compile_gpu(schedule.scop, schedule.tree, machine, notes=schedule.notes, checks=checks)


GPU = GpuBackend()
