"""Values of small integer tensors that are computed from sizes: `Shape`, and what models do with it.

Elements are Python integers and `Size`s in NumPy arrays of objects, so NumPy's own functions move them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.graph_driver.graph.size import Size, SizeError
from polyc.graph_driver.inference.shape_rules import Call, known_values
from polyc.graph_driver.inference.shape_rules.movement import slices

MAX_ELEMENTS = 64
Function = Callable[[Call, list[np.ndarray]], Any]


def _truncated(a: Any, b: Any) -> Any:
    """Integer division of ONNX (towards zero)."""
    if isinstance(a, Size) or isinstance(b, Size):
        return a // b if a >= 0 and b > 0 else -((-a) // b)
    return int(a / b) if b else 0


def _each(function: Callable[..., Any]) -> Function:
    def run(call: Call, args: list[np.ndarray]) -> Any:
        out = args[0]
        for other in args[1:]:
            out = _objects(np.vectorize(function, otypes=[object])(out, other))
        return out

    return run


def _slice(call: Call, args: list[np.ndarray]) -> Any:
    out = args[0]
    for axis, start, stop, step in slices(call):
        where = [slice(None)] * out.ndim
        where[axis] = slice(int(start), None if int(stop) < 0 else int(stop), step)
        out = out[tuple(where)]
    return out


def _squeeze(call: Call, args: list[np.ndarray]) -> Any:
    axes = call.given("axes", 1)
    return np.squeeze(args[0], None if axes is None else tuple(axes))


def _cast(call: Call, args: list[np.ndarray]) -> Any:
    return args[0] if int(call.attrs["to"]) in (6, 7, 12, 13) else None  # to integers of 32 and 64 bits


def _where(call: Call, args: list[np.ndarray]) -> Any:
    return np.where(args[0].astype(bool), args[1], args[2])


def _reduce_product(call: Call, args: list[np.ndarray]) -> Any:
    axes = call.given("axes", 1)
    if axes not in (None, [0]) or args[0].ndim != 1:
        return None
    total = _objects(np.prod(args[0]))
    return total.reshape((1,) * (args[0].ndim if call.attrs.get("keepdims", 1) else 0))


FUNCTIONS: dict[str, Function] = {
    "Identity": lambda call, args: args[0],
    "Cast": _cast,
    "Gather": lambda call, args: np.take(args[0], args[1].astype(np.int64), int(call.attrs.get("axis", 0))),
    "Slice": _slice,
    "Concat": lambda call, args: np.concatenate(args, int(call.attrs.get("axis", 0))),
    "Unsqueeze": lambda call, args: np.expand_dims(args[0], tuple(call.given("axes", 1) or ())),
    "Squeeze": _squeeze,
    "Reshape": lambda call, args: args[0].reshape([int(n) for n in args[1].reshape(-1)]),
    "Add": _each(lambda a, b: a + b),
    "Sub": _each(lambda a, b: a - b),
    "Mul": _each(lambda a, b: a * b),
    "Div": _each(_truncated),
    "Mod": _each(lambda a, b: a % b),
    "Max": _each(lambda a, b: b if a < b else a),
    "Min": _each(lambda a, b: a if a < b else b),
    "Equal": _each(lambda a, b: _equal(a, b)),
    "Less": _each(lambda a, b: a < b),
    "LessOrEqual": _each(lambda a, b: a <= b),
    "Greater": _each(lambda a, b: a > b),
    "GreaterOrEqual": _each(lambda a, b: a >= b),
    "Not": lambda call, args: ~args[0].astype(bool),
    "And": lambda call, args: args[0].astype(bool) & args[1].astype(bool),
    "Or": lambda call, args: args[0].astype(bool) | args[1].astype(bool),
    "Where": _where,
    "ReduceProd": _reduce_product,
    "Neg": lambda call, args: -args[0],
}


def _equal(a: Any, b: Any) -> bool:
    """Equal for all sizes or for none; otherwise the representative sizes decide, as a guard."""
    return bool(a == b) or not (a < b or a > b)


def _objects(value: Any) -> np.ndarray:
    """An array of objects, whatever NumPy made of it."""
    out = np.empty(np.shape(value), object)
    out[...] = value
    return out


def value_of(call: Call) -> np.ndarray | None:
    """The node's only result when it follows from sizes and constants; else None."""
    if call.op_type == "Shape":
        shape = call.shape()
        start, end = call.attrs.get("start", 0), call.attrs.get("end", len(shape))
        return _vector(list(shape[start:end]))
    if call.op_type == "Size":
        total: Any = 1
        for n in call.shape():
            total = total * n
        return _objects(total)
    function = FUNCTIONS.get(call.op_type)
    if function is None or call.outputs != 1 or any(t is None for t in call.inputs[:1]):
        return None
    args = []
    for t in call.inputs:
        known = None if t is None else known_values(t)
        if t is not None and (known is None or known.size > MAX_ELEMENTS):
            return None
        if known is not None:
            args.append(known)
    try:
        found = function(call, args)
    except SizeError:  # a tensor of symbolic size, as a slice of constants: a result of the run
        return None
    except (IndexError, ValueError, ArithmeticError):  # no such element: the run says so, with the node
        return None
    return None if found is None else _objects(found)


def _vector(values: list[Any]) -> np.ndarray:
    out = np.empty(len(values), object)
    for k, v in enumerate(values):
        out[k] = v
    return out
