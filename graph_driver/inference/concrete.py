"""Types and shapes of one node's outputs, from concrete input shapes and known input values."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from polyc.graph_driver.communication import operators as communication
from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.graph.limits import check_shape
from polyc.graph_driver.graph.onnx_tensors import dtype_of, elem_type_of
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.inference.ties import check_ties
from polyc.poly.errors import ModelError
from polyc.poly.words import between, counted

LIKE_INPUT = ("GroupNormalization", "MeanVarianceNormalization")  # onnx has no inference for them
POOLS = ("MaxPool", "AveragePool", "LpPool")
MAX_DATA = 4096  # elements of a constant that inference may want to look at (shapes, axes, pads)
OLDEST_OPSET = 7  # older operators are read where they have not changed until then
POSITIVE = ("strides", "dilations", "kernel_shape", "group", "blocksize", "storage_order_divisor")


def type_proto(tensor: Tensor) -> onnx.TypeProto:
    """The ONNX type of a tensor; empty where it is unknown."""
    if tensor.onnx_type is not None:
        return tensor.onnx_type
    if tensor.dtype is None:
        if tensor.const is not None:
            return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(tensor.const.dtype), tensor.shape)
        return onnx.TypeProto()
    shape = None if tensor.shape is None else [n if isinstance(n, int) else str(n) for n in tensor.shape]
    return helper.make_tensor_type_proto(elem_type_of(tensor.dtype), shape)


def check_attributes(node: onnx.NodeProto, what: str) -> None:
    """Refuse zero strides and the like, on which onnx's own inference divides by zero.

    Raises:
        ModelError: one of `POSITIVE` is below 1 or beyond 2^31.
    """
    for a in node.attribute:
        if a.name not in POSITIVE:
            continue
        values = list(a.ints) if a.type == onnx.AttributeProto.INTS else [a.i]
        if any(v < 1 or v > 1 << 31 for v in values):
            raise ModelError(f"{what}: attribute {a.name}={values} must be positive")


def check_attribute_types(node: onnx.NodeProto, opsets: Mapping[str, int], what: str) -> None:
    """Raise `ModelError` for an attribute that the operator's definition lacks, or gives another type."""
    known = schema_of(node, opsets, what).attributes
    for a in node.attribute:
        if a.name not in known and not a.name.startswith("__"):  # those are a tool's own notes
            raise ModelError(f"{what}: there is no attribute {a.name} (it has {', '.join(sorted(known)) or 'none'})")
        if a.name in known and int(known[a.name].type) != int(a.type):
            wanted = onnx.AttributeProto.AttributeType.Name(int(known[a.name].type))
            raise ModelError(f"{what}: attribute {a.name} has the wrong type, it must be {wanted}")


def schema_of(node: onnx.NodeProto, opsets: Mapping[str, int], what: str) -> onnx.defs.OpSchema:
    """The operator's definition. Raises `ModelError` for an operator that onnx does not know."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain == communication.DOMAIN:
        communication.define()
    if domain not in opsets:
        raise ModelError(f"{what}: the model does not import the operator set '{domain or 'ai.onnx'}'")
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets[domain], domain)
    except onnx.defs.SchemaError:
        where = f"domain '{domain}'" if domain else "ai.onnx"
        raise ModelError(f"{what}: unknown operator {node.op_type} in {where}, opset {opsets[domain]}") from None
    if not domain and opsets[domain] < OLDEST_OPSET:
        later = onnx.defs.get_schema(node.op_type, OLDEST_OPSET, domain)
        if later.since_version != schema.since_version:
            raise ModelError(
                f"{what}: {node.op_type} of opset {opsets[domain]} is too old: polyc reads its form of "
                f"opset {OLDEST_OPSET} and later"
            )
    if schema.deprecated:
        raise ModelError(f"{what}: operator {node.op_type} is deprecated in opset {opsets[domain]}")
    return schema


@functools.cache
def first_opset(operator: str) -> int:
    """The opset that brought a standard operator; 0 for one that there is not."""
    every = onnx.defs.get_all_schemas_with_history()
    return min((s.since_version for s in every if s.name == operator and s.domain in ("", "ai.onnx")), default=0)


def check_form(node: onnx.NodeProto, opsets: Mapping[str, int], what: str) -> onnx.defs.OpSchema:
    """The operator's definition, for a node that has as many inputs and outputs and attributes of its types.

    Raises:
        ModelError: it has others, or there is no such operator.
    """
    schema = schema_of(node, opsets, what)
    inputs, outputs = len(node.input), len(node.output)
    if not schema.min_input <= inputs <= schema.max_input:
        raise ModelError(f"{what}: {counted(inputs, 'input')}, expected {between(schema.min_input, schema.max_input)}")
    if not schema.min_output <= outputs <= schema.max_output:
        raise ModelError(
            f"{what}: {counted(outputs, 'output')}, expected {between(schema.min_output, schema.max_output)}"
        )
    for position, name in enumerate(node.input):
        if not name and position < schema.min_input and schema.inputs[position].option.name == "Single":
            raise ModelError(f"{what}: required input {position} is missing")
    check_attribute_types(node, opsets, what)
    return schema


def infer(
    node: onnx.NodeProto,
    tensors: Mapping[str, Tensor],
    reads: Sequence[str],
    opsets: Mapping[str, int],
    what: str,
) -> dict[str, Tensor]:
    """The node's output tensors, without constants.

    `reads` are the inputs and captured names. An output whose shape depends on data, or
    whose element type polyc lacks, comes back with an unknown shape or type.

    Raises:
        ModelError: unknown operator, wrong number of inputs, shapes that do not fit.
    """
    schema = check_form(node, opsets, what)
    check_attributes(node, what)
    if not node.domain:
        check_ties(node.op_type, node.input, _plain_attributes(node), tensors, what)
    if node.op_type == "Range" and not node.domain:
        tensors = {i: _scalar(tensors[i]) for i in node.input}
    types = {r: type_proto(tensors[r]) for r in reads if r}
    data = {
        r: numpy_helper.from_array(np.asarray(value, order="C"), r)  # ascontiguousarray would give a scalar an axis
        for r in reads
        if r and (value := tensors[r].const) is not None and value.size <= MAX_DATA and tensors[r].dtype is not None
    }
    imports = [helper.make_opsetid(d, v) for d, v in opsets.items()]
    try:
        found = shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
    except Exception as error:  # C++ inference raises RuntimeError, InferenceError and others
        operands = ", ".join(f"'{r}' {_shape_text(tensors[r].shape)}" for r in reads if r)
        raise ModelError(f"{what}: {_reason(error)} (operands {operands})") from error
    if node.op_type in LIKE_INPUT and not node.domain:
        return {node.output[0]: replace(tensors[node.input[0]], name=node.output[0], const=None)}
    if node.op_type == "MaxUnpool" and len(node.input) == 3 and tensors[node.input[2]].const is not None:
        return {node.output[0]: _of_shape(tensors[node.input[0]], tensors[node.input[2]], node.output[0])}
    if node.op_type == "STFT" and not node.domain:
        _one_sided(node, tensors, found)
    if node.op_type in POOLS and not node.domain:
        _inside_padding(node, tensors, found)
    return {o: _tensor(o, found.get(o), what) for o in node.output if o}


def _plain_attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Numbers, texts and lists of them."""
    kinds = (onnx.AttributeProto.INT, onnx.AttributeProto.INTS, onnx.AttributeProto.STRING)
    return {a.name: helper.get_attribute_value(a) for a in node.attribute if a.type in kinds}


