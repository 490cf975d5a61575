"""Models compiled for a GPU: `compile_model(..., target="cuda")`, and what `polyc compile` writes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from emit.gpu import nvidia
from emit.gpu.devices import open_device
from emit.gpu.program import Recorded
from emit.gpu.resources import Resources
from emit.gpu.resources import lines as resource_lines
from graph_driver.gpu.compiling import BACKEND
from graph_driver.gpu.execute import GpuExecutor
from graph_driver.model import Model, Progress, Report, compile_graph, plan_graph, python_node, weights_segment
from poly.errors import BuildError, ModelError
from poly.target import GpuTarget

if TYPE_CHECKING:
    from graph_driver.execution.control import ControlNode
    from graph_driver.execution.reference import HostNode
    from graph_driver.fusion.joined import Group
    from graph_driver.ir import Graph
    from graph_driver.passes.manager import Pass
    from graph_driver.planning.plan import Plan


@dataclass(frozen=True)
class GpuCode:
    """Kernels by symbol with the names of their arrays in the order of a step's arguments; `cubins`: machine
    code that was made before, of all kernels or of none."""

    target: GpuTarget
    kernels: Mapping[str, tuple[Recorded, tuple[str, ...]]]
    cubins: Mapping[str, bytes] = field(default_factory=dict)


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

    def resources(self) -> list[Resources]:
        """Registers, spills, shared memory and occupancy of every kernel.

        Raises:
            BuildError: the target is not NVIDIA's, or no CUDA compiler is here.
        """
        cubins = (nvidia.compile_cubin(r.text, self.gpu.target) for r, _ in self.gpu.kernels.values())
        return [r for c in cubins for r in c.resources]


def compile_gpu_model(
    graph: Graph, target: GpuTarget, report: Report, fuse: bool, memory_limit: int | None, progress: Progress | None,
    pipeline: Sequence[Pass] | None,
) -> GpuModel:  # fmt: skip
    """The stages after import for a GPU. What has no kernel, and control flow, runs on the host.

    Raises:
        BuildError: the model has symbolic sizes.
    """
    from emit import targets

    if graph.symbols is not None:
        raise BuildError(f"target {target.name} needs all sizes of the model: give them with dims= (--dim NAME=V)")
    machine = targets.host()
    found, compiled, plan = plan_graph(
        graph, machine, BACKEND + target.name, 1, report, fuse, memory_limit, progress, pipeline
    )
    with report.stage("program"):
        kernels = {c.symbol: (_recorded(c.image), c.order) for c in compiled.values()}
        weights = weights_segment(graph, plan)

    def body_on_host(body: Graph, inner: Report) -> Model:
        return compile_graph(body, machine, "llvm", 1, inner, fuse, None, progress, pipeline)

    hosts = [python_node(g.nodes[0], graph, body_on_host, report) for g in found if not g.key]
    model = GpuModel(graph.name, plan, weights, hosts, report, GpuCode(target, kernels), graph, found)
    launches = sum(len(kernels[s.symbol][0].sequence.calls) for s in plan.steps if s.kind == "kernel")
    report.notes.append(f"{launches} launches of {sum(len(r.text.kernels) for r, _ in kernels.values())} GPU kernels")
    if target.kind == "cuda" and nvidia.compiler() is not None:
        start = time.perf_counter()
        report.notes += _resource_notes(model.resources())
        report.seconds["cubins"] = time.perf_counter() - start
    return model


def _recorded(image: bytes) -> Recorded:
    try:
        return Recorded.from_json(image.decode())
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"a compiled GPU kernel is damaged: {error}") from None


def _resource_notes(found: list[Resources]) -> list[str]:
    """What the compiled kernels take, and each one that spills."""
    spilled = [r for r in found if r.spill_loads or r.spill_stores]
    most = max((r.registers for r in found), default=0)
    text = f"{len(found)} kernels compiled to machine code ({nvidia.compiler()}): at most {most} registers a thread, "
    return [text + (f"{len(spilled)} spill" if spilled else "none spills"), *resource_lines(spilled)]


def summary(model: GpuModel) -> dict[str, Any]:
    """The mapping of all kernels as plain data."""
    return {
        k.name: {"threads": k.threads, "shared": k.shared, "barriers": k.barriers}
        for recorded, _ in model.gpu.kernels.values()
        for k in recorded.text.kernels.values()
    }
