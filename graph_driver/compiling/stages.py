"""The stages of compiling between import and program: passes, groups, kernels, plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.emit import cache
from polyc.emit.lowering.checks import wanted as checks_wanted
from polyc.graph_driver import memory
from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.compiling.assumed import assume
from polyc.graph_driver.compiling.first_program import BY_NUMPY, first_groups, quick_passes
from polyc.graph_driver.fusion.joined import Group, is_on_cpu, on_cpu, on_host, split
from polyc.graph_driver.fusion.rearranging import Rearranged, rearrange
from polyc.graph_driver.graph.defects import warn_of_defects
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.limits import check_memory
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.host.same_everywhere import NotReproducible, same_everywhere
from polyc.graph_driver.importing.binding import SizesMissing
from polyc.graph_driver.operators.pieces import Piece
from polyc.graph_driver.options import FAST, FULL, MINIMAL, OVERWRITING, PROGRESSIVE, CompileOptions
from polyc.graph_driver.passes import manager
from polyc.graph_driver.planning.build import NO_GAPS, Gaps, build_plan
from polyc.graph_driver.planning.contiguous import kept_apart
from polyc.graph_driver.planning.formulas import lines
from polyc.graph_driver.planning.one_at_a_time import one_at_a_time
from polyc.graph_driver.planning.plan import Abi, Plan
from polyc.graph_driver.planning.tasks import with_tasks
from polyc.graph_driver.rematerialising.program import NOTHING_AGAIN
from polyc.graph_driver.rematerialising.snapshot import Snapshot
from polyc.graph_driver.worker import kernels, memo
from polyc.graph_driver.worker import tuned as use
from polyc.graph_driver.worker.jobs import Job
from polyc.poly import spans
from polyc.poly.errors import ModelError
from polyc.poly.words import counted

ATTEMPTS = 5
"""How often a memory limit is tried with less room between kernels than before."""
NOT_IN_A_HURRY = ("winograd",)
"""Passes that the tier `fast` leaves out: what they make is faster, and several kernels instead of one. So does
`memory` minimal: what lies between these kernels is larger than what they make."""
LAYOUTS_OF_MINIMAL = ("auto", "as_given", "channels_last")
"""Which images die row by row, and which lie in parts of wholes, depends on how they are stored: the least is taken."""


def optimise(graph: Graph, platform: Platform, options: CompileOptions) -> list[str]:
    """Run the graph passes that this platform and these options have; what each did, a line each.

    Raises:
        ArgumentError: a pass that is asked for does not exist or is not for this platform.
        GraphError: a pass broke the graph.
    """
    passes = options.pipeline(platform)
    if options.tier == PROGRESSIVE:
        passes = quick_passes(passes)
    elif (options.tier == FAST or options.overlapping) and options.passes is None:
        passes = tuple(p for p in passes if p.name not in NOT_IN_A_HURRY)
    records = manager.run(graph, passes, platform.host)
    elsewhere = manager.rounded_elsewhere(records)
    graph.notes += [elsewhere] if elsewhere else []
    return [str(r) for r in records]


def formed(
    graph: Graph, platform: Platform, options: CompileOptions, room: int | None = None
) -> tuple[list[Piece], list[Group], Sequence[Rearranged]]:
    """Nodes as operators, joined into groups in the order of execution, and what is stored in another layout; with
    `room` for at most so many bytes between them, if they can have that by running some again."""
    if options.tier == PROGRESSIVE:
        return *first_groups(graph, checks_wanted(options.checks)), ()
    from polyc.graph_driver.compiling.joining import joined  # loads the scheduler

    pieces, found, moved = joined(graph, platform, options, room)
    if options.reproducible:
        _refuse_unfixed(graph, found)
    return pieces, found, moved


def _refuse_unfixed(graph: Graph, found: Sequence[Group]) -> None:
    """Refuse nodes of the host whose bits depend on the machine. Raises `NotReproducible`."""
    unfixed = [g for g in found if g.in_python and not _fixed(graph, g.nodes[0])]
    if unfixed:
        raise NotReproducible([(g.label, g.nodes[0].name, g.reason) for g in unfixed])


def _fixed(graph: Graph, node: Node) -> bool:
    """Bodies of control flow that are compiled are looked at when they are."""
    return (bool(node.bodies) and None not in node.bodies) or same_everywhere(node, graph.tensors)


def plan_graph(
    graph: Graph, platform: Platform, options: CompileOptions, report: Report
) -> tuple[list[Group], Mapping[str, Compiled], Plan]:
    """The stages from passes to plan: groups in order, their code by key, and a place for everything; with symbolic
    sizes for all of them.

    Raises:
        ModelError: the memory limit cannot be kept, the machine has not the memory, or a kernel's sizes contradict the
            guards.
    """
    report.eager_launches, report.eager_peak = one_at_a_time(graph)
    with kept_apart(graph, options.contiguous):
        with report.stage("passes"):
            report.passes = optimise(graph, platform, options)
    if options.overlapping:
        found, compiled, plan = _least(graph, platform, options, report)
    else:
        found, compiled, plan = _within_limit(graph, platform, options, report)
    if options.memory_limit is not None:
        _check_limit(plan, options.memory_limit, [n for n in graph.notes if n.startswith(NOTHING_AGAIN)])
    if plan.symbols is None:
        outputs = sum(plan.slots[o].nbytes for o in plan.outputs)
        check_memory("the model (arena, weights and outputs)", plan.peak + plan.weight_bytes + outputs)
    else:
        with report.stage("plan"):
            report.sizes = lines(plan)
    summarise(report, graph, plan, compiled, options)
    return found, compiled, plan


def _least(
    graph: Graph, platform: Platform, options: CompileOptions, report: Report
) -> tuple[list[Group], Mapping[str, Compiled], Plan]:
    """Groups, code and plan with the layouts whose arena is smallest."""
    before, notes = Snapshot.of(graph), [*report.notes]

    def made(layouts: str, way: str) -> tuple[list[Group], Mapping[str, Compiled], Plan]:
        before.restore(graph)
        report.notes[:] = notes
        report.cache_hits = 0
        return _within_limit(graph, platform, replace(options, layouts=layouts, memory=way), report)

    choices = (
        LAYOUTS_OF_MINIMAL if platform.backend.chooses_layouts and options.layouts == "auto" else (options.layouts,)
    )
    peaks = {layouts: made(layouts, MINIMAL)[2].peak for layouts in choices}
    best = min(peaks, key=lambda layouts: peaks[layouts])
    whole = made(best, OVERWRITING)
    answer = made(best, MINIMAL) if peaks[best] <= whole[2].peak else whole  # of what was made before, from the cache
    if len(choices) > 1:
        tried = ", ".join(f"{layouts} {human(peak)}" for layouts, peak in peaks.items())
        report.notes.append(f"images are stored {best}, where the arena is smallest: {tried}")
    return answer


def _within_limit(
    graph: Graph, platform: Platform, options: CompileOptions, report: Report
) -> tuple[list[Group], Mapping[str, Compiled], Plan]:
    """Groups, code and plan. With a memory limit that these break, again with less room for what lies between kernels:
    how much memory kernels take for themselves, and how much is lost between tensors, only the plan tells."""

    def made(room: int | None) -> tuple[list[Group], Mapping[str, Compiled], Plan]:
        with kept_apart(graph, options.contiguous):
            found, compiled = _kernels(graph, platform, options, report, room)
        assume(graph, found)
        with report.stage("plan"):
            abis = {key: c.abi for key, c in compiled.items()}
            gaps = {key: c.gaps for key, c in compiled.items() if c.gaps}
            plan = placed(graph, found, abis, platform, options, report.notes, gaps)
        return found, compiled, plan

    limit = options.memory_limit
    if limit is None or graph.symbols is not None or options.contiguous or options.tier == PROGRESSIVE:
        return made(None)
    before, notes, room = Snapshot.of(graph), [*report.notes], limit
    answer = made(room)
    for _ in range(ATTEMPTS):
        over = answer[2].peak - limit
        if over <= 0 or any(n.startswith(NOTHING_AGAIN) for n in graph.notes):
            return answer
        room -= over
        if room <= 0:
            return answer
        before.restore(graph)
        report.notes[:] = notes
        answer = made(room)
    return answer


def placed(
    graph: Graph, found: Sequence[Group], abis: Mapping[str, Abi], platform: Platform, options: CompileOptions,
    notes: list[str], gaps: Gaps = NO_GAPS,
) -> Plan:  # fmt: skip
    """The plan of a graph, as tasks where the options ask for that and it fits."""

    def plan(window: int) -> Plan:
        return build_plan(
            graph, found, abis, options.planner, window, options.contiguous, gaps, platform.backend.alignment
        )

    in_order = plan(0)
    if not options.tasks or platform.threads < 2:
        return in_order
    return with_tasks(in_order, plan, lambda p: _largest(p)[0].peak, options.memory_limit, notes)


def summarise(
    report: Report, graph: Graph, plan: Plan, compiled: Mapping[str, Compiled], options: CompileOptions
) -> None:
    """What the report says of kernels, host operators and memory."""
    report.kernels = sum(s.kind == "kernel" for s in plan.steps)
    report.distinct = len(compiled)
    report.host = [(s.label, s.nodes[0], s.reason) for s in plan.host_steps if s.reason != BY_NUMPY]
    numpy = len(plan.host_steps) - len(report.host)
    report.tier = options.tier
    if numpy:
        report.tiers = [f"NumPy runs {counted(numpy, 'node')} of {len(plan.steps)}, until the full program is there"]
    report.peak, report.bound, report.weight_bytes = plan.peak, plan.bound, plan.weight_bytes
    report.notes += [*graph.notes, *cache.notes()]
    if options.reproducible and report.host:
        nodes = ", ".join(f"'{node}' ({label})" for label, node, _ in report.host[:8])
        report.notes.append(f"reproducible on the host, too, where each element is moved, or rounded once: {nodes}")
    hosts = (f"{label} '{node}' runs on the host: {reason}" for label, node, reason in report.host)
    warn_of_defects([*report.notes, *hosts])


def _kernels(
    graph: Graph, platform: Platform, options: CompileOptions, report: Report, room: int | None
) -> tuple[list[Group], Mapping[str, Compiled]]:
    """The stages from groups to machine code: groups in order, their code by key; from the cache if it has all."""
    report.nodes = len(graph.nodes)
    known = None
    # A cache entry does not know formulas, nor the tensors that are made again.
    remembered = graph.symbols is None and options.tier != PROGRESSIVE and room is None
    if remembered:
        with report.stage("key"):
            key = _memo_key(graph, platform, options)
            known = memo.find(key, graph)
    if known is not None:
        report.notes += known.notes
        report.decisions = list(known.decisions)
        report.cache_hits = len(known.compiled)
        with report.stage("weights"):
            for what in known.rearranged:
                rearrange(graph, what)
        return known.groups, known.compiled
    found, compiled, rearranged, refusal = kernels_anew(graph, platform, options, report, room)
    report.decisions = [str(d) for d in graph.decisions]
    if remembered:
        memo.store(key, graph, memo.Known(found, compiled, report.notes, rearranged, report.decisions, refusal))
    return found, compiled


def kernels_anew(
    graph: Graph, platform: Platform, options: CompileOptions, report: Report, room: int | None = None
) -> tuple[list[Group], dict[str, Compiled], Sequence[Rearranged], str]:
    """Groups in order, with their Scops; their code by key; what is stored otherwise; why layouts were given up, if
    they were."""
    decided, refusal = len(graph.decisions), ""
    with report.stage("groups"):
        pieces, found, rearranged = formed(graph, platform, options, room)
    with report.stage("kernels"):
        try:
            found, compiled = compile_groups(graph, found, pieces, platform, options, report)
        except LayoutRefused as error:
            refusal = f"all tensors are stored as the model has them: {error}"
            report.notes.append(refusal)
            del graph.decisions[decided:]  # those of the attempt
            pieces, found, rearranged = formed(graph, platform, replace(options, layouts="as_given"), room)
            found, compiled = compile_groups(graph, found, pieces, platform, options, report)
    return found, compiled, rearranged, refusal


def _memo_key(graph: Graph, platform: Platform, options: CompileOptions) -> str:
    layouts = options.layouts if options.tier == FULL else f"{options.layouts} {options.tier}"
    layouts += " reproducible" if options.reproducible else ""
    layouts += f" {options.memory}" if options.overlapping else ""
    return use.keyed(memo.graph_key(graph, platform, options.fuse, layouts, checks_wanted(options.checks)))


def layouts_refused(graph: Graph, platform: Platform, options: CompileOptions) -> str:
    """Why the layouts of this graph, after its passes, were given up when it was compiled; empty if they were not, or
    it has not been compiled yet (as far as the cache knows)."""
    if not platform.backend.chooses_layouts or graph.symbols is not None:
        return ""
    with use.tuned(options.tuned):
        known = memo.find(_memo_key(graph, platform, options), graph)
    return "" if known is None else known.refusal


def symbol_of(key: str) -> str:
    """The machine-code symbol of a group's key."""
    return f"polyc_{key[:20]}"


