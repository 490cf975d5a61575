"""Models compiled for a GPU: `compile_model(..., target="cuda")`, and what `polyc compile` writes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyc.emit.gpu.devices import nvidia, open_device
from polyc.emit.gpu.resources import Resources
from polyc.graph_driver.execution.parts import Parts, cut
from polyc.graph_driver.running.gpu.code import GpuCode
from polyc.graph_driver.running.gpu.execute import GpuExecutor
from polyc.graph_driver.running.model import Built, Running

if TYPE_CHECKING:
    from polyc.graph_driver.execution.executor import Executor


class OnDevice(Running):
    """A plan whose kernels run on a GPU; without one the model can be looked at and saved."""

    def __init__(self, built: Built, gpu: GpuCode) -> None:
        self._built, self.gpu = built, gpu
        self._linking = threading.Lock()

    @property
    def built(self) -> Built:
        """What was compiled."""
        return self._built

    def executor(self) -> Executor:
        """The plan in the memory of the device (made at first use).

        Raises:
            DeviceError: there is no device; one line says what was looked for.
        """
        with self._linking:
            if self.only is None:
                made, device = self._built, open_device(self.gpu.target.kind)
                self.only = GpuExecutor(made.plan, made.weights, made.hosts, self.gpu, device)
            return self.only

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The plan in the memory of the device. Raises `DeviceError`."""
        return self.executor()

    def parts(self, alone: frozenset[int]) -> Parts:
        """The plan cut around the steps `alone`: the device gets the launches of the others one behind the other."""
        return cut(self._built.plan, alone)

    def resources(self) -> list[Resources]:
        """Registers, spills, shared memory and occupancy of every kernel.

        Raises:
            BuildError: the target is not NVIDIA's, or no CUDA compiler is here.
        """
        cubins = (nvidia.compile_cubin(r.text, self.gpu.target) for r, _ in self.gpu.kernels.values())
        return [r for c in cubins for r in c.resources]


def summary(running: OnDevice) -> dict[str, Any]:
    """The mapping of all kernels as plain data."""
    return {
        k.name: {"threads": k.threads, "shared": k.shared, "barriers": k.barriers}
        for recorded, _ in running.gpu.kernels.values()
        for k in recorded.text.kernels.values()
    }
