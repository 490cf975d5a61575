"""`polyc inspect MODEL`: the stages of a model as text, and the documents of its pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.emit import targets
from polyc.emit.lowering.checks import wanted as checks_wanted
from polyc.graph_driver.artifacts.package import is_package, load
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.backends.registry import for_stage, platform_of
from polyc.graph_driver.bench.calibration import this_machine
from polyc.graph_driver.cli.inspect import DIGITS, UsageError, dependences_text, operator_stages
from polyc.graph_driver.cli.sizes import with_sizes
from polyc.graph_driver.compile_model import compile_with
from polyc.graph_driver.compiling.from_source import import_with
from polyc.graph_driver.compiling.stages import formed, layouts_refused, optimise, placed, symbol_of
from polyc.graph_driver.explaining.counted import statistics, statistics_table
from polyc.graph_driver.explaining.prediction import predict_steps
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.fusion.rearranging import Rearranged
from polyc.graph_driver.fusion.whole import Whole, whole_model
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.importing.binding import SizesMissing
from polyc.graph_driver.inference.symbolic import NotSymbolic
from polyc.graph_driver.operators.registry import registered
from polyc.graph_driver.options import CompileOptions, NeedsNumbers
from polyc.graph_driver.passes.manager import PASSES, PLACING
from polyc.graph_driver.planning.formulas import lines
from polyc.graph_driver.planning.plan import Abi, Plan, memory_text, plan_text
from polyc.graph_driver.worker import tuned as use
from polyc.scheduler.cost.model import Prediction

if TYPE_CHECKING:
    from polyc.scheduler.schedule import Schedule


def _platform(options: CompileOptions, stage: str | None = None) -> Platform:
    """What a stage is about: the target, the GPU in whose language the stage is, or C sources."""
    return platform_of(for_stage(options.target, stage, runs=False), options.threads, runs=False)


def optimised(path: Path, options: CompileOptions, platform: Platform) -> tuple[Graph, list[str]]:
    """The graph after the passes that compiling runs, and what each pass did.

    Raises:
        UsageError: the path is a compiled directory.
    """
    if is_package(path):
        raise UsageError("a compiled directory keeps no Scops: give the ONNX file")
    graph, options = imported_for(path, platform, options)
    return graph, optimise(graph, platform, options)


def imported_for(path: Path, platform: Platform, options: CompileOptions) -> tuple[Graph, CompileOptions]:
    """The graph, for sizes that are chosen where they must be numbers (a note says which), and options for these."""
    try:
        return import_with(path, platform, options), options
    except (NotSymbolic, SizesMissing, NeedsNumbers):
        if any(isinstance(value, tuple) for value in options.dims.values()):
            raise
        options, chosen = with_sizes(path, options)
        graph = import_with(path, platform, options)
        graph.notes += [chosen] if chosen else []
        return graph, options


def formed_of(graph: Graph, platform: Platform, options: CompileOptions) -> tuple[list[Group], Sequence[Rearranged]]:
    """The groups as they are compiled and what is stored otherwise. Where compiling had to give up the layouts, they
    are as the model has them, and a note says so.

    Raises:
        UsageError: the groups depend on plans of compiled kernels.
    """
    refuse_minimal(options)
    refusal = layouts_refused(graph, platform, options)
    _, groups, moved = formed(graph, platform, replace(options, layouts="as_given") if refusal else options)
    graph.notes += [refusal] if refusal else []
    return groups, moved


def refuse_minimal(options: CompileOptions) -> None:
    """Refuse groups that depend on plans of compiled kernels. Raises `UsageError`."""
    if options.overlapping:
        raise UsageError(
            "--memory minimal chooses kernels by their plans: compile the model into a directory, and look at that"
        )


def model_stage(path: Path, stage: str, options: CompileOptions, kernel: str | None) -> list[tuple[str, str]]:
    """One stage of a model as titled parts (one per kernel, or one without a title).

    Raises:
        UsageError: the model has no such stage or kernel.
    """
    if is_package(path):
        if stage not in ("plan", "memory"):
            raise UsageError(f"a compiled directory keeps only the stages plan and memory, not '{stage}'")
        packed = load(path)
        return [("", "\n".join([*packed.report().sizes, plan_stage(packed.plan, stage)]))]
    if stage == "whole":
        return [("", str(whole(path, options).scop))]
    platform = _platform(options, stage)
    if stage == "stats":
        return [("", statistics_of(path, options, platform))]
    graph, records = optimised(path, options, platform)
    if stage == "graph":
        notes = [f"# {r}" for r in records] + [f"# {n}" for n in graph.notes]
        return [("", "\n".join([str(graph), *notes]))]
    groups, _ = formed_of(graph, platform, options)
    if stage in ("plan", "memory"):
        return [("", plan_stage(plan_of(graph, groups, platform, options), stage))]
    assert stage in operator_stages()
    with use.tuned(options.tuned):
        return [(t, _kernel_stage(g, stage, platform)) for t, g in _chosen(groups, kernel)]


def statistics_of(path: Path, options: CompileOptions, platform: Platform) -> str:
    """Nodes, kernels, flops and bytes of the model as it was given, node by node, and as it is compiled."""
    rows = []
    as_given = replace(options.as_given(), passes=(), fuse=False, layouts="as_given")
    for stage, chosen in (("as given, node by node", as_given), ("as compiled", options)):
        graph, _ = optimised(path, chosen, platform)
        groups, _ = formed_of(graph, platform, chosen)
        rows.append(statistics(stage, len(graph.nodes), groups))
    return statistics_table(rows)


def document_of_model(path: Path, options: CompileOptions, measure: bool = False) -> dict[str, Any]:
    """Everything about a model or a compiled directory (`polyc.graph_driver.html.model_page`).

    With `measure` it is compiled and run for the time of each step. Steps have the time that the cost model
    predicts with the figures of this machine, unless it is for another one.

    Raises:
        ModelError: the model cannot be read or sizes are missing; BuildError: no such target.
        UsageError: it is to be measured for a machine that is not here.
    """
    from polyc.graph_driver.html.measure import step_seconds
    from polyc.graph_driver.html.model_page import model_document

    target = str(options.target)
    if is_package(path):
        packed = load(path)
        return model_document(path.name, packed.plan, target, seconds=step_seconds(packed) if measure else None)
    platform = _platform(options)
    machine, threads = platform.machine, platform.threads
    if measure and not platform.backend.runs:
        raise UsageError(f"{platform.meant} do not run here: leave out --measure")
    if measure:
        options = imported_for(path, platform, options)[1]
    model = compile_with(path, options) if measure else None
    graph, records = optimised(path, options, platform)
    groups, moved = formed_of(graph, platform, options)
    planned, seconds = plan_of(graph, groups, platform, options), None
    plan = planned if planned.symbols is None else planned.at(planned.symbols.typical)
    if model is not None:
        plan, seconds = model.plan, step_seconds(model)
        scops = {tuple(n.name for n in g.nodes): g for g in groups if g.scop is not None}
        groups = [scops.get(tuple(n.name for n in g.nodes), g) for g in model.groups]  # those from the cache: no Scops
    moves = [m.described() for m in moved]
    predicted: Sequence[Prediction | None] = ()
    roofs = None
    costed = platform.backend.costed(machine)
    if graph.symbols is None and costed is not None and targets.obstacle(costed) is None:
        roofs = this_machine(machine)
        predicted = predict_steps(plan, groups, machine, roofs, threads)
    return model_document(path.stem, plan, target, graph, groups, records, moves, seconds, predicted, roofs, threads)


def kernels_of_model(path: Path, options: CompileOptions) -> tuple[Platform, list[tuple[str, Group]]]:
    """The platform, and the distinct kernels of a model, each with a title. Raises `UsageError`, `ModelError`."""
    return _platform(options), _chosen(groups_of_model(path, options), None)


def imported(path: Path, options: CompileOptions) -> tuple[Graph, CompileOptions]:
    """The graph as the file has it, at sizes that are numbers, and the options with these.

    Raises:
        UsageError: the path is a compiled directory.
        ModelError: the model cannot be read.
    """
    if is_package(path):
        raise UsageError("a compiled directory keeps no Scops: give the ONNX file")
    options = with_sizes(path, options)[0]
    return import_with(path, _platform(options), options), options


def whole(path: Path, options: CompileOptions) -> Whole:
    """The model as one Scop, after the passes that rewrite it (those that place tensors in others are left out).

    Raises:
        UsageError: the path is a compiled directory.
        ModelError: the model cannot be read, or a node has no loops.
    """
    options = replace(options, disable=(*options.disable, *(p.name for p in PASSES if p.phase == PLACING)))
    graph, _ = optimised(path, options, _platform(options))
    return whole_model(graph, registered)


def groups_and_graph(path: Path, options: CompileOptions) -> tuple[Graph, Sequence[Group]]:
    """The graph after all passes and its kernels in order. Raises `UsageError`, `ModelError`."""
    platform = _platform(options)
    graph, _ = optimised(path, options, platform)
    return graph, formed_of(graph, platform, options)[0]


def groups_of_model(path: Path, options: CompileOptions) -> Sequence[Group]:
    """The kernels of a model in order. Raises `UsageError`, `ModelError`."""
    return groups_and_graph(path, options)[1]


def document_of_kernel(path: Path, options: CompileOptions, kernel: str, measure: bool = False) -> dict[str, Any]:
    """Everything about one kernel of a model, as of an operator; with `measure` it is compiled and run.

    Raises:
        UsageError: there is no such kernel, several have that label, or it is to be measured and cannot run here;
            ModelError, BuildError: as above.
    """
    from polyc.graph_driver.bench.operator_time import time_of
    from polyc.graph_driver.html.operator_page import operator_document

    sizes: dict[str, object] = {}
    if measure and not is_package(path):  # of a symbolic size it is run at one that is chosen
        given, (options, _) = options.dims, with_sizes(path, options)
        sizes = {name: value for name, value in options.dims.items() if name not in given}
    platform, every = kernels_of_model(path, options)
    chosen = _named(every, kernel)
    if len(chosen) > 1:
        raise UsageError(f"{len(chosen)} kernels are '{kernel}': give one by its number ({chosen[0][0]}, ...)")
    title, group = chosen[0]
    with use.tuned(options.tuned):
        schedule = schedule_of(group, platform)
    name = {"name": f"{path.stem}, {title}"}
    if measure and schedule.original.params:
        raise UsageError("a kernel is measured at sizes that are numbers (--dim NAME=V)")
    costed = platform.backend.costed(platform.machine)
    if measure and (costed is None or not platform.backend.runs):
        raise UsageError(f"one kernel alone is run on this machine's CPU, not for '{options.target}'")
    if costed is None:
        return operator_document(schedule, platform.machine, "automatic", {}) | name
    machine, threads = platform.machine, platform.threads
    times = time_of(schedule, machine, threads, measure, platform.backend.name, checks_wanted(options.checks))
    return operator_document(schedule, machine, "automatic", sizes, times) | name


def schedule_of(group: Group, platform: Platform) -> Schedule:
    """The schedule that a kernel of a model is compiled with (within `use.tuned`: a tuned one if there is)."""
    assert group.scop is not None
    machine, threads = platform.machine, platform.threads
    tuned = use.schedule_for(group.scop, machine, threads) if platform.backend.takes_tuned else None
    return platform.backend.schedule(group.scop, machine, threads) if tuned is None else tuned


def plan_of(graph: Graph, groups: Sequence[Group], platform: Platform, options: CompileOptions) -> Plan:
    """The plan without compiling anything."""
    return placed(graph, groups, _abis(groups), platform, options, graph.notes)


def _abis(groups: Sequence[Group]) -> dict[str, Abi]:
    """What the kernels' code would look like to a plan."""
    return {g.key: (symbol_of(g.key), _abi_order(g), ()) for g in groups if g.scop is not None}


