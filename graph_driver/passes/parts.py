"""Concatenations, splits and slices that are views: the part lies inside the whole, nothing is copied.

Where all axes before the cut have size 1, a slice is a run of bytes of its source, and an
operand of a concatenation can be made in its place of the result. Such nodes become
`polyc::Part` (one operand, its results are runs of it) and `polyc::Whole` (its operands are
runs of the result); `offsets` are bytes.
"""

from __future__ import annotations

from math import prod

from polyc.graph_driver.graph.aliases import ALIGNMENT, is_view
from polyc.graph_driver.graph.ir import Graph, Node, Tensor


def share_parts(graph: Graph, alignment: int = ALIGNMENT) -> dict[str, int]:
    """Rewrite what can be a part or a whole. `alignment`: bytes of which the begin of every part is a multiple."""
    fixed = _returned(graph) | set(graph.inputs)  # their memory is the caller's
    source: dict[str, str] = {}  # the tensor behind views
    placed: set[str] = set()  # lie in a whole already
    cut: set[str] = set()  # have parts
    made = {"wholes": 0, "parts": 0}
    for k, node in enumerate(graph.nodes):
        if is_view(node):
            source[node.outputs[0]] = source.get(node.inputs[0], node.inputs[0])
            continue
        if node.domain or any(not _fixed(graph.tensors[n]) for n in (*node.reads(), *node.writes())):
            continue
        if node.op_type == "Concat":
            offsets = _whole(graph, node, source, fixed, placed | cut, alignment)
            if offsets is not None:
                placed |= {source.get(i, i) for i in node.inputs}
                made["wholes"] += 1
                graph.nodes[k] = Node(node.name, "Whole", node.inputs, node.outputs, {"offsets": offsets}, "polyc")
        elif node.op_type in ("Slice", "Split") and node.inputs[0]:
            base = source.get(node.inputs[0], node.inputs[0])
            offsets = None if base in fixed or graph.tensors[base].const is not None else _runs(graph, node, alignment)
            if offsets is not None and not fixed & set(node.writes()) and base not in placed:
                cut.add(base)
                made["parts"] += 1
                placed |= set(node.writes())
                graph.nodes[k] = Node(node.name, "Part", node.inputs[:1], node.outputs, {"offsets": offsets}, "polyc")
    return made


def _fixed(tensor: Tensor) -> bool:
    """Whether the size is a number: with formulas no run of bytes begins at a constant."""
    return tensor.static and all(isinstance(n, int) for n in tensor.shape or ())


def _returned(graph: Graph) -> set[str]:
    """The outputs, and what they are views of."""
    found = set(graph.outputs)
    for node in reversed(graph.nodes):
        if is_view(node) and node.outputs[0] in found:
            found.add(node.inputs[0])
    return found


def _whole(
    graph: Graph, node: Node, source: dict[str, str], fixed: set[str], taken: set[str], alignment: int
) -> list[int] | None:
    """Where the operands of a concatenation lie in its result; None when it has to be copied."""
    result = graph.tensors[node.outputs[0]]
    shape = result.shape or ()
    axis = int(node.attrs.get("axis", 0)) % max(1, len(shape))
    if prod(shape[:axis]) != 1 or result.name in fixed:
        return None
    offsets, at = [], 0
    behind = [source.get(i, i) for i in node.inputs]
    if len(set(behind)) != len(behind):
        return None
    for name, base in zip(node.inputs, behind, strict=True):
        part = graph.tensors[base]
        free = base not in fixed and base not in taken and part.const is None and part.static
        if not free or part.nbytes != graph.tensors[name].nbytes or at % alignment or not part.nbytes:
            return None
        offsets.append(at)
        at += part.nbytes
    return offsets if at == result.nbytes else None


def _runs(graph: Graph, node: Node, alignment: int) -> list[int] | None:
    """Where the results of a slice or a split begin in its operand; None when they are no runs of it."""
    whole = graph.tensors[node.inputs[0]]
    shape = whole.shape or ()
    if node.op_type == "Slice":
        start = _slice_start(graph, node, shape)
        offsets = None if start is None else [start * _itemsize(whole)]
    else:
        offsets = _split_starts(graph, node, shape, _itemsize(whole))
    return offsets if offsets is not None and not any(o % alignment for o in offsets) else None


def _itemsize(t: Tensor) -> int:
    assert t.dtype is not None
    return t.dtype.bytes


def _split_starts(graph: Graph, node: Node, shape: tuple[int, ...], itemsize: int) -> list[int] | None:
    axis = int(node.attrs.get("axis", 0)) % max(1, len(shape))
    if prod(shape[:axis]) != 1:
        return None
    offsets, at = [], 0
    for o in node.outputs:
        if not o:
            return None
        offsets.append(at)
        at += graph.tensors[o].nbytes
    return offsets if at == prod(shape) * itemsize else None


def _slice_start(graph: Graph, node: Node, shape: tuple[int, ...]) -> int | None:
    """The first element of a slice that is a run, else None."""
    given = [None if len(node.inputs) <= k or not node.inputs[k] else graph.constant(node.inputs[k]) for k in range(5)]
    starts = given[1]
    if starts is None or (len(node.inputs) > 4 and node.inputs[4] and given[4] is None):
        return None  # starts known at run time only, or attributes (opset 9)
    if len(node.inputs) > 3 and node.inputs[3] and given[3] is None:
        return None
    axes = given[3].tolist() if given[3] is not None else list(range(starts.size))
    if given[4] is not None and any(s != 1 for s in given[4].tolist()):
        return None
    result = graph.tensors[node.outputs[0]].shape or ()
    cut = [k for k, (n, m) in enumerate(zip(shape, result, strict=True)) if n != m]
    if not cut:
        return 0
    if len(cut) > 1 or prod(shape[: cut[0]]) != 1:
        return None
    (axis,) = cut
    at = {a % len(shape): int(s) for a, s in zip(axes, starts.tolist(), strict=True)}[axis]
    at = min(max(at + shape[axis] if at < 0 else at, 0), shape[axis])
    return at * prod(shape[axis + 1 :])
