"""How far the results of a compiled model may be from those of exact arithmetic, for all inputs in given ranges.

Each node's Scop is run on enclosures (`polyc.poly.error_bounds`), one node after the other. "Exact" means the node's
loops in real numbers on the model's own constants. Every order of a sum is covered, so that schedules do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.bounding.constants import Constants, of_model
from polyc.graph_driver.bounding.ranges import Range, input_ranges
from polyc.graph_driver.compiling.from_source import import_with
from polyc.graph_driver.compiling.stages import optimise
from polyc.graph_driver.graph.aliases import is_alias
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.provenance import recorded
from polyc.graph_driver.operators.context import OperatorScop, array_shape
from polyc.graph_driver.operators.pieces import translate_one
from polyc.graph_driver.operators.registry import registered
from polyc.graph_driver.options import CompileOptions
from polyc.poly.error_bounds.enclosure import Enclosure, anything
from polyc.poly.error_bounds.evaluate import enclosed
from polyc.poly.error_bounds.iterations import NotBounded
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, eq=False)
class Bound:
    """Of one tensor, by element: `|computed - exact| <= error`, `low <= exact <= high`. `why`: where it is infinite."""

    error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    why: str = ""

    @property
    def largest(self) -> float:
        """The largest bound of an element."""
        return float(np.max(self.error, initial=0.0))


@dataclass(frozen=True, eq=False)
class ErrorBounds:
    """`outputs` of the model by name; `tensors`: all others, in the order of computation. `passes`: what each did."""

    outputs: Mapping[str, Bound]
    tensors: Mapping[str, Bound]
    passes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        lines = [f"{n}: {b.largest:.3g}{f' ({b.why})' if b.why else ''}" for n, b in self.outputs.items()]
        return f"<ErrorBounds {', '.join(lines)}>"


def error_bounds(
    model: str | Path | onnx.ModelProto | bytes, ranges: Mapping[str, Range], target: str = "cpu",
    threads: int | None = None, **options: Any,
) -> ErrorBounds:  # fmt: skip
    """Bounds of `|computed - exact|` for every element of a model's outputs and all inputs in `ranges`.

    Args:
        model: an ONNX file, or a model of it.
        ranges: `{input: (least, greatest)}`, numbers or arrays in the input's shape; `*` stands for all other inputs
            of floats. Inputs that choose rows of a table may choose any.
        target, threads, options: as `compile_model` takes them: the bounds are those of what it compiles.

    Returns:
        In f64, rounded up: no error of a run is above. Infinite where nothing better is true, with the reason.

    Raises:
        ArgumentError: a range is missing or does not fit.
        ModelError: the model is broken, or sizes are missing.
    """
    chosen = CompileOptions(target=target, threads=threads, **options)
    return bounds_of(model, ranges, platform_of(target, threads), chosen)


def bounds_of(
    model: str | Path | onnx.ModelProto | bytes, ranges: Mapping[str, Range], platform: Platform,
    options: CompileOptions,
) -> ErrorBounds:  # fmt: skip
    """The same for a platform and options.

    Raises:
        ArgumentError: a range is missing or does not fit, or a size is not a number.
        ModelError: the model is broken, or sizes are missing.
    """
    with recorded() as ledger:
        graph = import_with(model, platform, options)
        if graph.symbols is not None:
            raise ArgumentError("the model has sizes that are not numbers: give them (--dim NAME=V)")
        own = of_model(graph)
        passes = optimise(graph, platform, options)
    run = _Graph(graph)
    constants = Constants(ledger, own, lambda node, given: run.results(node, given))
    found = run.all(input_ranges(graph, ranges), constants)
    outputs = {n: found[n] for n in graph.outputs}
    return ErrorBounds(outputs, {n: b for n, b in found.items() if n not in outputs}, tuple(passes))


class _Graph:
    """A graph run on enclosures."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def all(self, given: dict[str, Enclosure], constants: Constants) -> dict[str, Bound]:
        """The bounds of all tensors. Enclosures are dropped when nothing reads them any more."""
        values = dict(given)
        found = {n: bound_of(v) for n, v in given.items()}
        last = {name: k for k, node in enumerate(self.graph.nodes) for name in node.reads()}
        for k, node in enumerate(self.graph.nodes):
            for name in node.reads():
                if name not in values:
                    tensor = self.graph.tensors[name]
                    values[name] = (
                        anything((), f"'{name}' is not known") if tensor.const is None else constants.of(tensor)
                    )
            made = self.results(node, values)
            for name, value in zip(node.outputs, made, strict=False):
                if name:
                    values[name] = value
                    found[name] = bound_of(value)
            for name in [n for n in node.reads() if last[n] == k and n in values]:
                values.pop(name, None)
        for name in self.graph.outputs:
            if name not in found:
                tensor = self.graph.tensors[name]
                found[name] = bound_of(constants.of(tensor))
        return found

    def results(self, node: Node, values: Mapping[str, Enclosure]) -> list[Enclosure]:
        """The outputs of a node in order."""
        try:
            with np.errstate(all="ignore"):
                return self._aliases(node, values) if is_alias(node) else self._computed(node, values)
        except NotBounded as reason:
            return [self._nothing(o, f"{node.kind} '{node.name or node.outputs[0]}': {reason}") for o in node.outputs]

    def _nothing(self, name: str, why: str) -> Enclosure:
        shape = self.graph.tensors[name].shape if name in self.graph.tensors else None
        return anything(tuple(int(n) for n in shape or ()), why)

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(n) for n in self.graph.tensors[name].shape or ())

    def _computed(self, node: Node, values: Mapping[str, Enclosure]) -> list[Enclosure]:
        piece = translate_one(self.graph, node, registered)
        if piece.operator is None:
            raise NotBounded(f"it runs on the host ({piece.reason})")
        operator = piece.operator
        given = {
            array: values[node.inputs[at]].each(lambda a, array=array: a.reshape(_of(operator, array)))  # type: ignore[misc]
            for at, array in operator.inputs
        }
        made = enclosed(operator.scop, given)
        results = dict(zip(node.writes(), operator.outputs, strict=True))
        return [
            _explained(made[results[o]], node).each(lambda a, o=o: a.reshape(self._shape(o)))  # type: ignore[misc]
            if o else anything((), "absent") for o in node.outputs
        ]  # fmt: skip

    def _aliases(self, node: Node, values: Mapping[str, Enclosure]) -> list[Enclosure]:
        """Views, parts and wholes, which move no element."""
        first = values[node.inputs[0]]
        if node.op_type == "View":
            return [first.each(lambda a: a.reshape(self._shape(node.outputs[0])))]
        dtype = self.graph.tensors[node.inputs[0]].dtype
        if node.op_type == "Words" or dtype is None:
            raise NotBounded("bytes are seen as words")
        places = [int(at) // dtype.bytes for at in node.attrs["offsets"]]
        if node.op_type == "Part":
            return [
                first.each(lambda a, at=at, o=o: a.reshape(-1)[at : at + prod(self._shape(o))].reshape(self._shape(o)))  # type: ignore[misc]
                for o, at in zip(node.outputs, places, strict=False)
            ]
        return [_joined([values[i] for i in node.inputs], places, self._shape(node.outputs[0]))]


def _of(operator: OperatorScop, array: str) -> tuple[int, ...]:
    return tuple(int(n) for n in array_shape(operator, array) or ())


def _explained(value: Enclosure, node: Node) -> Enclosure:
    """With the node's name in the reason where it is this node's own."""
    if not np.isinf(value.err).any():
        return Enclosure(value.lo, value.hi, value.clo, value.chi, value.err)
    why = value.why or "no bound"
    named = why if "'" in why else f"{node.kind} '{node.name or node.outputs[0]}': {why}"
    return Enclosure(value.lo, value.hi, value.clo, value.chi, value.err, named)


def _joined(parts: list[Enclosure], places: list[int], shape: tuple[int, ...]) -> Enclosure:
    def put(name: str) -> np.ndarray:
        whole = np.empty(prod(shape))
        for part, at in zip(parts, places, strict=True):
            value = getattr(part, name)
            whole[at : at + value.size] = value.reshape(-1)
        return whole.reshape(shape)

    why = next((p.why for p in parts if p.why), "")
    return Enclosure(put("lo"), put("hi"), put("clo"), put("chi"), put("err"), why)


def bound_of(value: Enclosure) -> Bound:
    """What a caller sees of an enclosure."""
    infinite = bool(np.isinf(value.err).any())
    return Bound(value.err, value.lo, value.hi, (value.why or "no bound") if infinite else "")
