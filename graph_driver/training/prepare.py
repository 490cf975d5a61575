"""A model made ready for training: weights become inputs, batch norms take the batch's statistics, masks are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference, version_converter

from polyc.graph_driver.graph.wording import one_line
from polyc.poly.errors import ArgumentError, ModelError
from polyc.poly.records import dataclass

OPSET = 18
"""Gradients are made of this version's operators (or a later one's): axes of reductions are operands from it on."""
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
BATCH, RUNNING = "batch", "running"
BATCH_NORM_MOMENTUM = 0.9  # ONNX's default


@dataclass
class Prepared:
    """A model and what is trained of it.

    `given` is the model as it came; `proto` takes its `parameters` (by name, with their first values), `buffers` and
    masks as inputs. `running` maps a result that is a new statistic to the buffer that it replaces after a step,
    `masks` an input to the ratio that its dropout leaves out.
    """

    given: onnx.ModelProto
    proto: onnx.ModelProto
    parameters: dict[str, np.ndarray]
    buffers: dict[str, np.ndarray] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    masks: dict[str, float] = field(default_factory=dict)


def prepare(source: str | Path | bytes | onnx.ModelProto, wrt: Sequence[str] | None, statistics: str) -> Prepared:
    """A copy of the model with what is trained as inputs.

    Args:
        source: a path, its bytes, or a `ModelProto`.
        wrt: names of weights; None: all float initializers that are no scalars, and no statistics of a batch norm.
        statistics: what batch norms normalise by: `batch` or `running`.

    Raises:
        ArgumentError: a name of `wrt` is no weight of floats, or there are no such statistics.
        ModelError: the file cannot be read, or its operators cannot be read as those of opset 18.
    """
    if statistics not in (BATCH, RUNNING):
        raise ArgumentError(
            f"there are no statistics '{statistics}'; a batch norm has those of the batch and running ones"
        )
    given = _read(source)
    proto = _with_shapes(_upgraded(given))
    values = {t.name: t for t in proto.graph.initializer}
    values |= _constants(proto.graph)
    fixed = {i for n in proto.graph.node if n.op_type == "BatchNormalization" for i in n.input[3:5]}
    names = _chosen(values, wrt, fixed)
    prepared = Prepared(given, proto, {n: _array(values[n]) for n in names})
    if statistics == BATCH or any(_training(n) for n in proto.graph.node):
        _by_batch(prepared, values, statistics)
    _draw_masks(prepared, values)
    _as_inputs(proto.graph, {**prepared.parameters, **prepared.buffers})
    return prepared


def _read(source: str | Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    try:
        if isinstance(source, onnx.ModelProto):
            return source
        return onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(str(source))
    except Exception as error:  # onnx and protobuf raise many kinds
        raise ModelError(f"the model cannot be read: {one_line(error)}") from None


def _upgraded(given: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in operators of `OPSET` or later."""
    proto = onnx.ModelProto()
    proto.CopyFrom(given)
    version = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 1)
    if version >= OPSET:
        return proto
    try:
        return version_converter.convert_version(proto, OPSET)
    except Exception as error:  # whatever the converter's C++ raises
        raise ModelError(
            f"training needs operators of opset {OPSET}; this model of {version}: {one_line(error)}"
        ) from None


def _with_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inferred shapes where what follows asks for ranks."""
    if not {"BatchNormalization", "Dropout"} & {n.op_type for n in proto.graph.node}:
        return proto
    try:
        return shape_inference.infer_shapes(proto, data_prop=True)
    except Exception as error:  # whatever onnx's C++ raises
        raise ModelError(f"the model's shapes do not fit: {one_line(error)}") from None


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Values of `Constant` nodes."""
    return {
        n.output[0]: a.t
        for n in graph.node
        if n.op_type == "Constant"
        for a in n.attribute
        if a.name == "value" and a.type == onnx.AttributeProto.TENSOR
    }


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    return np.array(numpy_helper.to_array(tensor))


def _chosen(values: dict[str, onnx.TensorProto], wrt: Sequence[str] | None, fixed: set[str]) -> list[str]:
    if wrt is None:
        return [n for n, t in values.items() if t.data_type in FLOATS and len(t.dims) and n not in fixed]
    for name in wrt:
        if name not in values:
            close = ", ".join(sorted(n for n, t in values.items() if t.data_type in FLOATS)[:8])
            raise ArgumentError(f"wrt: the model has no weight '{name}' (it has {close or 'none'})")
        if values[name].data_type not in FLOATS:
            kind = onnx.TensorProto.DataType.Name(values[name].data_type).lower()
            raise ArgumentError(f"wrt: '{name}' is {kind}: a gradient is of floats")
    return [*wrt]


def _training(node: onnx.NodeProto) -> bool:
    modes = [a.i for a in node.attribute if a.name == "training_mode"]
    return node.op_type == "BatchNormalization" and bool(modes and modes[0])


