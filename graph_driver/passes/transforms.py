"""Chains of operators that only move elements, cancelled by composing their maps.

Transposes, SpaceToDepth, reversing slices, reshapes: each is a map from the elements of its result to
those of its operand, read off the access relations of its loops. Pads, parts and repetitions are such maps of some
elements, or to some. Where the composition over a chain leads every element to itself, the end of the chain is its
beginning; where it keeps the row-major order and only the shape is another one, it is a reshape. No operator is known
here by name.
"""

from __future__ import annotations

import functools
from math import prod

import islpy as isl
import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.operators.pieces import translate_one
from polyc.graph_driver.passes.rewriting import Answer, New, Sight, replace_results
from polyc.poly.access import accesses
from polyc.poly.expr import Const, Load, loads
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.scop import Scop
from polyc.poly.tree import time_maps

LONGEST = 6  # operators of a chain
ISL_OPERATIONS = 300_000


def cancel_transforms(graph: Graph) -> dict[str, int]:
    """Replace the ends of chains that move every element back to its place (dead code is left behind)."""
    sight = Sight(graph)
    maps: dict[tuple[int, str, str], isl.Map | None] = {}  # a node may have become another one
    counts = {"cancelled": 0, "reshapes": 0}

    def map_of(node: Node) -> isl.Map | None:
        key = (id(node), node.op_type, node.inputs[0] if node.inputs else "")
        if key not in maps:
            maps[key] = _move(sight, node)
        return maps[key]

    def answer(node: Node) -> Answer | None:
        first = sight.made.get(node.inputs[0]) if node.inputs else None
        if first is None or not (_may_move(sight, node) and _may_move(sight, first)):
            return None  # before loops are made of any: a chain has two at least
        total, at = None, node
        for _ in range(LONGEST):
            moved = map_of(at)
            if moved is None:
                return None
            total = moved if total is None else total.apply_range(moved)
            if at is not node and _keeps_order(total, sight.shape(node.outputs[0]), sight.shape(at.inputs[0])):
                return _shortcut(sight, node, at.inputs[0], counts)
            before = sight.made.get(at.inputs[0])
            if before is None or before.outputs[0] != at.inputs[0]:
                return None
            at = before
        return None

    def tried(node: Node) -> Answer | None:
        try:
            with quota(ISL_OPERATIONS):
                return answer(node)
        except QuotaExceeded:
            graph.notes.append(f"'{node.name}': whether a chain of moves cancels there is too much for isl")
            return None

    replace_results(sight, tried)
    return counts


def _shortcut(sight: Sight, node: Node, source: str, counts: dict[str, int]) -> Answer | None:
    shape = sight.shape(node.outputs[0])
    assert shape is not None
    if shape == sight.shape(source):
        counts["cancelled"] += 1
        return source
    if node.op_type in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return None  # it is no more than a reshape now; what is before it may cancel alone
    counts["reshapes"] += 1
    return New("Reshape", (source, np.asarray(shape, np.int64)))


def _may_move(sight: Sight, node: Node) -> bool:
    """Whether operands, results and their sizes are such that the node may only move elements of its first operand.

    What says where elements go is integers, or a few numbers for each axis; a larger constant is an operand.
    """
    inputs, outputs = [*node.reads()], [*node.writes()]
    varying = [i for i in inputs if sight.tensor(i).const is None]
    if node.captures or len(outputs) != 1 or len(varying) != 1 or varying[0] != node.inputs[0]:
        return False
    source, target = sight.shape(varying[0]), sight.shape(outputs[0])
    same_type = sight.tensor(varying[0]).dtype == sight.tensor(outputs[0]).dtype
    if source is None or target is None or not prod(source) or not prod(target) or not same_type:
        return False
    constants = [c for i in inputs if (c := sight.tensor(i).const) is not None]
    return all(c.dtype.kind in "iub" or c.size <= 2 * len(source) for c in constants)


