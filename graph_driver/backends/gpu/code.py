"""The code of a model for a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from polyc.emit.gpu.devices import nvidia, open_device
from polyc.emit.gpu.program import Recorded
from polyc.emit.gpu.resources import Resources
from polyc.graph_driver.backends.gpu.execute import GpuExecutor
from polyc.graph_driver.backends.gpu.natives import NativeKernel, Natives
from polyc.graph_driver.backends.protocol import Code, Platform
from polyc.poly.records import dataclass
from polyc.poly.target import GpuTarget, Target

if TYPE_CHECKING:
    import numpy as np

    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.host.reference import HostNode
    from polyc.graph_driver.planning.plan import Plan


@dataclass
class GpuCode(Code):
    """Kernels by symbol with the names of their arrays in the order of a step's arguments; `cubins`: machine
    code that was made before, of all kernels or of none; `natives`: kernels of the CPU beside, `cpu`. Without a device
    it can be looked at and saved."""

    platform: Platform
    kernels: Mapping[str, tuple[Recorded, tuple[str, ...]]]
    cubins: Mapping[str, bytes] = field(default_factory=dict)
    natives: Mapping[str, NativeKernel] = field(default_factory=dict)
    cpu: Target | None = None

    @property
    def target(self) -> GpuTarget:
        """The GPU."""
        return self.platform.machine

    def start(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], notes: list[str]
    ) -> GpuExecutor:
        """The plan in the memory of the device.

        Raises:
            BuildError: there is no device; one line says what was looked for. Or this is another CPU.
        """
        device = open_device(self.target.kind)
        natives = Natives(self.natives, self.cpu or self.platform.host)
        return GpuExecutor(plan, weights, hosts, self.target, self.kernels, self.cubins, device, natives)

    def resources(self) -> list[Resources]:
        """Registers, spills, shared memory and occupancy of every kernel.

        Raises:
            BuildError: the target is not NVIDIA's, or no CUDA compiler is here.
        """
        cubins = (nvidia.compile_cubin(r.text, self.target) for r, _ in self.kernels.values())
        return [r for c in cubins for r in c.resources]
