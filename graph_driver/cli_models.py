"""`polyc inspect MODEL`: the stages of a model as text, and the documents of its pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emit import targets
from graph_driver.binding import Dim
from graph_driver.calibration import this_machine
from graph_driver.cli_inspect import OPERATOR_STAGES, UsageError, dependences_text
from graph_driver.dynamic.plan import Template, build_template
from graph_driver.gpu.looking import gpu_stage, gpu_target
from graph_driver.groups import Group, form_groups, translate
from graph_driver.importer import import_model
from graph_driver.ir import Graph
from graph_driver.layouts import Rearranged, pack_constants
from graph_driver.model import Report, compile_graph, machine_of, symbol_of
from graph_driver.package import is_package, load
from graph_driver.plan import Abi, Plan, build_plan, memory_text, plan_text
from graph_driver.prediction import predict_steps
from poly.target import Target
from scheduler.cost.model import Prediction

if TYPE_CHECKING:
    from graph_driver.passes.manager import Pass


def model_stage(
    path: Path,
    stage: str,
    target: str,
    threads: int | None,
    dims: dict[str, Dim],
    kernel: str | None,
    pipeline: Sequence[Pass] | None = None,
) -> list[tuple[str, str]]:
    """One stage of a model as titled parts (one per kernel, or one without a title), after the passes of `pipeline`.

    Raises:
        UsageError: the model has no such stage or kernel.
    """
    from graph_driver.passes import manager

    if is_package(path):
        if stage not in ("plan", "memory"):
            raise UsageError(f"a compiled directory keeps only the stages plan and memory, not '{stage}'")
        packed = load(path)
        return [("", "\n".join([*packed.report().sizes, _plan_stage(packed.plan, stage)]))]
    graph = import_model(path, dims, symbolic=None)
    gpu = gpu_target(target, stage)
    machine, backend = machine_of("cpu" if gpu else target)
    records = manager.run(graph, pipeline or manager.select(), machine)
    if stage == "graph":
        notes = [f"# {r}" for r in records] + [f"# {n}" for n in graph.notes]
        return [("", "\n".join([str(graph), *notes]))]
    groups, _ = _grouped(graph, machine, packing=gpu is None)
    if stage in ("plan", "memory"):
        text = _plan_stage(_planned(graph, groups), stage)
        if graph.symbols is not None:
            text = "\n".join([*_template(graph, groups).lines(), "at the representative sizes:", text])
        return [("", text)]
    assert stage in OPERATOR_STAGES
    if gpu is not None and stage not in ("scop", "deps"):
        return [(t, gpu_stage(g.scop, stage, gpu)) for t, g in _chosen(groups, kernel) if g.scop is not None]
    return [(t, _kernel_stage(g, stage, machine, backend, threads)) for t, g in _chosen(groups, kernel)]


def document_of_model(
    path: Path,
    target: str,
    dims: dict[str, Dim],
    threads: int | None = None,
    measure: bool = False,
    pipeline: Sequence[Pass] | None = None,
) -> dict[str, Any]:
    """Everything about a model or a compiled directory (`graph_driver.html.model_page`).

    With `measure` it is compiled and run for the time of each step. Steps have the time that the cost model
    predicts with the figures of this machine, unless it is for another one.
    `pipeline`: the graph passes (None: the default).

    Raises:
        ModelError: the model cannot be read or sizes are missing; BuildError: no such target.
    """
    from graph_driver.html.measure import step_seconds
    from graph_driver.html.model_page import model_document
    from graph_driver.passes import manager

    if is_package(path):
        packed = load(path)
        return model_document(path.name, packed.plan, target, seconds=step_seconds(packed) if measure else None)
    graph = import_model(path, dims, symbolic=None)
    machine, backend = machine_of(target)
    records = manager.run(graph, pipeline or manager.select(), machine)
    groups, moved = _grouped(graph, machine)
    plan, seconds = _planned(graph, groups), None
    if measure:
        again, used = import_model(path, dims, symbolic=None), machine.threads if threads is None else threads
        model = compile_graph(again, machine, backend, used, Report(target, used), pipeline=pipeline)
        plan, seconds = model.plan, step_seconds(model)
        scops = {tuple(n.name for n in g.nodes): g for g in groups if g.scop is not None}
        groups = [scops.get(tuple(n.name for n in g.nodes), g) for g in model.groups]  # those from the cache: no Scops
    moves = [m.name for m in moved]
    predicted: Sequence[Prediction | None] = ()
    if graph.symbols is None and targets.obstacle(machine) is None:
        predicted = predict_steps(plan, groups, machine, this_machine(machine), threads or machine.threads)
    return model_document(path.stem, plan, target, graph, groups, list(map(str, records)), moves, seconds, predicted)


def kernels_of_model(
    path: Path, target: str, dims: dict[str, Dim], pipeline: Sequence[Pass] | None = None
) -> tuple[Target, list[tuple[str, Group]]]:
    """The target, and the distinct kernels of a model, each with a title. Raises `UsageError`, `ModelError`."""
    from graph_driver.passes import manager

    if is_package(path):
        raise UsageError("a compiled directory keeps no Scops: give the ONNX file")
    graph = import_model(path, dims, symbolic=None)
    machine, _ = machine_of(target)
    manager.run(graph, pipeline or manager.select(), machine)
    return machine, _chosen(_grouped(graph, machine)[0], None)


def document_of_kernel(
    path: Path,
    target: str,
    threads: int | None,
    dims: dict[str, Dim],
    kernel: str,
    pipeline: Sequence[Pass] | None = None,
) -> dict[str, Any]:
    """Everything about one kernel of a model, as of an operator.

    Raises:
        UsageError: there is no such kernel, or several have that label; ModelError, BuildError: as above.
    """
    from graph_driver.compile_operator import auto_schedule
    from graph_driver.html.operator_page import operator_document
    from graph_driver.passes import manager

    if is_package(path):
        raise UsageError("a compiled directory keeps no Scops: give the ONNX file")
    graph = import_model(path, dims, symbolic=None)
    machine, _ = machine_of(target)
    manager.run(graph, pipeline or manager.select(), machine)
    chosen = _chosen(_grouped(graph, machine)[0], kernel)
    if len(chosen) > 1:
        raise UsageError(f"{len(chosen)} kernels are '{kernel}': give one by its number ({chosen[0][0]}, ...)")
    title, group = chosen[0]
    assert group.scop is not None
    document = operator_document(auto_schedule(group.scop, machine, None, threads), machine, "automatic", {})
    return document | {"name": f"{path.stem}, {title}"}


def _grouped(graph: Graph, machine: Target, packing: bool = True) -> tuple[list[Group], tuple[Rearranged, ...]]:
    """Nodes joined into kernels, and the constants stored in another layout for them."""
    from graph_driver.operators import lookup

    groups = form_groups(graph, translate(graph, lookup), True, machine)
    return pack_constants(graph, groups, machine) if packing else (groups, ())


def _planned(graph: Graph, groups: Sequence[Group]) -> Plan:
    """The plan without compiling anything."""
    if graph.symbols is not None:
        return _template(graph, groups).typical
    return build_plan(graph, groups, _abis(groups))


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


def _kernel_stage(group: Group, stage: str, machine: Target, backend: str, threads: int | None) -> str:
    from graph_driver.compile_operator import auto_schedule, compile_operator
    from poly.text import print_tree

    assert group.scop is not None
    if stage == "scop":
        return str(group.scop)
    if stage == "deps":
        return dependences_text(group.scop)
    schedule = auto_schedule(group.scop, machine, None, threads)
    if stage == "schedule":
        return "\n".join([print_tree(schedule.tree, schedule.scop), *(f"# {n}" for n in schedule.notes)])
    return compile_operator(group.scop, machine, schedule, threads, backend=backend).source(stage)
