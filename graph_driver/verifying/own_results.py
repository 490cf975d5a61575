"""What polyc's own operators take and make: the contract between the passes that put them into a graph and their loops.

Convolutions and products of pairs have the shapes of ONNX's `Conv` and `MatMul` over the packed operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import onnx
from onnx import helper

from polyc.frontend_dsl.library.narrow import Blocks
from polyc.frontend_dsl.library.narrow_panels import Panels
from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.inference.concrete import infer
from polyc.graph_driver.inference.symbolic import at_typical
from polyc.poly.dtypes import DType, bf16, f32, i8, i32, u8, u32
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

TAPS = 3  # of Winograd's filters
PANELS = ("columns", "inner", "size", "bits", "zero", "vectors", "lanes", "digits", "rows")
WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


class _Broken(Exception):
    """A rule of one operator does not hold; the text says which."""


@dataclass(frozen=True)
class _View:
    """A node with its operands and results, symbolic sizes at their representative values."""

    node: Node
    opsets: Mapping[str, int]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]

    def shape(self, position: int, rank: int | None = None) -> tuple[int, ...]:
        found = self.inputs[position].shape or ()
        _need(rank is None or len(found) == rank, f"operand {position} has rank {len(found)}, not {rank}")
        return found

    def integer(self, name: str) -> int:
        value = self.node.attrs.get(name)
        _need(type(value) is int, f"attribute {name}={value!r:.40} is no integer")
        assert isinstance(value, int)
        return value

    def axis(self, rank: int) -> int:
        axis = self.integer("axis")
        _need(-rank <= axis < rank, f"axis {axis} of rank {rank}")
        return axis % rank

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        value = self.node.attrs.get(name)
        fits = isinstance(value, list) and len(value) == count and all(type(v) is int for v in value)
        _need(fits, f"attribute {name}={value!r:.40} is no list of {count} integers")
        assert value is not None
        return tuple(value)


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _Broken(otherwise)


def check_results(graph: Graph, node: Node, what: str) -> None:
    """Raise `GraphError` where the node is no form of its operator, or makes something else than is declared."""
    rule = RULES.get(node.op_type)
    if rule is None:
        raise GraphError(f"{what}: there is no such operator of polyc's own")
    least, most, attributes, make = rule

    def known(names: Sequence[str]) -> list[Tensor]:
        tensors = [graph.tensors[n] for n in names]
        return tensors if graph.symbols is None else [at_typical(t, graph.symbols) for t in tensors]

    view = _View(node, graph.opsets, known(node.inputs), known([*node.writes()]))
    try:
        _need(least <= len(view.inputs) <= most, f"{len(view.inputs)} operands, not {least} to {most}")
        _need(len(view.outputs) == len(node.outputs) == 1, f"{len(node.outputs)} results, not 1")
        for name in node.attrs:
            _need(name in attributes, f"there is no attribute {name}")
        (dtype, shape), declared = make(view), view.outputs[0]
    except (_Broken, ModelError) as error:
        raise GraphError(f"{what} is no form of its operator: {error}") from None
    if (declared.dtype, declared.shape) != (dtype, shape):
        made = f"{dtype}[{', '.join(map(str, shape))}]"
        raise GraphError(f"{what} makes {made}, but '{declared.name}' is declared {graph.tensors[declared.name]}")


def _types(v: _View, *wanted: DType) -> None:
    for k, (tensor, dtype) in enumerate(zip(v.inputs, wanted)):
        _need(tensor.dtype == dtype, f"operand {k}, '{tensor.name}', is {tensor.dtype}, not {dtype}")


def _codes(v: _View, zero: int) -> DType:
    """The type of a result of codes, which is that of the zero point where there is one."""
    dtype = v.outputs[0].dtype
    _need(dtype is not None and dtype.is_int and dtype.bits <= 16, f"codes are no {dtype}")
    assert dtype is not None
    if len(v.inputs) > zero:
        _types(v, *[t.dtype for t in v.inputs[:zero] if t.dtype], dtype)
    return dtype


def _halved(v: _View) -> tuple[int, ...]:
    shape = v.shape(0)
    axis = v.axis(len(shape))
    _need(shape[axis] % 2 == 0, f"the odd size {shape[axis]} has no pairs")
    return (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])


def _pack_pairs(v: _View) -> tuple[DType, tuple[int, ...]]:
    dtype = v.inputs[0].dtype
    _need(dtype is not None and dtype.is_int and dtype.bits == 8, f"pairs of {dtype}")
    assert dtype is not None
    _types(v, dtype, dtype)
    _need(all(t.size == 1 for t in v.inputs[1:]), "more than one zero point")
    return i32, _halved(v)


def _pack_bf16(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, bf16)
    return f32, _halved(v)


def _like(op_type: str, dtype: DType) -> Callable[[_View], tuple[DType, tuple[int, ...]]]:
    """The shape of ONNX's own operator over operands of the same shapes."""

    def make(v: _View) -> tuple[DType, tuple[int, ...]]:
        _types(v, dtype, dtype, dtype)
        node = v.node
        proto = helper.make_node(op_type, node.inputs, ["result"], **node.attrs)
        tensors = {t.name: replace(t, dtype=f32, const=None, codes=None) for t in v.inputs}
        found = _inferred(proto, tensors, v.opsets)
        return dtype, found

    return make