def _abi_order(group: Group) -> tuple[str, ...]:
    """The arrays of the group's Scop that are arguments, in the order of the native ABI."""
    assert group.scop is not None
    return tuple(a.name for a in group.scop.arrays.values() if a.kind != "local")


def plan_stage(plan: Plan, stage: str) -> str:
    """The stage `plan` or `memory` as text; of symbolic sizes the formulas, and how it is at representative ones."""
    text = plan_text if stage == "plan" else memory_text
    if plan.symbols is None:
        return text(plan)
    return "\n".join([*lines(plan), "at the representative sizes:", text(plan.at(plan.symbols.typical))])


def kernels_of(groups: Sequence[Group]) -> list[tuple[str, Group]]:
    """Distinct kernels with a title each."""
    distinct: dict[str, tuple[str, Group]] = {}
    uses: dict[str, int] = {}
    for g in groups:
        if g.scop is not None:
            uses[g.key] = uses.get(g.key, 0) + 1
            distinct.setdefault(g.key, (f"kernel {len(distinct)}: {g.label} at '{g.nodes[0].name}'", g))
    return [(f"{title}, {uses[key]} times" if uses[key] > 1 else title, g) for key, (title, g) in distinct.items()]


def _chosen(groups: Sequence[Group], kernel: str | None) -> list[tuple[str, Group]]:
    """Distinct kernels with a title each, or the one asked for."""
    every = kernels_of(groups)
    return every if kernel is None else _named(every, kernel)


