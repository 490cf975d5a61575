"""In place: results that overwrite an operand which nobody needs any more.

The graph says that the operand dies with the step and has memory of its own; `polyc.poly.inplace`
says that each of its elements is read before the result's element is written. The two become
one array of the kernel, so its schedule keeps that order.

A result of the model overwrites what a caller gives only where the caller says so, with one array for both (`out=`).
Then a kernel that changes some elements (rows that a cache gets, `ScatterND`) need not touch the others: such a result
is planned as a copy of the operand, which a run of one array leaves out, and a kernel over it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.aliases import storage
from polyc.graph_driver.graph.decisions import Overwriting
from polyc.graph_driver.graph.ir import Graph
from polyc.poly import json_io
from polyc.poly.budgets import STEP, scaled
from polyc.poly.inplace import Clash, clash, merged
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.verify import verify


def _reason(problem: Clash, output: str, source: str) -> str:
    """Why not, in the names of the model."""
    if not problem.element:
        return problem.reason
    at = ", ".join(map(str, problem.element))
    return f"element ({at}) of '{output}' may be written while what lies there in '{source}' is still to be read"


MINIMUM = 4096  # bytes; below that it makes no difference to the arena


def overwrite(graph: Graph, groups: Sequence[Group]) -> list[Group]:
    """The groups, those that can overwriting an operand of theirs; decisions go to `graph.decisions`."""
    where = storage(graph)
    last = _last_use(graph, groups, where)
    fixed = {where[n][0] for n in (*graph.inputs, *graph.outputs)}
    roots = {r for r, _ in where.values()}
    alone = {r: r not in fixed and graph.tensors[r].const is None and graph.tensors[r].static for r in roots}
    known: dict[tuple[str, str], Shared | Clash | None] = {}
    own = _own_results(graph, groups, where)
    return [
        _updating(graph, g, k, where, last, own, known) or _overwriting(graph, g, k, where, last, alone, known)
        for k, g in enumerate(groups)
    ]


def _own_results(graph: Graph, groups: Sequence[Group], where: Mapping[str, tuple[str, int]]) -> set[str]:
    """Memories that are one result of the model and nothing else, each written by one group."""
    homes = [where[n][0] for n in graph.outputs]
    writers = [root for g in groups for root in {where[o][0] for o in g.outputs}]
    return {r for r in homes if homes.count(r) == 1 == writers.count(r) and r not in graph.inputs}


def _last_use(graph: Graph, groups: Sequence[Group], where: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    """Number of the last group that touches each memory."""
    last: dict[str, int] = {}
    for k, g in enumerate(groups):
        captured = [c for n in g.nodes for c in n.captures]
        for name in (*g.inputs, *g.outputs, *captured):
            last[where[name][0]] = k
    return last


@dataclass(frozen=True)
class Shared:
    """A kernel whose result lies in its operand: the Scop, its canonical text, and its key."""

    scop: Scop
    text: str
    key: str
    leaves: bool
    """Whether it leaves elements as they are that it would copy from one memory to another."""


def _asked(scop: Scop, source: str, target: str) -> Shared | Clash | None:
    """The kernel with the result in the operand's memory, or what is in the way; None where the two have different
    shapes. A question that takes too long counts as one that says no."""
    try:
        with quota(scaled(STEP)):
            problem = clash(scop, source, target, every_order=True)
            if problem is not None:
                return problem
            if scop.arrays[source].shape != scop.arrays[target].shape:
                return None
            one = merged(scop, source, target)
            verify(one)
    except QuotaExceeded as error:
        if not error.spent:
            raise
        return Clash(source, target, f"not decided within {scaled(STEP):,} isl operations")
    text = json_io.dumps(one)
    leaves = {n: s.predicate for n, s in one.statements.items()} != {n: s.predicate for n, s in scop.statements.items()}
    return Shared(one, text, hashlib.sha256(text.encode()).hexdigest(), leaves)


def _updating(
    graph: Graph, group: Group, number: int, where: Mapping[str, tuple[str, int]], last: Mapping[str, int],
    own: Collection[str], known: dict[tuple[str, str], Shared | Clash | None],
) -> Group | None:  # fmt: skip
    """The group over a copy of an input of the model that it alone reads from then on, and of which it leaves some
    elements as they are."""
    scop = group.scop
    if scop is None or len(group.outputs) != 1 or where[group.outputs[0]][0] not in own:
        return None
    (output,) = group.outputs
    size = graph.tensors[output].nbytes
    if graph.tensors[where[output][0]].nbytes != size or (isinstance(size, int) and size < MINIMUM):
        return None
    roots = [where[i][0] for i in group.inputs]
    for name, root in zip(group.inputs, roots, strict=True):
        mine = root in graph.inputs and last[root] == number and roots.count(root) == 1
        if not mine or graph.tensors[root].nbytes != size or graph.tensors[name].nbytes != size:
            continue
        array = scop.args[group.inputs.index(name)]
        if (group.key, array) not in known:
            known[group.key, array] = _asked(scop, array, scop.results[0])
        answer = known[group.key, array]
        if isinstance(answer, Shared) and answer.leaves:
            reason = "what it leaves as it is stays where it lies in runs that write the output over the input"
            graph.decisions.append(Overwriting(group.label, output, name, True, reason))
            return _shared(group, answer, output, name)
    return None


def _shared(group: Group, answer: Shared, output: str, name: str) -> Group:
    arrays = (*answer.scop.args, *answer.scop.results)
    one = replace(group, scop=answer.scop, text=answer.text, key=answer.key, arrays=arrays)
    return replace(one, inplace=((output, name),))


def _overwriting(
    graph: Graph, group: Group, number: int, where: Mapping[str, tuple[str, int]], last: Mapping[str, int],
    alone: Mapping[str, bool], known: dict[tuple[str, str], Shared | Clash | None],
) -> Group:  # fmt: skip
    scop = group.scop
    if scop is None or len(group.outputs) != 1:
        return group
    (output,) = group.outputs
    home = where[output][0]
    size = graph.tensors[home].nbytes if alone[home] else 0
    if graph.tensors[output].nbytes != size or (isinstance(size, int) and size < MINIMUM):
        return group
    roots = [where[i][0] for i in group.inputs]
    for name, root in zip(group.inputs, roots, strict=True):
        # The operand is all that lies in its memory, and nothing there is used again.
        dies = alone[root] and last[root] == number and roots.count(root) == 1 and root != home
        if not dies or graph.tensors[root].nbytes != size or graph.tensors[name].nbytes != size:
            continue
        array = scop.args[group.inputs.index(name)]
        asked = (group.key, array)  # equal kernels have equal answers
        if asked not in known:
            known[asked] = _asked(scop, array, scop.results[0])
        answer = known[asked]
        if isinstance(answer, Clash):
            graph.decisions.append(Overwriting(group.label, output, name, False, _reason(answer, output, name)))
        elif answer is not None:
            reason = "each element is read before, or by, what writes it"
            graph.decisions.append(Overwriting(group.label, output, name, True, reason))
            return _shared(group, answer, output, name)
    return group
