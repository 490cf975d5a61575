"""CPUs: machine code through LLVM, or through a C compiler on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, fields, replace
from typing import TYPE_CHECKING, Any

from polyc.emit import targets
from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.cpu_code import NativeCode, link_program, program_digest, sources_of
from polyc.graph_driver.backends.protocol import CODE, NO_ORDER, Backend, Platform, Read, Saved
from polyc.graph_driver.execution import entry
from polyc.graph_driver.fusion.machine import Fusing, for_cpu
from polyc.poly.target import Target

if TYPE_CHECKING:
    from polyc.emit.kernel import Kernel
    from polyc.emit.listing import Listing
    from polyc.emit.loop_ir.loops import Function
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.report import Report
    from polyc.graph_driver.planning.plan import Plan
    from polyc.poly.scop import Scop
    from polyc.scheduler.schedule import Schedule


SOURCES = "sources.json"
"""What the kernels were made from, in a compiled directory."""


HURRIED_REGISTERS = 12
"""Vector registers that kernels of the tier `fast` use. With 12 instead of 32, without Winograd's method and with
layouts as given, the kernels of light_resnet50 took 4.8 s of one Zen 4 core instead of 11.1 s, and the network 81 ms
instead of 67; 8 save no more time, 8 of 256 bits save none and take 126 ms."""


class _Cpu(Backend):
    """What both compilers have in common."""

    numbers_because = ""
    ignored: Mapping[str, str] = {}
    stages = ("loops", "c", "llvm", "asm", "mlir")
    chooses_layouts = True
    runs_bodies = True
    takes_tuned = True

    def hurried(self, machine: Target) -> Target:
        """Fewer registers: register tiles are small, and so is their code."""
        return replace(machine, vector_registers=min(machine.vector_registers, HURRIED_REGISTERS))

    def machine_from(self, data: Mapping[str, Any]) -> Target:
        """The CPU back from its fields."""
        target = Target(**data)
        if any(type(v) is not (int if f.type == "int" else str) for f, v in zip(fields(target), astuple(target))):
            raise ValueError("target")
        return target

    def host(self, machine: Target) -> Target:
        """The machine itself."""
        return machine

    def threads(self, machine: Target, asked: int | None) -> int:
        """Those asked for, or all of the machine."""
        return asked or machine.threads

    def costed(self, machine: Target) -> Target:
        """The machine itself."""
        return machine

    def fusing(self, machine: Target) -> Fusing:
        """Register tiles and caches are known."""
        return for_cpu(machine)

    def schedule(self, scop: Scop, machine: Target, threads: int) -> Schedule:
        """That of the scheduler's own strategies."""
        from polyc.scheduler.strategies.auto import automatic

        return automatic(scop, machine, threads)

    def compile(self, schedule: Schedule, machine: Target, threads: int, symbol: str, checks: bool) -> Compiled:
        """Machine code."""
        return self._compiled(schedule, machine, symbol, checks, False)

    def _compiled(self, schedule: Schedule, machine: Target, symbol: str, checks: bool, overlapping: bool) -> Compiled:
        from polyc.emit.compile import compile_step
        from polyc.emit.loop_ir.overlap import gaps
        from polyc.emit.passes.workspace import constant_bytes, formula_bytes
        from polyc.poly.json_io import dump_expr

        function, scratch, native, report = compile_step(
            schedule.scop, schedule.tree, machine, self.name, symbol, schedule.notes, checks, overlapping
        )
        order = tuple(b.name for b in function.buffers)
        sizes = tuple((b.name, constant_bytes(b) or dump_expr(formula_bytes(b))) for b in scratch)
        found = gaps(function) if overlapping else {}
        return Compiled(
            function.name, order, native.image, tuple(report.notes), report.seconds, False, sizes,
            gaps=tuple((a, b, low, high) for (a, b), (low, high) in found.items()),
        )  # fmt: skip

    def kernel(self, schedule: Schedule, machine: Target, threads: int, checks: bool | None) -> Kernel:
        """Machine code, loaded if this machine runs it."""
        from polyc.emit.compile import compile_kernel

        return compile_kernel(
            schedule.scop, schedule.tree, machine, self.name, threads, notes=schedule.notes, checks=checks
        )

    def facts(self, machine: Target) -> dict[str, Any]:
        """Vectors and caches."""
        names = ("name", "cpu", "vector_bits", "fma_units", "l1", "l2", "l3")
        return {name: getattr(machine, name) for name in names}

    def headline(self, machine: Target) -> dict[str, Any]:
        """Its vectors."""
        return {"name": machine.name, "cpu": machine.cpu, "vectorBits": machine.vector_bits}

    def listing(
        self, schedule: Schedule, machine: Target, symbol: str
    ) -> tuple[Function, Listing, list[dict[str, Any]]]:
        """Loops, C, LLVM IR and assembly."""
        from polyc.emit.listing import listing
        from polyc.emit.lowering.lower import lower
        from polyc.emit.mathlib import expand_function

        function = expand_function(lower(schedule.scop, schedule.tree, symbol, machine))
        return function, listing(function, machine), []

    def link(
        self, platform: Platform, plan: Plan, groups: Sequence[Group], compiled: Mapping[str, Compiled], report: Report
    ) -> NativeCode:
        """The kernels' machine code, and one native program that calls them."""
        code = link_program(entry.entry_text(plan, platform.machine.triple), plan, compiled, platform)
        code.sources = "" if plan.symbols is not None else sources_of(groups, compiled)
        return code

    def save(self, code: NativeCode, plan: Plan) -> Saved:
        """Machine code, and what the kernels were made from."""
        blobs = [*code.images.values(), code.program]
        entries = {
            "target": asdict(code.target),
            "threads": code.threads,
            "segments": code.segments,
            "symbols": list(code.images),
            "code": [len(b) for b in blobs],
            "program": program_digest(plan, code.target.triple),
        }
        return Saved(entries, {CODE: blobs, SOURCES: [code.sources.encode()]})

    def load(self, entries: Mapping[str, Any], plan: Plan, read: Read) -> NativeCode:
        """Machine code that fits the plan, perhaps of another CPU."""
        target, symbols = self.machine_from(entries["target"]), list(entries["symbols"])
        blobs = read(CODE, [int(n) for n in entries["code"]])
        if len(blobs) != len(symbols) + 1:
            raise ValueError("number of symbols")
        if entries["program"] != program_digest(plan, target.triple):
            raise ValueError("the plan is not the one that the code was made from")
        if entries["segments"] != len(entry.segments(plan)):
            raise ValueError("number of segments")
        images, segments = dict(zip(symbols, blobs)), int(entries["segments"])
        code = NativeCode(
            Platform(self, target, int(entries["threads"])), images, blobs[-1], segments, dict(plan.external)
        )
        code.sources = read(SOURCES, None)[0].decode()
        return code

    def misfit(self, code: NativeCode) -> str:
        """What the machine lacks that the code needs."""
        from polyc.emit.cpus import features_of

        target, host = code.target, targets.host()
        lacks = ", ".join(sorted(features_of(target) - features_of(host)))
        if target.isa != host.isa:
            lacks = target.isa
        elif not lacks and target.vector_bits > host.vector_bits:
            lacks = f"{target.vector_bits}-bit vectors"
        if not lacks:
            return ""
        return f"the model was compiled for {target.cpu}; this machine ({host.cpu}) lacks {lacks}"


