"""LSTM, GRU and RNN: one Scop for each direction, joined."""

from __future__ import annotations

from dataclasses import dataclass, replace

from frontend_dsl.library.recurrent import make_fill, make_gru, make_join, make_lstm, make_rnn, make_take
from graph_driver.operators.chain import Wiring, joined
from graph_driver.operators.context import NodeContext, OperatorScop, Unsupported
from graph_driver.operators.registry import data, need_float, onnx_operator, optional, same_types, scop_of
from poly.dtypes import DType
from poly.scop import Scop

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
# Input positions: X W R B sequence_lens initial_h initial_c P.
_LENGTHS, _PEEPHOLES = 4, 7


@dataclass(frozen=True, slots=True)
class Layer:
    """The sizes of a recurrent node."""

    op_type: str
    dtype: DType
    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: int

    @property
    def states(self) -> int:
        """How many states go from step to step."""
        return 2 if self.op_type == "LSTM" else 1

    def parameters(self) -> dict[str, tuple[int, tuple[int, ...]]]:
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
        return found


@onnx_operator("LSTM", "GRU", "RNN")
def recurrent(ctx: NodeContext) -> OperatorScop:
    """Default activations, full sequences, time first."""
    need_float(ctx)
    _refuse(ctx)
    x, r = data(ctx, 0), data(ctx, 2)
    layer = Layer(ctx.op_type, x.dtype, x.shape[0], x.shape[1], x.shape[2], r.shape[2], r.shape[0])
    kind = ctx.attrs.get("direction", "forward")
    after = bool(ctx.attrs.get("linear_before_reset", 0))
    given = {
        name: position for name, (position, _) in layer.parameters().items() if optional(ctx, position) is not None
    }
    parts: list[Wiring] = []
    results: list[list[str]] = []
    for d in range(layer.directions):
        backwards = kind == "reverse" or d == 1
        results.append(_direction(parts, layer, _cell(layer, backwards, after), given, d))
    outputs = [_merged(parts, layer, k, [r[k] for r in results]) for k in range(1 + layer.states)]
    if len(ctx.outputs[0].shape) == 3:  # Y is absent: the states come first
        outputs = outputs[1:]
    made = joined(ctx.op_type.lower(), parts, ["X", *given], outputs[: len(ctx.outputs)])
    return replace(made, inputs=((0, "X"), *((position, name) for name, position in given.items())))


def _refuse(ctx: NodeContext) -> None:
    lengths = optional(ctx, _LENGTHS)
    if lengths is not None:
        steps = data(ctx, 0).shape[0]
        if lengths.const is None or (lengths.const != steps).any():
            raise Unsupported(f"{ctx.op_type} with sequence lengths")
    same_types(replace(ctx, inputs=tuple(i for k, i in enumerate(ctx.inputs) if k != _LENGTHS)))
    if optional(ctx, _PEEPHOLES) is not None or ctx.attrs.get("input_forget", 0):
        raise Unsupported(f"{ctx.op_type} with peepholes or coupled gates")
    if ctx.attrs.get("layout", 0) or "clip" in ctx.attrs:
        raise Unsupported(f"{ctx.op_type} with clipping or batch first")
    wanted = [str(a).lower() for a in ctx.attrs.get("activations") or []]
    default = _DEFAULTS[ctx.op_type]
    if wanted and wanted != default * (len(wanted) // len(default)):
        raise Unsupported(f"{ctx.op_type} with activations {', '.join(wanted)}")


def _cell(layer: Layer, backwards: bool, after: bool) -> Scop:
    sizes = (layer.dtype, layer.steps, layer.batch, layer.inputs, layer.hidden, backwards)
    if layer.op_type == "LSTM":
        return scop_of(make_lstm, *sizes)
    return scop_of(make_gru, *sizes, after) if layer.op_type == "GRU" else scop_of(make_rnn, *sizes)


def _direction(parts: list[Wiring], layer: Layer, cell: Scop, given: dict[str, int], d: int) -> list[str]:
    """Append one direction; the names of its results (Y, last H, last C)."""
    wiring = {"X": "X"}
    for name, (_, shape) in layer.parameters().items():
        own = f"{name}_{d}"
        if name not in given:
            scop = scop_of(make_fill, layer.dtype, shape)
            parts.append((scop, {scop.results[0]: own}))
        elif layer.directions == 1:
            own = name
        else:
            scop = scop_of(make_take, layer.dtype, shape, d)
            parts.append((scop, {"X": name, scop.results[0]: own}))
        wiring[name] = own
    made = [f"{result}_{d}" for result in cell.results]
    parts.append((cell, wiring | dict(zip(cell.results, made, strict=True))))
    return made


def _merged(parts: list[Wiring], layer: Layer, which: int, names: list[str]) -> str:
    """Both directions of one result side by side; a single one stays as it is."""
    if len(names) == 1:
        return names[0]
    state = (layer.batch, layer.hidden)
    scop = scop_of(make_join, layer.dtype, (layer.steps, *state) if which == 0 else state, 1 if which == 0 else 0)
    merged = f"R{which}"
    parts.append((scop, {"A": names[0], "B": names[1], scop.results[0]: merged}))
    return merged
