"""What a back end is: the questions that the rest of polyc asks of whatever makes and runs code.

A back end knows machines by name, says in facts what it can do, makes a schedule for a Scop and code of a schedule.
One that is installed beside polyc is found by the entry point `polyc.backends` (`registry.py`); docs/back-ends.md
shows one.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from polyc.emit import targets
from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.execution.parts import Parts, cut
from polyc.graph_driver.fusion.machine import Fusing
from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass
from polyc.poly.target import ALL_PASSES, FLOATS, GpuTarget, Target

if TYPE_CHECKING:
    import numpy as np

    from polyc.emit.kernel import Kernel
    from polyc.emit.listing import Listing
    from polyc.emit.loop_ir.loops import Function
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.execution.executor import Executor
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.ir import Graph
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.graph.report import Report
    from polyc.graph_driver.host.reference import HostNode
    from polyc.graph_driver.planning.plan import Plan
    from polyc.poly.scop import Scop
    from polyc.scheduler.schedule import Schedule


NO_ORDER = "the order of accesses to different arrays is known of machine code for CPUs alone"
"""Why tensors do not overlap on a back end."""
ONE_TIER = "its code is made in one way"
"""Why there are no tiers of a back end."""


class Machine(Protocol):
    """What a back end makes code for: a frozen dataclass of numbers and texts (its `repr` is part of cache keys)."""

    @property
    def name(self) -> str:
        """What reports and errors call it."""


class Backend(ABC):
    """A back end. Those of polyc are `cpu.py`, `c99.py` and `gpu/`; each is one object that holds no state.

    Besides the methods it has these facts:

    `name`: what manifests, cache keys and the list of `polyc doctor` call it.
    `numbers_because`: why sizes must be numbers; empty: kernels take sizes that a run decides.
    `ignored`: options of `CompileOptions` that have no effect here, and why.
    `abilities`: what graph passes may rely on (`polyc.graph_driver.passes.manager.Pass.needs`): `calls` of functions of
    this process, a `known machine` whose memory is not short, `pairs` of products in one instruction, `fma` in one.
    `chooses_layouts`: images are stored in blocks of channels or channels last, and weights in panels, where that is
    faster: for kernels with vectors along the last dimension.
    `runs`: models can be run after compiling; if not, `polyc.compile_model` does not know the target.
    `takes_tuned`: code may be made of schedules that `polyc tune` has found; `tunes`: it finds them by this one.
    `stages`: the texts of one kernel that `polyc inspect` shows, besides its Scop, its dependences and its schedule.
    `checks_first`: accesses may be checked before the loops that do them, which then run without checks.
    `runs_bodies`: the bodies of control flow are compiled for it, too; else for the CPU beside it, whose steps they are
    among.
    `calls_compilers`: code comes from a C compiler or another program of this machine.
    `alignment`: bytes of which the begin of every tensor is a multiple, itself one of 64: a cache line, on a GPU 256.
    `linkable`: images of kernels are objects that a linker joins.
    `has_program_order`: where the automatic schedule takes too long, the program's own order has code, too.
    """

    name: str
    numbers_because: str = "its kernels are for sizes that are numbers"
    ignored: Mapping[str, str] = {"tier": ONE_TIER, "memory": NO_ORDER}
    abilities: frozenset[str] = frozenset()
    chooses_layouts: bool = False
    runs: bool = True
    stages: tuple[str, ...] = ("loops",)
    checks_first: bool = True
    takes_tuned: bool = False
    tunes: bool = False
    runs_bodies: bool = False
    calls_compilers: bool = True
    linkable: bool = False
    has_program_order: bool = True
    alignment: int = 64

    # ---- machines ----

    @abstractmethod
    def targets(self) -> tuple[str, ...]:
        """Names of the machines it knows, for `polyc doctor` and for errors."""

    @abstractmethod
    def find(self, target: object) -> Machine | None:
        """The machine that a user calls `target` (a name, a file, or the machine itself); None: it is not of here.

        Raises:
            BuildError: it is of here, and wrong.
        """

    def floats(self, machine: Any) -> tuple[str, ...]:
        """The types of real numbers that it computes in."""
        return (
            tuple(machine.floats.split(",")) if isinstance(machine, (Target, GpuTarget)) else tuple(FLOATS.split(","))
        )

    def graph_passes(self, machine: Any) -> tuple[str, ...]:
        """The graph passes that run for it when a user names none: `general`, `specific`, and names."""
        asked = machine.passes if isinstance(machine, (Target, GpuTarget)) else ALL_PASSES
        return tuple(filter(None, (name.strip() for name in asked.split(","))))

    def operand_limits(self, machine: Any) -> dict[str, int]:
        """How many operands one operator takes at most, by the operator's name; those without a limit are not there."""
        if not isinstance(machine, (Target, GpuTarget)):
            return {}
        limits = {"Concat": machine.max_concat_inputs}
        limits |= dict.fromkeys(("Sum", "Max", "Min", "Mean"), machine.max_sum_inputs)
        return {name: most for name, most in limits.items() if most}

    def lacks(self, machine: Any) -> str:
        """Why nothing can be compiled for it here, in one line; empty where it can."""
        return ""

    def data_of(self, machine: Any) -> dict[str, Any]:
        """A machine as JSON values, for other processes and manifests."""
        return asdict(machine)

    @abstractmethod
    def machine_from(self, data: Mapping[str, Any]) -> Machine:
        """The machine back. Raises `BuildError`, `TypeError`, `KeyError` or `ValueError` for what is none."""

    def host(self, machine: Any) -> Target:
        """The CPU that runs what has no kernel, and whose numbers the graph's passes assume."""
        return targets.host()

    def threads(self, machine: Any, asked: int | None) -> int:
        """How many threads run parallel loops where `asked` were asked for (None: as many as there are)."""
        return 1

    def hurried(self, machine: Any) -> Any:
        """The machine as kernels of the tier `fast` are made for: with less of what takes long to make code for."""
        return machine

    def shown(self, machine: Any) -> str:
        """What reports and errors call the machine."""
        return str(machine.name)

    def meant(self, machine: Any) -> str:
        """What an error about an option says that it has no effect for."""
        return f"target {self.shown(machine)}"

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the files beside the module of a back end: another one, other cache entries. Those of polyc are
        covered by the hash of the whole compiler (`polyc.graph_driver.worker.jobs.fingerprint`)."""
        module = type(self).__module__
        place = sys.modules[module].__file__
        if module.startswith("polyc.") or place is None:
            return ""
        digest = sha256()
        for path in sorted(Path(place).parent.rglob("*.py")):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def fusing(self, machine: Any) -> Fusing:
        """What those who join nodes may take for granted."""
        return Fusing()

    def costed(self, machine: Any) -> Target | None:
        """The CPU by whose figures times are predicted; None: there is no model of this machine's time."""
        return None

    def beside(self, machine: Any) -> Platform | None:
        """What makes kernels for steps of its plans that it has none for, if its code runs them; None: the host does,
        operator by operator."""
        return None

    def shared_out(self, graph: Graph, groups: Sequence[Group], machine: Any) -> tuple[list[Group], list[str]]:
        """The groups, those that `beside` had better run as its own (`polyc.graph_driver.fusion.joined.on_cpu`); and
        what was decided, as notes."""
        return list(groups), []

    # ---- one Scop ----

    @abstractmethod
    def schedule(self, scop: Scop, machine: Any, threads: int) -> Schedule:
        """The automatic schedule of a Scop. Raises `PolycError` where there is none."""

    @abstractmethod
    def compile(self, schedule: Schedule, machine: Any, threads: int, symbol: str, checks: bool) -> Compiled:
        """The code of one kernel of a model: a function `symbol`.

        Raises:
            PolycError: this schedule has no code here; the group is compiled in parts, or runs on the host.
        """

    def schedule_overlapping(self, scop: Scop, machine: Any) -> Schedule:
        """A schedule on one thread whose results are made in the order in which operands die, for
        `compile_overlapping`. Raises `PolycError` where there is none."""
        return self.schedule(scop, machine, 1)

    def compile_overlapping(
        self, schedule: Schedule, machine: Any, threads: int, symbol: str, checks: bool
    ) -> Compiled:
        """As `compile`, but its arrays may overlap in memory as far as the result's `gaps` say; without any, which is
        always right, not at all.

        Raises:
            PolycError: as `compile` does.
        """
        return self.compile(schedule, machine, threads, symbol, checks)

    @abstractmethod
    def kernel(self, schedule: Schedule, machine: Any, threads: int, checks: bool | None) -> Kernel:
        """An operator that is called with arrays. `checks`: None is unless `POLYC_CHECK=0`.

        Raises:
            BuildError: this schedule has no code here.
        """

    # ---- to be looked at ----

    def stage(
        self, schedule: Schedule, machine: Any, threads: int, stage: str, sizes: Mapping[str, int],
        checks: bool | None = None, symbol: str | None = None,
    ) -> str:  # fmt: skip
        """One of `stages` of a kernel, as text. `sizes`: those to show numbers for where some are free; `symbol`: the
        function's name (None: the operator's).

        Raises:
            BuildError: there is no such text, or no code for the schedule.
        """
        return str(self.kernel(schedule, machine, threads, checks).source(stage))

    def facts(self, machine: Any) -> dict[str, Any]:
        """What `polyc explain` says of the machine, `name` first."""
        return self.data_of(machine)

    def headline(self, machine: Any) -> dict[str, Any]:
        """What the page of an operator says of it."""
        return {"name": self.shown(machine), "language": self.name}

    @abstractmethod
    def listing(self, schedule: Schedule, machine: Any, symbol: str) -> tuple[Function, Listing, list[dict[str, Any]]]:
        """For the page of an operator: its loops, the texts made of them, and what each kernel maps to (JSON values;
        empty where loops are just loops).

        Raises:
            BuildError: the schedule has no code here.
        """

    # ---- a model ----

    @abstractmethod
    def link(
        self, platform: Platform, plan: Plan, groups: Sequence[Group], compiled: Mapping[str, Compiled], report: Report
    ) -> Code:
        """The code of a plan from that of its kernels, which are given by the keys of their groups.

        Raises:
            ModelError: what is compiled is damaged.
        """

    @abstractmethod
    def save(self, code: Any, plan: Plan) -> Saved:
        """What `load` makes the same code of. Raises `BuildError`."""

    @abstractmethod
    def load(self, entries: Mapping[str, Any], plan: Plan, read: Read) -> Code:
        """The code back, of a manifest's entries and files, which may be damaged. It need not run here.

        Raises:
            BuildError, KeyError, TypeError, ValueError: they do not fit together.
        """

    def write_for_people(self, code: Any, kept: Saved, folder: Path) -> None:
        """More files beside the directory's own, to be looked at; nothing reads them."""
        return

    def misfit(self, code: Any) -> str:
        """Why loaded code does not run on this machine, though it may if its kernels are compiled again (for which
        `Code.sources` are kept); empty where it runs, or where only running shows that."""
        return ""