def compile_groups(
    graph: Graph, found: list[Group], pieces: Sequence[Piece], platform: Platform, options: CompileOptions,
    report: Report,
) -> tuple[list[Group], dict[str, Compiled]]:  # fmt: skip
    """Machine code by group key. A group that fails is split; a node that fails gets code of what is beside the
    machine, if anything is, or goes to the host."""
    progress = options.progress
    checks = checks_wanted(options.checks)
    compiled: dict[str, Compiled] = {}
    beside = platform.backend.beside(platform.machine)
    found, notes = platform.backend.shared_out(graph, found, platform.machine)
    report.notes += notes
    while True:
        wanted = {g.key: g for g in found if g.key and g.key not in compiled}
        if not wanted:
            return found, compiled
        makers = {key: beside if beside is not None and is_on_cpu(g) else platform for key, g in wanted.items()}
        jobs = [
            Job(g.text, symbol_of(key), maker, use.trace_for_text(g.text, maker), checks, options.overlapping)
            for key, g in wanted.items()
            for maker in (makers[key],)
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
            spans.keep(*spans.about(result.spans, kernel=wanted[key].label, node=wanted[key].nodes[0].name))
            for stage, seconds in result.seconds.items():
                report.kernel_seconds[stage] = report.kernel_seconds.get(stage, 0.0) + seconds
        if failed:
            found = _without(graph, found, pieces, failed, report, beside is not None)


def _without(
    graph: Graph, found: list[Group], pieces: Sequence[Piece], failed: Mapping[str, str], report: Report, beside: bool
) -> list[Group]:
    kept: list[Group] = []
    for g in found:
        if g.key not in failed:
            kept.append(g)
        elif any(graph.tensors[t].layout is not None for t in (*g.inputs, *g.outputs)):
            raise LayoutRefused(f"{g.label} at '{g.nodes[0].name}': {failed[g.key]}")
        elif len(g.nodes) > 1:
            report.notes.append(f"{g.label} at '{g.nodes[0].name}' compiled in parts: {failed[g.key]}")
            kept += split(g, pieces)
        elif beside and not is_on_cpu(g):
            report.notes.append(f"{g.label} at '{g.nodes[0].name}' has a kernel of the CPU: {failed[g.key]}")
            kept.append(on_cpu(g))
        else:
            kept.append(on_host(g, f"no code: {failed[g.key]}"))
    return kept


class LayoutRefused(Exception):
    """A kernel cannot be compiled with its images stored by their layouts."""


def _check_limit(plan: Plan, limit: int, notes: Sequence[str]) -> None:
    """Refuse a memory limit that some sizes break; `notes` say why computing again does not help.

    Raises:
        ModelError: one line with the numbers.
    """
    largest, most = _largest(plan)
    if largest.peak <= limit:
        return
    if not most:
        raise ModelError("; ".join([_too_large(largest, limit), *notes]))
    given = ", ".join(f"{n} = {v}" for n, v in most.items())
    raise ModelError(f"the arena needs {human(largest.peak)} at {given}, more than the memory limit of {human(limit)}")


def _largest(plan: Plan) -> tuple[Plan[int], dict[str, int]]:
    """The plan at the upper ends of all sizes, and these. Raises `SizesMissing` when one has no end."""
    ranges = {} if plan.symbols is None else plan.symbols.ranges
    free = [n for n, r in ranges.items() if r.high is None]
    if free:
        raise SizesMissing(
            f"a memory limit needs an upper end of the sizes {', '.join(free)} (--dim {free[0]}=1..N): "
            f"the arena grows with them"
        )
    most = {n: r.high for n, r in ranges.items() if r.high is not None}
    return plan.at(most), most


def _too_large(plan: Plan[int], limit: int) -> str:
    """Why the memory limit cannot be kept: what is alive when most is."""
    live = memory.live_at_peak(plan.lifetimes)
    named = ", ".join(f"'{t.name}' {human(t.size)}" for t in live[:6])
    more = f" and {len(live) - 6} more" if len(live) > 6 else ""
    step = max((t.first for t in live), default=0)
    return (
        f"the arena needs {human(plan.peak)} (lower bound {human(plan.bound)}), more than the memory limit of "
        f"{human(limit)}; alive at step {step} ({plan.steps[step].label}): {named}{more}"
    )
