"""From a graph with symbolic sizes to a model for all of them: the stages of `compile_model` with formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.cpu_code import link_program
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.compiling.stages import compile_groups, formed, optimise, summarise
from polyc.graph_driver.execution import symbolic_entry as entry
from polyc.graph_driver.execution.weights import weights_segment
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.graph.size import Extent
from polyc.graph_driver.graph.symbols import GuardError, Symbols
from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.host.reference import HostNode
from polyc.graph_driver.importing.binding import SizesMissing
from polyc.graph_driver.inference.symbolic import NotSymbolic
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.planning.plan import Abi
from polyc.graph_driver.planning.symbolic.build import build_template
from polyc.graph_driver.planning.symbolic.template import Template
from polyc.graph_driver.planning.tasks import with_tasks
from polyc.graph_driver.running.all_sizes import AllSizes
from polyc.graph_driver.running.model import Built, Model
from polyc.poly.errors import ModelError


def compile_symbolic(graph: Graph, platform: Platform, options: CompileOptions, report: Report) -> Model:
    """The stages after import, for all sizes at once.

    Raises:
        ModelError: the memory limit cannot be kept, or a kernel's sizes contradict the guards.
    """
    found, compiled, template = plan_symbolic(graph, platform, options, report)
    with report.stage("program"):
        text = entry.entry_text(template, platform.machine.triple)
        code = link_program(text, template.typical, compiled, platform)
        hosts = [HostNode.of(g.nodes[0], graph.opsets, graph.tensors) for g in found if not g.key]
        weights = weights_segment(graph, template.typical)
    built = Built(template.typical, weights, hosts, graph, found)
    return Model(graph.name, AllSizes(template, built, code, report.notes), report)


def plan_symbolic(
    graph: Graph, platform: Platform, options: CompileOptions, report: Report
) -> tuple[list[Group], Mapping[str, Compiled], Template]:
    """Groups in order, their code by key, and the plan as formulas."""
    symbols = graph.symbols
    assert symbols is not None
    with report.stage("passes"):
        report.passes = optimise(graph, platform, options)
    report.nodes = len(graph.nodes)
    with report.stage("groups"):
        pieces, found, _ = formed(graph, platform, options)
    with report.stage("kernels"):
        found, compiled = compile_groups(graph, found, pieces, platform, options, report)
    for g in found:
        _assume(symbols, g)
    report.decisions = [str(d) for d in graph.decisions]
    with report.stage("plan"):
        template = placed(graph, found, {key: c.abi for key, c in compiled.items()}, platform, options, report.notes)
    if options.memory_limit is not None:
        check_limit(template, options.memory_limit)
    report.sizes = template.lines()
    summarise(report, graph, template.typical, compiled)
    return found, compiled, template


def placed(
    graph: Graph, found: Sequence[Group], abis: Mapping[str, Abi], platform: Platform, options: CompileOptions,
    notes: list[str],
) -> Template:  # fmt: skip
    """The plan of a graph whose sizes are formulas, as tasks where the options ask for that and it fits."""

    def template(window: int) -> Template:
        return build_template(graph, found, abis, options.planner, window)

    def peak(made: Template) -> int:
        return made.typical.peak if options.memory_limit is None else largest_arena(made)[0]

    in_order = template(0)
    if not options.tasks or platform.threads < 2:
        return in_order
    return with_tasks(in_order, template, lambda t: t.typical.after, peak, options.memory_limit, notes)


def check_limit(template: Template, limit: int) -> None:
    """Refuse a memory limit that some sizes break. Raises `ModelError`."""
    peak, most = largest_arena(template)
    if peak > limit:
        given = ", ".join(f"{n} = {v}" for n, v in most.items())
        raise ModelError(f"the arena needs {human(peak)} at {given}, more than the memory limit of {human(limit)}")


def largest_arena(template: Template) -> tuple[int, dict[str, int]]:
    """The bytes of the arena at the upper ends of all sizes, and these. Raises `SizesMissing` when one has no end."""
    symbols = template.symbols
    free = [n for n, r in symbols.ranges.items() if r.high is None]
    if free:
        raise SizesMissing(
            f"a memory limit needs an upper end of the sizes {', '.join(free)} (--dim {free[0]}=1..N): "
            f"the arena grows with them"
        )
    most = {n: r.high for n, r in symbols.ranges.items() if r.high is not None}
    return template.arena.place(most)[1], most


def _assume(symbols: Symbols, group: Group) -> None:
    """What a kernel's Scop assumes of its parameters becomes guards."""
    if group.scop is None or not group.scop.params:
        return
    for part in group.scop.context.get_basic_sets():
        for c in part.get_constraints():
            size = _constraint(symbols, c)
            if isinstance(size, int):
                continue
            with symbols.at(f"{group.label} '{group.nodes[0].name}'"):
                try:
                    if c.is_equality():
                        symbols.require_equal(size, 0, "a kernel's sizes")
                    else:
                        symbols.require_at_least(size, 0, "a kernel's sizes")
                except GuardError as error:
                    raise NotSymbolic(f"{group.label} '{group.nodes[0].name}': {error}", None) from None


def _constraint(symbols: Symbols, c: isl.Constraint) -> Extent:
    """The left side of `size >= 0` or `size == 0`."""
    size: Extent = int(c.get_constant_val().to_python())
    for kind, term in ((isl.dim_type.param, _parameter), (isl.dim_type.div, _quotient)):
        for k in range(c.dim(kind)):
            factor = int(c.get_coefficient_val(kind, k).to_python())
            if factor:
                size = size + term(symbols, c, k) * factor
    return size


def _parameter(symbols: Symbols, of: isl.Constraint | isl.Aff, k: int) -> Extent:
    return symbols.formula(of.get_dim_name(isl.dim_type.param, k))


def _quotient(symbols: Symbols, of: isl.Constraint | isl.Aff, k: int) -> Extent:
    """What a division of isl stands for: the floor of a quotient of sizes."""
    above = of.get_div(k)
    below = above.get_denominator_val()
    size: Extent = int(above.get_constant_val().mul(below).to_python())
    for kind, term in ((isl.dim_type.param, _parameter), (isl.dim_type.div, _quotient)):
        for j in range(above.dim(kind)):
            factor = int(above.get_coefficient_val(kind, j).mul(below).to_python())
            if factor:
                size = size + term(symbols, above, j) * factor
    return size // int(below.to_python())
