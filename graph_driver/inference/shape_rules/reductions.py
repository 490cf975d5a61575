"""Reductions, the largest elements, and recurrences over a sequence."""

from __future__ import annotations

from polyc.graph_driver.inference.shape_rules.call import Call, Shape, rule


@rule(
    *"""ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum
    ReduceLogSumExp""".split()
)
def reduce(call: Call) -> list[Shape]:
    """The reduced axes become 1, or go without `keepdims`; all of them where none is given."""
    shape, given = call.shape(), call.given("axes", 1)
    if not given and call.attrs.get("noop_with_empty_axes", 0):
        return [shape]
    axes = {a % len(shape) for a in given} if given else set(range(len(shape)))
    return [_reduced(shape, axes, bool(call.attrs.get("keepdims", 1)))]


@rule("ArgMax", "ArgMin")
def arg(call: Call) -> list[Shape]:
    """As a reduction of one axis."""
    return [_reduced(call.shape(), {call.axis(0)}, bool(call.attrs.get("keepdims", 1)))]


def _reduced(shape: Shape, axes: set[int], keep: bool) -> Shape:
    return tuple(1 if d in axes else n for d, n in enumerate(shape) if keep or d not in axes)


@rule("TopK")
def top_k(call: Call) -> list[Shape]:
    """The axis becomes `k`, which is no larger (a guard); values and indices."""
    shape, axis = list(call.shape()), call.axis(-1)
    given = [call.attrs["k"]] if "k" in call.attrs else call.values(1)
    assert given is not None
    call.symbols.require_at_least(shape[axis] - given[0], 0, "TopK")
    shape[axis] = given[0]
    return [tuple(shape)] * 2


@rule("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")
def recurrent(call: Call) -> list[Shape]:
    """The sequence of all states, then the last state and, of an LSTM, the last cell, by `layout`."""
    in_front = bool(call.attrs.get("layout", 0))
    steps, batch = call.shape()[1::-1] if in_front else call.shape()[:2]
    directions, hidden = call.shape(1)[0], int(call.attrs["hidden_size"])
    for position in (5, 6):  # initial states
        if position < len(call.inputs) and call.inputs[position] is not None:
            given = call.shape(position)[0 if in_front else 1]
            call.symbols.require_equal(given, batch, f"the batch of {call.op_type} and of its initial state")
    if len(call.inputs) > 4 and call.inputs[4] is not None:
        call.symbols.require_equal(call.shape(4)[0], batch, f"the batch of {call.op_type} and its lengths")
    state = (batch, directions, hidden) if in_front else (directions, batch, hidden)
    sequence = (batch, steps, directions, hidden) if in_front else (steps, directions, batch, hidden)
    return [sequence, state, state][: call.outputs]