def _by_batch(prepared: Prepared, values: dict[str, onnx.TensorProto], statistics: str) -> None:
    """Batch norms by mean and variance of the batch, which are nodes of their own; running ones as further results.

    The variance is that of the population, and so is the running one, as ONNX defines it.
    """
    graph = prepared.proto.graph
    nodes: list[onnx.NodeProto] = []
    for node in [*graph.node]:
        if node.op_type != "BatchNormalization" or (statistics == RUNNING and not _training(node)):
            nodes.append(node)
            continue
        x, scale, bias, *running = node.input
        stem = node.output[0]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        momentum = float(attributes.get("momentum", BATCH_NORM_MOMENTUM))
        if x in values:
            raise ModelError(f"BatchNormalization '{node.name}' of a constant has no batch")
        found = _statistics(graph, nodes, x, stem)
        nodes.append(
            helper.make_node(
                "BatchNormalization", [x, scale, bias, *found], [node.output[0]], name=node.name or stem,
                epsilon=float(attributes.get("epsilon", 1e-5)),
            )
        )  # fmt: skip
        for k, (old, new) in enumerate(zip(running, found, strict=True), 1):
            if old not in values:
                continue
            name = node.output[k] if len(node.output) > k and node.output[k] else f"{stem}.running.{k}"
            _mixed(graph, nodes, (old, new, name), momentum, values[old].data_type)
            prepared.buffers[old] = _array(values[old])
            prepared.running[name] = old
            if name not in {o.name for o in graph.output}:
                graph.output.append(helper.make_tensor_value_info(name, values[old].data_type, list(values[old].dims)))
    del graph.node[:]
    graph.node.extend(nodes)


def _statistics(graph: onnx.GraphProto, nodes: list[onnx.NodeProto], x: str, stem: str) -> list[str]:
    """Nodes for mean and variance of each channel; axes 0 and those after 1, of whatever rank the image is."""
    wide, centred, square, mean, variance = (f"{stem}.{n}" for n in ("wide", "centred", "square", "mean", "variance"))
    axes = [d for d in range(len(_type(graph, x).shape.dim)) if d != 1]
    graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), f"{stem}.axes"))
    nodes += [
        helper.make_node("ReduceMean", [x, f"{stem}.axes"], [wide], keepdims=1),
        helper.make_node("Sub", [x, wide], [centred]),
        helper.make_node("Mul", [centred, centred], [square]),
        helper.make_node("ReduceMean", [square, f"{stem}.axes"], [variance], keepdims=0),
        helper.make_node("ReduceMean", [x, f"{stem}.axes"], [mean], keepdims=0),
    ]
    return [mean, variance]


def _type(graph: onnx.GraphProto, name: str) -> onnx.TypeProto.Tensor:
    """Type and shape of a tensor as onnx infers them."""
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.name == name and value.type.tensor_type.HasField("shape"):
            return value.type.tensor_type
    raise ModelError(f"the shape of '{name}', which training has to know, does not follow from the model's inputs")


def _mixed(
    graph: onnx.GraphProto, nodes: list[onnx.NodeProto], names: tuple[str, str, str], momentum: float, kind: int
) -> None:
    """`result = old * momentum + new * (1 - momentum)`."""
    old, new, result = names
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    for factor, label in ((momentum, "keep"), (1 - momentum, "take")):
        graph.initializer.append(numpy_helper.from_array(np.array(factor, dtype), f"{result}.{label}"))
    nodes += [
        helper.make_node("Mul", [old, f"{result}.keep"], [f"{result}.kept"]),
        helper.make_node("Mul", [new, f"{result}.take"], [f"{result}.taken"]),
        helper.make_node("Add", [f"{result}.kept", f"{result}.taken"], [result]),
    ]


def _draw_masks(prepared: Prepared, values: dict[str, onnx.TensorProto]) -> None:
    """Dropouts in training mode as products with a mask that each step draws anew."""
    nodes: list[onnx.NodeProto] = []
    for node in [*prepared.proto.graph.node]:
        mode = node.input[2] if node.op_type == "Dropout" and len(node.input) > 2 else ""
        if not mode or mode not in values or not _array(values[mode]).any():
            nodes.append(node)
            continue
        if len(node.output) > 1 and node.output[1]:
            raise ModelError(f"Dropout '{node.name}': its mask as a result is not trained with")
        ratio = float(_array(values[node.input[1]])) if node.input[1] in values else 0.5  # ONNX's default
        mask = f"{node.output[0]}.mask"
        prepared.masks[mask] = ratio
        kind = onnx.TypeProto(tensor_type=_type(prepared.proto.graph, node.input[0]))
        prepared.proto.graph.input.append(onnx.ValueInfoProto(name=mask, type=kind))
        nodes.append(helper.make_node("Mul", [node.input[0], mask], [node.output[0]], name=node.name))
    del prepared.proto.graph.node[:]
    prepared.proto.graph.node.extend(nodes)


def _as_inputs(graph: onnx.GraphProto, moved: dict[str, np.ndarray]) -> None:
    """Weights as inputs of the graph."""
    kept = [t for t in graph.initializer if t.name not in moved]
    nodes = [n for n in graph.node if not (n.op_type == "Constant" and n.output[0] in moved)]
    inputs = [i for i in graph.input if i.name not in moved]
    del graph.initializer[:], graph.node[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    for name, value in moved.items():
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        graph.input.append(helper.make_tensor_value_info(name, kind, value.shape))
