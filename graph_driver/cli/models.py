"""`polyc inspect MODEL`: the stages of a model as text, and the documents of its pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emit import targets
from emit.gpu import targets as gpu_targets
from graph_driver.artifacts.package import is_package, load
from graph_driver.calibration import this_machine
from graph_driver.cli.inspect import OPERATOR_STAGES, UsageError, dependences_text
from graph_driver.dynamic.plan import Template, build_template
from graph_driver.fusion.groups import Group, form_groups, translate
from graph_driver.fusion.layouts import Rearranged, pack_constants
from graph_driver.gpu.compiling import BACKEND as GPU_BACKEND
from graph_driver.gpu.looking import gpu_stage, gpu_target
from graph_driver.gpu.model import compile_gpu_model
from graph_driver.importing.binding import Dim
from graph_driver.importing.importer import import_model
from graph_driver.ir import Graph
from graph_driver.model import Model, Report, compile_graph, formed, machine_of, symbol_of
from graph_driver.planning.overwriting import overwrite
from graph_driver.planning.plan import Abi, Plan, build_plan, memory_text, plan_text
from graph_driver.planning.tasks import with_tasks
from graph_driver.prediction import predict_steps
from graph_driver.tuning import use
from poly.target import Target
from scheduler.cost.model import Prediction

if TYPE_CHECKING:
    from graph_driver.passes.manager import Pass
    from scheduler.schedule import Schedule


@dataclass(frozen=True)
class Choices:
    """How a model is compiled, and so what is looked at: the options of `compile_model` by the same names.

    `pipeline`: the graph passes (None: the default ones).
    """

    target: str = "cpu"
    threads: int | None = None
    dims: Mapping[str, Dim] = field(default_factory=dict)
    bind: Mapping[str, Any] = field(default_factory=dict)
    pipeline: Sequence[Pass] | None = None
    fuse: bool = True
    planner: str | None = None
    tasks: bool = False
    tuned: bool | None = None

    def workers(self, machine: Target) -> int:
        """Threads of parallel loops."""
        return machine.threads if self.threads is None else self.threads


def _optimised(path: Path, choices: Choices, machine: Target) -> tuple[Graph, list[str]]:
    """The graph after its passes, and what each pass did. Raises `UsageError` for a compiled directory."""
    from graph_driver.passes import manager

    if is_package(path):
        raise UsageError("a compiled directory keeps no Scops: give the ONNX file")
    graph = import_model(path, choices.dims, symbolic=None, bind=choices.bind)
    chosen = manager.select() if choices.pipeline is None else choices.pipeline
    return graph, [str(r) for r in manager.run(graph, chosen, machine)]


def model_stage(path: Path, stage: str, choices: Choices, kernel: str | None) -> list[tuple[str, str]]:
    """One stage of a model as titled parts (one per kernel, or one without a title).

    Raises:
        UsageError: the model has no such stage or kernel.
    """
    if is_package(path):
        if stage not in ("plan", "memory"):
            raise UsageError(f"a compiled directory keeps only the stages plan and memory, not '{stage}'")
        packed = load(path)
        return [("", "\n".join([*packed.report().sizes, _plan_stage(packed.plan, stage)]))]
    gpu = gpu_target(choices.target, stage)
    machine, backend = machine_of("cpu" if gpu else choices.target)
    graph, records = _optimised(path, choices, machine)
    if stage == "graph":
        notes = [f"# {r}" for r in records] + [f"# {n}" for n in graph.notes]
        return [("", "\n".join([str(graph), *notes]))]
    groups, _ = _grouped(graph, machine, GPU_BACKEND if gpu else backend, choices.fuse)
    if stage in ("plan", "memory"):
        text = _plan_stage(_planned(graph, groups, choices, machine), stage)
        if graph.symbols is not None:
            text = "\n".join([*_template(graph, groups).lines(), "at the representative sizes:", text])
        return [("", text)]
    assert stage in OPERATOR_STAGES
    if gpu is not None and stage not in ("scop", "deps"):
        return [(t, gpu_stage(g.scop, stage, gpu)) for t, g in _chosen(groups, kernel) if g.scop is not None]
    threads = choices.workers(machine)
    with use.tuned(choices.tuned):
        return [(t, _kernel_stage(g, stage, machine, backend, threads)) for t, g in _chosen(groups, kernel)]


def document_of_model(path: Path, choices: Choices, measure: bool = False) -> dict[str, Any]:
    """Everything about a model or a compiled directory (`graph_driver.html.model_page`).

    With `measure` it is compiled and run for the time of each step. Steps have the time that the cost model
    predicts with the figures of this machine, unless it is for another one.

    Raises:
        ModelError: the model cannot be read or sizes are missing; BuildError: no such target.
    """
    from graph_driver.html.measure import step_seconds
    from graph_driver.html.model_page import model_document

    target = choices.target
    if is_package(path):
        packed = load(path)
        return model_document(path.name, packed.plan, target, seconds=step_seconds(packed) if measure else None)
    gpu = gpu_target(target, None)
    machine, backend = machine_of("cpu" if gpu else target)
    threads = choices.workers(machine)
    graph, records = _optimised(path, choices, machine)
    groups, moved = _grouped(graph, machine, GPU_BACKEND if gpu else backend, choices.fuse)
    plan, seconds = _planned(graph, groups, choices, machine), None
    if measure:
        model = _compiled(path, choices, machine, backend, gpu)
        plan, seconds = model.plan, step_seconds(model)
        scops = {tuple(n.name for n in g.nodes): g for g in groups if g.scop is not None}
        groups = [scops.get(tuple(n.name for n in g.nodes), g) for g in model.groups]  # those from the cache: no Scops
    moves = [m.described(graph) for m in moved]
    predicted: Sequence[Prediction | None] = ()
    roofs = None
    if graph.symbols is None and gpu is None and targets.obstacle(machine) is None:
        roofs = this_machine(machine)
        predicted = predict_steps(plan, groups, machine, roofs, threads)
    return model_document(path.stem, plan, target, graph, groups, records, moves, seconds, predicted, roofs, threads)


def _compiled(path: Path, choices: Choices, machine: Target, backend: str, gpu: str | None) -> Model:
    """The model as `compile_model` makes it."""
    graph = import_model(path, choices.dims, symbolic=None, bind=choices.bind)
    if gpu is not None:
        report, target = Report(gpu, 1), gpu_targets.get(gpu)
        return compile_gpu_model(graph, target, report, choices.fuse, None, None, choices.pipeline)
    report = Report(choices.target, choices.workers(machine))
    with use.tuned(choices.tuned):
        return compile_graph(
            graph, machine, backend, report.threads, report, choices.fuse, None, None, choices.pipeline,
            choices.planner, choices.tasks,
        )  # fmt: skip


def kernels_of_model(path: Path, choices: Choices) -> tuple[Target, list[tuple[str, Group]]]:
    """The target, and the distinct kernels of a model, each with a title. Raises `UsageError`, `ModelError`."""
    machine, backend = machine_of(choices.target)
    graph, _ = _optimised(path, choices, machine)
    return machine, _chosen(_grouped(graph, machine, backend, choices.fuse)[0], None)


def document_of_kernel(path: Path, choices: Choices, kernel: str) -> dict[str, Any]:
    """Everything about one kernel of a model, as of an operator.

    Raises:
        UsageError: there is no such kernel, or several have that label; ModelError, BuildError: as above.
    """
    from graph_driver.compile_operator import gpu_schedule
    from graph_driver.html.operator_page import operator_document

    gpu = gpu_target(choices.target, None)
    machine, backend = machine_of("cpu" if gpu else choices.target)
    graph, _ = _optimised(path, choices, machine)
    chosen = _chosen(_grouped(graph, machine, GPU_BACKEND if gpu else backend, choices.fuse)[0], kernel)
    if len(chosen) > 1:
        raise UsageError(f"{len(chosen)} kernels are '{kernel}': give one by its number ({chosen[0][0]}, ...)")
    title, group = chosen[0]
    name = {"name": f"{path.stem}, {title}"}
    if gpu is not None:
        assert group.scop is not None
        device = gpu_targets.get(gpu)
        return operator_document(gpu_schedule(group.scop, device), device, "automatic", {}) | name
    with use.tuned(choices.tuned):
        schedule = schedule_of(group, machine, choices.threads)
    return operator_document(schedule, machine, "automatic", {}) | name


def schedule_of(group: Group, machine: Target, threads: int | None) -> Schedule:
    """The schedule that a kernel of a model is compiled with (within `use.tuned`: a tuned one if there is)."""
    from graph_driver.compile_operator import auto_schedule

    assert group.scop is not None
    tuned = use.schedule_for(group.scop, machine, machine.threads if threads is None else threads)
    return auto_schedule(group.scop, machine, None, threads) if tuned is None else tuned


def _grouped(graph: Graph, machine: Target, backend: str, fuse: bool) -> tuple[list[Group], Sequence[Rearranged]]:
    """Nodes joined into kernels, in the order of execution, and the constants stored in another layout for them."""
    if graph.symbols is not None:
        from graph_driver.operators import lookup

        found = overwrite(graph, form_groups(graph, translate(graph, lookup), fuse, machine))
        return pack_constants(graph, found, machine)
    _, groups, moved = formed(graph, machine, backend, fuse)
    return groups, moved


def _planned(graph: Graph, groups: Sequence[Group], choices: Choices, machine: Target) -> Plan:
    """The plan without compiling anything."""
    if graph.symbols is not None:
        return _template(graph, groups).typical
    abis = _abis(groups)
    plan = build_plan(graph, groups, abis, choices.planner)
    if not choices.tasks or choices.workers(machine) < 2:
        return plan
    return with_tasks(plan, lambda w: build_plan(graph, groups, abis, choices.planner, w), None, graph.notes)


def _template(graph: Graph, groups: Sequence[Group]) -> Template:
    """The same of a graph with symbolic sizes."""
    return build_template(graph, groups, _abis(groups))


def _abis(groups: Sequence[Group]) -> dict[str, Abi]:
    """What the kernels' code would look like to a plan."""
    return {g.key: (symbol_of(g.key), _abi_order(g), ()) for g in groups if g.scop is not None}


