"""C sources for machines that nobody knows: what `polyc compile --target c` writes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.cpu import LLVM
from polyc.graph_driver.backends.protocol import NO_ORDER, ONE_TIER, Backend, Code, Platform, Read, Saved
from polyc.graph_driver.fusion.machine import Fusing, for_cpu
from polyc.poly.errors import BuildError
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


class C99Backend(Backend):
    """C99 text without vectors; the image of a kernel is a `PortableKernel` as JSON."""

    name = "c99"
    numbers_because = "C sources have an arena of fixed size"
    ignored = {
        "threads": "they have one thread",
        "tasks": "they have one thread",
        "tuned": "schedules were tuned for this machine, C sources are for any",
        "contiguous": "their arena is their own",
        "memory": NO_ORDER,
        "tier": ONE_TIER,
    }
    chooses_layouts = True
    runs_bodies = True
    runs = False
    stages = ("c",)

    def targets(self) -> tuple[str, ...]:
        """Its one name, for `inspect`, `explain` and `build`."""
        return (self.name,)

    def find(self, target: object) -> Target | None:
        """The unknown machine."""
        from polyc.emit.c import c99

        return c99.target() if target == self.name else None

    def machine_from(self, data: Mapping[str, Any]) -> Target:
        """The machine back."""
        return LLVM.machine_from(data)

    def host(self, machine: Target) -> Target:
        """The unknown machine: its numbers are those that schedules assume."""
        return machine

    def shown(self, machine: Target) -> str:
        """Its name."""
        return self.name

    def meant(self, machine: Target) -> str:
        """What the files are."""
        return "C sources"

    def costed(self, machine: Target) -> Target:
        """The machine itself."""
        return machine

    def fusing(self, machine: Target) -> Fusing:
        """Register tiles and caches are known."""
        return for_cpu(machine)

    def schedule(self, scop: Scop, machine: Target, threads: int) -> Schedule:
        """As for any CPU, with the numbers of a small one."""
        return LLVM.schedule(scop, machine, threads)

    def compile(self, schedule: Schedule, machine: Target, threads: int, symbol: str, checks: bool) -> Compiled:
        """C99 text instead of machine code."""
        from polyc.emit.c import c99

        start = time.perf_counter()
        kernel = c99.portable_kernel(schedule.scop, schedule.tree, symbol, machine, checks)
        order = tuple(a.name for a in kernel.arguments)
        sizes = tuple((a.name, a.nbytes) for a in kernel.arguments if a.scratch)
        image = kernel.to_json().encode()
        seconds = {"print": time.perf_counter() - start}
        return Compiled(symbol, order, image, (*schedule.notes, *kernel.notes), seconds, False, sizes)

    def kernel(self, schedule: Schedule, machine: Target, threads: int, checks: bool | None) -> Kernel:
        """Raises `BuildError`: sources are not called."""
        raise BuildError("C sources do not run here: polyc build writes them, target c runs code of a C compiler")

    def stage(
        self, schedule: Schedule, machine: Target, threads: int, stage: str, sizes: Mapping[str, int],
        checks: bool | None = None, symbol: str | None = None,
    ) -> str:  # fmt: skip
        """The C source of a kernel, as it stands in the files."""
        from polyc.emit.c import c99
        from polyc.emit.lowering.checks import wanted

        name = symbol or schedule.scop.name
        return c99.portable_kernel(schedule.scop, schedule.tree, name, machine, wanted(checks)).text

    def facts(self, machine: Target) -> dict[str, Any]:
        """Those that schedules assume."""
        return LLVM.facts(machine)

    def headline(self, machine: Target) -> dict[str, Any]:
        """As of a CPU."""
        return LLVM.headline(machine)

    def listing(
        self, schedule: Schedule, machine: Target, symbol: str
    ) -> tuple[Function, Listing, list[dict[str, Any]]]:
        """As of a CPU."""
        return LLVM.listing(schedule, machine, symbol)

    def link(
        self, platform: Platform, plan: Plan, groups: Sequence[Group], compiled: Mapping[str, Compiled], report: Report
    ) -> Code:
        """Raises `BuildError`: what is written are files (`polyc.graph_driver.artifacts.c_export`)."""
        raise BuildError("C sources do not run here: polyc compile --target c writes them")

    def save(self, code: Code, plan: Plan) -> Saved:
        """Raises `BuildError`: there is no such code."""
        raise BuildError("C sources are no compiled directory")

    def load(self, entries: Mapping[str, Any], plan: Plan, read: Read) -> Code:
        """Raises `BuildError`: there is no such directory."""
        raise BuildError("C sources are no compiled directory")


C99 = C99Backend()
