"""LSTM, GRU and RNN: one Scop for each direction, joined.

Activations and forms without loops are `Unsupported`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import polyc.frontend_dsl as dsl
from polyc.frontend_dsl.library import scalar as fn
from polyc.frontend_dsl.library.movement import make_transpose
from polyc.frontend_dsl.library.quantized_recurrent import make_codes, make_quantized_lstm
from polyc.frontend_dsl.library.recurrent import Form, make_fill, make_gru, make_join, make_lstm, make_rnn, make_take
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.chain import Wiring, joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import data, need_float, onnx_operator, optional, same_types, scop_of
from polyc.poly.dtypes import DType, i32
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop

Scalar = Callable[..., Any]
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_FACTORIES = {"LSTM": make_lstm, "GRU": make_gru, "RNN": make_rnn}
_DEFAULTS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
# Input positions: X W R B sequence_lens initial_h initial_c P.
_LENGTHS, _PEEPHOLES = 4, 7
# Activations by name, from alpha and beta; the numbers are ONNX's defaults.
_PLAIN: dict[str, Scalar] = {
    "tanh": dsl.tanh, "sigmoid": dsl.sigmoid, "relu": fn.relu, "softsign": fn.softsign, "softplus": fn.softplus,
}  # fmt: skip
_PARAMETRIC: dict[str, tuple[Callable[[float, float], Scalar], float, float]] = {
    "affine": (fn.affine, 1.0, 0.0),
    "leakyrelu": (lambda a, b: fn.leaky_relu(a), 0.01, 0.0),
    "thresholdedrelu": (lambda a, b: fn.thresholded_relu(a), 1.0, 0.0),
    "scaledtanh": (fn.scaled_tanh, 1.0, 1.0),
    "hardsigmoid": (fn.hard_sigmoid, 0.2, 0.5),
    "elu": (lambda a, b: fn.elu(a), 1.0, 0.0),
}


@dataclass(frozen=True, slots=True)
class Layer:
    """The sizes of a recurrent node; `batched` puts the batch before the time (`layout` 1)."""

    op_type: str
    dtype: DType
    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: int
    batched: bool

    @property
    def states(self) -> int:
        """How many states go from step to step."""
        return 2 if self.op_type == "LSTM" else 1

    def parameters(self, peephole: bool) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Argument name -> node input position and shape for one direction."""
        rows = _GATES[self.op_type] * self.hidden
        found: dict[str, tuple[int, tuple[int, ...]]] = {
            "W": (1, (rows, self.inputs)),
            "R": (2, (rows, self.hidden)),
            "B": (3, (2 * rows,)),
            "H0": (5, (self.batch, self.hidden)),
        }
        if self.op_type == "LSTM":
            found["C0"] = (6, (self.batch, self.hidden))
            found["P"] = (_PEEPHOLES, (3 * self.hidden,) if peephole else (1,))
        return found


# DynamicQuantizeLSTM has after these: scales and zero points of W and of R.
_SCALES = {"SW": 8, "ZW": 9, "SR": 10, "ZR": 11}


