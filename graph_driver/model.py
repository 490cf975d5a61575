"""Whole models: `compile_model`, `load`, `Model`."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emit.gpu import targets as gpu_targets
from emit.gpu.targets import is_gpu
from graph_driver import kernels, memory
from graph_driver.artifacts import memo
from graph_driver.artifacts.recompiling import sources_of
from graph_driver.execution import entry
from graph_driver.execution.control import ControlNode
from graph_driver.execution.execute import Executor, Observer, aligned_bytes
from graph_driver.external import address_of
from graph_driver.fusion import groups
from graph_driver.fusion.joined import Group, on_host, split
from graph_driver.fusion.layouts import Rearranged, pack_constants, rearrange
from graph_driver.fusion.ordering import in_best_order
from graph_driver.fusion.pieces import Piece
from graph_driver.gpu.compiling import is_gpu_backend
from graph_driver.importing.limits import check_memory, human
from graph_driver.ir import Graph, Node
from graph_driver.planning.contiguous import Groups, kept_apart
from graph_driver.planning.overwriting import overwrite
from graph_driver.planning.plan import Plan, build_plan
from graph_driver.planning.tasks import with_tasks
from graph_driver.tuning import use
from graph_driver.worker import Compiled, Job
from poly.errors import ArgumentError, BuildError, ModelError
from poly.target import GpuTarget, Target

if TYPE_CHECKING:
    import onnx

    from graph_driver.execution.reference import HostNode
    from graph_driver.importing.binding import Dim
    from graph_driver.passes.manager import Pass

Progress = Callable[[str, int, int], None]
TARGETS = ("cpu", "c")
NAME_IN_DECISION = re.compile(r" \('.*?'\)|'[^']*' |(?<=: )\w+\[.*(?= reads what)")


@dataclass
class Report:
    """What compiling did. `seconds` by stage; `host` lists (operator, node, reason)."""

    target: str = ""
    threads: int = 1
    nodes: int = 0
    kernels: int = 0
    distinct: int = 0
    cache_hits: int = 0
    host: list[tuple[str, str, str]] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    kernel_seconds: dict[str, float] = field(default_factory=dict)
    peak: int = 0
    bound: int = 0
    weight_bytes: int = 0
    sizes: list[str] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def include(self, what: str, bodies: Sequence[Report]) -> None:
        """Add the reports on the compiled bodies of the control flow `what`."""
        kernels = sum(b.kernels for b in bodies)
        self.notes.append(f"{what} is part of the plan: {len(bodies)} compiled bodies with {kernels} kernels")
        self.kernels += kernels
        for body in bodies:
            self.nodes += body.nodes
            self.distinct += body.distinct
            self.cache_hits += body.cache_hits
            self.host += [(operator, f"{node} in {what}", reason) for operator, node, reason in body.host]
            self.notes += body.notes
            for stage, seconds in body.seconds.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data (the `--json` form)."""
        data = dict(vars(self))
        data["host"] = [{"operator": o, "node": n, "reason": r} for o, n, r in self.host]
        data["seconds"] = {k: round(v, 4) for k, v in self.seconds.items()}
        data["kernel_seconds"] = {k: round(v, 4) for k, v in self.kernel_seconds.items()}
        return data

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        stages = ", ".join(f"{k} {v:.2f}" for k, v in self.seconds.items())
        lines = [
            f"target   {self.target}, {self.threads} thread{'s' if self.threads != 1 else ''}",
            f"kernels  {self.kernels} from {self.nodes} nodes ({self.distinct} distinct, "
            f"{self.cache_hits} from the cache)",
            f"host     {len(self.host) or 'no'} operator{'s' if len(self.host) != 1 else ''}",
            *(f"         {o} '{n}': {r}" for o, n, r in self.host),
            f"memory   arena {human(self.peak)}, lower bound {human(self.bound)}, weights {human(self.weight_bytes)}",
            f"seconds  {total:.2f} ({stages})",
        ]
        if self.kernel_seconds:
            each = ", ".join(f"{k} {v:.2f}" for k, v in self.kernel_seconds.items())
            lines.append(f"         kernels, added up over processes: {each}")
        lines += [f"sizes    {line}" for line in self.sizes]
        lines += [f"decision {text}" + (f" ({n} times)" if n > 1 else "") for text, n in _counted(self.decisions)]
        return "\n".join(lines + [f"note     {n}" for n in self.notes])


