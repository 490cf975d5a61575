"""`Loop` and `Scan` whose number of iterations is known: their bodies one after another.

The generator functions yield nodes for the importer to visit and get to see, through
`known`, which conditions have become constants by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from polyc.graph_driver.graph.subgraphs import instantiate
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

MAX_UNROLLED = 4096  # nodes that one loop may become
MAX_QUICK = 512  # nodes that one loop becomes although its body could be compiled once
Fresh = Callable[[str], str]


@dataclass(frozen=True)
class Surroundings:
    """What an unrolled loop needs of the graph around it.

    `known` gives the value of a constant tensor (else None), `shape` the sizes of a tensor
    (else None), `sequence` says whether it is a sequence of known tensors, `fresh` a new name; `opset` is the
    version of ONNX's operator set.
    """

    known: Callable[[str], np.ndarray | None]
    shape: Callable[[str], tuple[int, ...] | None]
    sequence: Callable[[str], bool]
    fresh: Fresh
    opset: int


class NotConstant(Exception):
    """The number of iterations depends on data; raised before or between iterations."""


def body_of(node: onnx.NodeProto, states: int, inputs: int, what: str) -> onnx.GraphProto:
    """The subgraph of a `Loop` or `Scan`.

    Raises:
        ModelError: there is none, it has not `inputs` inputs, or too few or too many outputs for
            its `states` and the outputs of the node.
    """
    body = next((a.g for a in node.attribute if a.name == "body" and a.type == onnx.AttributeProto.GRAPH), None)
    if body is None:
        raise ModelError(f"{what}: it has no body")
    first = 1 if node.op_type == "Loop" else 0
    if states < 0 or len(body.input) != inputs or len(body.output) < first + states:
        raise ModelError(f"{what}: {states} states do not fit a body of {len(body.input)} inputs and "
                         f"{len(body.output)} outputs")  # fmt: skip
    if len(node.output) > len(body.output) - first:
        raise ModelError(f"{what}: it has more outputs than its body")
    return body


def loop(node: onnx.NodeProto, around: Surroundings, what: str) -> Iterator[onnx.GraphProto]:
    """The iterations of a `Loop`, then what joins its scan outputs.

    Raises:
        NotConstant: the trip count or a condition is not a constant, or there are too many nodes.
        ModelError: the body does not fit the node.
    """
    body = body_of(node, len(node.input) - 2, len(node.input), what)
    names = list(node.input)
    limit, condition, states = _trips(names[0], around), names[1], list(node.input[2:])
    for state in states:
        if not around.sequence(state):
            _shape(state, around)
    if limit is not None and runs_to_the_end(body):
        _check_size(limit, body)
    scans = len(body.output) - 1 - len(states)
    rows: list[list[str]] = [[] for _ in range(scans)]
    trip = 0
    while (limit is None or trip < limit) and _holds(condition, around):
        if (trip + 1) * len(body.node) > MAX_UNROLLED:
            raise NotConstant(f"it would become more than {MAX_UNROLLED} nodes")
        suffix = f"{_label(node)}.{trip}"
        results = [around.fresh(f"{o.name}@{suffix}") for o in body.output]
        number = around.fresh(f"iteration@{suffix}")
        given = {body.input[0].name: number} | dict(
            zip((i.name for i in body.input[1:]), [condition, *states], strict=True)
        )
        yield _constant(number, np.array(trip, np.int64))
        if not condition:
            given[body.input[1].name] = around.fresh(f"condition@{suffix}")
            yield _constant(given[body.input[1].name], np.array(True))
        yield instantiate(body, results, around.fresh, given)
        condition, states = results[0], results[1 : 1 + len(states)]
        for row, name in zip(rows, results[1 + len(states) :], strict=True):
            row.append(name)
        trip += 1
    if scans and not trip and any(node.output[len(states) :]):
        raise NotConstant("it has scan outputs and no iteration")
    yield from _results(node.output, states, rows, [0] * scans, around)


def runs_to_the_end(body: onnx.GraphProto) -> bool:
    """Whether the body hands its condition on as it is."""
    given, result = body.input[1].name, body.output[0].name
    return given == result or any(
        n.op_type == "Identity" and list(n.input) == [given] and list(n.output) == [result] for n in body.node
    )


def _trips(name: str, around: Surroundings) -> int | None:
    if not name:
        return None
    value = around.known(name)
    if value is None:
        raise NotConstant("its trip count is not constant")
    return int(value.reshape(-1)[0])


def _holds(name: str, around: Surroundings) -> bool:
    if not name:
        return True
    value = around.known(name)
    if value is None:
        raise NotConstant("its condition is not constant")
    return bool(value.reshape(-1)[0])


def scan(node: onnx.NodeProto, attrs: Mapping[str, Any], around: Surroundings, what: str) -> Iterator[onnx.GraphProto]:
    """The iterations of a `Scan` along its (constant) sequence length.

    Raises:
        NotConstant: an input's shape is not known, or there are too many nodes.
        ModelError: the body or the attributes do not fit the node.
    """
    first = 1 if around.opset < 9 else 0  # opset 8 begins with the sequence lengths
    inputs = list(node.input[first:])
    count = int(attrs.get("num_scan_inputs", 0))
    if not 1 <= count <= len(inputs):
        raise ModelError(f"{what}: num_scan_inputs is {count} and there are {len(inputs)} inputs")
    body = body_of(node, len(inputs) - count, len(inputs), what)
    scans = len(body.output) - (len(inputs) - count)
    lengths = {
        "scan_input_axes": count, "scan_input_directions": count, "directions": count,
        "scan_output_axes": scans, "scan_output_directions": scans,
    }  # fmt: skip
    wrong = [n for n, wanted in lengths.items() if attrs.get(n) and len(attrs[n]) != wanted]
    if wrong:
        raise ModelError(f"{what}: attribute {wrong[0]} has {len(attrs[wrong[0]])} elements, not {lengths[wrong[0]]}")
    if around.opset < 9:
        yield from _batched_scan(node, body, attrs, around, what)
        return
    states, sources = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    shapes = [_shape(s, around) for s in sources]
    axes = []
    for axis, shape in zip(attrs.get("scan_input_axes") or [0] * count, shapes, strict=True):
        if not -len(shape) <= axis < len(shape):
            raise ModelError(f"{what}: there is no axis {axis} to scan in an input of rank {len(shape)}")
        axes.append(axis % len(shape))
    if len({shape[axis] for shape, axis in zip(shapes, axes, strict=True)}) > 1:
        raise ModelError(f"{what}: its sequences have different lengths")
    back = attrs.get("scan_input_directions") or [0] * count
    steps = shapes[0][axes[0]]
    if not steps:
        raise NotConstant("its sequence is empty")
    _check_size(steps, body)
    rows: list[list[str]] = [[] for _ in range(scans)]
    for step in range(steps):
        suffix = f"{_label(node)}.{step}"
        elements = []
        for source, axis, reverse in zip(sources, axes, back, strict=True):
            part, name = _element(source, steps - 1 - step if reverse else step, axis, suffix, around.fresh)
            yield part
            elements.append(name)
        results = [around.fresh(f"{o.name}@{suffix}") for o in body.output]
        given = dict(zip((i.name for i in body.input), [*states, *elements], strict=True))
        yield instantiate(body, results, around.fresh, given)
        states = results[: len(states)]
        for row, name in zip(rows, results[len(states) :], strict=True):
            row.append(name)
    backwards = attrs.get("scan_output_directions") or [0] * scans
    rows = [row[::-1] if reverse else row for row, reverse in zip(rows, backwards, strict=True)]
    yield from _results(node.output, states, rows, attrs.get("scan_output_axes") or [0] * scans, around)


def _batched_scan(
    node: onnx.NodeProto, body: onnx.GraphProto, attrs: Mapping[str, Any], around: Surroundings, what: str
) -> Iterator[onnx.GraphProto]:
    """Scan of opset 8: a leading batch dimension everywhere, and a sequence length first."""
    if node.input[0]:
        raise NotConstant("it has sequence lengths")
    inputs, label = list(node.input[1:]), _label(node)
    count = int(attrs["num_scan_inputs"])
    shapes = [_shape(i, around) for i in inputs]
    scanned = {shape[:2] for shape in shapes[len(inputs) - count :]}
    if len(scanned) != 1 or min(map(len, scanned)) < 2 or not all(shapes):
        raise ModelError(f"{what}: its inputs do not agree on batch and sequence length")
    ((batch, steps),) = scanned
    back = attrs.get("directions") or [0] * count
    first = len(inputs) - count
    if not batch * steps:
        raise NotConstant("its sequence is empty")
    _check_size(batch * steps, body)
    per_batch: list[list[str]] = []
    for b in range(batch):
        states: list[str] = []
        for s in inputs[:first]:
            part, name = _element(s, b, 0, f"{label}.{b}", around.fresh)
            yield part
            states.append(name)
        rows: list[list[str]] = [[] for _ in range(len(body.output) - first)]
        for step in range(steps):
            suffix = f"{label}.{b}.{step}"
            elements = []
            for source, reverse in zip(inputs[first:], back, strict=True):
                part, whole = _element(source, b, 0, suffix, around.fresh)
                yield part
                part, name = _element(whole, steps - 1 - step if reverse else step, 0, suffix, around.fresh)
                yield part
                elements.append(name)
            results = [around.fresh(f"{o.name}@{suffix}") for o in body.output]
            given = dict(zip((i.name for i in body.input), [*states, *elements], strict=True))
            yield instantiate(body, results, around.fresh, given)
            states = results[:first]
            for row, name in zip(rows, results[first:], strict=True):
                row.append(name)
        stacked = [around.fresh(f"stack{k}@{label}.{b}") for k in range(len(rows))]
        yield from _results(stacked, [], rows, [0] * len(rows), around)
        per_batch.append([*states, *stacked])
    yield from _results(node.output, [], list(zip(*per_batch, strict=True)), [0] * len(per_batch[0]), around)


def _shape(name: str, around: Surroundings) -> tuple[int, ...]:
    shape = around.shape(name)
    if shape is None:
        raise NotConstant(f"the shape of '{name}' is only known at run time")
    return shape


def _check_size(iterations: int, body: onnx.GraphProto) -> None:
    if iterations * len(body.node) > MAX_UNROLLED:
        raise NotConstant(f"it would become more than {MAX_UNROLLED} nodes")


def _label(node: onnx.NodeProto) -> str:
    return next((o for o in node.output if o), node.op_type)


def _constant(name: str, value: np.ndarray) -> onnx.GraphProto:
    return onnx.GraphProto(initializer=[onnx.numpy_helper.from_array(value, name)])


def _element(source: str, at: int, axis: int, suffix: str, fresh: Fresh) -> tuple[onnx.GraphProto, str]:
    """Element `at` along `axis`, without that axis."""
    index, name = fresh(f"at{axis}@{source}@{suffix}"), fresh(f"{source}[{at}]@{suffix}")
    part = _constant(index, np.array(at, np.int64))
    part.node.append(helper.make_node("Gather", [source, index], [name], axis=axis))
    return part, name


def _stacked(row: Sequence[str], name: str, axis: int, around: Surroundings) -> onnx.GraphProto:
    """The values of `row` side by side along a new axis."""
    part = onnx.GraphProto()
    axes = around.fresh(f"axis@{name}")
    if around.opset >= 13:
        part.initializer.append(onnx.numpy_helper.from_array(np.array([axis], np.int64), axes))
    pieces = [around.fresh(f"{k}@{name}") for k in range(len(row))]
    for source, piece in zip(row, pieces, strict=True):
        if around.opset >= 13:
            part.node.append(helper.make_node("Unsqueeze", [source, axes], [piece]))
        else:
            part.node.append(helper.make_node("Unsqueeze", [source], [piece], axes=[axis]))
    part.node.append(helper.make_node("Concat", pieces, [name], axis=axis))
    return part


def _results(
    outputs: Sequence[str], states: Sequence[str], rows: Sequence[Sequence[str]], axes: Sequence[int],
    around: Surroundings,
) -> Iterator[onnx.GraphProto]:  # fmt: skip
    """The node's outputs: final states under their names, then the rows joined."""
    padded = [*outputs, *[""] * (len(states) + len(rows) - len(outputs))]
    for state, name in zip(states, padded, strict=False):
        if name:
            yield onnx.GraphProto(node=[helper.make_node("Identity", [state], [name])])
    for row, name, axis in zip(rows, padded[len(states) :], axes, strict=True):
        if name:
            yield _stacked(row, name, axis, around)
