"""`polyc inspect` for GPU targets: schedules, loops and texts, each kernel under what it maps to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from emit.gpu import nvidia, targets
from emit.gpu.resources import lines as resource_lines
from emit.loops import Alloc, Launch, walk
from emit.printer import expr_text
from poly.scop import Scop

if TYPE_CHECKING:
    from emit.gpu.kernel import GpuKernel
    from scheduler.schedule import Schedule

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
    from graph_driver.compile_operator import compile_operator, gpu_schedule
    from poly.text import print_tree

    chosen = schedule or gpu_schedule(scop, targets.get(target), sizes)
    if stage == "schedule":
        return "\n".join([print_tree(chosen.tree, chosen.scop), *(f"# {n}" for n in chosen.notes)])
    kernel = compile_operator(chosen.original, target=target, schedule=chosen)
    text = kernel.source(stage)
    return mapping_text(kernel) + text if stage in STAGES else text  # type: ignore[arg-type]


def mapping_text(kernel: GpuKernel) -> str:
    """For each kernel a comment: blocks, threads, what lies in shared memory and registers, occupancy."""
    out = []
    for launch in (s for s in walk(kernel.function.body) if isinstance(s, Launch)):
        info = kernel.program.kernels[launch.name]
        blocks = " x ".join(f"{v} < {expr_text(n)}" for v, n in launch.grid)
        threads = " x ".join(f"{v} < {n}" for v, n in launch.threads)
        out += [f"{info.name}: blocks {blocks}", f"  threads {threads}"]
        for alloc in (s for s in walk(launch.body) if isinstance(s, Alloc)):
            b = alloc.buffer
            shape = ", ".join(expr_text(e) for e in b.shape)
            out.append(f"  {b.space} {b.name}: {b.dtype}[{shape}]" + (f" holds {b.promoted}" if b.promoted else ""))
        out.append(f"  {info.shared} bytes of shared memory a block, {'' if info.barriers else 'no '}barriers")
    if kernel.program.language == "cuda" and nvidia.compiler() is not None:
        out += resource_lines(list(kernel.cubin().resources))
    return "/* " + "\n   ".join(out) + " */\n"