class LlvmBackend(_Cpu):
    """Machine code through LLVM, for this machine or another."""

    name = "llvm"
    linkable = True
    calls_compilers = False
    abilities = frozenset(("calls", "known machine", "pairs", "fma"))
    tunes = True

    def schedule_overlapping(self, scop: Scop, machine: Target) -> Schedule:
        """The automatic schedule, with results row by row."""
        from polyc.scheduler.strategies.auto import automatic
        from polyc.scheduler.strategies.planner import Planner
        from polyc.scheduler.strategies.streaming import stream

        plan = Planner(automatic(scop, machine, 1), machine, 1)
        stream(plan)
        return plan.schedule

    def compile_overlapping(
        self, schedule: Schedule, machine: Target, threads: int, symbol: str, checks: bool
    ) -> Compiled:
        """Machine code that keeps the order of the loops also between its arrays, and how far these must lie apart."""
        return self._compiled(schedule, machine, symbol, checks, True)

    def targets(self) -> tuple[str, ...]:
        """This machine, and those with a file; LLVM's names are many more."""
        return tuple(targets.names())

    def find(self, target: object) -> Target | None:
        """A CPU by name or file; None is this machine.

        Raises:
            BuildError: there is no such CPU: it is the last one to be asked.
        """
        return target if isinstance(target, Target) else targets.get(target)  # type: ignore[arg-type]


class CBackend(_Cpu):
    """Machine code through gcc or clang, for this machine."""

    name = "c"
    ignored = {"tasks": "kernels from a C compiler share out their own loops", "memory": NO_ORDER}
    abilities = frozenset(("calls", "known machine"))

    def targets(self) -> tuple[str, ...]:
        """Its one name."""
        return ("c",)

    def find(self, target: object) -> Target | None:
        """This machine, without the matrix registers that C has no word for."""
        return targets.host().without_matrices() if target == "c" else None

    def lacks(self, machine: Target) -> str:
        """A C compiler, perhaps."""
        from polyc.emit.c import cc

        return "" if cc.find_compiler() else "target 'c' needs gcc or clang on PATH; target 'cpu' needs neither"

    def shown(self, machine: Target) -> str:
        """Its name: the machine is this one."""
        return self.name


class Interpreter(_Cpu):
    """The loop IR run in Python: what tests compare machine code with. No target means it."""

    name = "interp"
    calls_compilers = False

    def targets(self) -> tuple[str, ...]:
        """None."""
        return ()

    def find(self, target: object) -> None:
        """None."""


LLVM, C = LlvmBackend(), CBackend()
COMPILERS = {made.name: made for made in (LLVM, C, Interpreter())}
"""What makes code of one operator for a CPU."""
