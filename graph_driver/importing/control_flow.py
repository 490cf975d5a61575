"""Control flow and sequences that run on the host with symbolic sizes, and are compiled with numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.size import evaluate
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.importing.bodies import KINDS
from polyc.poly.errors import ModelError

SEQUENCES = frozenset((
    "SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceErase", "SequenceAt", "SequenceLength",
    "SplitToSequence", "ConcatFromSequence",
))  # fmt: skip
SCALES = (1, 4, 16)
"""A branch, or a table of positions, may fit small sizes only."""
ALONE = 4
"""How many sizes are tried by themselves."""

Import = Callable[[Mapping[str, tuple[int, ...]]], Graph]


def needs_numbers(graph: Graph, at: Import) -> str | None:
    """Why a graph with symbolic sizes should rather be compiled for the sizes of each call; None when it should not.

    A loop whose count follows from a size, or a sequence that it fills, is left to the host; with numbers it is
    unrolled, or its bodies are compiled. `at` imports the model for shapes of its inputs.
    """
    assert graph.symbols is not None
    ours = [n for n in graph.nodes if _kept(n)]
    if not ours:
        return None
    for values in _candidates(graph.symbols):
        inputs = [graph.tensors[n] for n in graph.inputs]
        shapes = {t.name: tuple(evaluate(e, values) for e in t.shape or ()) for t in inputs if t.static}
        try:
            numbers = at(shapes)
        except ModelError:
            continue
        if sum(_kept(n) and not any(n.bodies) for n in numbers.nodes) < len(ours):
            return f"{ours[0].op_type} '{ours[0].name}' needs sizes that are numbers"
    return None


def _candidates(symbols: Symbols) -> Iterator[dict[str, int]]:
    """Sizes to try: the representative ones, smaller ones, and one of them alone (unnamed sizes may have to agree)."""
    for scale in SCALES:
        yield {n: max(r.low, r.typical // scale) for n, r in symbols.ranges.items()}
    for alone in list(symbols.ranges)[:ALONE]:
        yield {n: r.typical if n == alone else r.low for n, r in symbols.ranges.items()}


def _kept(node: Node) -> bool:
    return not node.domain and (node.op_type in KINDS or node.op_type in SEQUENCES)