def _named(every: Sequence[tuple[str, Group]], kernel: str) -> list[tuple[str, Group]]:
    """The kernel of this number, or those with this label or node."""
    if DIGITS.fullmatch(kernel) and int(kernel) < len(every):
        return [every[int(kernel)]]
    named = [(t, g) for t, g in every if kernel == g.label or any(kernel == n.name for n in g.nodes)]
    if not named:
        raise UsageError(f"no kernel '{kernel}': give a number below {len(every)}, a node or a label (Conv+Relu)")
    return named


def _kernel_stage(group: Group, stage: str, platform: Platform) -> str:
    from polyc.poly.text import print_tree

    assert group.scop is not None
    if stage == "scop":
        return str(group.scop)
    if stage == "deps":
        return dependences_text(group.scop)
    schedule = schedule_of(group, platform)
    if stage == "schedule":
        return "\n".join([print_tree(schedule.tree, schedule.scop), *(f"# {n}" for n in schedule.notes)])
    if stage == "program":
        return schedule.program().rstrip("\n")
    if stage not in platform.backend.stages:
        known = ", ".join(platform.backend.stages)
        raise UsageError(f"{platform.meant}: there is no stage '{stage}' (but {known}, and those before it)")
    symbol = symbol_of(group.key)
    return platform.backend.stage(schedule, platform.machine, platform.threads, stage, {}, None, symbol)