def _inside_padding(node: onnx.NodeProto, tensors: Mapping[str, Tensor], found: Mapping[str, onnx.TypeProto]) -> None:
    """Leave out windows of a pool with `ceil_mode` that would begin in the padding at the end: onnx's inference counts
    them before opset 22, its reference and everybody who runs pools do not."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    size = (tensors[node.input[0]].shape or ())[2:]
    if not attributes.get("ceil_mode", 0) or attributes.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        return
    begins = attributes.get("pads") if attributes.get("auto_pad", b"NOTSET") == b"NOTSET" else None
    for proto in found.values():
        dims = list(proto.tensor_type.shape.dim)[2:]
        for d, (dim, n) in enumerate(zip(dims, size, strict=False)):
            stride = (attributes.get("strides") or [1] * len(size))[d]
            begin = begins[d] if begins else 0
            if dim.dim_value > 1 and (dim.dim_value - 1) * stride >= n + begin:
                dim.dim_value -= 1


def _of_shape(like: Tensor, shape: Tensor, name: str) -> Tensor:
    """A tensor of the type of `like` and of the constant `shape`."""
    assert shape.const is not None
    return Tensor(name, like.dtype, tuple(int(n) for n in shape.const.reshape(-1)))


def _one_sided(node: onnx.NodeProto, tensors: Mapping[str, Tensor], found: Mapping[str, onnx.TypeProto]) -> None:
    """Mend the bins of STFT: onnx's inference takes an absent `onesided` for 0, its default is 1."""
    if any(a.name == "onesided" for a in node.attribute):
        return
    length = next((tensors[i] for i in node.input[3:4] if i), None)
    window = next((tensors[i] for i in node.input[2:3] if i), None)
    size = None
    if length is not None and length.const is not None:
        size = int(length.const.reshape(-1)[0])
    elif window is not None and window.shape is not None:
        size = window.shape[0]
    for proto in found.values():
        dims = proto.tensor_type.shape.dim
        if size is not None and len(dims) == 4:
            dims[2].dim_value = size // 2 + 1


def _scalar(tensor: Tensor) -> Tensor:
    """A tensor of one element as one of rank 0: `Range` of the ONNX function bodies takes either."""
    if tensor.const is None or tensor.shape != (1,):
        return tensor
    return replace(tensor, shape=(), const=tensor.const.reshape(()))


def _shape_text(shape: Sequence[Any] | None) -> str:
    return "of unknown shape" if shape is None else str([*shape])


def _reason(error: Exception) -> str:
    text = one_line(error)
    for noise in ("[ShapeInferenceError] ", "[TypeInferenceError] ", "Inference error(s): "):
        text = text.replace(noise, "")
    return text


def _tensor(name: str, proto: onnx.TypeProto | None, what: str) -> Tensor:
    if proto is None or not proto.HasField("tensor_type"):
        return Tensor(name, None, None, None, proto)
    dtype = dtype_of(proto.tensor_type.elem_type)
    if not proto.tensor_type.HasField("shape"):
        return Tensor(name, dtype, None, None, proto)
    dims = proto.tensor_type.shape.dim
    if not all(d.HasField("dim_value") for d in dims):
        return Tensor(name, dtype, None, None, proto)
    shape = tuple(d.dim_value for d in dims)
    check_shape(f"{what}: result '{name}'", shape, dtype.bytes if dtype else 1)
    return Tensor(name, dtype, shape, None, None if dtype else proto)