def _counted(decisions: Sequence[str]) -> list[tuple[str, int]]:
    """Equal decisions (but for the tensors' names) once, with how often they were taken."""
    found: dict[str, int] = {}
    for text in decisions:
        short = NAME_IN_DECISION.sub("", text)
        found[short] = found.get(short, 0) + 1
    return list(found.items())


class Model:
    """A compiled model. Call it with a dictionary of arrays; it gives one back.

    `plan` (steps, slots, peak, bound) and `graph` (None after `load`) can be looked at.
    """

    def __init__(self, name: str, code: Code, plan: Plan, weights: np.ndarray,
                 hosts: Sequence[HostNode | ControlNode],
                 report: Report, graph: Graph | None = None, groups: Sequence[Group] = ()) -> None:  # fmt: skip
        self.name, self.code, self.plan, self.graph = name, code, plan, graph
        self.groups = tuple(groups)
        self.hosts = tuple(hosts)
        self.weights = weights
        self._report = report
        self._executor: Executor | None = None
        self._linking = threading.Lock()

    def executor(self) -> Executor:
        """The loaded program (linked at first use)."""
        with self._linking:
            if self._executor is None:
                from emit.run_time import threadpool

                runtime = threadpool.handle(self.code.threads) if self.code.threads > 1 else 0
                self._executor = Executor(self.plan, self.weights, self.hosts, self.code.link(), runtime or 0)
            return self._executor

    def __call__(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        """Run in `graph` mode, from any thread; outputs named in `out` are written to those arrays.

        Raises:
            ArgumentError: names, dtypes or shapes do not fit.
        """
        return (self._executor or self.executor()).run(inputs, out)

    def eager(self, inputs: Mapping[str, Any], observer: Observer | None = None) -> dict[str, Any]:
        """Run step by step; see `Executor.run_eager`."""
        return self.executor().run_eager(inputs, observer)

    def inspect(self, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
        """Values of any tensors of the graph in an eager run.

        A tensor that lives only inside a fused kernel is computed by the reference from the
        kernel's inputs (possible while the graph is at hand, not after `load`).

        Raises:
            ModelError: there is no such tensor, or it is inside a kernel of a loaded model.
        """
        from graph_driver.execution.look import inspect_tensors

        return inspect_tensors(self, inputs, names)

    def save(self, folder: str | Path) -> None:
        """Write a compiled directory (see `graph_driver.artifacts.package`). Raises `BuildError`."""
        from graph_driver.artifacts.package import save

        save(self, Path(folder))

    def report(self) -> Report:
        """What was compiled, what runs on the host and why, memory, times."""
        return self._report

    def inputs_for(
        self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """dtype and shape of all inputs beside arrays of the shapes `given`; `sizes` are values of symbolic sizes.

        Raises:
            ArgumentError: there is no such size.
        """
        if sizes:
            raise ArgumentError(f"size {next(iter(sizes))} is fixed: the model was compiled for {self.shapes_text()}")
        return self.inputs

    def shapes_text(self) -> str:
        """The inputs with their shapes in one line."""
        return ", ".join(f"{n}{list(shape)}" for n, (_, shape) in self.inputs.items())

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """dtype and shape by input name."""
        return {n: (self.plan.slots[n].dtype or "", self.plan.slots[n].shape or ()) for n in self.plan.inputs}


@dataclass
class Code:
    """Machine code of a plan: images of the kernels by symbol, and of the native program.

    `external` has the names of registered functions by symbol (`graph_driver.external`), `sources` what the kernels
    were made from (`graph_driver.artifacts.recompiling`; empty for symbolic sizes).
    """

    target: Target
    backend: str
    threads: int
    images: dict[str, bytes]
    program: bytes
    segments: int
    external: dict[str, str] = field(default_factory=dict)
    sources: str = ""
    _keep: list[Any] = field(default_factory=list)

    def link(self) -> dict[str, int]:
        """Load everything into this process; addresses by symbol. Raises `BuildError`."""
        from emit import compile as emit_compile
        from emit.llvm import jit

        emit_compile.check_runs_here(self.target)
        wanted = [entry.segment_name(k) for k in range(self.segments)]
        outside = {s: address_of(s) for s in self.external}
        if self.backend == "llvm":
            library = jit.Library([*self.images.values(), self.program], [*self.images, *wanted], outside)
            self._keep.append(library)
            return outside | {s: library.address(s) for s in (*self.images, *wanted)}
        natives = {s: emit_compile.load(image, s, self.backend) for s, image in self.images.items()}
        addresses = outside | {s: n.address for s, n in natives.items()}
        library = jit.Library([self.program], wanted, addresses)
        self._keep += [library, *natives.values()]
        return addresses | {s: library.address(s) for s in wanted}


def machine_of(target: str | Target) -> tuple[Target, str]:
    """The machine and the back end of `target`: `cpu` (LLVM) or `c` (gcc or clang).

    Raises:
        BuildError: there is no such target, or `c` without a C compiler.
    """
    from emit import targets
    from emit.c import cc

    if isinstance(target, Target):
        return target, "llvm"
    if target == "cpu":
        return targets.host(), "llvm"
    if target == "c":
        if cc.find_compiler() is None:
            raise BuildError("target 'c' needs gcc or clang on PATH; target 'cpu' needs neither")
        return targets.host(), "c"
    raise BuildError(f"no target '{target}' for models in this version (it has {', '.join(TARGETS)})")


def compile_model(
    source: str | Path | onnx.ModelProto | bytes,
    target: str | Target | GpuTarget = "cpu",
    threads: int | None = None,
    dims: Mapping[str, Dim] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fuse: bool = True,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    exact: bool = False,
    symbolic: bool | None = None,
    passes: Sequence[str] | None = None,
    disable: Sequence[str] = (),
    fast_math: bool = False,
    bind: Mapping[str, Any] | None = None,
    planner: str | None = None,
    tasks: bool = False,
    tuned: bool | None = None,
    dtype: str | None = None,
    keep_f32: Sequence[str] = (),
    contiguous: Groups = (),
) -> Model:
    """Compile an ONNX model for this machine, or for a GPU.

    Args:
        source: a path, a `ModelProto`, or its bytes.
        target: `cpu`, `c` (through a C compiler), or a GPU: `cuda`, `opencl`, `sm_80`, ...
        threads: for parallel loops; None is all cores.
        dims: values of symbolic sizes by name (or as `INPUT.AXIS`); a range `(low, high)` keeps the size
            symbolic: the model is compiled once for all its values (`high` None: no end).
        shapes: concrete input shapes, which bind symbolic sizes too.
        fuse: join pointwise operators to their producers.
        memory_limit: bytes that the arena may take.
        progress: called as `progress(stage, done, total)`.
        exact: keep the rounding of each operator's definition (no Winograd convolutions).
        symbolic: keep every size symbolic that nothing binds; None: when one of them is not a leading size
            (leading ones alone are taken as 1), False: never.
        passes: names of the graph passes to run, in order (`graph_driver.passes.manager.PASSES`).
        disable: passes to leave out.
        bind: values of inputs that are fixed now; they become constants and are inputs no longer.
        planner: of the arena, one of `memory.PLANNERS` (None: the cheapest that reaches the lower bound).
        tasks: let independent steps run at the same time on several threads, in memory of their own; the results
            are the same bits. Not with symbolic sizes.
        tuned: take schedules that `polyc tune` has found; None: if `POLYC_TUNED` is set in the environment.
        dtype: `f16` or `bf16`: compute an f32 model in this type (`passes/precision.py`); its inputs and
            outputs stay f32.
        keep_f32: operators or nodes that `dtype` leaves in f32.
        contiguous: groups of tensors that lie one behind the other in the arena, in this order, each at a multiple
            of 64 bytes, all intact when the last is made (`model.plan.slots[name].place.offset`).
        fast_math: allow algebraic rules that change rounding or treat NaN, infinities and -0 loosely.

    Raises:
        ModelError: the file is broken, sizes are missing, or the memory limit is too small.
        BuildError: the target is unknown or code generation failed.
    """
    from graph_driver.importing.importer import import_model
    from graph_driver.passes import manager

    pipeline = manager.select(passes, disable, fast_math, exact, dtype, keep_f32)
    if planner is not None and planner not in memory.PLANNERS:
        raise ArgumentError(f"there is no planner '{planner}'; planners are {', '.join(memory.PLANNERS)}")
    if isinstance(target, GpuTarget) or is_gpu(target):
        from graph_driver.gpu.model import compile_gpu_model

        if contiguous:
            raise ArgumentError("contiguous tensors are for the arena of a CPU")
        gpu = target if isinstance(target, GpuTarget) else gpu_targets.get(str(target))
        report = Report(gpu.name, 1)
        with report.stage("import"):
            graph = import_model(source, dims, shapes, bind=bind)
        if graph.symbols is not None:
            sizes = ", ".join(graph.symbols.ranges)
            raise ModelError(f"on a GPU all sizes are numbers: give {sizes} as numbers (--dim NAME=V)")
        return compile_gpu_model(graph, gpu, report, fuse, memory_limit, progress, pipeline)
    machine, backend = machine_of(target)
    threads = machine.threads if threads is None else threads
    if threads < 1:
        raise BuildError(f"threads must be at least 1, not {threads}")
    report = Report("cpu" if backend == "llvm" else "c", threads)
    with report.stage("import"):
        graph = import_model(source, dims, shapes, symbolic, bind)
    with use.tuned(tuned):
        model = compile_graph(
            graph, machine, backend, threads, report, fuse, memory_limit, progress, pipeline, planner, tasks, contiguous
        )
    if graph.symbols is not None:
        from graph_driver.dynamic.model import DynamicModel

        def compile_for(sizes: Mapping[str, int]) -> Model:
            return compile_model(
                source, target, threads, {**(dims or {}), **sizes}, shapes, fuse, memory_limit, progress, exact,
                False, passes, disable, fast_math, bind, planner, tasks, tuned, dtype, keep_f32,
            )  # fmt: skip

        assert isinstance(model, DynamicModel)
        model.compile_for = compile_for
    return model


def compile_graph(
    graph: Graph, machine: Target, backend: str, threads: int, report: Report,
    fuse: bool = True, memory_limit: int | None = None, progress: Progress | None = None,
    pipeline: Sequence[Pass] | None = None, planner: str | None = None, tasks: bool = False,
    contiguous: Groups = (),
) -> Model:  # fmt: skip
    """The stages after import: passes, groups, kernels, plan, program."""
    if graph.symbols is not None and contiguous:
        raise ArgumentError("contiguous tensors need sizes that are numbers (--dim NAME=V)")
    if graph.symbols is not None:
        from graph_driver.dynamic.compiling import compile_symbolic

        return compile_symbolic(graph, machine, backend, threads, report, fuse, memory_limit, progress, pipeline)
    found, compiled, plan = plan_graph(
        graph, machine, backend, threads, report, fuse, memory_limit, progress, pipeline, planner, tasks, contiguous
    )
    with report.stage("program"):
        text = entry.entry_text(plan, machine.triple)
        code = link_program(text, plan, compiled, machine, backend, threads)
        code.sources = sources_of(found, compiled)
        weights = weights_segment(graph, plan)

    def compile_body(body: Graph, inner: Report) -> Model:
        return compile_graph(body, machine, backend, threads, inner, fuse, None, progress, pipeline, None, tasks)

    hosts = [python_node(g.nodes[0], graph, compile_body, report) for g in found if g.in_python]
    return Model(graph.name, code, plan, weights, hosts, report, graph, found)


def python_node(
    node: Node, graph: Graph, compile_body: Callable[[Graph, Report], Model], report: Report
) -> HostNode | ControlNode:
    """What runs a node that has no kernel; the report on its bodies goes into `report`."""
    from graph_driver.execution.reference import HostNode  # onnx is heavy: loaded models without host steps do without

    if not node.bodies:
        return HostNode.of(node, graph.opsets, graph.tensors)
    reports = [Report(report.target, report.threads) for _ in node.bodies]
    bodies = [None if b is None else compile_body(b, r) for b, r in zip(node.bodies, reports, strict=True)]
    report.include(f"{node.op_type} '{node.name}'", [r for r, b in zip(reports, bodies, strict=True) if b is not None])
    return ControlNode.of(node, bodies, HostNode.of(node, graph.opsets, graph.tensors) if None in bodies else None)


def plan_graph(
    graph: Graph, machine: Target, backend: str, threads: int, report: Report,
    fuse: bool = True, memory_limit: int | None = None, progress: Progress | None = None,
    pipeline: Sequence[Pass] | None = None, planner: str | None = None, tasks: bool = False,
    contiguous: Groups = (),
) -> tuple[list[Group], Mapping[str, Compiled], Plan]:  # fmt: skip
    """The stages from passes to plan: groups in order, their code by key, and a place for everything."""
    from emit import cache

    with kept_apart(graph, contiguous):
        found, compiled = _kernels(graph, machine, backend, threads, report, fuse, progress, pipeline)
    with report.stage("plan"):
        abis = {key: c.abi for key, c in compiled.items()}
        plan = build_plan(graph, found, abis, planner, 0, contiguous)
        if tasks and threads > 1 and backend == "llvm":  # kernels in C bring threads of OpenMP
            plan = with_tasks(
                plan,
                lambda window: build_plan(graph, found, abis, planner, window, contiguous),
                memory_limit,
                report.notes,
            )
    if memory_limit is not None and plan.peak > memory_limit:
        raise ModelError(_too_large(plan, memory_limit))
    outputs = sum(plan.slots[o].nbytes for o in plan.outputs)
    check_memory("the model (arena, weights and outputs)", plan.peak + plan.weight_bytes + outputs)
    report.kernels = sum(s.kind == "kernel" for s in plan.steps)
    report.distinct = len(compiled)
    report.host = [(s.label, s.nodes[0], s.reason) for s in plan.host_steps]
    report.peak, report.bound, report.weight_bytes = plan.peak, plan.bound, plan.weight_bytes
    report.notes += [*graph.notes, *cache.notes()]
    return found, compiled, plan


def _kernels(
    graph: Graph, machine: Target, backend: str, threads: int, report: Report, fuse: bool, progress: Progress | None,
    pipeline: Sequence[Pass] | None,
) -> tuple[list[Group], Mapping[str, Compiled]]:  # fmt: skip
    """The stages from passes to machine code: groups in order, their code by key."""
    from graph_driver.passes import manager

    with report.stage("passes"):
        chosen = manager.select() if pipeline is None else pipeline
        if backend not in ("llvm", "c"):
            chosen = [p for p in chosen if p.name != "external"]  # C text and GPUs cannot call into this process
        if backend != "llvm":  # C compilers make shifts and products of pairs
            chosen = [p for p in chosen if p.name not in ("integer-pairs", "quantised-convolutions")]
        report.passes = [str(r) for r in manager.run(graph, chosen, machine)]
    report.nodes = len(graph.nodes)
    with report.stage("key"):
        key = use.keyed(memo.graph_key(graph, machine, backend, threads, fuse))
        known = memo.find(key, graph)
    if known is not None:
        found, compiled = known.groups, known.compiled
        report.notes += known.notes
        report.decisions = list(known.decisions)
        report.cache_hits = len(compiled)
        with report.stage("weights"):
            for what in known.rearranged:
                rearrange(graph, what)
    else:
        with report.stage("groups"):
            pieces, found, rearranged = formed(graph, machine, backend, fuse)
        with report.stage("kernels"):
            found, compiled = compile_groups(graph, found, pieces, machine, backend, threads, report, progress)
        report.decisions = [str(d) for d in graph.decisions]
        memo.store(key, graph, memo.Known(found, compiled, report.notes, rearranged, report.decisions))
    return found, compiled


def formed(
    graph: Graph, machine: Target, backend: str, fuse: bool = True
) -> tuple[list[Piece], list[Group], Sequence[Rearranged]]:
    """Nodes as operators, joined into groups in the order of execution, and constants stored in another layout."""
    from graph_driver.operators import lookup

    pieces = groups.translate(graph, lookup)
    found = overwrite(graph, in_best_order(graph, groups.form_groups(graph, pieces, fuse, machine)))
    if is_gpu_backend(backend):  # panels are for vectors of a CPU
        return pieces, found, ()
    found, rearranged = pack_constants(graph, found, machine)
    return pieces, found, rearranged


def _too_large(plan: Plan, limit: int) -> str:
    """Why the memory limit cannot be kept: what is alive when most is."""
    live = memory.live_at_peak(plan.lifetimes)
    named = ", ".join(f"'{t.name}' {human(t.size)}" for t in live[:6])
    more = f" and {len(live) - 6} more" if len(live) > 6 else ""
    step = max((t.first for t in live), default=0)
    return (
        f"the arena needs {human(plan.peak)} (lower bound {human(plan.bound)}), more than the memory limit of "
        f"{human(limit)}; alive at step {step} ({plan.steps[step].label}): {named}{more}"
    )


def symbol_of(key: str) -> str:
    """The machine-code symbol of a group's key."""
    return f"polyc_{key[:20]}"


def compile_groups(
    graph: Graph, found: list[Group], pieces: Sequence[Piece], machine: Target, backend: str, threads: int,
    report: Report, progress: Progress | None,
) -> tuple[list[Group], dict[str, Compiled]]:  # fmt: skip
    """Machine code by group key. A group that fails is split; a node that fails goes to the host."""
    compiled: dict[str, Compiled] = {}
    while True:
        wanted = {g.key: g for g in found if g.key and g.key not in compiled}
        if not wanted:
            return found, compiled
        jobs = [
            Job(g.text, symbol_of(g.key), machine, threads, backend, use.trace_for_text(g.text, machine, threads))
            for g in wanted.values()
        ]
        results = kernels.compile_all(jobs, None if progress is None else lambda d, n: progress("kernels", d, n))
        failed: dict[str, str] = {}
        for key in wanted:
            result = results[symbol_of(key)]
            if isinstance(result, str):
                failed[key] = result
                continue
            compiled[key] = result
            report.cache_hits += result.cache_hit
            for stage, seconds in result.seconds.items():
                report.kernel_seconds[stage] = report.kernel_seconds.get(stage, 0.0) + seconds
        if failed:
            found = _without(graph, found, pieces, failed, report)


def _without(
    graph: Graph, found: list[Group], pieces: Sequence[Piece], failed: Mapping[str, str], report: Report
) -> list[Group]:
    kept: list[Group] = []
    for g in found:
        if g.key not in failed:
            kept.append(g)
        elif len(g.nodes) > 1:
            report.notes.append(f"{g.label} at '{g.nodes[0].name}' compiled in parts: {failed[g.key]}")
            kept += split(g, pieces)
        else:
            kept.append(on_host(g, f"no code: {failed[g.key]}"))
    return kept


def link_program(
    text: str, plan: Plan, compiled: Mapping[str, Compiled], machine: Target, backend: str, threads: int
) -> Code:
    """The code of a model: its kernels, and the native program from LLVM IR."""
    from emit import cache
    from emit.llvm import jit

    key = cache.make_key("program", text, repr(machine))
    program, _ = cache.cached(key, lambda: jit.build_object(text, machine, 1))
    images = {c.symbol: c.image for c in compiled.values()}
    return Code(machine, backend, threads, images, program, len(entry.segments(plan)), dict(plan.external))


def weights_segment(graph: Graph, plan: Plan) -> np.ndarray:
    """All weights of the plan at their offsets, in one aligned block."""
    segment = aligned_bytes(plan.weight_bytes)
    for name, tensor in graph.tensors.items():
        slot = plan.slots.get(name)
        if tensor.const is None or slot is None or slot.place.kind != "weight":
            continue
        start = slot.place.offset
        segment[start : start + slot.nbytes].view(tensor.const.dtype).reshape(tensor.const.shape)[...] = tensor.const
    return segment


def load(folder: str | Path) -> Model:
    """Load a compiled directory: no ONNX file needed. Raises `BuildError` when it is damaged."""
    from graph_driver.artifacts.package import load as load_package

    return load_package(Path(folder))
