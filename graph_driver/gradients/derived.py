"""The gradient of a node from its loops: the adjoint of its Scop (`polyc.poly.adjoint`), as a node of these loops."""

from __future__ import annotations

from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.registry import Gradients
from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.operators.pieces import translate_one
from polyc.poly.adjoint.errors import NotDifferentiable
from polyc.poly.adjoint.joint import adjoint
from polyc.poly.errors import ModelError


def derived(b: Builder, node: Node, grads: Gradients) -> Gradients:
    """Gradients of all inputs that somebody wants, in one node.

    Raises:
        ModelError: the node has no loops, or these have no derivative; the line says why.
    """
    what = f"{node.kind} '{node.name}' has no derivative"
    piece = translate_one(b.graph, node, lookup)
    if piece.operator is None:
        raise ModelError(f"{what}: {piece.reason}")
    scop, wired = piece.operator.scop, dict(piece.operator.inputs)
    tensors = {argument: node.inputs[position] for position, argument in wired.items()}
    wrt = [a for a, name in tensors.items() if b.wanted(name) and scop.arrays[a].dtype.is_float]
    try:
        made = adjoint(scop, wrt)
    except NotDifferentiable as error:
        raise ModelError(f"{what}: {error}") from None
    names = [n for n in node.outputs if n]
    for result, name in zip(piece.operator.outputs, names, strict=True):
        if result in made.seeds:
            g = grads[node.outputs.index(name)]
            tensors[made.seeds[result]] = b.zeros(name) if g is None else g
    of = {gradient: argument for argument, gradient in made.gradients.items()}
    shapes = [b.shape(tensors[of[r]]) for r in made.scop.results]
    results = b.loops(made.scop, [tensors[a] for a in made.scop.args], shapes)
    by_argument = {of[r]: name for r, name in zip(made.scop.results, results, strict=True)}
    found: list[str | None] = [None] * len(node.inputs)
    for position, argument in wired.items():
        found[position] = by_argument.get(argument)
    return found
