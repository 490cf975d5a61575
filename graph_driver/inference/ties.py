"""Extents of operands that must agree although no result depends on them: onnx's inference does not look at these.

A weight of the wrong number of channels, gates or groups is refused here, with the node and both operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from polyc.graph_driver.graph.ir import Tensor
from polyc.poly.errors import ModelError

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

Shape = tuple[Any, ...]
Tie = tuple[int, Shape, Shape]
"""An operand, the extents that it has, and those that it must have (None: any)."""


def check_ties(
    op_type: str, inputs: Sequence[str], attrs: Mapping[str, Any], tensors: Mapping[str, Tensor], what: str
) -> None:
    """Raise `ModelError` where an operand of an operator of ONNX's own has other extents than the others allow.

    Operands of unknown shape are left out.
    """
    rule = RULES.get(op_type)
    if rule is None:
        return
    shapes = [tensors[i].shape if i else None for i in inputs]
    try:
        ties = list(rule(_Call(op_type, shapes, attrs)))
    except ModelError as error:
        raise ModelError(f"{what}: {error}") from None
    for position, has, wanted in ties:
        if len(has) != len(wanted) or any(w is not None and h != w for h, w in zip(has, wanted)):
            fits = ", ".join("any" if w is None else str(w) for w in wanted)
            raise ModelError(f"{what}: operand '{inputs[position]}' has {list(has)}, where [{fits}] fits the others")


class _Call:
    """Shapes of the operands (None: absent or not known) and attributes of a node."""

    def __init__(self, op_type: str, shapes: Sequence[Shape | None], attrs: Mapping[str, Any]) -> None:
        self.op_type, self.shapes, self.attrs = op_type, shapes, attrs

    def shape(self, position: int) -> Shape | None:
        return self.shapes[position] if position < len(self.shapes) else None

    def each(self, positions: Sequence[int], wanted: Shape) -> Iterator[Tie]:
        """All of these operands, as far as they are there, have this shape."""
        for p in positions:
            if (has := self.shape(p)) is not None:
                yield p, has, wanted

    def within(self, position: int, whole: Shape) -> Iterator[Tie]:
        """The operand spreads over a tensor of this shape: each of its extents is 1 or the tensor's."""
        if (has := self.shape(position)) is not None:
            last = whole[len(whole) - len(has) :] if len(has) <= len(whole) else whole
            yield position, has, tuple(1 if len(has) == len(last) and h == 1 else n for h, n in zip(has, last))


def _convolution(image: int, weight: int, bias: int, transposed: bool = False) -> Callable[[_Call], Iterator[Tie]]:
    def rule(call: _Call) -> Iterator[Tie]:
        x, w, group = call.shape(image), call.shape(weight), call.attrs.get("group", 1)
        if x is None or w is None or len(x) < 3:
            return
        kernel = call.attrs.get("kernel_shape") or [None] * (len(x) - 2)
        if transposed:
            yield weight, w, (x[1], None, *kernel)
            filters = w[1] * group if len(w) > 1 else None
        else:
            channels = x[1] // group if isinstance(x[1], int) and x[1] % group == 0 else -1
            yield weight, w, (None, channels, *kernel)
            filters = w[0] if w else 0
            if filters % group:
                yield weight, w, (filters - filters % group, *w[1:])
        yield from call.each([bias], (filters,))

    return rule


def _channels(positions: Sequence[int]) -> Callable[[_Call], Iterator[Tie]]:
    def rule(call: _Call) -> Iterator[Tie]:
        x = call.shape(0)
        if x is not None and len(x) > 1:
            yield from call.each(positions, (x[1],))

    return rule


def _product(call: _Call) -> Iterator[Tie]:
    a, b = call.shape(0), call.shape(1)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return
    rows, depth = reversed(a) if call.attrs.get("transA", 0) else a
    flipped = bool(call.attrs.get("transB", 0))
    yield 1, b, (None, depth) if flipped else (depth, None)
    yield from call.within(2, (rows, b[0] if flipped else b[1]))


def _recurrent(call: _Call) -> Iterator[Tie]:
    x, r = call.shape(0), call.shape(2)
    if x is None or r is None or len(x) != 3:
        return
    if len(r) != 3:
        yield 2, r, (None, None, None)
        return
    gates, hidden = GATES[call.op_type], r[2]
    layout = call.attrs.get("layout", 0)
    ways = 2 if call.attrs.get("direction", "forward") in ("bidirectional", b"bidirectional") else 1
    batch = x[0] if layout else x[1]
    state = (batch, ways, hidden) if layout else (ways, batch, hidden)
    size = call.attrs.get("hidden_size")
    yield 2, r, (ways, gates * (size or hidden), size or hidden)
    yield from call.each([1], (ways, gates * hidden, x[2]))
    yield from call.each([3], (ways, 2 * gates * hidden))
    yield from call.each([4], (batch,))
    yield from call.each([5, 6] if call.op_type == "LSTM" else [5], state)
    yield from call.each([7] if call.op_type == "LSTM" else [], (ways, 3 * hidden))


def _rows(call: _Call) -> Iterator[Tie]:
    """Scale and bias of a normalisation over the last axes."""
    x, axis = call.shape(0), call.attrs.get("axis", -1)
    if x is not None and -len(x) <= axis < len(x):
        rest = x[axis % len(x) :]
        yield from call.within(1, rest)
        yield from call.within(2, rest)


def _slopes(call: _Call) -> Iterator[Tie]:
    if (x := call.shape(0)) is not None:
        yield from call.within(1, x)


def _permuted(call: _Call) -> Iterator[Tie]:
    """As many axes as `perm` orders: a shape that a constant decides is news to onnx's inference."""
    if call.attrs.get("perm") is not None:
        yield from call.each([0], (None,) * len(call.attrs["perm"]))


def _updates(call: _Call) -> Iterator[Tie]:
    x, axis = call.shape(0), call.attrs.get("axis", 0)
    if x is not None and not -len(x) <= axis < len(x):
        raise ModelError(f"axis {axis} of an operand of rank {len(x)}")
    if (indices := call.shape(1)) is not None:
        yield from call.each([2], indices)


RULES: Mapping[str, Callable[[_Call], Iterator[Tie]]] = {
    "Conv": _convolution(0, 1, 2), "ConvInteger": _convolution(0, 1, 9), "QLinearConv": _convolution(0, 3, 8),
    "ConvTranspose": _convolution(0, 1, 2, transposed=True), "BatchNormalization": _channels((1, 2, 3, 4)),
    "InstanceNormalization": _channels((1, 2)), "Gemm": _product, "LSTM": _recurrent, "GRU": _recurrent,
    "RNN": _recurrent, "LayerNormalization": _rows, "PRelu": _slopes, "ScatterElements": _updates,
    "Transpose": _permuted,
}  # fmt: skip