@onnx_operator("DynamicQuantizeLSTM", domain="com.microsoft")
def quantized(ctx: NodeContext) -> OperatorScop:
    """Weights of 8 bits, one scale for each matrix or for each of its columns; full sequences."""
    need_float(ctx)
    x, w, r, scale = data(ctx, 0), data(ctx, 1), data(ctx, 2), data(ctx, 8)
    packed = w.dtype.bits > 8  # pairs of codes (`polyc.graph_driver.inference.contrib`)
    hidden = r.shape[1] * (2 if packed else 1)
    layer = Layer("LSTM", x.dtype, x.shape[0], x.shape[1], x.shape[2], hidden, r.shape[0], False)
    forms = _forms(ctx, layer, None)
    if optional(ctx, _LENGTHS) is not None or forms[0].peephole or forms[0].coupled or w.dtype != r.dtype:
        raise Unsupported("DynamicQuantizeLSTM with lengths, peepholes, coupled gates or weights of two types")
    columns = data(ctx, 8).size // layer.directions, data(ctx, 10).size // layer.directions
    gates = 4 * layer.hidden
    shapes: dict[str, tuple[int, tuple[int, ...], DType]] = {
        name: (position, shape, layer.dtype)
        for name, (position, shape) in layer.parameters(False).items()
        if name not in ("W", "R", "P")
    }
    for name, position, width in (("W", 1, layer.inputs), ("R", 2, layer.hidden)):
        shapes[name] = (position, (width // 2 if packed else width, gates), w.dtype)
    shifts = [0, 0]
    for name, position in _SCALES.items():
        which = 0 if name[1] == "W" else 1
        if name[0] == "S":
            shapes[name] = (position, (columns[which],), scale.dtype)
        elif not packed:
            shapes[name] = (position, (columns[which],), w.dtype)
        elif (shift := optional(ctx, position)) is not None:
            shifts[which] = shift.size // layer.directions
            shapes[name] = (position, (shifts[which],), i32)
    given = {n: position for n, (position, _, _) in shapes.items() if optional(ctx, position) is not None}
    parts: list[Wiring] = []
    results: list[list[str]] = []
    for d, form in enumerate(forms):
        wiring = {"X": "X"}
        for name, (_, shape, dtype) in shapes.items():
            wiring[name] = _one_direction(parts, layer, name, shape, dtype, name in given, d)
        for k, name in enumerate(() if packed else ("W", "R")):
            part: Scop = scop_of(make_codes, w.dtype, i32, *shapes[name][1], columns[k])
            made = f"{name}_codes_{d}"
            parts.append((part, {"X": wiring[name], "Z": wiring.pop(f"Z{name}"), part.results[0]: made}))
            wiring[name] = made
        for name in ("ZW", "ZR"):
            if name not in wiring:
                wiring[name] = f"{name}_none_{d}"
                _zeros(parts, i32, (1,), wiring[name])
        sizes = (layer.steps, layer.batch, layer.inputs, layer.hidden, columns)
        cell: Scop = scop_of(make_quantized_lstm, layer.dtype, *sizes, form, packed, tuple(shifts))
        outcome = [f"{result}_{d}" for result in cell.results]
        parts.append((cell, wiring | dict(zip(cell.results, outcome, strict=True))))
        results.append(outcome)
    outputs = [_merged(parts, layer, k, [r[k] for r in results]) for k in range(3)]
    if len(ctx.outputs[0].shape) == 3:
        outputs = outputs[1:]
    scop = joined("quantized_lstm", parts, ["X", *given], outputs[: len(ctx.outputs)])
    return replace(scop, inputs=((0, "X"), *((position, name) for name, position in given.items())))


@onnx_operator("LSTM", "GRU", "RNN")
def recurrent(ctx: NodeContext) -> OperatorScop:
    """All directions, activations, lengths, layouts."""
    need_float(ctx)
    same_types(replace(ctx, inputs=tuple(i for k, i in enumerate(ctx.inputs) if k != _LENGTHS)))
    x, r, lengths = data(ctx, 0), data(ctx, 2), optional(ctx, _LENGTHS)
    batched = bool(ctx.attrs.get("layout", 0))
    steps, batch = (x.shape[1], x.shape[0]) if batched else x.shape[:2]
    layer = Layer(ctx.op_type, x.dtype, steps, batch, x.shape[2], r.shape[2], r.shape[0], batched)
    full = lengths is None or (lengths.const is not None and bool((lengths.const == steps).all()))
    forms = _forms(ctx, layer, None if full or lengths is None else lengths.dtype)
    positions = {name: position for name, (position, _) in layer.parameters(forms[0].peephole).items()}
    given = {name: position for name, position in positions.items() if optional(ctx, position) is not None}
    parts: list[Wiring] = []
    if batched:
        _transposed(parts, layer.dtype, (batch, steps, layer.inputs), (1, 0, 2), "X", "XT")
    results = [_direction(parts, layer, form, given, d) for d, form in enumerate(forms)]
    outputs = [_merged(parts, layer, k, [r[k] for r in results]) for k in range(1 + layer.states)]
    if len(ctx.outputs[0].shape) == 3:  # Y is absent: the states come first
        outputs = outputs[1:]
    if not full:
        given["L"] = _LENGTHS
    made = joined(ctx.op_type.lower(), parts, ["X", *given], outputs[: len(ctx.outputs)])
    return replace(made, inputs=((0, "X"), *((position, name) for name, position in given.items())))


def _forms(ctx: NodeContext, layer: Layer, lengths: DType | None) -> list[Form]:
    """The cell of each direction."""
    kind = ctx.attrs.get("direction", "forward")
    functions = _activations(layer.op_type, ctx.attrs, layer.directions)
    each = len(_DEFAULTS[layer.op_type])
    common = Form(
        (),
        lengths=lengths,
        clip=float(ctx.attrs["clip"]) if ctx.attrs.get("clip") else None,
        peephole=optional(ctx, _PEEPHOLES) is not None,
        coupled=bool(ctx.attrs.get("input_forget", 0)),
        after=bool(ctx.attrs.get("linear_before_reset", 0)),
    )
    return [
        replace(common, activations=functions[d * each : (d + 1) * each], reverse=kind == "reverse" or d == 1)
        for d in range(layer.directions)
    ]


def _activations(op_type: str, attrs: Mapping[str, Any], directions: int) -> tuple[Scalar, ...]:
    names = [str(a).lower() for a in attrs.get("activations") or _DEFAULTS[op_type] * directions]
    if len(names) != len(_DEFAULTS[op_type]) * directions:
        raise Unsupported(f"{op_type} with {len(names)} activations")
    alphas, betas = list(attrs.get("activation_alpha") or []), list(attrs.get("activation_beta") or [])
    found: list[Scalar] = []
    for name in names:
        if name in _PLAIN:
            found.append(_PLAIN[name])
        elif name in _PARAMETRIC:
            make, alpha, beta = _PARAMETRIC[name]
            alpha = alphas.pop(0) if alphas else alpha
            if name in ("affine", "scaledtanh", "hardsigmoid"):
                beta = betas.pop(0) if betas else beta
            found.append(make(alpha, beta))
        else:
            raise Unsupported(f"{op_type} with activation {name}")
    return tuple(found)


def _direction(parts: list[Wiring], layer: Layer, form: Form, given: dict[str, int], d: int) -> list[str]:
    """Append one direction; the names of its results (Y, last H, last C)."""
    sizes = (layer.dtype, layer.steps, layer.batch, layer.inputs, layer.hidden, form)
    cell: Scop = scop_of(_FACTORIES[layer.op_type], *sizes)
    wiring = {"X": "XT" if layer.batched else "X"}
    for name, (_, shape) in layer.parameters(form.peephole).items():
        wiring[name] = _one_direction(parts, layer, name, shape, layer.dtype, name in given, d)
    wiring["L"] = "L"
    if form.lengths is None:
        wiring["L"] = f"L_{d}"
        _zeros(parts, i32, (1,), wiring["L"])
    made = [f"{result}_{d}" for result in cell.results]
    parts.append((cell, wiring | dict(zip(cell.results, made, strict=True))))
    return made


def _one_direction(
    parts: list[Wiring], layer: Layer, name: str, shape: tuple[int, ...], dtype: DType, given: bool, d: int
) -> str:
    """The name of an argument of direction `d`: zeros when absent, a part of the node's input when there are two."""
    own = f"{name}_{d}"
    if not given:
        _zeros(parts, dtype, shape, own)
        return own
    if layer.directions == 1:
        return name
    source = name
    if layer.batched and name in ("H0", "C0"):
        source = f"{name}_T"
        if d == 0:
            _transposed(parts, dtype, (layer.batch, 2, layer.hidden), (1, 0, 2), name, source)
    scop = scop_of(make_take, dtype, shape, d)
    parts.append((scop, {"X": source, scop.results[0]: own}))
    return own


def _zeros(parts: list[Wiring], dtype: DType, shape: tuple[int, ...], name: str) -> None:
    scop = scop_of(make_fill, dtype, shape)
    parts.append((scop, {scop.results[0]: name}))


def _transposed(
    parts: list[Wiring], dtype: DType, shape: tuple[int, ...], perm: tuple[int, ...], source: str, name: str
) -> None:
    scop = scop_of(make_transpose, dtype, shape, perm)
    parts.append((scop, {"X": source, scop.results[0]: name}))


def _merged(parts: list[Wiring], layer: Layer, which: int, names: list[str]) -> str:
    """All directions of one result side by side, in the layout of the node."""
    state = (layer.batch, layer.hidden)
    shape: tuple[int, ...] = (layer.steps, *state) if which == 0 else state
    merged = names[0]
    if len(names) == 2:
        axis = 1 if which == 0 else 0
        scop = scop_of(make_join, layer.dtype, shape, axis)
        merged = f"R{which}"
        parts.append((scop, {"A": names[0], "B": names[1], scop.results[0]: merged}))
        shape = (*shape[:axis], 2, *shape[axis:])
    if not layer.batched or (which and len(names) == 1):
        return merged
    # Batch first: [steps, dirs, batch, hidden] -> [batch, steps, dirs, hidden]; states [dirs, batch, hidden].
    perm = ((1, 0, 2) if len(names) == 1 else (2, 0, 1, 3)) if which == 0 else (1, 0, 2)
    _transposed(parts, layer.dtype, shape, perm, merged, f"T{which}")
    return f"T{which}"