def _move(sight: Sight, node: Node) -> isl.Map | None:
    """Result element to operand element, both by their ONNX shapes; None when the node does more than move."""
    if not _may_move(sight, node):
        return None
    source, target = sight.shape(node.inputs[0]), sight.shape(next(iter(node.writes())))
    assert source is not None and target is not None
    piece = translate_one(sight.graph, node, lookup)
    if piece.operator is None or len(piece.operator.inputs) != 1:
        return None
    scop, array = piece.operator.scop, piece.operator.inputs[0][1]
    moved = _copied(scop, array, piece.operator.outputs[0])
    if moved is None:
        return None
    to, of = _fixed_shape(scop, piece.operator.outputs[0]), _fixed_shape(scop, array)
    if to is None or of is None:
        return None
    return _reshape(target, to).apply_range(moved).apply_range(_reshape(of, source))


def _copied(scop: Scop, source: str, target: str) -> isl.Map | None:
    """Element of `target` to the element of `source` that is copied there; None when the loops do more than copy and
    fill. Elements that are filled (padding) have no place in the map: where a later move leaves them out, nobody sees
    what they held.
    """
    writers = [s for s in scop.statements.values() if s.array == target]
    copies = {s.name for s in writers if isinstance(s.value, Load) and s.value.array == source}
    fills = {s.name for s in writers if next(loads(s.value), None) is None}
    if not copies or any(s.name not in copies | fills or s.predicate is not None for s in writers):
        return None
    stored: dict[str, isl.Map] = {}  # element to the instances that store it
    read: dict[str, isl.Map] = {}
    for s in scop.statements.values():
        own = [a for a in accesses(scop) if a.stmt == s.name]
        if len(own) != (2 if s.name in copies else 1) or not all(a.must for a in own):
            return None
        stored[s.name] = next(a for a in own if a.write).map.reverse()
        read.update((a.stmt, a.map) for a in own if not a.write)
    if fills:
        stored = _last(scop, stored)
    total = None
    for name in copies:
        pair = stored[name].apply_range(read[name])
        total = pair if total is None else total.union(pair)
    if total is None or not total.is_single_valued():
        return None
    return total.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out)


def _last(scop: Scop, stored: dict[str, isl.Map]) -> dict[str, isl.Map]:
    """Of the instances that store an element only the last ones."""
    when: dict[str, isl.Map] = {}
    for times in time_maps(scop.tree, {name: s.domain for name, s in scop.statements.items()}):
        name = times.get_tuple_name(isl.dim_type.in_)
        when[name] = when[name].union(times) if name in when else times
    last = functools.reduce(isl.Map.union, [m.apply_range(when[name]) for name, m in stored.items()]).lexmax()
    return {name: m.intersect(last.apply_range(when[name].reverse())) for name, m in stored.items()}


def _fixed_shape(scop: Scop, name: str) -> tuple[int, ...] | None:
    extents = [int(e.value) for e in scop.arrays[name].shape if isinstance(e, Const)]
    return tuple(extents) if len(extents) == len(scop.arrays[name].shape) else None


def _reshape(a: tuple[int, ...], b: tuple[int, ...]) -> isl.Map:
    """Elements of shape `a` to those of shape `b` with the same row-major number."""
    left, right = ([f"{letter}{k}" for k in range(len(s))] for letter, s in (("a", a), ("b", b)))
    bounds = [f"0 <= {n} < {e}" for names, s in ((left, a), (right, b)) for n, e in zip(names, s)]
    equal = [f"{n} = {m}" for n, m in zip(left, right)] if a == b else [f"{_number(left, a)} = {_number(right, b)}"]
    where = " and ".join([*bounds, *equal])
    return isl.Map(f"{{ [{', '.join(left)}] -> [{', '.join(right)}]{' : ' + where if where else ''} }}")


def _number(names: list[str], shape: tuple[int, ...]) -> str:
    terms = [f"{prod(shape[k + 1 :])}*{n}" for k, n in enumerate(names)]
    return " + ".join(terms) or "0"


def _keeps_order(total: isl.Map, target: tuple[int, ...] | None, source: tuple[int, ...] | None) -> bool:
    if target is None or source is None or prod(target) != prod(source):  # a pad at the end of the memory is no reshape
        return False
    return bool(total.is_equal(_reshape(target, source)))
