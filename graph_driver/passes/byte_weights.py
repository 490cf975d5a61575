"""Products of 8-bit codes as the model states them, and their constants as `dot_bytes` or `dot_pairs` reads them.

A product of codes less their zero points, `sum (x - z) w`, is the product of the raw codes and a constant for each
filter, `-z sum w`: raw codes count from 0 to 255 (signed ones are stored 128 higher), weights are signed.
"""

from __future__ import annotations

import numpy as np

from polyc.emit.targets import own_instructions
from polyc.graph_driver.graph.ir import Codes, Graph, Node
from polyc.graph_driver.operators.byte_images import SIGNED
from polyc.poly.dtypes import i8, u8
from polyc.poly.records import dataclass
from polyc.poly.target import Target

BYTES = 4  # of a word; rows of codes with channels last are whole words of them
DOTS = {"dot_bytes": 4, "dot_pairs": 2}  # how many codes of a word are multiplied at once, most first
LARGEST_CODE = 255
LIMIT = 1 << 31
EXACT = 1 << 24  # integers up to it are f32 numbers
LEAST_FACTOR = 2.0**-14  # larger sums are worth more steps than any code


@dataclass(frozen=True, eq=False)
class ByteProduct:
    """`result = sum (codes - zero) * weights + bias`: filters first in `weights` (of a matrix: columns).

    `zero` is that of the codes as they are stored (unsigned). `scale` is what one is worth, for each filter or once;
    None: the sums themselves are the result. `bias` is in such units where `whole_bias`, else real. `moving`: the
    tensor of a zero point that a run decides (`zero` is 0 then).
    """

    codes: str
    zero: int
    weights: np.ndarray
    scale: np.ndarray | None
    bias: np.ndarray
    whole_bias: bool
    result: str
    moving: str = ""

    def most(self) -> np.ndarray:
        """What no sum is larger than, for each filter."""
        flat = np.abs(self.weights.reshape(len(self.weights), -1).astype(np.int64)).sum(1) * LARGEST_CODE
        return flat + (np.abs(self.bias.astype(np.int64)) if self.whole_bias and self.bias.size else 0)

    def rounded_once(self, factor: np.ndarray) -> bool:
        """Whether `RequantizeOnce` by `factor` (f32) is exact: f32 holds every sum that does not saturate."""
        return bool(np.all((self.most() <= EXACT) | (factor >= LEAST_FACTOR)) and np.all(factor <= 1))

    def start(self) -> np.ndarray | None:
        """The start values of the sums of raw codes; None where the sums could pass 32 bits."""
        flat = self.weights.reshape(len(self.weights), -1).astype(np.int64)
        bias = self.bias.astype(np.int64) if self.whole_bias and self.bias.size else np.zeros(len(flat), np.int64)
        if self.most().max(initial=0) >= LIMIT:
            return None
        # Two's complement: partial sums may wrap, the whole sums do not.
        return (bias - self.zero * flat.sum(1)).astype(np.int32)


def is_byte(graph: Graph, name: str) -> bool:
    """Whether a tensor of known type and shape (formulas, too) holds 8-bit codes."""
    tensor = graph.tensors[name]
    return tensor.static and tensor.dtype in (i8, u8)


def stored_zero(graph: Graph, codes: str, zero: str) -> int | None:
    """The zero point (one constant, or absent) of codes as they are stored; None when a run decides it."""
    value = graph.constant(zero) if zero else np.zeros(1, np.int64)
    if value is None or value.size != 1:
        return None
    return int(value.reshape(-1)[0]) + (SIGNED if graph.tensors[codes].dtype == i8 else 0)


