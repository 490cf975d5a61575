"""From a graph to a model on a GPU: the stages of `polyc.graph_driver.compile_model` for a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from polyc.emit.gpu.devices import nvidia
from polyc.emit.gpu.program import Recorded
from polyc.emit.gpu.resources import Resources
from polyc.emit.gpu.resources import lines as resource_lines
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.compiling.stages import plan_graph
from polyc.graph_driver.execution.weights import weights_segment
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.running.gpu.code import GpuCode
from polyc.graph_driver.running.gpu.on_device import OnDevice
from polyc.graph_driver.running.model import Built, Model
from polyc.poly.errors import ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.graph.ir import Graph, Node
    from polyc.graph_driver.host.reference import HostNode


def compile_gpu(
    graph: Graph, platform: Platform, options: CompileOptions, report: Report,
    in_python: Callable[[Node], HostNode | ControlNode],
) -> Model:  # fmt: skip
    """The stages after import for a GPU. What has no kernel, and control flow, runs on the host: `in_python` makes
    what runs such a node.

    Raises:
        ModelError: the memory limit cannot be kept.
    """
    target = platform.machine
    found, compiled, plan = plan_graph(graph, platform, options, report)
    with report.stage("program"):
        kernels = {c.symbol: (_recorded(c.image), c.order) for c in compiled.values()}
        weights = weights_segment(graph, plan)
    hosts = [in_python(g.nodes[0]) for g in found if not g.key]
    running = OnDevice(Built(plan, weights, hosts, graph, found), GpuCode(target, kernels))
    launches = sum(len(kernels[s.symbol][0].sequence.calls) for s in plan.steps if s.kind == "kernel")
    report.notes.append(f"{launches} launches of {sum(len(r.text.kernels) for r, _ in kernels.values())} GPU kernels")
    if target.kind == "cuda" and nvidia.compiler() is not None:
        start = time.perf_counter()
        report.notes += _resource_notes(running.resources())
        report.seconds["cubins"] = time.perf_counter() - start
    return Model(graph.name, running, report)


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
