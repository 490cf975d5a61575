"""Ways to damage a model: in its bytes, and in what they say."""

from __future__ import annotations

import random
from collections.abc import Callable

import onnx
from onnx import AttributeProto, TensorProto, helper

Edit = Callable[[onnx.ModelProto, random.Random], None]


def truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def bits_flipped(data: bytes, rng: random.Random) -> bytes:
    """Anywhere: mostly weights."""
    return _changed(data, rng, len(data), flip=True)


def head_bits_flipped(data: bytes, rng: random.Random) -> bytes:
    """In the first kilobytes: mostly structure."""
    return _changed(data, rng, 3000, flip=True)


def head_bytes_replaced(data: bytes, rng: random.Random) -> bytes:
    return _changed(data, rng, 3000, flip=False)


def _changed(data: bytes, rng: random.Random, reach: int, flip: bool) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(min(len(out), reach))
        out[place] = out[place] ^ (1 << rng.randrange(8)) if flip else rng.randrange(256)
    return bytes(out)


def run_of_bytes(data: bytes, rng: random.Random) -> bytes:
    """A run of bytes, repeated or removed."""
    start, length = rng.randrange(len(data)), rng.randrange(1, 40)
    middle = data[start : start + length] * 2 if rng.random() < 0.5 else b""
    return data[:start] + middle + data[start + length :]


# ---- the parsed model ----------------------------------------------------------------------------


def unknown_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if rng.random() < 0.5:
        node.op_type = rng.choice(("Konv", "", "conv", "Conv2D", "FusedEverything", "If", "Scan", "Optional"))
    else:
        node.domain = rng.choice(("com.example", "ai.onnx.ml", "com.microsoft", " "))


def swapped_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    """Another operator that exists, over the same operands."""
    names = ("Relu", "Conv", "Gemm", "Resize", "LSTM", "Loop", "TopK", "Gather", "Split", "Pad", "Concat", "Reshape",
             "Transpose", "ConvTranspose", "MaxPool", "Einsum", "NonZero", "QuantizeLinear", "Attention")  # fmt: skip
    rng.choice(model.graph.node).op_type = rng.choice(names)


def attribute_type(model: onnx.ModelProto, rng: random.Random) -> None:
    nodes = [n for n in model.graph.node if n.attribute] or list(model.graph.node)
    node = rng.choice(nodes)
    name = rng.choice(node.attribute).name if node.attribute else rng.choice(("axis", "pads", "kernel_shape", "alpha"))
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    value = rng.choice(("text", 1.5, 7, -3, [1.0, 2.0], [1], [0, 0, 0], [-1, 5], [2**40], [2**62] * 4, ["a"], 2**62))
    node.attribute.append(helper.make_attribute(name, value))
    if rng.random() < 0.2:
        node.attribute[-1].type = rng.choice((AttributeProto.UNDEFINED, AttributeProto.GRAPH, AttributeProto.TENSOR))


def input_shape(model: onnx.ModelProto, rng: random.Random) -> None:
    value = rng.choice([*model.graph.input, *model.graph.output])
    dims = value.type.tensor_type.shape.dim
    if dims and rng.random() < 0.7:
        rng.choice(dims).dim_value = rng.choice((0, -1, 1, 2, 5, 2**20, 2**31, 2**62))
    elif dims and rng.random() < 0.5:
        del dims[rng.randrange(len(dims))]
    else:
        dims.add().dim_value = rng.choice((1, 3, 10**6))


def element_type(model: onnx.ModelProto, rng: random.Random) -> None:
    kinds = (TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING, TensorProto.BFLOAT16,
             TensorProto.UNDEFINED, TensorProto.COMPLEX64, TensorProto.BOOL, TensorProto.INT4, 77)  # fmt: skip
    value = rng.choice([*model.graph.input, *model.graph.output])
    value.type.tensor_type.elem_type = rng.choice(kinds)


def weight_shape(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = rng.choice(model.graph.initializer)
    if tensor.dims and rng.random() < 0.7:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice((0, -1, 1, 2, 7, 2**31, 2**62))
    else:
        tensor.dims.extend([rng.choice((1, 3))])


def weight_values(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = rng.choice(model.graph.initializer)
    if rng.random() < 0.5:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    else:
        tensor.raw_data = rng.randbytes(len(tensor.raw_data))


def weight_type(model: onnx.ModelProto, rng: random.Random) -> None:
    rng.choice(model.graph.initializer).data_type = rng.choice((0, 1, 2, 7, 8, 9, 10, 11, 14, 16, 22, 99))


def wiring(model: onnx.ModelProto, rng: random.Random) -> None:
    """An operand that is something else, missing, made later, or one too many."""
    node = rng.choice(model.graph.node)
    names = [o for n in model.graph.node for o in n.output] + [t.name for t in model.graph.initializer]
    if not node.input or rng.random() < 0.2:
        node.input.append(rng.choice((*names, "nowhere", "")))
    else:
        node.input[rng.randrange(len(node.input))] = rng.choice((*names, "nowhere", ""))


def outputs(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    kind = rng.randrange(3)
    if kind == 0:
        node.output.append("extra")
    elif kind == 1:
        node.output[0] = rng.choice(model.graph.node).output[0]
    else:
        rng.choice(model.graph.output).name = rng.choice(("nowhere", "", model.graph.input[0].name))


def order(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node removed, repeated or moved."""
    nodes = list(model.graph.node)
    node = nodes.pop(rng.randrange(len(nodes)))
    if rng.random() < 0.6:
        nodes.insert(rng.randrange(len(nodes) + 1), node)
    if rng.random() < 0.3:
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def opset(model: onnx.ModelProto, rng: random.Random) -> None:
    if not model.opset_import or rng.random() < 0.3:
        del model.opset_import[:]
    else:
        model.opset_import[0].version = rng.choice((0, 1, 5, 7, 9, 13, 25, 99, -4, 2**40))
    if rng.random() < 0.2:
        model.ir_version = rng.choice((0, 1, 3, 99))


def external(model: onnx.ModelProto, rng: random.Random) -> None:
    """A weight in a file that is missing, or outside of the model's folder."""
    tensor = rng.choice(model.graph.initializer)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {
        "location": rng.choice(("weights.bin", "../../etc/passwd", "/etc/passwd", "", "a\0b")),
        "offset": rng.choice(("0", "-5", "x", str(2**62))), "length": rng.choice(("16", "-1", str(2**62))),
    }  # fmt: skip
    for key, value in entries.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


BYTES = (truncated, bits_flipped, head_bits_flipped, head_bytes_replaced, run_of_bytes)
EDITS: tuple[Edit, ...] = (
    unknown_operator, swapped_operator, attribute_type, input_shape, element_type, weight_shape, weight_values,
    weight_type, wiring, outputs, order, opset, external,
)  # fmt: skip


def mutate(data: bytes, seed: int) -> tuple[str, bytes]:
    """The kind of damage and the damaged model; the same for the same seed."""
    rng = random.Random(seed)
    if rng.random() < 0.35:
        damage = rng.choice(BYTES)
        return damage.__name__, damage(data, rng)
    edit = rng.choice(EDITS)
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2))):
        edit(model, rng)
    return edit.__name__, model.SerializeToString()
