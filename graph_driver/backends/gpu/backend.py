"""GPUs: a Scop becomes a sequence of launches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.emit.gpu import targets
from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.protocol import NO_ORDER, ONE_TIER, Backend, Platform, Read, Saved
from polyc.graph_driver.fusion.machine import Fusing, rows_at_a_time
from polyc.poly.errors import ModelError
from polyc.poly.target import GpuTarget

if TYPE_CHECKING:
    from polyc.emit.gpu.program import Recorded
    from polyc.emit.gpu.resources import Resources
    from polyc.emit.kernel import Kernel
    from polyc.emit.listing import Listing
    from polyc.emit.loop_ir.loops import Function
    from polyc.graph_driver.backends.gpu.code import GpuCode
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.ir import Graph
    from polyc.graph_driver.graph.report import Report
    from polyc.graph_driver.planning.plan import Plan
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
        "memory": NO_ORDER,
        "layouts": "its kernels read images as the model has them",
        "tier": ONE_TIER,
    }
    abilities = frozenset(("known machine",))
    stages = ("loops", "cuda", "opencl", "nvptx", "ptx")
    alignment = 256
    checks_first = False
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

    def beside(self, machine: GpuTarget) -> Platform:
        """The CPU: what has loops and no kernel here runs there as machine code."""
        from polyc.graph_driver.backends.cpu import LLVM

        return Platform(LLVM, self.host(machine))

    def shared_out(self, graph: Graph, groups: Sequence[Group], machine: GpuTarget) -> tuple[list[Group], list[str]]:
        """By predicted times and transfers, where the target's name ends in `+cpu`."""
        from polyc.graph_driver.backends.gpu.beside import shared_out

        return shared_out(graph, groups, machine, self.host(machine))

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

    def stage(
        self, schedule: Schedule, machine: GpuTarget, threads: int, stage: str, sizes: Mapping[str, int],
        checks: bool | None = None, symbol: str | None = None,
    ) -> str:  # fmt: skip
        """Loops; or CUDA, OpenCL, LLVM IR or PTX, with what maps to what in each kernel as a comment before it."""
        from polyc.emit.gpu.kernel import compile_gpu
        from polyc.graph_driver.backends.gpu.kernel_maps import kernel_maps, lines

        kernel = compile_gpu(schedule.scop, schedule.tree, machine, symbol, schedule.notes, checks=checks)
        text = kernel.source(stage)
        if stage == "loops":
            return text
        out = [line for k in kernel_maps(kernel, schedule.tree, sizes) for line in lines(k)]
        if stage == "nvptx":
            return "".join(f"; {line}\n" for line in out) + text
        return "/* " + "\n   ".join(out) + " */\n" + text

    def facts(self, machine: GpuTarget) -> dict[str, Any]:
        """Language, and what a block may have."""
        names = ("name", "kind", "arch", "warp", "max_threads", "shared", "registers")
        return {name: getattr(machine, name) for name in names}

    def headline(self, machine: GpuTarget) -> dict[str, Any]:
        """Its language."""
        return {"name": machine.name, "language": machine.kind}

    def listing(
        self, schedule: Schedule, machine: GpuTarget, symbol: str
    ) -> tuple[Function, Listing, list[dict[str, Any]]]:
        """Loops and the text of the kernels, with what they map to."""
        from polyc.emit.gpu.kernel import compile_gpu
        from polyc.emit.listing import gpu_listing
        from polyc.graph_driver.backends.gpu.kernel_maps import kernel_maps

        kernel = compile_gpu(schedule.scop, schedule.tree, machine, notes=schedule.notes)
        maps = [k.data() for k in kernel_maps(kernel, schedule.tree)]
        return kernel.function, gpu_listing(kernel.function, machine), maps

    def link(
        self, platform: Platform, plan: Plan, groups: Sequence[Group], compiled: Mapping[str, Compiled], report: Report
    ) -> GpuCode:
        """The kernels' launches. What a CUDA compiler that is here makes of them is noted in the report."""
        from polyc.emit.gpu.devices import nvidia
        from polyc.graph_driver.backends.gpu.code import GpuCode
        from polyc.graph_driver.backends.gpu.natives import NativeKernel
        from polyc.graph_driver.backends.gpu.transfers import transfers
        from polyc.graph_driver.fusion.joined import is_on_cpu

        there = {g.key for g in groups if is_on_cpu(g)}
        kernels = {c.symbol: (_recorded(c.image), c.order) for key, c in compiled.items() if key not in there}
        natives = {c.symbol: NativeKernel(c.image, c.order) for key, c in compiled.items() if key in there}
        code = GpuCode(platform, kernels, {}, natives, platform.host)
        launches = sum(len(kernels[s.symbol][0].sequence.calls) for s in plan.steps if s.symbol in kernels)
        count = sum(len(r.text.kernels) for r, _ in kernels.values())
        report.notes.append(f"{launches} launches of {count} GPU kernels")
        moved = transfers(plan, frozenset(natives))
        if "host" in moved.sides:
            report.notes.append(moved.text())
        if code.target.kind == "cuda" and nvidia.compiler() is not None:
            start = time.perf_counter()
            report.notes += _resource_notes(code.resources())
            report.seconds["cubins"] = time.perf_counter() - start
        return code

    def save(self, code: GpuCode, plan: Plan) -> Saved:
        """Launches, and machine code where a compiler is here."""
        from polyc.graph_driver.backends.gpu.saved import saved

        return saved(code)

    def load(self, entries: Mapping[str, Any], plan: Plan, read: Read) -> GpuCode:
        """The launches back; no device is looked for."""
        from polyc.graph_driver.backends.gpu.saved import read_code

        return read_code(self, entries, plan, read)

    def write_for_people(self, code: GpuCode, kept: Saved, folder: Path) -> None:
        """Sources and machine code, a file each."""
        from polyc.graph_driver.backends.gpu.saved import CUBINS, write_for_people

        write_for_people(code, kept.files[CUBINS], folder)


def _recorded(image: bytes) -> Recorded:
    from polyc.emit.gpu.program import Recorded

    try:
        return Recorded.from_json(image.decode())
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"a compiled GPU kernel is damaged: {error}") from None


def _resource_notes(found: list[Resources]) -> list[str]:
    """What the compiled kernels take, and each one that spills."""
    from polyc.emit.gpu.devices import nvidia
    from polyc.emit.gpu.resources import lines

    spilled = [r for r in found if r.spill_loads or r.spill_stores]
    most = max((r.registers for r in found), default=0)
    text = f"{len(found)} kernels compiled to machine code ({nvidia.compiler()}): at most {most} registers a thread, "
    return [text + (f"{len(spilled)} spill" if spilled else "none spills"), *lines(spilled)]


GPU = GpuBackend()
