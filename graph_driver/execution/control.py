"""`If`, `Loop` and `Scan` inside a plan: compiled bodies, and the course that a run takes through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from polyc.graph_driver.graph.ir import Node
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.host.reference import HostNode
    from polyc.graph_driver.planning.plan import Plan

SCAN_LISTS = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")


class Body(Protocol):
    """A compiled body: a model of its own (`polyc.graph_driver.running.model.Model`)."""

    @property
    def plan(self) -> Plan:
        """Names of its inputs and outputs in order."""

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Its results by name."""


class ControlNode:
    """One node of control flow, called as a `HostNode` is. All of it but `bodies` is plain data (`course`).

    `course` has `given` (which inputs are there), `wanted` (which outputs), and the attributes of a `Scan`.
    """

    def __init__(
        self, kind: str, name: str, course: Mapping[str, Any], bodies: Sequence[Body | None],
        host: HostNode | None = None,
    ) -> None:  # fmt: skip
        """`host` runs the node when the branch taken is not compiled (None in `bodies`)."""
        if len(bodies) != (2 if kind == "If" else 1) or (None in bodies) != (host is not None):
            raise ValueError(f"{kind} with {len(bodies)} bodies")
        self.kind, self.name, self.course, self.bodies = kind, name, dict(course), tuple(bodies)
        self.host = host
        self._given = [bool(g) for g in course["given"]]
        self._wanted = [bool(w) for w in course["wanted"]]

    @staticmethod
    def of(node: Node, bodies: Sequence[Body | None], host: HostNode | None = None) -> ControlNode:
        """The node with its bodies compiled."""
        course: dict[str, Any] = {"given": [bool(i) for i in node.inputs], "wanted": [bool(o) for o in node.outputs]}
        if node.op_type == "Scan":
            course["sequences"] = int(node.attrs["num_scan_inputs"])
            course |= {name: list(map(int, node.attrs.get(name) or [])) for name in SCAN_LISTS}
        return ControlNode(node.op_type, node.name, course, bodies, host)

    def __call__(self, values: Sequence[Any], captures: Mapping[str, Any]) -> list[Any]:
        """Results in output order (absent outputs are left out); `values` are the present inputs in order."""
        if self.kind == "If":
            body = self._branch(values[0])
            if body is None:
                assert self.host is not None
                return self.host(values, captures)
            made = _run(body, (), captures)
        elif self.kind == "Loop":
            made = self._loop(values, captures)
        else:
            made = self._scan(values, captures)
        return [m for m, wanted in zip(made, self._wanted) if wanted]

    def _branch(self, value: Any) -> Body | None:
        condition = np.asarray(value)
        if condition.size != 1:
            raise ModelError(f"If '{self.name}': its condition has {condition.size} elements")
        return self.bodies[0 if condition.reshape(())[()] else 1]

    def _body(self) -> Body:
        """The body of a loop."""
        (body,) = self.bodies
        assert body is not None
        return body

    def _loop(self, values: Sequence[Any], captures: Mapping[str, Any]) -> list[Any]:
        rest = list(values)
        limit = int(np.asarray(rest.pop(0)).reshape(())) if self._given[0] else None
        going = bool(np.asarray(rest.pop(0)).reshape(())) if self._given[1] else True
        body, trip = self._body(), 0
        rows: list[list[np.ndarray]] = [[] for _ in body.plan.outputs[1 + len(rest) :]]
        states = rest
        while going and (limit is None or trip < limit):
            made = _run(body, (np.array(trip, np.int64), np.array(going), *states), captures)
            going, states = bool(made[0].reshape(())), made[1 : 1 + len(states)]
            for row, element in zip(rows, made[1 + len(states) :], strict=True):
                row.append(element)
            trip += 1
        outputs = body.plan.outputs[1 + len(states) :]
        return [*states, *(self._stacked(row, name, 0) for row, name in zip(rows, outputs, strict=True))]

    def _scan(self, values: Sequence[Any], captures: Mapping[str, Any]) -> list[Any]:
        body, count = self._body(), int(self.course["sequences"])
        states, sequences = list(values[:-count]), [np.asarray(v) for v in values[-count:]]
        axes = self.course["scan_input_axes"] or [0] * count
        moved = [np.moveaxis(s, axis, 0) for s, axis in zip(sequences, axes, strict=True)]
        back = self.course["scan_input_directions"] or [0] * count
        moved = [m[::-1] if b else m for m, b in zip(moved, back, strict=True)]
        outputs = body.plan.outputs[len(states) :]
        rows: list[list[np.ndarray]] = [[] for _ in outputs]
        for step in range(moved[0].shape[0]):
            made = _run(body, (*states, *(np.asarray(m[step], order="C") for m in moved)), captures)
            states = made[: len(states)]
            for row, element in zip(rows, made[len(states) :], strict=True):
                row.append(element)
        to, turned = (self.course[n] or [0] * len(rows) for n in ("scan_output_axes", "scan_output_directions"))
        return [*states, *(
            self._stacked(row[::-1] if b else row, name, axis)
            for row, name, axis, b in zip(rows, outputs, to, turned, strict=True)
        )]  # fmt: skip

    def _stacked(self, row: Sequence[np.ndarray], output: str, axis: int) -> np.ndarray:
        if row:
            return np.stack(row, axis)
        slot = self._body().plan.slots[output]
        assert slot.dtype is not None and slot.shape is not None  # `bodies.find` asks for it
        return np.stack([np.empty(slot.shape, BY_NAME[slot.dtype].np)], axis).take([], axis)


_RAN: ContextVar[list[Body] | None] = ContextVar("bodies that have run", default=None)


@contextmanager
def bodies_run() -> Iterator[list[Body]]:
    """Inside, every body of control flow that this thread runs is added to the list, each time."""
    ran: list[Body] = []
    token = _RAN.set(ran)
    try:
        yield ran
    finally:
        _RAN.reset(token)


def _run(body: Body, own: Sequence[Any], captures: Mapping[str, Any]) -> list[Any]:
    """Results of a body in order, for its `own` inputs and what it reads of the graph around it."""
    ran = _RAN.get()
    if ran is not None:
        ran.append(body)
    names = body.plan.inputs
    feeds = dict(zip(names, own)) | {n: captures[n] for n in names[len(own) :]}
    made = body(feeds)
    return [made[o] for o in body.plan.outputs]
