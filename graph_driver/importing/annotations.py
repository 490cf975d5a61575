"""What a file says of its tensors beside the operators: `value_info`, declared outputs, inputs that have initializers.

None of it is needed: types and shapes follow from inputs, weights and operators. Where the file contradicts itself in
an element type, one of the two is not what its author meant, and the model is refused. Shapes in exported files are
often those of the batch that it was exported with: the graph's own are taken, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx

from polyc.graph_driver.graph.ir import Graph, Tensor
from polyc.graph_driver.graph.onnx_tensors import dtype_of
from polyc.graph_driver.graph.size import Size
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.graph.watched import AnnotationWarning, warn
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

SHOWN = 3
"""Contradicted shapes that are named; a file that is wrong in one size is often wrong in a hundred places."""


@dataclass(frozen=True)
class Declared:
    """What the file says of one tensor, and in which of its lists."""

    name: str
    where: str
    type: onnx.TypeProto


def check_annotations(proto: onnx.GraphProto, graph: Graph) -> list[str]:
    """The shapes that the file declares and its operators contradict, a line each that names both sources.

    Raises:
        ModelError: a declared element type that the operators, inputs or weights contradict.
    """
    makers = {o: f"{n.op_type} '{n.name or o}'" for n in proto.node for o in n.output if o}
    inputs = {i.name for i in proto.input}
    found = []
    for declared in _declarations(proto):
        tensor = graph.tensors.get(declared.name)
        if tensor is None:
            continue
        source = _source(declared.name, tensor, makers, inputs)
        _check_type(declared, tensor, source)
        line = _contradiction(declared, tensor, source, graph.symbols)
        if line is not None:
            found.append(line)
    return found


def report(lines: list[str], graph: Graph, strict: bool) -> None:
    """Put contradicted shapes into the notes of the graph, and warn of them.

    Raises:
        ModelError: there is one, and the caller is `strict`.
    """
    if not lines:
        return
    more = f" (and {len(lines) - SHOWN} more of the kind)" if len(lines) > SHOWN else ""
    if strict:
        raise ModelError(lines[0] + (f" (and {len(lines) - 1} more of the kind)" if len(lines) > 1 else ""))
    for k, line in enumerate(lines[:SHOWN]):
        text = line + (more if k == SHOWN - 1 else "")
        graph.notes.append(text)
        warn(text, AnnotationWarning, stacklevel=4)


def _declarations(proto: onnx.GraphProto) -> Iterator[Declared]:
    initial = {t.name for t in proto.initializer} | {t.values.name for t in proto.sparse_initializer}
    for where, values in (("value_info", proto.value_info), ("graph output", proto.output)):
        for v in values:
            yield Declared(v.name, where, v.type)
    for v in proto.input:
        if v.name in initial:
            yield Declared(v.name, "graph input", v.type)


def _source(name: str, tensor: Tensor, makers: Mapping[str, str], inputs: set[str]) -> str:
    if name in makers:
        return f"{makers[name]} makes"
    if tensor.const is not None:
        return "its initializer holds"
    return "the graph input is" if name in inputs else "the graph has"


def _check_type(declared: Declared, tensor: Tensor, source: str) -> None:
    kind = declared.type.WhichOneof("value")
    if kind is None:
        return
    if kind != "tensor_type":
        other = tensor.dtype is not None
        own = tensor.onnx_type.WhichOneof("value") if tensor.onnx_type is not None else None
        if other or own not in (None, kind):
            raise _conflict(declared, kind.removesuffix("_type"), source, _type_text(tensor))
        return
    elem = declared.type.tensor_type.elem_type
    if elem == onnx.TensorProto.UNDEFINED:
        return
    wanted = dtype_of(elem)
    if tensor.dtype is not None:
        agree = wanted == tensor.dtype
    elif tensor.onnx_type is not None and (own := tensor.onnx_type.WhichOneof("value")) is not None:
        agree = own == "tensor_type" and tensor.onnx_type.tensor_type.elem_type in (elem, 0)
    elif tensor.const is not None:
        agree = wanted is None
    else:
        agree = True  # nothing is known of the value
    if not agree:
        raise _conflict(declared, _elem_text(elem), source, _type_text(tensor))


def _conflict(declared: Declared, said: str, source: str, own: str) -> ModelError:
    return ModelError(
        f"'{declared.name}' is declared {said} by the file's {declared.where}, but {source} {own}: "
        "mend the file, one of the two is wrong"
    )


def _elem_text(elem: int) -> str:
    dtype = dtype_of(elem)
    if dtype is not None:
        return dtype.name
    try:
        return str(onnx.TensorProto.DataType.Name(elem)).lower()
    except ValueError:
        return f"of element type {elem}, which ONNX does not have,"


def _type_text(tensor: Tensor) -> str:
    if tensor.dtype is not None:
        return tensor.dtype.name
    kind: Any = tensor.onnx_type
    if kind is not None and kind.WhichOneof("value") == "tensor_type":
        return _elem_text(kind.tensor_type.elem_type)
    if kind is not None and kind.WhichOneof("value"):
        return f"a {kind.WhichOneof('value').removesuffix('_type')}"
    return str(tensor.const.dtype) if tensor.const is not None else "another type"


def _contradiction(declared: Declared, tensor: Tensor, source: str, symbols: Symbols | None) -> str | None:
    kind = declared.type
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape") or tensor.shape is None:
        return None
    dims = kind.tensor_type.shape.dim
    said = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in dims]  # -1: not said
    if len(said) == len(tensor.shape) and all(_possible(a, b, symbols) for a, b in zip(said, tensor.shape)):
        return None
    text = ", ".join(d.dim_param or "?" if n is None else str(n) for d, n in zip(dims, said))
    own = ", ".join(map(str, tensor.shape))
    return (
        f"shape of '{declared.name}': [{text}] in the file's {declared.where}, but {source} [{own}], which is taken"
        " (strict_annotations refuses)"
    )


def _possible(said: int | None, size: Any, symbols: Symbols | None) -> bool:
    """Whether a declared size can be the one that follows; of a formula, whether it is within its bounds."""
    if said is None or said == size:
        return True
    if not isinstance(size, Size) or symbols is None:
        return False
    low, high = symbols.bounds(size)
    return (low is None or low <= said) and (high is None or said <= high)
