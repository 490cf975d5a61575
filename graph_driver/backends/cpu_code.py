"""The machine code of a plan for a CPU: its kernels, and one native program that calls them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.backends.protocol import Code, Platform
from polyc.graph_driver.execution import entry
from polyc.graph_driver.execution.execute import SEGMENT, NativeExecutor
from polyc.graph_driver.execution.parts import Parts, cut
from polyc.graph_driver.graph.external import address_of
from polyc.poly.records import dataclass
from polyc.poly.target import Target

if TYPE_CHECKING:  # compiled models start without isl
    import numpy as np

    from polyc.emit.llvm.jit import Library
    from polyc.graph_driver.backends.compiled import Compiled
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.execution.executor import Executor
    from polyc.graph_driver.execution.parts import Native
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.host.reference import HostNode
    from polyc.graph_driver.planning.plan import Plan


@dataclass
class NativeCode(Code):
    """Machine code of a plan: images of the kernels by symbol, and of the native program.

    `external` has the names of registered functions by symbol (`graph_driver.graph.external`), `sources` what the
    kernels were made from (`polyc.graph_driver.artifacts.recompiling`; empty for symbolic sizes).
    """

    platform: Platform
    images: dict[str, bytes]
    program: bytes
    segments: int
    external: dict[str, str] = field(default_factory=dict)
    sources: str = ""
    _keep: list[Any] = field(default_factory=list)
    _linked: tuple[dict[str, int], int] | None = field(default=None, init=False)
    _linking: Any = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    @property
    def target(self) -> Target:
        """The CPU."""
        return self.platform.machine

    @property
    def threads(self) -> int:
        """How many run its parallel loops."""
        return self.platform.threads

    def start(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], notes: list[str]
    ) -> NativeExecutor:
        """The loaded program. Raises `BuildError`: this machine does not run it."""
        return NativeExecutor(plan, weights, hosts, *self.linked(), notes=notes)

    def start_at(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], notes: list[str],
        table: np.ndarray, beside: Executor | None,
    ) -> NativeExecutor:  # fmt: skip
        """The loaded program at the sizes of a call. Raises `BuildError`."""
        shared = beside.shared if isinstance(beside, NativeExecutor) else None
        return NativeExecutor(plan, weights, hosts, *self.linked(), table, shared, notes)

    def parts(self, plan: Plan, alone: frozenset[int]) -> Parts:
        """The plan cut around the steps `alone`, with the code of its parts."""
        parts, text = cut(plan, alone), entry.entry_text(plan, self.target.triple, alone)
        return replace(parts, native=native_parts(text, self.target, len(parts.segments), self.linked()[0]))

    def linked(self) -> tuple[dict[str, int], int]:
        """`link`, once; and the handle of the threads that run it (0: one). Raises `BuildError`."""
        with self._linking:
            if self._linked is None:
                from polyc.emit.run_time import threadpool

                runtime = threadpool.handle(self.threads) if self.threads > 1 else 0
                self._linked = self.link(), runtime or 0
            return self._linked

    def link(self) -> dict[str, int]:
        """Load everything into this process; addresses by symbol. Raises `BuildError`."""
        from polyc.emit import compile as emit_compile
        from polyc.emit.llvm import jit

        emit_compile.check_runs_here(self.target)
        wanted = [entry.segment_name(k) for k in range(self.segments)]
        outside = {s: address_of(s) for s in self.external}
        if self.platform.backend.name == "llvm":
            library = jit.Library([*self.images.values(), self.program], [*self.images, *wanted], outside)
            self._keep.append(library)
            return outside | {s: library.address(s) for s in (*self.images, *wanted)}
        natives = {s: emit_compile.load(image, s, self.platform.backend.name) for s, image in self.images.items()}
        addresses = outside | {s: n.address for s, n in natives.items()}
        library = jit.Library([self.program], wanted, addresses)
        self._keep += [library, *natives.values()]
        return addresses | {s: library.address(s) for s in wanted}


def built(text: str, machine: Target) -> bytes:
    """The object code of a native program in LLVM IR (kept in the disk cache)."""
    from polyc.emit import cache
    from polyc.emit.llvm import jit

    key = cache.make_key("program", text, repr(machine))
    program, _ = cache.cached(key, lambda: jit.build_object(text, machine, 1))
    return program


def link_program(text: str, plan: Plan, compiled: Mapping[str, Compiled], platform: Platform) -> NativeCode:
    """The code of a model: its kernels, and the native program from LLVM IR."""
    images = {c.symbol: c.image for c in compiled.values()}
    segments, program = len(entry.segments(plan)), built(text, platform.machine)
    return NativeCode(platform, images, program, segments, dict(plan.external))


def native_parts(text: str, machine: Target, count: int, addresses: Mapping[str, int]) -> tuple[Native, ...]:
    """The segments of a program in LLVM IR, ready to be called; `addresses` has those of the kernels."""
    from polyc.emit.llvm import jit

    names = [entry.segment_name(k) for k in range(count)]
    kernels = {symbol: at for symbol, at in addresses.items() if symbol not in names}
    library = jit.Library([built(text, machine)], names, kernels)
    return tuple(_Segment(library, name) for name in names)


def sources_of(groups: Sequence[Group], compiled: Mapping[str, Compiled]) -> str:
    """What `Code.sources` keeps of the kernels: JSON text, the same for equal kernels."""
    kernels = {compiled[g.key].symbol: {"scop": g.text, "order": list(compiled[g.key].order)} for g in groups if g.key}
    return json.dumps(kernels, sort_keys=True, separators=(",", ":"))


class _Segment:
    """One function of a library, which stays loaded as long as somebody has the function."""

    def __init__(self, library: Library, name: str) -> None:
        self._library, self._function = library, SEGMENT(library.address(name))

    def __call__(self, bases: int) -> None:
        self._function(bases)


def program_digest(plan: Plan, triple: str) -> str:
    """What ties machine code to its plan: the calls in order with the addresses that are in the code, the
    steps of the host, and all memory that they touch."""
    steps = [(s.kind, s.symbol, s.index, s.args, s.results, s.captures) for s in plan.steps]
    slots = [(s.name, s.dtype, s.shape, s.place, s.nbytes, s.layout) for s in plan.slots.values()]
    whole = (entry.entry_text(plan, triple), steps, slots, plan.inputs, plan.outputs, plan.peak, plan.weight_bytes)
    return hashlib.sha256(repr(whole).encode()).hexdigest()
