"""A model from its source: import, then the stages that its platform and its sizes ask for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.host_code import HostCode
from polyc.graph_driver.backends.protocol import Code, Platform
from polyc.graph_driver.backends.registry import for_bodies
from polyc.graph_driver.compiling.sensible import some_sizes_fit
from polyc.graph_driver.compiling.stages import plan_graph
from polyc.graph_driver.execution.control import ControlNode
from polyc.graph_driver.execution.weights import weights_segment
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.defects import INTERNAL, warn_of_defects
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.python_calls import PythonCall, python_call_of
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.graph.size import SizeError
from polyc.graph_driver.graph.symbols import GuardError
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.host.reference import HostNode, NoImplementation
from polyc.graph_driver.importing.binding import SizesMissing
from polyc.graph_driver.importing.control_flow import needs_numbers
from polyc.graph_driver.importing.graph_files import is_graph_file, read_graph
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.importing.source import Source
from polyc.graph_driver.inference.symbolic import NotSymbolic
from polyc.graph_driver.options import PROGRESSIVE, CompileOptions, NeedsNumbers
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.running.all_sizes import AllSizes
from polyc.graph_driver.running.fixed import FixedSizes
from polyc.graph_driver.running.model import Built, Model
from polyc.graph_driver.running.per_call import PerCall
from polyc.graph_driver.running.specialising import Specialiser
from polyc.graph_driver.worker import kernels
from polyc.graph_driver.worker import tuned as use
from polyc.poly.collection import seldom_collected
from polyc.poly.errors import ModelError, PolycError
from polyc.poly.interrupts import interruptible

if TYPE_CHECKING:
    import onnx

_COMPILING = threading.RLock()
"""isl has one context for all threads: one model is compiled at a time."""

Compiling = Callable[["Path | bytes | onnx.ModelProto", CompileOptions], Model]


def compile_anew(
    source: str | Path | onnx.ModelProto | bytes, platform: Platform, options: CompileOptions, again: Compiling
) -> Model:
    """`compile_model` without a look at finished programs. `again` compiles for the shapes of calls. Raises as it
    does."""
    report = Report(platform.name, platform.threads)
    with _COMPILING, interruptible(), seldom_collected(), kernels.workers():
        try:
            model = _compiled(source, platform, options, report)
        except Exception as refusal:
            why = _wants_numbers(source, options, refusal)
            if why is None:
                raise
            return compile_per_call(Source(source), platform, options, again, why)
        symbols = None if model.running.formulas is None else model.running.formulas.symbols
        if symbols is not None:
            model.running.specialiser = Specialiser(Source(source), options, report, again)
            if symbols.narrowed and may_have_numbers(options):
                report.specialised.append("other sizes are compiled for when a call has them")
    return model


def compile_built(graph: Graph, platform: Platform, options: CompileOptions) -> Model:
    """A model of a graph that a front end has made. Raises `ModelError`, `BuildError`; `GraphError`: the graph breaks a
    rule."""
    with _COMPILING, interruptible(), seldom_collected(), kernels.workers():
        kernels.expect(len(graph.nodes))
        with use.tuned(options.tuned):
            model = compile_graph(graph, platform, options, Report(platform.name, platform.threads))
    calls = [n.op_type for n in graph.nodes if python_call_of(n) is not None]
    if calls:
        model.running.unsaved = f"a compiled directory holds no Python, which the model needs for {calls[0]}"
    return model


def compile_staged(path: Path, platform: Platform, options: CompileOptions) -> Model:
    """A model of a dump of its kernels, its memory or its plan (`polyc.graph_driver.compiling.staged`).

    Raises:
        ModelError: the file is damaged, or what it says cannot run; BuildError: no such target.
    """
    from polyc.graph_driver.compiling.staged import read_stage, staged_plan

    report = Report(platform.name, platform.threads)
    refuse_sizes(path, options)
    with _COMPILING, interruptible(), seldom_collected(), kernels.workers(), use.tuned(options.tuned):
        with report.stage("import"):
            staged = read_stage(path)
        return linked(staged.graph, platform, options, report, *staged_plan(staged, platform, options, report))


def compile_per_call(source: Source, platform: Platform, options: CompileOptions, again: Compiling, why: str) -> Model:
    """A model that `again` compiles for the shapes of each call, because of `why`. Raises `ModelError`."""
    report = Report(platform.name, platform.threads)
    running = PerCall(Specialiser(source, options, report, again), why)
    report.sizes = [running.sizes]
    return Model(running.name, running, report)


def _wants_numbers(
    source: str | Path | onnx.ModelProto | bytes, options: CompileOptions, refusal: Exception
) -> str | None:
    """Why the model should be compiled for the shapes of each call; None when that would not help it either, or was
    ruled out.

    A bug of polyc that only symbolic sizes meet is warned of, and costs their user no more than numbers do.
    """
    if not may_have_numbers(options):
        return None
    if isinstance(refusal, (NotSymbolic, SizesMissing, NeedsNumbers, GuardError, SizeError)):
        return str(refusal)
    bug = not isinstance(refusal, (PolycError, MemoryError, RecursionError))
    if not bug and not isinstance(refusal, ModelError):
        return None
    if not some_sizes_fit(source, options):
        return None
    if bug:
        warn_of_defects([f"sizes are numbers of each call: {INTERNAL}: {type(refusal).__name__}: {one_line(refusal)}"])
    return str(refusal)


def may_have_numbers(options: CompileOptions) -> bool:
    """Whether sizes that cannot stay symbolic may be the numbers of each call."""
    return not options.strict_shapes and not _asks_for_symbols(options)


def _asks_for_symbols(options: CompileOptions) -> bool:
    return options.symbolic is True or any(isinstance(value, tuple) for value in options.dims.values())


def _compiled(
    source: str | Path | onnx.ModelProto | bytes, platform: Platform, options: CompileOptions, report: Report
) -> Model:
    """The model for all sizes, or those that the options give.

    Raises:
        NotSymbolic, SizesMissing, NeedsNumbers: sizes must be numbers that are none.
    """
    with report.stage("import"):
        graph = import_with(source, platform, options)
        if graph.symbols is not None and may_have_numbers(options):
            why = needs_numbers(graph, lambda shapes: import_at(source, shapes, options))
            if why is not None:
                raise NotSymbolic(why, None)
    with use.tuned(options.tuned):
        try:
            return compile_graph(graph, platform, options, report)
        except NoImplementation as error:
            if graph.symbols is None:
                raise
            raise NotSymbolic(str(error), None) from None  # with numbers it may have loops


def import_at(
    source: str | Path | onnx.ModelProto | bytes, shapes: Mapping[str, Sequence[int]], options: CompileOptions
) -> Graph:
    """The graph for these shapes of the inputs. Raises `ModelError`."""
    return import_model(
        source, options.dims, {**shapes, **options.shapes}, False, options.bind, warn=False,
        portable=options.reproducible,
    )  # fmt: skip


def import_with(source: str | Path | onnx.ModelProto | bytes, platform: Platform, options: CompileOptions) -> Graph:
    """The graph of a model before its passes, with the sizes that the options give.

    Raises:
        ModelError: the file is broken, sizes are missing, or the platform needs numbers for symbolic ones.
        ArgumentError: there is no such pass.
        OptionError: an option has no effect here.
    """
    options.pipeline(platform)
    options.refuse_ignored(platform)
    numbers = platform.backend.numbers_because
    symbolic = bool(options.symbolic) if numbers else options.symbolic is not False
    if isinstance(source, (str, Path)) and is_graph_file(source):
        graph = _from_text(Path(source), options)
    else:
        graph = import_model(
            source, options.dims, options.shapes, symbolic, options.bind, options.strict_annotations,
            when_read=None if options.tier == PROGRESSIVE else kernels.expect, portable=options.reproducible,
        )  # fmt: skip
    if graph.symbols is None:
        return graph
    if numbers:
        sizes = ", ".join(graph.symbols.ranges)
        raise ModelError(f"{numbers}: give the sizes {sizes} as numbers (--dim NAME=V)")
    options.refuse_ignored(platform, symbolic=True)
    return graph


def refuse_sizes(path: Path, options: CompileOptions) -> None:
    """Refuse sizes and values beside a text that has them. Raises `ModelError`."""
    for name in ("dims", "shapes", "bind"):
        if vars(options)[name]:
            raise ModelError(f"{path} is a graph as text, whose sizes and values are fixed: {name} cannot be given")


def _from_text(path: Path, options: CompileOptions) -> Graph:
    """A graph that `--dump-after` or `--stop-after` has written: its sizes are what they are.

    Raises:
        ModelError: the file is damaged, or sizes or values are given, which it has already.
    """
    refuse_sizes(path, options)
    return read_graph(path)


def compile_graph(graph: Graph, platform: Platform, options: CompileOptions, report: Report) -> Model:
    """The stages after import: passes, groups, kernels, plan, program."""
    return linked(graph, platform, options, report, *plan_graph(graph, platform, options, report))


def linked(
    graph: Graph, platform: Platform, options: CompileOptions, report: Report, found: Sequence[Group],
    compiled: Mapping[str, Compiled], plan: Plan,
) -> Model:  # fmt: skip
    """The last stage: a program of groups, their code and the plan."""

    def compile_body(body: Graph, inner: Report) -> Model:
        return compile_graph(body, for_bodies(platform), options.for_bodies(), inner)

    def in_python(node: Node) -> HostNode | ControlNode | PythonCall:
        return python_node(node, graph, compile_body, report, options.tier == PROGRESSIVE)

    with report.stage("program"):
        if options.tier == PROGRESSIVE and not any(s.kind == "kernel" for s in plan.steps):
            code: Code = HostCode(platform)
        else:
            code = platform.backend.link(platform, plan, found, compiled, report)
        weights = weights_segment(graph, plan)
    hosts = [in_python(g.nodes[0]) for g in found if g.in_python]
    runs = FixedSizes if plan.symbols is None else AllSizes
    running = runs(Built(plan, weights, hosts, graph, list(found)), code, report.notes)
    return Model(graph.name, running, report)


def python_node(
    node: Node, graph: Graph, compile_body: Callable[[Graph, Report], Model], report: Report, quick: bool = False
) -> HostNode | ControlNode | PythonCall:
    """What runs a node that has no kernel; the report on its bodies goes into `report`. `quick`: by NumPy where polyc
    has that (`polyc.graph_driver.host.vectorised`)."""
    call = python_call_of(node)
    if call is not None:
        return call
    if not node.bodies:
        return HostNode.of(node, graph.opsets, graph.tensors, quick)
    reports = [Report(report.target, report.threads) for _ in node.bodies]
    bodies = [None if b is None else compile_body(b, r) for b, r in zip(node.bodies, reports, strict=True)]
    report.include(f"{node.op_type} '{node.name}'", [r for r, b in zip(reports, bodies, strict=True) if b is not None])
    return ControlNode.of(node, bodies, HostNode.of(node, graph.opsets, graph.tensors) if None in bodies else None)
