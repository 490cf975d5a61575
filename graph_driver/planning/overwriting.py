"""In place: results that overwrite an operand which nobody needs any more.

The graph says that the operand dies with the step and has memory of its own; `polyc.poly.inplace`
says that each of its elements is read before the result's element is written. The two become
one array of the kernel, so its schedule keeps that order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.aliases import storage
from polyc.graph_driver.graph.decisions import Overwriting
from polyc.graph_driver.graph.ir import Graph
from polyc.poly import json_io
from polyc.poly.inplace import Clash, clash, merged
from polyc.poly.verify import verify


def _reason(problem: Clash, output: str, source: str) -> str:
    """Why not, in the names of the model."""
    if not problem.element:
        return problem.reason
    at = ", ".join(map(str, problem.element))
    return f"element ({at}) of '{output}' may be written while what lies there in '{source}' is still to be read"


Known = dict[tuple[str, str], Clash | None]

MINIMUM = 4096  # bytes; below that it makes no difference to the arena


def overwrite(graph: Graph, groups: Sequence[Group]) -> list[Group]:
    """The groups, those that can overwriting an operand of theirs; decisions go to `graph.decisions`."""
    where = storage(graph)
    last = _last_use(graph, groups, where)
    fixed = {where[n][0] for n in (*graph.inputs, *graph.outputs)}
    roots = {r for r, _ in where.values()}
    alone = {r: r not in fixed and graph.tensors[r].const is None and graph.tensors[r].static for r in roots}
    known: Known = {}
    return [_overwriting(graph, g, k, where, last, alone, known) for k, g in enumerate(groups)]


def _last_use(graph: Graph, groups: Sequence[Group], where: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    """Number of the last group that touches each memory."""
    last: dict[str, int] = {}
    for k, g in enumerate(groups):
        captured = [c for n in g.nodes for c in n.captures]
        for name in (*g.inputs, *g.outputs, *captured):
            last[where[name][0]] = k
    return last


def _overwriting(
    graph: Graph, group: Group, number: int, where: Mapping[str, tuple[str, int]], last: Mapping[str, int],
    alone: Mapping[str, bool], known: Known,
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
            known[asked] = clash(scop, array, scop.results[0], every_order=True)
        problem = known[asked]
        if problem is not None:
            graph.decisions.append(Overwriting(group.label, output, name, False, _reason(problem, output, name)))
            continue
        if scop.arrays[array].shape != scop.arrays[scop.results[0]].shape:
            continue
        one = merged(scop, array, scop.results[0])
        verify(one)
        text = json_io.dumps(one)
        key = hashlib.sha256(text.encode()).hexdigest()
        arrays = (*one.args, *one.results)
        reason = "each element is read before, or by, what writes it"
        graph.decisions.append(Overwriting(group.label, output, name, True, reason))
        return replace(group, scop=one, text=text, key=key, arrays=arrays, inplace=((output, name),))
    return group