def in_words(whole: np.ndarray, codes: int) -> bool:
    """Whether weights less their zero points are signed integers of which `codes` are in a word."""
    most = 1 << (31 // codes)
    return bool(whole.size) and -most <= int(whole.min()) and int(whole.max()) < most


def product_of(graph: Graph, node: Node, made: dict[str, Node], codes: int) -> ByteProduct | None:
    """What a convolution or product over constant weights computes, if it is one of codes that words have room for."""
    found = None
    if node.kind in ("Conv", "MatMul", "Gemm"):
        found = _dequantised(graph, node, made)
    if node.kind in ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"):
        found = _integer(graph, node)
    return found if found is not None and in_words(found.weights, codes) else None


def _dequantised(graph: Graph, node: Node, made: dict[str, Node]) -> ByteProduct | None:
    codes, source = graph.tensors[node.inputs[1]].codes, made.get(node.inputs[0])
    if codes is None or source is None or source.kind != "DequantizeLinear" or source.attrs.get("block_size"):
        return None
    x, step, point = [*source.inputs, ""][:3]
    factor, given = graph.constant(step), node.inputs[2] if len(node.inputs) > 2 else ""
    bias = graph.constant(given) if given else np.zeros(0, np.float32)
    if factor is None or factor.size != 1 or bias is None or not is_byte(graph, x):
        return None
    zero, whole = stored_zero(graph, x, point), _filters_first(node, codes)
    if zero is None or whole is None or bias.size not in (0, len(whole)):
        return None
    if node.kind == "Gemm" and (node.attrs.get("alpha", 1.0) != 1.0 or node.attrs.get("beta", 1.0) != 1.0):
        return None
    scale = np.float32(factor.reshape(())) * codes.scale.astype(np.float32).reshape(-1)
    known = graph.tensors[given].codes if given else None
    same = known is not None and known.zero is None and np.array_equal(known.scale.reshape(-1), scale)
    bias = known.integers if known is not None and same else bias
    return ByteProduct(x, zero, whole, scale, bias.reshape(-1), same, node.outputs[0])


def _filters_first(node: Node, codes: Codes) -> np.ndarray | None:
    """The weights less their zero points, the result's channels first; None when scales are elsewhere."""
    whole = codes.whole()
    columns = 0 if node.kind == "Conv" or (node.kind == "Gemm" and node.attrs.get("transB", 0)) else 1
    if node.kind != "Conv" and whole.ndim != 2:
        return None
    if codes.scale.size > 1 and codes.axis % whole.ndim != columns:
        return None
    return whole.T if columns else whole


def _integer(graph: Graph, node: Node) -> ByteProduct | None:
    plain = node.op_type.endswith("Integer")
    inputs = [*node.inputs, *[""] * (9 - len(node.inputs))]
    x, w, point, shift = (inputs[k] for k in ((0, 1, 2, 3) if plain else (0, 3, 2, 5)))
    weights, shifts = graph.constant(w), graph.constant(shift)
    bias = np.zeros(0, np.int32) if plain or not inputs[8] else graph.constant(inputs[8])
    if weights is None or (shift and shifts is None) or bias is None or not is_byte(graph, x):
        return None
    if not plain and any(graph.tensors[inputs[k]].size != 1 for k in (1, 6)):
        return None
    whole = weights.astype(np.int32)
    whole = whole if "Conv" in node.op_type else np.moveaxis(whole, -1, 0)
    if shifts is not None:
        whole = whole - shifts.astype(np.int32).reshape(-1, *[1] * (whole.ndim - 1))
    zero, moving = stored_zero(graph, x, point), ""
    if zero is None and node.kind == "MatMulInteger" and graph.tensors[point].size == 1:
        zero, moving = 0, point
    if zero is None:
        return None
    return ByteProduct(x, zero, whole, None, bias.reshape(-1), True, node.outputs[0], moving)


def codes_in_words(target: Target | None) -> int:
    """How many codes are multiplied at once in words of a machine (`dot_bytes`, `dot_pairs`); 0: none."""
    own = own_instructions(target) if isinstance(target, Target) else frozenset[str]()
    return next((codes for name, codes in DOTS.items() if name in own), 0)


def words(whole: np.ndarray, codes: int) -> np.ndarray:
    """Integers `[..., channels, filters]` as words of `codes` channels `[..., channels / codes, filters]`."""
    *lead, channels, filters = whole.shape
    apart = np.moveaxis(whole.reshape(*lead, channels // codes, codes, filters), -2, -1)
    return np.ascontiguousarray(apart.astype(f"<i{4 // codes}")).view("<i4")[..., 0]


def word_of(code: int, codes: int) -> int:
    """The word that holds a code (from 0 to 255) `codes` times."""
    return int(np.full(codes, code, f"<u{4 // codes}").view("<i4")[0])


def room_of(channels: int) -> int:
    """As many channels as whole words hold."""
    return -(-channels // BYTES) * BYTES


def widened(values: np.ndarray, axis: int, size: int) -> np.ndarray:
    """With zeros behind, up to `size` along `axis`."""
    rest = [(0, 0)] * values.ndim
    rest[axis] = (0, size - values.shape[axis])
    return np.pad(values, rest)
