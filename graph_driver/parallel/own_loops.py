"""Nodes that bring their own loops (`polyc::Loops`: gradients, operators of a program) on parts of their tensors.

Other operators run on a part as the same operator with other sizes. A node of loops has its sizes in them, so it is the
part of its Scop (`polyc.poly.rewriting.part`) that a rank runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import islpy as isl

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.operators.loops import DOMAIN, LOOPS, loops_of
from polyc.graph_driver.parallel.flow import box_set, same_elements
from polyc.graph_driver.parallel.layouts import Layout, Partial, Range, Split, box
from polyc.poly import json_io
from polyc.poly.binding import evaluate
from polyc.poly.errors import PolycError, ScopError
from polyc.poly.rewriting.part import Part, chosen, is_shared_out, part_of
from polyc.poly.scop import Scop

Boxes = tuple[tuple[str, tuple[Range, ...]], ...]


class NotLocal(PolycError):
    """A part of the node is no node of this operator."""

    code = "P411"


def has_own_loops(node: Node) -> bool:
    """Whether a node brings its loops."""
    return (node.domain, node.op_type) == (DOMAIN, LOOPS)


def local_loops(
    graph: Graph, node: Node, gives: Sequence[Layout], wants: Sequence[Layout | None], rank: int
) -> str:  # fmt: skip
    """The attribute `scop` of the node that a rank runs. Raises `NotLocal`."""
    text = str(node.attrs["scop"])
    if not any(isinstance(x, Split) for x in (*gives, *wants)):
        return text
    return _part(text, _boxes(graph, node, gives, wants, rank), _sums(node, gives))[1]


def shared_out(graph: Graph, node: Node, gives: Sequence[Layout], wants: Sequence[Layout | None], ranks: int) -> bool:
    """Whether partial sums of all ranks have each update once. Raises `NotLocal`."""
    sums = _sums(node, gives)
    if not sums or not any(isinstance(x, Split) for x in wants):
        return True
    text = str(node.attrs["scop"])
    parts = [_part(text, _boxes(graph, node, gives, wants, r), sums)[0] for r in range(ranks)]
    return is_shared_out(loops_of(text), parts, sums)


def _sums(node: Node, gives: Sequence[Layout]) -> tuple[str, ...]:
    """The results (arrays) that are partial."""
    results = loops_of(str(node.attrs["scop"])).results
    return tuple(r for r, give in zip(results, gives, strict=True) if isinstance(give, Partial))


def _boxes(graph: Graph, node: Node, gives: Sequence[Layout], wants: Sequence[Layout | None], rank: int) -> Boxes:
    scop = loops_of(str(node.attrs["scop"]))
    names = [*node.inputs, *node.writes()]
    arrays, layouts = [*scop.args, *scop.results], [*wants, *gives]
    made = []
    for tensor, array, layout in zip(names, arrays, layouts, strict=True):
        if isinstance(layout, Split):
            shape = tuple(graph.tensors[tensor].shape or ())
            made.append((array, _in_array(scop, array, shape, box(layout, shape, rank))))
    return tuple(made)


def _in_array(scop: Scop, array: str, shape: tuple[int, ...], part: tuple[Range, ...]) -> tuple[Range, ...]:
    """A box of a tensor as a box of the array, which may have another shape."""
    own = tuple(int(evaluate(e, {})) for e in scop.arrays[array].shape)
    found = box_set(part, "X").apply(same_elements(shape, own, "X", "Y"))
    ends = [(_number(found.dim_min_val(k)), _number(found.dim_max_val(k)) + 1) for k in range(len(own))]
    if prod(e - b for b, e in ends) != prod(e - b for b, e in part):
        raise NotLocal(f"a part is no box of '{array}'")
    return tuple(ends)


def _number(value: isl.Val) -> int:
    return int(value.to_python())


@lru_cache(maxsize=4096)
def _part(text: str, boxes: Boxes, sums: tuple[str, ...]) -> tuple[Part, str]:
    scop = loops_of(text)
    try:
        part = chosen(scop, dict(boxes), sums)
        return part, json_io.dumps(part_of(scop, part))
    except ScopError as reason:
        raise NotLocal(str(reason)) from None
