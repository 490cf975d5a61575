"""`Loop` and `Scan` on the host. onnx.reference joins what a loop collects along the first axis of its elements, not
along a new one, collects nothing where nothing runs, and reads and writes sequences of a scan along axis 0 forwards
only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference.op_run import OpRun

Values = list[Any]


class _WithBody(OpRun):
    """An operator whose `body` runs once for each iteration; it may read whatever is known where it stands."""

    op_domain = ""

    def need_context(self) -> bool:
        return True

    def _results(self, own: Sequence[Any], context: Mapping[str, Any] | None, given: Mapping[str, Any]) -> Values:
        """Of one iteration, for the body's `own` inputs."""
        names = self.body.input_names
        return list(self._run_body({**(context or {}), **dict(zip(names, own, strict=True))}, **given))

    def _stacked(self, elements: Sequence[np.ndarray], output: int, axis: int = 0) -> np.ndarray:
        """What all iterations gave for one `output` of the body, along a new axis. Of no iteration there is only the
        declared type; a size that it does not tell is 0."""
        if elements:
            return np.stack(elements, axis)
        declared = self.body.output_types[output].tensor_type
        shape = [d.dim_value for d in declared.shape.dim]
        at = axis % (len(shape) + 1)
        return np.empty((*shape[:at], 0, *shape[at:]), tensor_dtype_to_np_dtype(declared.elem_type))


class Loop(_WithBody):
    """As often as the limit says, while the condition holds; both may be absent."""

    def _run(
        self, limit: Any, going: Any, *states: Any, context: Any = None, body: Any = None, **given: Any
    ) -> tuple[Any, ...]:
        now: Values = list(states)
        rows: list[Values] = [[] for _ in self.body.output_names[1 + len(now) :]]
        going, trip = True if going is None else going, 0
        most = None if limit is None else int(np.asarray(limit).reshape(()))
        while bool(np.asarray(going).reshape(())) and (most is None or trip < most):
            made = self._results((np.array(trip, np.int64), np.asarray(going), *now), context, given)
            going, now = made[0], made[1 : 1 + len(now)]
            for row, element in zip(rows, made[1 + len(now) :], strict=True):
                row.append(element)
            trip += 1
        return (*now, *(self._stacked(row, 1 + len(now) + k) for k, row in enumerate(rows)))


class Scan(_WithBody):
    """Once for each element of its sequences (opset 9 and later)."""

    def _run(
        self,
        *operands: Any,
        context: Any = None,
        num_scan_inputs: int = 1,
        scan_input_axes: Any = None,
        scan_input_directions: Any = None,
        scan_output_axes: Any = None,
        scan_output_directions: Any = None,
        body: Any = None,
        **given: Any,
    ) -> tuple[Any, ...]:
        count = num_scan_inputs
        now: Values = list(operands[: len(operands) - count])
        sequences = [
            np.moveaxis(s, axis, 0)[:: -1 if back else 1]
            for s, axis, back in zip(
                operands[len(now) :], _each(scan_input_axes, count), _each(scan_input_directions, count), strict=True
            )
        ]
        rows: list[Values] = [[] for _ in self.body.output_names[len(now) :]]
        for elements in zip(*sequences, strict=True):
            made = self._results((*now, *elements), context, given)
            now = made[: len(now)]
            for row, element in zip(rows, made[len(now) :], strict=True):
                row.append(element)
        axes, backs = _each(scan_output_axes, len(rows)), _each(scan_output_directions, len(rows))
        return (
            *now,
            *(
                self._stacked(row[::-1] if back else row, len(now) + k, axis)
                for k, (row, axis, back) in enumerate(zip(rows, axes, backs, strict=True))
            ),
        )


def _each(given: Any, count: int) -> list[int]:
    return [0] * count if given is None else list(given)