CODE = "code.bin"
"""The file of a compiled directory that holds code."""


class Code(ABC):
    """The code of a whole plan: what a model has an executor of, and what a directory keeps of it."""

    platform: Platform
    sources: str = ""

    @abstractmethod
    def start(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], notes: list[str]
    ) -> Executor:
        """The plan with its memory, ready to run. What runs have to do beside the plan is added to `notes`.

        Raises:
            BuildError: it does not run here; one line says what was looked for.
        """

    def start_at(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], notes: list[str],
        table: np.ndarray, beside: Executor | None,
    ) -> Executor:  # fmt: skip
        """As `start`, where the code is that of a plan of formulas: `plan` is at the sizes of a call, `table` has what
        the code reads of them (`polyc.graph_driver.planning.table`), `beside` runs other sizes and shares its memory.

        Raises:
            BuildError: the code is that of one plan of numbers.
        """
        raise BuildError(f"code of {self.platform.name} is for one plan: {self.platform.backend.numbers_because}")

    def parts(self, plan: Plan, alone: frozenset[int]) -> Parts:
        """The plan cut around the steps `alone`, with code for what lies between them if that is other code."""
        return cut(plan, alone)


@dataclass(frozen=True)
class Saved:
    """What a directory keeps of code: entries of its manifest (JSON values), and files by name, in parts.

    The manifest has `symbols`, those of the kernels, whatever the back end adds.
    """

    entries: Mapping[str, Any]
    files: Mapping[str, Sequence[bytes]]


Read = Callable[[str, Sequence[int] | None], list[bytes]]
"""A file of a directory, checked, cut into parts of so many bytes (None: it is one). Raises `BuildError` or
`ValueError`."""


@dataclass(frozen=True)
class Platform:
    """What code is made for: a back end, one of its machines, and how many threads run parallel loops."""

    backend: Backend
    machine: Any
    threads: int = 1

    @property
    def name(self) -> str:
        """What reports and errors call it."""
        return self.backend.shown(self.machine)

    @property
    def meant(self) -> str:
        """What an error about an option says that it has no effect for."""
        return self.backend.meant(self.machine)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What cache keys have of it."""
        return self.backend.name, repr(self.machine), str(self.threads), self.backend.fingerprint

    def hurried(self) -> Platform:
        """That of the tier `fast`: another machine, so other cache entries."""
        return replace(self, machine=self.backend.hurried(self.machine))

    @property
    def host(self) -> Target:
        """The CPU beside it, or the machine itself."""
        return self.backend.host(self.machine)