def _inferred(proto: onnx.NodeProto, tensors: Mapping[str, Tensor], opsets: Mapping[str, int]) -> tuple[int, ...]:
    shape = infer(proto, tensors, list(proto.input), opsets, proto.op_type)["result"].shape
    _need(shape is not None, "the shape of its result does not follow from its operands")
    assert shape is not None
    return shape


def _by_reciprocal(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, f32, f32, f32)
    shape = v.shape(0)
    one_each = ((), (1,)) if v.inputs[1].size == 1 else ((shape[v.axis(len(shape))],),)
    _need(v.shape(1) in one_each and v.shape(1) == v.shape(2), "scales of a shape that is not the axis'")
    _need(len(v.inputs) < 4 or v.shape(3) in one_each, "zero points of a shape that is not the axis'")
    return _codes(v, 3), shape


def _broadcast(v: _View, position: int) -> None:
    shape, part = v.shape(0), v.shape(position)
    aligned = shape[len(shape) - len(part) :]
    fits = len(part) <= len(shape) and all(n in (1, m) for n, m in zip(part, aligned))
    _need(fits, f"operand {position} of shape {list(part)} over {list(shape)}")


def _requantize_sums(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, i32, f32, f32)
    _broadcast(v, 1)
    _broadcast(v, 2)
    _need(v.inputs[3].size == 1, "more than one zero point")
    return _codes(v, 3), v.shape(0)


def _requantize_once(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, i32, f32)
    _broadcast(v, 1)
    _need(v.inputs[2].size == 1, "more than one zero point")
    return _codes(v, 2), v.shape(0)


def _requantize(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, i32, f32, f32, f32)
    shape = v.shape(0)
    _need(v.inputs[1].size == v.inputs[3].size == 1, "more than one scale")
    scales = v.inputs[2].size
    _need(scales == 1 or scales == shape[v.axis(len(shape))], "scales of weights for another number of channels")
    return _codes(v, 4), shape


