"""Horizontal fusion: products of one operand with several constant weights become one product.

Queries, keys and values of an attention layer, the 1x1 convolutions that begin the branches of a block: such
siblings read the same activation. Their weights are put side by side, with the pointwise nodes that all of them
go on with, and the result is cut apart again. One image or one row has its parts as runs of bytes, so that
the cut (`Split`) is a view (`parts`). Else each part is a `Slice`, which costs nothing where one kernel reads it: that
reads its columns of the whole. Otherwise it is a copy, which the cost model counts against the fusion. Sizes may be
symbolic: what is cheaper at their representative values is made. Every set of siblings gets a decision with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from polyc.graph_driver.choosing.candidates import considered
from polyc.graph_driver.choosing.side_by_side import BESIDE, Strand, column_axis, side_by_side
from polyc.graph_driver.choosing.winograd import shape_of
from polyc.graph_driver.graph.aliases import ALIGNMENT, RESHAPING
from polyc.graph_driver.graph.decisions import Decision
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.size import evaluate
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.operators.pieces import translate_one
from polyc.poly.errors import PolycError
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.target import Target
from polyc.scheduler.cost.model import Level, at_level, nominal, predict
from polyc.scheduler.cost.tile_plan import constant_layouts
from polyc.scheduler.cost.work import work_of

MOST_AFTER = 24  # pointwise nodes that siblings go on with
ALONE = frozenset(
    ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Tanh",
     "Erf", "Gelu", "Mish", "Exp", "Sqrt", "Neg", "Abs")
)  # fmt: skip


def join_siblings(graph: Graph, target: Target) -> dict[str, int]:
    """Join what the cost model finds cheaper together; the number of products and of joined ones."""
    place = {id(n): k for k, n in enumerate(graph.nodes)}
    consumers = graph.consumers()
    alike: dict[Any, list[Strand]] = {}
    for node in graph.nodes:
        key = _key(graph, node)
        if key is not None:
            strand = _strand(graph, node, consumers, place)
            alike.setdefault((key, _signature(graph, strand)), []).append(strand)
    counts = {"products": 0, "joined": 0}
    for strands in alike.values():
        if len(strands) < 2:
            continue
        left = []
        for s in strands:
            reason = _obstacle(graph, s, consumers, target)
            if reason:
                others = ", ".join(str(o) for o in strands if o is not s)
                graph.decisions.append(Decision(s.result, str(s), others, False, reason))
            else:
                left.append(s)
        if len(left) > 1 and _decide(graph, left, target, consumers):
            counts["products"] += len(left)
            counts["joined"] += 1
    return counts


# ---- who is whose sibling ------------------------------------------------------------------------


def _key(graph: Graph, node: Node) -> Any:
    """Equal for products that can be one: all but the number of columns (filters); None for other nodes."""
    if node.domain or node.op_type not in ("Conv", "Gemm", "MatMul") or node.captures:
        return None
    x, w, y = (graph.tensors[n] for n in (node.inputs[0], node.inputs[1], node.outputs[0]))
    extra = graph.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if w.const is None or x.const is not None or not x.static or not y.static:
        return None
    if len(node.inputs) > 2 and node.inputs[2] and (extra is None or prod(extra.shape[:-1]) != 1):
        return None
    if node.op_type == "MatMul" and (w.const.ndim != 2 or len(x.shape or ()) < 2):
        return None
    if node.op_type == "Gemm" and node.attrs.get("transA", 0):
        return None
    if node.op_type == "Conv" and node.attrs.get("group", 1) != 1:
        return None
    attrs = tuple((k, repr(v)) for k, v in sorted(node.attrs.items()))
    return node.op_type, x.name, str(w.dtype), w.const.shape[2:], attrs


def _strand(graph: Graph, head: Node, consumers: Mapping[str, list[Node]], place: Mapping[int, int]) -> Strand:
    """The longest run of pointwise nodes after `head` that leaves one live result."""
    made, after, best = [head.outputs[0]], list[Node](), 0
    while len(after) < MOST_AFTER:
        inside = {id(n) for n in after}
        readers = {id(n): n for name in made for n in consumers.get(name, []) if id(n) not in inside}
        ready = [n for n in readers.values() if _goes_along(graph, n, made)]
        if not ready:
            break
        after.append(min(ready, key=lambda n: place[id(n)]))
        made.append(after[-1].outputs[0])
        inside.add(id(after[-1]))
        live = [m for m in made if m in graph.outputs or any(id(n) not in inside for n in consumers.get(m, []))]
        best = len(after) if live == made[-1:] else best
    return Strand(head, tuple(after[:best]), tuple(made[: best + 1]))


def _goes_along(graph: Graph, node: Node, made: Sequence[str]) -> bool:
    """Whether the node does to each element of the joined result what it does to one of its own."""
    if node.domain or len(list(node.writes())) != 1 or graph.tensors[node.outputs[0]].dtype is None:
        return False
    given = [graph.constant(i) for i in node.inputs if i and i not in made]
    if any(g is None for g in given) or graph.tensors[node.outputs[0]].shape != graph.tensors[made[0]].shape:
        return False
    if node.op_type == "Clip":
        return node.inputs[0] in made and all(g is not None and g.ndim == 0 for g in given)
    return (node.op_type in ALONE and not given) or (node.op_type in BESIDE and len(node.inputs) == 2)


def _signature(graph: Graph, s: Strand) -> Any:
    """Equal for strands that go on alike, constants of `BESIDE` excepted."""

    def operand(node: Node, name: str) -> Any:
        if not name or name in s.made:
            return s.made.index(name) if name else None
        value = graph.constant(name)
        return ("const", value.tobytes()) if node.op_type == "Clip" and value is not None else "const"

    return tuple(
        (n.op_type, tuple((k, repr(v)) for k, v in sorted(n.attrs.items())), tuple(operand(n, i) for i in n.inputs))
        for n in s.after
    )


# ---- whether they should be one ------------------------------------------------------------------


def _obstacle(graph: Graph, s: Strand, consumers: Mapping[str, list[Node]], target: Target) -> str:
    """Why a strand stays alone, whatever its siblings; empty when nothing speaks against."""
    if s.result in graph.outputs:
        return "its result is an output of the model, which no part of another array can be"
    usual = _at_usual_sizes(graph)
    if shape_of(usual, s.head) is not None:
        costs = {c.name: c.cost for c in considered(usual, s.head, target, False, {}) if c.cost is not None}
        if min(costs, key=lambda n: costs[n]).startswith("winograd"):
            return "Winograd's method is better for it"
    shape = graph.tensors[s.result].shape
    for reader in _readers(graph, s.result, consumers):
        axis = int(reader.attrs.get("axis", 0))
        size = graph.tensors[reader.outputs[0]].shape or ()
        if reader.op_type == "Concat" and not reader.domain and prod(size[: axis % max(1, len(size))]) == 1:
            return f"its result is made in its place of '{reader.outputs[0]}'"
        if graph.tensors[reader.outputs[0]].shape == shape:
            operator = translate_one(graph, reader, lookup).operator
            if operator is not None and operator.pointwise:
                return (
                    f"its kernel goes on with {reader.kind} '{reader.name or reader.outputs[0]}', its siblings' do not"
                )
    return ""


def _readers(graph: Graph, name: str, consumers: Mapping[str, list[Node]]) -> list[Node]:
    """Who reads a tensor, through nodes that only reshape it."""
    found = []
    for n in consumers.get(name, []):
        through = not n.domain and n.op_type in RESHAPING
        found += _readers(graph, n.outputs[0], consumers) if through else [n]
    return found


def _is_taken_in(graph: Graph, name: str, consumers: Mapping[str, list[Node]]) -> bool:
    """Whether one kernel reads a tensor, at one place: a `Slice` in front becomes part of its subscripts."""
    found = consumers.get(name, [])
    if len(found) != 1 or name in graph.outputs:
        return False
    (reader,) = found
    if not reader.domain and reader.op_type in RESHAPING:
        return _is_taken_in(graph, reader.outputs[0], consumers)
    return reader.inputs.count(name) == 1 and translate_one(graph, reader, lookup).operator is not None


def _crowds(graph: Graph, strands: Sequence[Strand], consumers: Mapping[str, list[Node]]) -> bool:
    """Whether all results at once may take memory that apart, one after another, they would not: no node needs two of
    them (or what they become without getting smaller), and none needs as much as all of them."""
    ends = [_ends(graph, s.result, consumers) for s in strands]
    if any(a & b for k, a in enumerate(ends) for b in ends[:k]):
        return False
    whole = {strands[0].head.inputs[0], *(s.result for s in strands)}
    return _bytes(graph, whole) > max(_bytes(graph, {*n.inputs, *n.outputs}) for n in graph.nodes)


def _at_usual_sizes(graph: Graph) -> Graph:
    """The graph with the representative values of symbolic sizes as shapes: what costs are counted of."""
    if graph.symbols is None:
        return graph
    values = graph.symbols.typical
    tensors = {
        n: replace(t, shape=tuple(evaluate(e, values) for e in t.shape)) if t.static and t.shape else t
        for n, t in graph.tensors.items()
    }
    return replace(graph, tensors=tensors, symbols=None)


def _bytes(graph: Graph, names: set[str]) -> int:
    """Of those tensors that are no constants and whose sizes are numbers."""
    sizes = (graph.tensors[n].nbytes for n in names if n and graph.constant(n) is None)
    return sum(n for n in sizes if isinstance(n, int))


def _ends(graph: Graph, name: str, consumers: Mapping[str, list[Node]]) -> set[int]:
    """The nodes that read a tensor with other ones, or make less of it; through nodes that do neither."""
    found: set[int] = set()
    todo = [name]
    while todo:
        at = todo.pop()
        for n in consumers.get(at, []):
            alone = {i for i in n.inputs if i and graph.constant(i) is None} == {at}
            if id(n) not in found and alone and _bytes(graph, {*n.outputs}) >= _bytes(graph, {at}):
                todo += n.outputs
            found.add(id(n))
    return found


def _decide(graph: Graph, strands: Sequence[Strand], target: Target, consumers: Mapping[str, list[Node]]) -> bool:
    """Join the strands if that is cheaper; record the decision."""
    usual = _at_usual_sizes(graph)
    parts = [usual.tensors[s.result].nbytes for s in strands]
    sizes = (sum(graph.tensors[s.head.inputs[1]].nbytes for s in strands), sum(parts))
    apart = [_cycles(usual, s.head, target, sizes) for s in strands]
    shape = graph.tensors[strands[0].result].shape or ()
    # Where parts of symbolic sizes begin, only a run knows.
    fixed = all(isinstance(e, int) for e in shape) and not any(sum(parts[:k]) % ALIGNMENT for k in range(len(parts)))
    view = fixed and prod(shape[: column_axis(graph, strands[0])]) == 1
    taken_in = not view and all(_is_taken_in(graph, s.result, consumers) for s in strands)
    trial = replace(graph, tensors=dict(graph.tensors))
    nodes = side_by_side(trial, strands, taken_in)
    whole, cut, then = nodes[0], nodes[-1], _at_usual_sizes(trial)
    together = [_cycles(then, whole, target, sizes), 0.0 if view or taken_in else _cycles(then, cut, target, sizes)]
    names = [str(s) for s in strands]
    known = [c for c in (*apart, *together) if c is not None]
    if len(known) < len(apart) + len(together):
        good, reason = False, "the cost model knows nothing about them"
    else:
        before, after = sum(c for c in apart if c is not None), sum(c for c in together if c is not None)
        crowded = taken_in and _crowds(usual, strands, consumers)
        good = after < before and not crowded
        how = f"{together[1]:,.0f} of them for cutting the result apart"
        how = "parts are views" if view else "readers take their parts out" if taken_in else how
        operand = strands[0].head.inputs[0]
        reason = f"{len(strands)} products of '{operand}' as one: {after:,.0f} cycles for {before:,.0f}, {how}"
        if crowded:
            reason += "; but apart they need not be in memory at once"
    graph.decisions.append(Decision(whole.outputs[0], names[0], ", ".join(names[1:]), good, reason))
    if not good:
        return False
    gone = {id(n) for s in strands for n in (s.head, *s.after)}
    first = min(k for k, n in enumerate(graph.nodes) if id(n) in gone)
    kept = [n for n in graph.nodes[first:] if id(n) not in gone]
    graph.tensors = trial.tensors
    graph.nodes = [*graph.nodes[:first], *nodes, *kept]
    return True


def _cycles(graph: Graph, node: Node, target: Target, together: Sequence[int]) -> float | None:
    """What a node costs with its constants stored as its kernel wants them; None when that is not known.

    `together`: bytes of the constants and of the results of all siblings. These decide in which cache they are,
    apart as well as joined: one sibling follows the other.
    """
    operator = translate_one(graph, node, lookup).operator
    if operator is None:
        return None
    tensors = {a: graph.tensors[node.inputs[k]] for k, a in operator.inputs}
    scop = operator.scop
    constants = frozenset(a for a, t in tensors.items() if t.const is not None)
    weights, results = together
    levels: dict[str, Level | None] = {a: at_level(t.nbytes, target) for a, t in tensors.items()}
    levels |= dict.fromkeys(constants, "memory" if weights > target.l2 else at_level(weights, target))
    levels |= dict.fromkeys(operator.outputs, at_level(results, target))
    try:
        for array, layout in constant_layouts(scop, constants, target).items():
            scop = relayout(scop, array, layout)
        work = work_of(scop, target, levels)
    except PolycError:
        return None
    machine = nominal(target)
    return None if work is None else predict(work, machine).seconds * machine.hertz
