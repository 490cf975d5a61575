"""Groups in order with some of them repeated, so that the arena keeps a limit.

It comes when groups are formed and tensors have their layouts: a repeated group is the same kernel on the same values,
so results keep every bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.aliases import is_alias, storage
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.memory.lifetimes import aligned
from polyc.graph_driver.rematerialising.choose import Chosen, choose
from polyc.graph_driver.rematerialising.program import NOTHING_AGAIN, DoesNotFit, Program, Step, measure
from polyc.poly.target import Target
from polyc.poly.words import counted
from polyc.scheduler.cost.model import nominal, predict
from polyc.scheduler.cost.work import work_of

if TYPE_CHECKING:
    from polyc.poly.scop import Scop

BANDWIDTH = 1e10  # bytes a second, where the cost model has no prediction: what one core copies
SLACK = (1.0, 1.1, 1.25, 1.5)
"""Results in place need less than the count of what is alive: rooms that are tried, by the real one."""


def rematerialised(graph: Graph, groups: Sequence[Group], room: int, machine: Target | None) -> list[Group]:
    """The groups in an order, with repeats, that needs at most `room` bytes, or as little more as could be had; as they
    are where nothing like that was found. What was done, or why nothing, is noted in the graph."""
    program, free = program_of(graph, groups, machine)
    refusal: DoesNotFit | None = None
    for slack in SLACK:
        try:
            chosen = choose(program, int(room * slack))
        except DoesNotFit as error:
            refusal = refusal or error
            continue
        if len(chosen.order) > len(groups):
            graph.notes.append(_note(program, chosen, groups))
        return repeated(graph, groups, chosen.order, free)
    graph.notes.append(f"{NOTHING_AGAIN}{refusal}")
    return [*groups]


def _note(program: Program, chosen: Chosen, groups: Sequence[Group]) -> str:
    extra = len(chosen.order) - len(groups)
    plain = measure(program, range(len(groups)))
    return (
        f"{counted(extra, 'kernel')} run again ({chosen.method}): what is alive falls from {human(plain.peak)} to "
        f"{human(chosen.need.peak)}, predicted time grows {chosen.need.cost / plain.cost:.2f} times"
    )


def program_of(graph: Graph, groups: Sequence[Group], machine: Target | None) -> tuple[Program, dict[str, str]]:
    """Groups as steps over memories, and the memory of each tensor that may be dropped.

    Not repeated are groups of the host and those that write memory which is not theirs alone: results of the model, and
    wholes that several groups write parts of.
    """
    where = {name: root for name, (root, _) in storage(graph).items()}
    callers = {where[n] for n in (*graph.inputs, *graph.outputs)}
    writers: dict[str, set[int]] = {}
    for k, g in enumerate(groups):
        for o in g.outputs:
            writers.setdefault(where[o], set()).add(k)
    wholes = {where[o] for n in graph.nodes if is_alias(n) and n.op_type == "Whole" for o in n.outputs}
    sizes: dict[str, int] = {}
    for root in writers:
        t = graph.tensors[root]
        if root not in callers and t.const is None and t.static and isinstance(t.nbytes, int):
            sizes[root] = aligned(t.nbytes)
    steps = []
    seconds: dict[str, float] = {}
    for k, g in enumerate(groups):
        reads = {where[i] for i in (*g.inputs, *(c for n in g.nodes for c in n.captures))}
        written = {where[o] for o in g.outputs}
        alone = all(o in sizes and len(writers[o]) == 1 and o not in wholes for o in written)
        makes = {o for o in written if min(writers[o]) == k}  # the others are there already, and stay
        if not g.key or g.key not in seconds:
            seconds[g.key] = _seconds(graph, g, machine)
        again = alone and bool(g.key) and g.scop is not None
        steps.append(Step(tuple(sorted((reads | written) - makes)), tuple(sorted(makes)), seconds[g.key], again))
    return Program(tuple(steps), sizes), {name: root for name, root in where.items() if root in sizes}


def _seconds(graph: Graph, group: Group, machine: Target | None) -> float:
    """How long a kernel is predicted to take."""
    found = _predicted(group.scop, machine) if group.scop is not None and machine is not None else None
    if found is not None:
        return found
    tensors = [graph.tensors[n] for n in (*group.inputs, *group.outputs)]
    return sum(t.nbytes for t in tensors if t.static and isinstance(t.nbytes, int)) / BANDWIDTH


def _predicted(scop: Scop, machine: Target) -> float | None:
    work = work_of(scop, machine)
    return None if work is None else predict(work, nominal(machine)).seconds


def repeated(graph: Graph, groups: Sequence[Group], order: Sequence[int], free: Mapping[str, str]) -> list[Group]:
    """The groups in this order. The first run of each keeps its tensors; later ones make new ones, which those after
    them read; views of these are new nodes of the graph."""
    views: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if is_alias(node) and node.op_type != "Whole" and node.inputs[0] in free:
            views.setdefault(free[node.inputs[0]], []).append(node)
    known: dict[str, str] = {}
    seen: set[int] = set()
    found = []
    for k in order:
        group = groups[k]
        if k not in seen:
            seen.add(k)
            found.append(_reading(group, known))
            continue
        own: dict[str, str] = {}
        for name in dict.fromkeys(free[o] for o in group.outputs):
            own |= _another(graph, name, views.get(name, ()))
        inner = {o: own[o] for o in group.outputs if o in own}
        again = _reading(group, known)
        nodes = tuple(replace(n, outputs=[inner.get(o, o) for o in n.outputs]) for n in again.nodes)
        found.append(replace(again, nodes=nodes, outputs=tuple(inner.get(o, o) for o in again.outputs)))
        known |= own
    return found


def _reading(group: Group, known: Mapping[str, str]) -> Group:
    """The group with operands that were made again under their new names."""
    if not any(i in known for i in group.inputs):
        return group
    nodes = tuple(replace(n, inputs=[known.get(i, i) for i in n.inputs]) for n in group.nodes)
    return replace(group, nodes=nodes, inputs=tuple(known.get(i, i) for i in group.inputs))


def _another(graph: Graph, root: str, views: Sequence[Node]) -> dict[str, str]:
    """New tensors for a memory and all views of it; old names to new ones."""
    names: dict[str, str] = {}
    for old in (root, *(o for v in views for o in v.outputs if o)):
        names[old] = graph.fresh(f"{old}.again")
        graph.tensors[names[old]] = replace(graph.tensors[old], name=names[old])
    for v in views:
        inputs, outputs = [names.get(i, i) for i in v.inputs], [names.get(o, o) for o in v.outputs]
        graph.nodes.append(replace(v, name=graph.fresh(v.name), inputs=inputs, outputs=outputs))
    return names
