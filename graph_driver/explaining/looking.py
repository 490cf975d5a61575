"""`polyc inspect` for GPU targets: schedules, loops and texts, each kernel under what it maps to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from polyc.emit.gpu import targets
from polyc.graph_driver.explaining.kernel_maps import kernel_maps, lines
from polyc.poly.scop import Scop

if TYPE_CHECKING:
    from polyc.emit.gpu.kernel import GpuKernel
    from polyc.poly.tree import Node
    from polyc.scheduler.schedule import Schedule

STAGES = ("cuda", "opencl")


def gpu_target(target: str | None, stage: str | None) -> str | None:
    """The GPU that a stage is about: the target, or the stage's language; None when it is about a CPU."""
    if targets.is_gpu(target):
        return target
    return stage if stage in STAGES else None


def gpu_stage(
    scop: Scop, stage: str, target: str, sizes: Mapping[str, int] | None = None, schedule: Schedule | None = None
) -> str:
    """The text of `schedule`, `loops`, `cuda` or `opencl`.

    Raises:
        BuildError: the schedule cannot be mapped to the target, or there is no such text.
    """
    from polyc.emit.gpu.kernel import GpuKernel
    from polyc.graph_driver.worker.compile_operator import auto_schedule, compile_operator
    from polyc.poly.text import print_tree

    chosen = schedule or auto_schedule(scop, target, sizes)
    if stage == "schedule":
        return "\n".join([print_tree(chosen.tree, chosen.scop), *(f"# {n}" for n in chosen.notes)])
    kernel = compile_operator(chosen.original, target=target, schedule=chosen)
    text = kernel.source(stage)
    if stage not in STAGES:
        return text
    assert isinstance(kernel, GpuKernel)
    return mapping_text(kernel, chosen.tree, sizes) + text


def mapping_text(kernel: GpuKernel, tree: Node, sizes: Mapping[str, int] | None = None) -> str:
    """What maps to what in each kernel, as a comment."""
    out = [line for k in kernel_maps(kernel, tree, sizes) for line in lines(k)]
    return "/* " + "\n   ".join(out) + " */\n"
