"""Rules of the nodes that passes put into a graph and no file has: views and parts, calls of registered functions.

Views and parts say where bytes lie; polyc's operators that compute are in `own_results.py`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.external import call_of
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.python_calls import python_call_of
from polyc.graph_driver.operators.context import OperatorScop, array_shape
from polyc.graph_driver.operators.loops import LOOPS, loops_of
from polyc.graph_driver.verifying.own_results import check_results
from polyc.poly.dtypes import i32

ALIASES = {
    "View": (1, 1),
    "Words": (1, 1),
    "Whole": (None, 1),
    "Part": (1, None),
}  # how many inputs and outputs (None: any from 1 on)

WORD_BITS = 32


def check_own(graph: Graph, node: Node, what: str) -> None:
    """A node of the domain `polyc`. Raises `GraphError`."""
    if node.proto is not None or node.captures or node.bodies:
        raise GraphError(f"{what} comes from no file, but has a protobuf or subgraphs")
    if not node.inputs or not all(node.inputs):
        raise GraphError(f"{what} has an absent operand")
    for name in (*node.reads(), *node.writes()):
        if not graph.tensors[name].static:
            raise GraphError(f"{what}: the type or shape of '{name}' is not known")
    if node.op_type == LOOPS:
        check_loops(graph, node, what)
    elif node.op_type in ALIASES:
        _check_alias(graph, node, what)
    else:
        check_results(graph, node, what)


def _check_alias(graph: Graph, node: Node, what: str) -> None:
    operands, results = ([graph.tensors[n] for n in names] for names in (node.inputs, node.writes()))
    for wanted, tensors, side in zip(ALIASES[node.op_type], (operands, results), ("operands", "results"), strict=True):
        if wanted is not None and len(tensors) != wanted:
            raise GraphError(f"{what} has {len(tensors)} {side}, not {wanted}")
    if node.op_type == "Words":
        return _check_words(node, operands[0], results[0], what)
    if len({t.dtype for t in (*operands, *results)}) != 1:
        raise GraphError(f"{what} joins tensors of different types: {_listed([*operands, *results])}")
    if node.op_type == "View":
        if node.attrs or operands[0].size != results[0].size:
            raise GraphError(f"{what} shows {operands[0]} as {results[0]}, of another number of elements")
        return
    whole, parts = (results[0], operands) if node.op_type == "Whole" else (operands[0], results)
    offsets = node.attrs.get("offsets")
    if set(node.attrs) != {"offsets"} or not isinstance(offsets, list) or any(type(o) is not int for o in offsets):
        raise GraphError(f"{what} has attributes {sorted(node.attrs)}: it needs the offsets of its parts, in bytes")
    if len(offsets) != len(parts):
        raise GraphError(f"{what} has {len(offsets)} offsets for {len(parts)} parts")
    ends = [(o, o + p.nbytes) for o, p in zip(offsets, parts, strict=True)]
    if any(begin < 0 or end > whole.nbytes for begin, end in ends):
        raise GraphError(f"{what} has a part beyond the ends of '{whole.name}': {ends}, {whole.nbytes} bytes")
    if len(parts) > 1 and any(b[0] != a[1] for a, b in pairwise(ends)):
        raise GraphError(f"{what} has parts that do not lie one behind the other: {ends}")
    if node.op_type == "Whole" and (ends[0][0] != 0 or ends[-1][1] != whole.nbytes):
        raise GraphError(f"{what} has parts that leave some of '{whole.name}' undefined: {ends}")
    rest = [_tail(t, whole) for t in parts]
    if any(r is None for r in rest):
        raise GraphError(f"{what} has parts that are no runs of rows: {_listed(parts)} of {whole}")


def _check_words(node: Node, source: Tensor, words: Tensor, what: str) -> None:
    """Rows of bytes, or of integers of 16 bits, as rows of 32-bit words."""
    rows, shown = source.shape or (), words.shape or ()
    narrow = source.dtype is not None and source.dtype.is_int and source.dtype.bits in (8, 16)
    held = WORD_BITS // source.dtype.bits if source.dtype is not None and narrow else 1
    fits = bool(rows) and shown[:-1] == rows[:-1] and shown[-1] * held == rows[-1]
    if node.attrs or not narrow or words.dtype != i32 or not fits:
        raise GraphError(f"{what} shows {source} as {words}: these are not its bytes in words of {WORD_BITS} bits")


def _tail(part: Tensor, whole: Tensor) -> int | None:
    """The axis along which a part is cut out of the whole: all before it are 1, all after it the whole's own."""
    a, b = part.shape or (), whole.shape or ()
    if len(a) != len(b):
        return None
    cut = [k for k, (n, m) in enumerate(zip(a, b, strict=True)) if n != m]
    if not cut:
        return 0
    return cut[0] if len(cut) == 1 and prod(b[: cut[0]]) == 1 else None


def check_call(graph: Graph, node: Node, what: str) -> None:
    """A node that calls a registered function. Raises `GraphError`."""
    call = call_of(node)
    if call is None or set(node.attrs) != {"call"}:
        raise GraphError(f"{what} calls no registered function")
    function = call.external
    plain = replace(node, attrs=dict(function.attributes))
    sizes = function.sizes(graph, plain)
    if isinstance(sizes, str):
        raise GraphError(f"{what} does not fit the function that it calls: {sizes}")
    if tuple(sizes[n] for n in function.names) != call.sizes:
        raise GraphError(f"{what} gives its function the sizes {call.sizes}, its operands have {sizes}")


def check_python_call(node: Node, what: str) -> None:
    """A node that runs as a Python function, whose results nothing but a run can check. Raises `GraphError`."""
    if not callable(python_call_of(node)) or set(node.attrs) != {"call"}:
        raise GraphError(f"{what} calls no function")


def _listed(tensors: list[Tensor]) -> str:
    return ", ".join(map(str, tensors))


def check_loops(graph: Graph, node: Node, what: str) -> None:
    """A node that brings its loops: operands and results must have the types and sizes of the Scop's arrays.

    Raises:
        GraphError: they have not, or the attribute is no Scop.
    """
    try:
        scop = loops_of(node.attrs["scop"])
    except Exception as error:  # whatever reading a broken text raises
        raise GraphError(f"{what}: its attribute scop is no Scop ({type(error).__name__}: {error})") from None
    if len(node.inputs) != len(scop.args) or len(node.outputs) != len(scop.results) or not all(node.outputs):
        raise GraphError(
            f"{what} has {len(node.inputs)} operands and {len(node.outputs)} results, its loops "
            f"{len(scop.args)} and {len(scop.results)}"
        )
    operator = OperatorScop(scop, (), (), False)
    for name, array in (*zip(node.inputs, scop.args), *zip(node.outputs, scop.results)):
        tensor, shape = graph.tensors[name], array_shape(operator, array)
        if tensor.dtype != scop.arrays[array].dtype or shape is None or prod(shape) != tensor.size:
            raise GraphError(f"{what}: '{name}' is {tensor}, its loops have {scop.arrays[array].dtype}{shape or '?'}")