def _abi_order(group: Group) -> tuple[str, ...]:
    """The arrays of the group's Scop that are arguments, in the order of the native ABI."""
    assert group.scop is not None
    return tuple(a.name for a in group.scop.arrays.values() if a.kind != "local")


def _plan_stage(plan: Plan, stage: str) -> str:
    return plan_text(plan) if stage == "plan" else memory_text(plan)


def _chosen(groups: Sequence[Group], kernel: str | None) -> list[tuple[str, Group]]:
    """Distinct kernels with a title each, or the one asked for."""
    distinct: dict[str, tuple[str, Group]] = {}
    uses: dict[str, int] = {}
    for g in groups:
        if g.scop is not None:
            uses[g.key] = uses.get(g.key, 0) + 1
            distinct.setdefault(g.key, (f"kernel {len(distinct)}: {g.label} at '{g.nodes[0].name}'", g))
    every = [(f"{title}, {uses[key]} times" if uses[key] > 1 else title, g) for key, (title, g) in distinct.items()]
    if kernel is None:
        return every
    if kernel.isdigit() and int(kernel) < len(every):
        return [every[int(kernel)]]
    named = [(t, g) for t, g in every if kernel == g.label or any(kernel == n.name for n in g.nodes)]
    if not named:
        raise UsageError(f"no kernel '{kernel}': give a number below {len(every)}, a node or a label (Conv+Relu)")
    return named


def _kernel_stage(group: Group, stage: str, machine: Target, backend: str, threads: int) -> str:
    from graph_driver.compile_operator import compile_operator
    from poly.text import print_tree

    assert group.scop is not None
    if stage == "scop":
        return str(group.scop)
    if stage == "deps":
        return dependences_text(group.scop)
    schedule = schedule_of(group, machine, threads)
    if stage == "schedule":
        return "\n".join([print_tree(schedule.tree, schedule.scop), *(f"# {n}" for n in schedule.notes)])
    return compile_operator(group.scop, machine, schedule, threads, backend=backend).source(stage)
