"""A small decoder with weights of 4 bits as an ONNX model, as exporters of language models write it.

Root mean square norms, rotary embeddings, heads in groups that share keys and values, a gated layer, and an output
that is the table of the embeddings again. Weights are random; `Decoder.dequantised` has what they mean in f32.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EPSILON, BASE, BITS = 1e-5, 10000.0, 4
TABLE = 0.1  # of the embeddings: small beside what layers add, lest a token be followed by itself


@dataclass(frozen=True)
class Sizes:
    """What a decoder is built from; `level` is the `accuracy_level` of its products, None for weights in f32."""

    vocabulary: int = 1000
    hidden: int = 256
    layers: int = 2
    heads: int = 8
    groups: int = 4
    inner: int = 512
    block: int = 32
    positions: int = 1024
    level: int | None = 0

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads


@dataclass
class Decoder:
    """The model, the matrices that it means (by name, `[in, out]`), and the bytes that one token reads of them."""

    sizes: Sizes
    model: onnx.ModelProto = field(default_factory=onnx.ModelProto)
    dequantised: dict[str, np.ndarray] = field(default_factory=dict)
    weight_bytes: int = 0


class _Builder:
    def __init__(self, sizes: Sizes, seed: int) -> None:
        self.sizes, self.rng = sizes, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.made = Decoder(sizes)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def add(
        self, op: str, inputs: list[str], result: str, domain: str = "", more: tuple[str, ...] = (), **a: Any
    ) -> str:
        self.nodes.append(helper.make_node(op, inputs, [result, *more], domain=domain, **a))
        return result

    def product(self, x: str, name: str, columns: int, inner: int) -> str:
        """A product with random weights of 4 bits, or with what these mean in f32."""
        blocks = inner // self.sizes.block
        codes = self.rng.integers(0, 256, (columns, blocks, self.sizes.block * BITS // 8)).astype(np.uint8)
        scales = (self.rng.random((columns, blocks)) * 0.02 + 0.01).astype(np.float32) * np.float32(16 / inner**0.5)
        whole = np.stack([codes & 15, codes >> 4], -1).reshape(columns, blocks, -1).astype(np.float32) - 8
        self.made.dequantised[name] = weight = (whole * scales[..., None]).reshape(columns, inner).T
        if self.sizes.level is None:
            self.made.weight_bytes += weight.nbytes
            return self.add("MatMul", [x, self.constant(name, np.ascontiguousarray(weight))], f"{name}.result")
        self.made.weight_bytes += codes.nbytes + scales.nbytes
        operands = [x, self.constant(f"{name}.codes", codes), self.constant(f"{name}.scales", scales)]
        return self.add("MatMulNBits", operands, f"{name}.result", "com.microsoft", N=columns, K=inner, bits=BITS,
                        block_size=self.sizes.block, accuracy_level=self.sizes.level)  # fmt: skip

    def layer(self, k: int, x: str, skip: str) -> tuple[str, str]:
        """One layer after the norm `x` of `skip`; the norm for the next layer and the sum that it is of."""
        z, name = self.sizes, f"layer{k}"
        q = self.product(x, f"{name}.q", z.hidden, z.hidden)
        key, value = (self.product(x, f"{name}.{n}", z.groups * z.head, z.hidden) for n in ("k", "v"))
        operands = [q, key, value, f"past_key_{k}", f"past_value_{k}", "last", "total", "cosine", "sine"]
        mixed = self.add("GroupQueryAttention", operands, f"{name}.mixed", "com.microsoft",
                         (f"key_{k}", f"value_{k}"), num_heads=z.heads, kv_num_heads=z.groups, do_rotary=1)  # fmt: skip
        out = self.product(mixed, f"{name}.o", z.hidden, z.hidden)
        x, skip = self.norm(out, skip, f"{name}.between")
        gate, up = (self.product(x, f"{name}.{n}", z.inner, z.hidden) for n in ("gate", "up"))
        active = self.add("Mul", [gate, self.add("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.active")
        gated = self.add("Mul", [active, up], f"{name}.gated")
        down = self.product(gated, f"{name}.down", z.hidden, z.inner)
        return self.norm(down, skip, f"{name}.after")

    def norm(self, x: str, skip: str, name: str) -> tuple[str, str]:
        """The norm of `x + skip`, and the sum."""
        scale = self.rng.random(self.sizes.hidden).astype(np.float32) + 0.5
        self.made.dequantised[name] = scale
        result = self.add("SkipSimplifiedLayerNormalization", [x, skip, self.constant(name, scale)], f"{name}.norm",
                          "com.microsoft", ("", "", f"{name}.sum"), epsilon=EPSILON)  # fmt: skip
        return result, f"{name}.sum"


def build(sizes: Sizes, seed: int = 0, grows: bool = False) -> Decoder:
    """A decoder of random weights: `ids[batch, rows]`, the last of them at the positions `last[batch]`, `mask[batch,
    total]` with a column for each position so far, and caches with `room` for more to `logits[batch, rows, vocabulary]`
    and the caches with new rows. `grows`: the caches are as long as what they hold, `past` and then `total`."""
    b, z = _Builder(sizes, seed), sizes
    table = b.rng.standard_normal((z.vocabulary, z.hidden)).astype(np.float32) * np.float32(TABLE)
    b.made.dequantised["table"] = table
    b.made.weight_bytes += table.nbytes
    angles = np.outer(np.arange(z.positions), BASE ** (-np.arange(z.head // 2) * 2 / z.head))
    b.constant("table", table)
    b.constant("cosine", np.cos(angles).astype(np.float32))
    b.constant("sine", np.sin(angles).astype(np.float32))
    b.add("Cast", [b.add("Shape", ["mask"], "columns", start=1, end=2)], "total", to=TensorProto.INT32)
    x = b.add("Gather", ["table", "ids"], "embedded")
    first = b.rng.random(z.hidden).astype(np.float32) + 0.5
    b.made.dequantised["first"] = first
    normed, skip = b.add("SimplifiedLayerNormalization", [x, b.constant("first", first)], "first.norm",
                         epsilon=EPSILON, axis=-1), x  # fmt: skip
    for k in range(z.layers):
        normed, skip = b.layer(k, normed, skip)
    b.add("MatMul", [normed, b.add("Transpose", ["table"], "table.turned", perm=[1, 0])], "logits")
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "rows"])]
    inputs.append(helper.make_tensor_value_info("last", TensorProto.INT32, ["batch"]))
    inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "total"]))
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "rows", z.vocabulary])]
    for k in range(z.layers):
        for kind in ("key", "value"):
            before, after = (["batch", z.groups, n, z.head] for n in (("past", "total") if grows else ("room", "room")))
            inputs.append(helper.make_tensor_value_info(f"past_{kind}_{k}", TensorProto.FLOAT, before))
            outputs.append(helper.make_tensor_value_info(f"{kind}_{k}", TensorProto.FLOAT, after))
    graph = helper.make_graph(b.nodes, "decoder", inputs, outputs, b.constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    b.made.model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return b.made


def empty_caches(sizes: Sizes, batch: int, room: int) -> dict[str, np.ndarray]:
    """Caches with room for `room` positions, all zeros."""
    shape = (batch, sizes.groups, room, sizes.head)
    names = [f"past_{kind}_{k}" for k in range(sizes.layers) for kind in ("key", "value")]
    return {n: np.zeros(shape, np.float32) for n in names}
