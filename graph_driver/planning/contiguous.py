"""Tensors that lie one behind the other in the arena, so that one transfer moves all of them.

Gradients that are summed over several processes, say: n calls of a communication library become one. Such
tensors keep memory of their own (nothing is fused over them or written into them), and each lives at
least until the last of its group is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.memory import Shape, aligned
from polyc.poly.errors import ArgumentError

Groups = Sequence[Sequence[str]]


@contextmanager
def kept_apart(graph: Graph, groups: Groups) -> Iterator[None]:
    """Within the block the tensors are outputs of the graph, which every pass and every fusion respects.

    Raises:
        ArgumentError: a tensor does not exist, is named twice, is no result of a node, or has no known size.
    """
    names = [n for group in groups for n in group]
    for name in names:
        _check(graph, name, names.count(name))
    before = graph.outputs
    graph.outputs = [*before, *names]
    try:
        yield
    finally:
        graph.outputs = before


def _check(graph: Graph, name: str, times: int) -> None:
    tensor = graph.tensors.get(name)
    if tensor is None:
        raise ArgumentError(f"there is no tensor '{name}' to be contiguous with others")
    if times > 1:
        raise ArgumentError(f"tensor '{name}' is named twice for contiguous memory")
    if name in graph.outputs:
        raise ArgumentError(f"'{name}' is an output of the model: pass parts of one array as out={{...}} instead")
    if name in graph.inputs or tensor.const is not None:
        raise ArgumentError(f"'{name}' is {_given(graph, name)}: it has no place in the arena")
    if not tensor.static:
        raise ArgumentError(
            f"'{name}' has no size or type known before a run: it is a Python object and has no place in the arena"
        )


def _given(graph: Graph, name: str) -> str:
    """What a tensor is that no step of a run makes."""
    if name in graph.inputs:
        return "an input of the model, no result that a node makes"
    return "a constant once the model is compiled"


def why_elsewhere(graph: Graph, inside: Mapping[str, tuple[str, int]], name: str) -> str:
    """Why a tensor has no memory of its own in the arena. `inside`: the memory in which each tensor lies."""
    tensor, (root, at) = graph.tensors[name], inside.get(name, (name, 0))
    if tensor.const is not None or tensor.sizes is not None:
        return f"'{name}' is {_given(graph, name)}: it has no place in the arena"
    if root == name:
        return f"no step of the plan makes or reads '{name}': it has no memory"
    where = "an input" if root in graph.inputs else "an output" if root in graph.outputs else "a tensor"
    return f"'{name}' lies in the memory of '{root}', {where}, from byte {at} on: it has none of its own"


def gathered(
    shapes: Sequence[Shape], groups: Groups, why: Callable[[str], str]
) -> tuple[list[Shape], dict[str, tuple[str, int]]]:
    """The shapes with those of a group as one; for each member the name of that one and its offset there. `why`: says
    why a tensor is none of the shapes.

    Raises:
        ArgumentError: a tensor has no memory of its own.
    """
    by_name = {s.name: s for s in shapes}
    inside: dict[str, tuple[str, int]] = {}
    made: list[Shape] = []
    for group in groups:
        missing = [n for n in group if n not in by_name]
        if missing:
            raise ArgumentError(why(missing[0]))
        complete = max(by_name[n].hull.first for n in group)
        at, runs = 0, []
        for name in group:
            inside[name] = (" ".join(group), at)
            runs += [(at + o, replace(t, last=max(t.last, complete))) for o, t in by_name[name].runs]
            at += aligned(by_name[name].hull.size)
        made.append(Shape(" ".join(group), tuple(runs)))
    return [*(s for s in shapes if s.name not in inside), *made], inside


def offsets_of(inside: Mapping[str, tuple[str, int]], found: Mapping[str, int]) -> dict[str, int]:
    """The offset of every member in the arena, from those of the groups."""
    return {name: found[group] + at for name, (group, at) in inside.items()}