def _tiles(batch: int, out: Sequence[int], m: int) -> int:
    return batch * -(-out[0] // m) * -(-out[1] // m)


def _points(v: _View) -> tuple[int, int]:
    m = v.integer("m")
    _need(m > 0, f"tiles of {m}")
    return m, (m + TAPS - 1) ** 2


def _winograd_input(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, f32)
    batch, channels, *size = v.shape(0, 4)
    (m, points), pads, out = _points(v), v.integers("pads", 2), v.integers("out", 2)
    fits = all(0 <= p < TAPS and 0 < o <= n + 2 * (TAPS - 1) for n, p, o in zip(size, pads, out))
    _need(fits, f"padding {pads} and a result of {out} for an image of {size}")
    columns = (*(v.outputs[0].shape or ()), 0, 0, 0)[2]
    _need(columns >= _tiles(batch, out, m), f"room for {columns} of {_tiles(batch, out, m)} tiles")
    return f32, (points, channels, columns)


def _winograd_products(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, f32, f32)
    points, channels, columns = v.shape(0, 3)
    _need(v.shape(1, 3)[:2] == (points, channels), f"filters of shape {list(v.shape(1))}")
    unused = v.integer("unused") if "unused" in v.node.attrs else 0
    _need(0 <= unused < columns, f"room for {columns} tiles, {unused} of them unused")
    return f32, (points, columns, v.shape(1)[2])


def _winograd_output(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, f32, f32)
    (m, points), (found, columns, filters) = _points(v), v.shape(0, 3)
    out = v.outputs[0].shape or ()
    fits = len(out) == 4 and _tiles(out[0], out[2:], m) <= columns
    _need(fits, f"room for {columns} tiles for a result of {list(out)}")
    _need(found == points and v.shape(1) == (filters,), f"{found} products, {list(v.shape(1))} in the bias")
    return f32, (out[0], filters, *out[2:])


def _winograd_blocks(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, f32, f32, f32)
    batch, channels, *size = v.shape(0, 4)
    (_, points), pads, out = _points(v), v.integers("pads", 2), (v.outputs[0].shape or ())[2:]
    fits = len(out) == 2 and all(0 <= p < TAPS and 0 < o <= n + 2 * (TAPS - 1) for n, p, o in zip(size, pads, out))
    _need(fits, f"padding {pads} and a result of {list(out)} for an image of {size}")
    _need(v.integer("rows") > 0, f"blocks of {v.integer('rows')} rows of tiles")
    found, depth, filters = v.shape(1, 3)
    _need((found, depth) == (points, channels), f"filters of shape {list(v.shape(1))}")
    _need(v.shape(2) == (filters,), f"{filters} filters, {list(v.shape(2))} in the bias")
    return f32, (batch, filters, *out)


def _panel_product(v: _View) -> tuple[DType, tuple[int, ...]]:
    sizes = {n: v.integer(n) for n in PANELS if n != "zero"}
    zero = v.node.attrs.get("zero")
    _need(zero in ("", "packed", "real"), f"zero points of kind {zero!r:.20}")
    _need(all(n > 0 for k, n in sizes.items() if k != "digits") and sizes["digits"] in (0, 1, 3), f"sizes {sizes}")
    blocks = Blocks(sizes["columns"], sizes["inner"], sizes["size"], sizes["bits"], str(zero))
    panels = Panels(blocks, sizes["vectors"], sizes["lanes"], sizes["digits"], sizes["rows"])
    _types(v, f32, i32 if panels.digits else u32, f32, f32 if zero == "real" else u8)
    for k, wanted in enumerate((panels.codes_shape, panels.scales_shape, panels.zeros_shape), 1):
        _need(v.shape(k) == wanted, f"operand {k} of shape {list(v.shape(k))}, not {list(wanted)}")
    shape = v.shape(0)
    _need(bool(shape) and shape[-1] == blocks.inner, f"rows of shape {list(shape)}, of {blocks.inner} elements each")
    return f32, (*shape[:-1], blocks.columns)


def _channels(v: _View) -> tuple[DType, tuple[int, ...]]:
    """Codes of 8 bits, or f32; signed codes become unsigned ones with channels last, and these again signed ones."""
    x, y = v.inputs[0].dtype, v.outputs[0].dtype
    last, shape = v.node.op_type == "ChannelsLast", v.shape(0)
    _need(x is not None and y is not None and len(shape) > 2, f"images of {x} as {y}")
    assert y is not None
    _need(x == y or {x, y} == {i8, u8} and (y == u8) == last, f"images of {x} as {y}")
    if last:
        room = v.integer("channels")
        _need(room >= shape[1], f"room for {room} of {shape[1]} channels")
        return y, (shape[0], *shape[2:], room)
    count = v.integer("channels")
    _need(0 < count <= shape[-1], f"{count} of {shape[-1]} channels")
    return y, (shape[0], count, *shape[1:-1])


def _byte_conv(v: _View) -> tuple[DType, tuple[int, ...]]:
    """The shape of ONNX's `Conv` with channels last; a depthwise one has one filter for each channel."""
    depthwise = v.node.op_type == "ByteDepthwise"
    _types(v, u8 if depthwise else i32, i32, i32)
    v.integer("padding")
    if not depthwise:
        _in_words(v)
    (n, h, w, c), filters = v.shape(0, 4), v.shape(1, 3 if depthwise else 4)
    _need(filters[2] == c, f"filters of {filters[2]} channels for {c}")
    _need(v.shape(2) == filters[-1:], "start values for another number of filters")
    attrs = {name: value for name, value in v.node.attrs.items() if name not in ("padding", "codes")}
    image = replace(v.inputs[0], dtype=f32, shape=(n, c, h, w), const=None)
    weights = replace(v.inputs[1], dtype=f32, shape=(filters[-1], 1 if depthwise else c, *filters[:2]), const=None)
    proto = helper.make_node("Conv", [image.name, weights.name], ["result"], **attrs)
    batch, made, *size = _inferred(proto, {t.name: t for t in (image, weights)}, v.opsets)
    return i32, (batch, *size, made)


def _in_words(v: _View) -> None:
    """How many codes a word holds."""
    _need(v.integer("codes") in (2, 4), f"words of {v.integer('codes')} codes")


def _byte_matmul(v: _View) -> tuple[DType, tuple[int, ...]]:
    _in_words(v)
    _types(v, i32, i32, i32)
    rows, (words, columns) = v.shape(0), v.shape(1, 2)
    _need(bool(rows) and rows[-1] == words and v.shape(2) == (columns,), "sizes that do not fit one another")
    return i32, (*rows[:-1], columns)


def _kept_rows_matmul(v: _View) -> tuple[DType, tuple[int, ...]]:
    _types(v, f32, i32, f32)
    rows, at, (panels, kept, width) = v.shape(0), v.shape(1, 2), v.shape(2, 3)
    _need(bool(rows) and at == (panels, kept), "sizes that do not fit one another")
    return f32, (*rows[:-1], panels * width)


def _max_pool_last(v: _View) -> tuple[DType, tuple[int, ...]]:
    dtype, (n, h, w, c) = v.inputs[0].dtype, v.shape(0, 4)
    assert dtype is not None
    proto = helper.make_node("MaxPool", ["image"], ["result"], **v.node.attrs)
    batch, _, *size = _inferred(proto, {"image": replace(v.inputs[0], dtype=f32, shape=(n, c, h, w))}, v.opsets)
    return dtype, (batch, *size, c)


Rule = tuple[int, int, Sequence[str], Callable[[_View], tuple[DType, tuple[int, ...]]]]
RULES: Mapping[str, Rule] = {  # least and most operands, attributes
    "PackPairs": (1, 2, ("axis",), _pack_pairs),
    "PackBf16": (1, 1, ("axis",), _pack_bf16),
    "PairConv": (2, 3, WINDOW, _like("Conv", i32)),
    "PairMatMul": (2, 2, (), _like("MatMul", i32)),
    "Bf16Conv": (2, 3, WINDOW, _like("Conv", f32)),
    "Bf16MatMul": (2, 2, (), _like("MatMul", f32)),
    "QuantizeByReciprocal": (3, 4, ("axis",), _by_reciprocal),
    "RequantizeSums": (4, 4, (), _requantize_sums),
    "RequantizeOnce": (3, 3, ("late",), _requantize_once),
    "Requantize": (4, 5, ("axis",), _requantize),
    "ChannelsLast": (1, 1, ("channels",), _channels),
    "ChannelsFirst": (1, 1, ("channels",), _channels),
    "ByteConv": (3, 3, (*WINDOW, "padding", "codes"), _byte_conv),
    "ByteDepthwise": (3, 3, (*WINDOW, "padding"), _byte_conv),
    "ByteMatMul": (3, 3, ("codes",), _byte_matmul),
    "KeptRowsMatMul": (3, 3, (), _kept_rows_matmul),
    "MaxPoolLast": (1, 1, (*WINDOW, "ceil_mode"), _max_pool_last),
    "PanelProduct": (4, 4, PANELS, _panel_product),
    "WinogradInput": (1, 1, ("m", "pads", "out"), _winograd_input),
    "WinogradProducts": (2, 2, ("unused",), _winograd_products),
    "WinogradOutput": (2, 2, ("m", "staged"), _winograd_output),
    "WinogradBlocks": (3, 3, ("m", "pads", "rows"), _winograd_blocks),
}  # fmt: skip
