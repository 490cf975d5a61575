"""Indices outside in a run on a device: one record for all steps, looked at when a run is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.emit.gpu.devices import Device, Pointer
from polyc.emit.gpu.program import Recorded
from polyc.graph_driver.execution.violations import bounds_error
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Step
from polyc.poly.violations import Violation, decoded


class DeviceRecords:
    """The record on the device: a u64 for each check of each kernel step, in the order of the steps.

    It is zero before a run, so a run without a violation leaves it ready for the next one.
    """

    def __init__(self, plan: Plan, kernels: Mapping[str, tuple[Recorded, tuple[str, ...]]], device: Device) -> None:
        self._plan, self._device = plan, device
        self._checks: list[tuple[Step, Violation]] = []
        self._places: dict[int, int] = {}  # of each step in the record
        for k, step in enumerate(plan.steps):
            if step.symbol in kernels and (found := kernels[step.symbol][0].checks):
                self._places[k] = 8 * len(self._checks)
                self._checks += [(step, check) for check in found]
        self._values = np.zeros(len(self._checks), np.uint64)
        self._base = device.allocate(self._values.nbytes) if self._checks else 0
        if self._checks:
            device.upload(Pointer(self._base), self._values)

    def pointer(self, step: int) -> Pointer:
        """Where a step that has checks tells of violations."""
        return Pointer(self._base, self._places[step])

    def check(self, stream: Any = None) -> None:
        """Look at the record once the stream is done. Raises `BoundsError` for the first step with a violation."""
        if not self._checks:
            return
        self._device.download(self._values, Pointer(self._base), stream)
        if not self._values.any():
            return
        number = int(np.flatnonzero(self._values)[0])
        step, check = self._checks[number]
        found = replace(check, index=decoded(int(self._values[number])))
        self._values[:] = 0
        self._device.upload(Pointer(self._base), self._values, stream)
        raise bounds_error(self._plan, step, found)
