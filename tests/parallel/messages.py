"""Each communication operator in a small model of one rank, and the same in NumPy over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from polyc.graph_driver.communication.operators import DOMAIN, VERSION, result_shape

Arrays = Sequence[np.ndarray]


def _halo(ranks: int, rows: int, columns: int) -> dict[str, list[int]]:
    """Parts of rows, and what each rank needs: one row more on either side, where there is one."""
    have = [(k * rows, (k + 1) * rows) for k in range(ranks)]
    need = [(max(0, a - 1), min(ranks * rows, b + 1)) for a, b in have]
    return {
        "have": [n for a, b in have for n in (a, b, 0, columns)],
        "need": [n for a, b in need for n in (a, b, 0, columns)],
    }


def _exchanged(xs: Arrays) -> list[np.ndarray]:
    whole, rows = np.concatenate(xs), len(xs[0])
    return [whole[max(0, k * rows - 1) : (k + 1) * rows + 1] for k in range(len(xs))]


def _sent_on(xs: Arrays) -> list[np.ndarray]:
    """Around the ring: 0 to 1, 1 to 2, and so on."""
    return [xs[k - 1] for k in range(len(xs))]


def _all_to_all(xs: Arrays) -> list[np.ndarray]:
    pieces = [np.split(x, len(xs), 1) for x in xs]
    return [np.concatenate([p[k] for p in pieces], 0) for k in range(len(xs))]


Case = tuple[str, Callable[[int, int], dict[str, Any]], Callable[[Arrays], list[np.ndarray]]]
SHAPE = (2, 6)
CASES: dict[str, Case] = {
    "AllReduce": ("AllReduce", lambda n, r: {"reduce": "sum"}, lambda xs: [sum(xs)] * len(xs)),
    "AllReduce max": ("AllReduce", lambda n, r: {"reduce": "max"}, lambda xs: [np.max(xs, axis=0)] * len(xs)),
    "AllGather": ("AllGather", lambda n, r: {"axis": 1}, lambda xs: [np.concatenate(xs, 1)] * len(xs)),
    "AllGather of rank": ("AllGather", lambda n, r: {"axis": 0, "rank": r}, lambda xs: [np.concatenate(xs)] * len(xs)),
    "ReduceScatter": (
        "ReduceScatter", lambda n, r: {"reduce": "sum", "axis": 1, "rank": r},
        lambda xs: np.split(np.sum(xs, axis=0), len(xs), 1),
    ),
    "AllToAll": ("AllToAll", lambda n, r: {"split_axis": 1, "concat_axis": 0}, _all_to_all),
    "Broadcast": ("Broadcast", lambda n, r: {"root": 1, "rank": r}, lambda xs: [xs[1]] * len(xs)),
    "Exchange": ("Exchange", lambda n, r: {"rank": r, **_halo(n, *SHAPE)}, _exchanged),
    "Start": ("Start", lambda n, r: {"kind": "AllReduce", "reduce": "sum"}, lambda xs: [sum(xs)] * len(xs)),
    "Send": ("Send", lambda n, r: {}, _sent_on),
}  # fmt: skip


def model(name: str, ranks: int, rank: int, factors: np.ndarray, weight: np.ndarray) -> onnx.ModelProto:
    """`loss = sum(factors * message(x * w)^2)` of a rank."""
    kind, attrs_of, _ = CASES[name]
    group, attrs = list(range(ranks)), attrs_of(ranks, rank)
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"])]

    def add(op_type: str, inputs: list[str], outputs: list[str], **own: Any) -> None:
        nodes.append(helper.make_node(op_type, inputs, outputs, domain=DOMAIN, ranks=group, **own))

    if kind == "Send":
        to, source = (rank + 1) % ranks, (rank - 1) % ranks
        take = {"source": source, "dtype": TensorProto.FLOAT, "shape": list(SHAPE), "tag": 5}
        if rank:  # not all at once: whoever sends waits until it is taken
            add("Recv", [], ["y", "first"], **take)
            add("Send", ["a", "first"], ["done"], to=to, tag=5)
        else:
            add("Send", ["a"], ["first"], to=to, tag=5)
            add("Recv", ["first"], ["y", "done"], **take)
    elif kind == "Start":
        add("Start", ["a"], ["begun", "done"], **attrs)
        nodes.append(helper.make_node("Wait", ["begun", "a"], ["y"], domain=DOMAIN))
    else:
        assert result_shape(kind, SHAPE, {"ranks": group, **attrs}) == factors.shape
        add(kind, ["a"], ["y", "done"], **attrs)
    nodes += [
        helper.make_node("Mul", ["y", "y"], ["square"]),
        helper.make_node("Mul", ["square", "c"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [onnx.ValueInfoProto(name="loss")],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(factors, "c")],
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, VERSION)], ir_version=9
    )


def slopes(name: str, xs: Arrays, ws: Arrays, factors: Arrays, rank: int) -> np.ndarray:
    """The gradient of the sum of all ranks' losses by this rank's weights: central differences in f64."""
    message, step = CASES[name][2], 1e-6

    def total(own: np.ndarray) -> float:
        values = [x * (own if k == rank else w) for k, (x, w) in enumerate(zip(xs, ws, strict=True))]
        return float(sum((c * y * y).sum() for c, y in zip(factors, message(values), strict=True)))

    found = np.zeros(ws[rank].shape)
    for at in np.ndindex(*found.shape):
        own = np.array(ws[rank], np.float64)
        own[at] += step
        above = total(own)
        own[at] -= 2 * step
        found[at] = (above - total(own)) / (2 * step)
    return found
