"""Models compiled for a GPU: `compile_model(..., target="cuda")`, and what `polyc compile` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.emit.gpu.devices import nvidia, open_device
from polyc.emit.gpu.resources import Resources
from polyc.graph_driver.execution.parts import Parts, cut
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.running.gpu.code import GpuCode
from polyc.graph_driver.running.gpu.execute import GpuExecutor
from polyc.graph_driver.running.model import Model

if TYPE_CHECKING:
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.ir import Graph
    from polyc.graph_driver.host.reference import HostNode
    from polyc.graph_driver.planning.plan import Plan


class GpuModel(Model):
    """A compiled model whose kernels run on a GPU; without one it can be looked at and saved."""

    def __init__(
        self, name: str, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode], report: Report,
        gpu: GpuCode, graph: Graph | None = None, groups: Sequence[Group] = (),
    ) -> None:  # fmt: skip
        super().__init__(name, None, plan, weights, hosts, report, graph, groups)  # type: ignore[arg-type]
        self.gpu = gpu

    def executor(self) -> GpuExecutor:  # type: ignore[override]
        """The plan in the memory of the device (made at first use).

        Raises:
            DeviceError: there is no device; one line says what was looked for.
        """
        with self._linking:
            if self._executor is None:
                device = open_device(self.gpu.target.kind)
                made = GpuExecutor(self.plan, self.weights, self.hosts, self.gpu, device)
                self._executor = made  # type: ignore[assignment]
            return self._executor  # type: ignore[return-value]

    def __call__(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None, stream: Any = None
    ) -> dict[str, Any]:
        """Run, in `stream` of the device where one is given. Inputs may be arrays of the device (`DeviceArray`,
        DLPack, `__cuda_array_interface__`): outputs then stay there, as new arrays that are ready when the stream is.

        Raises:
            ArgumentError: names, dtypes or shapes do not fit.
            DeviceError: there is no device.
        """
        return self.executor().run(inputs, out, stream)

    def for_inputs(self, inputs: Mapping[str, Any]) -> GpuExecutor:  # type: ignore[override]
        """The plan in the memory of the device."""
        return self.executor()

    def _native_parts(self, executor: Any, alone: frozenset[int]) -> Parts:
        return cut(self.plan, alone)  # the device gets the launches of its steps one behind the other

    def resources(self) -> list[Resources]:
        """Registers, spills, shared memory and occupancy of every kernel.

        Raises:
            BuildError: the target is not NVIDIA's, or no CUDA compiler is here.
        """
        cubins = (nvidia.compile_cubin(r.text, self.gpu.target) for r, _ in self.gpu.kernels.values())
        return [r for c in cubins for r in c.resources]


def summary(model: GpuModel) -> dict[str, Any]:
    """The mapping of all kernels as plain data."""
    return {
        k.name: {"threads": k.threads, "shared": k.shared, "barriers": k.barriers}
        for recorded, _ in model.gpu.kernels.values()
        for k in recorded.text.kernels.values()
    }
