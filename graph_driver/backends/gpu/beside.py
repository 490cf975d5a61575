"""Which kernels of a GPU's plan run on the CPU beside it, where a target allows it (`+cpu`): those with which the whole
plan takes least time, transfers included. (What has no kernel on the GPU runs there anyway.)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, prod
from typing import TYPE_CHECKING

from polyc.graph_driver.choosing.two_sides import Work, two_sides
from polyc.graph_driver.fusion.joined import Group, is_on_cpu, on_cpu
from polyc.graph_driver.graph.aliases import storage
from polyc.poly.records import dataclass
from polyc.poly.target import BESIDE, GpuTarget, Target
from polyc.poly.words import counted
from polyc.scheduler.cost.model import LEVELS, nominal, predict
from polyc.scheduler.cost.work import work_of

if TYPE_CHECKING:
    from polyc.graph_driver.graph.ir import Graph

NAMED = 6
"""Kernels that notes name one by one."""
TRANSFER = 8e-6
"""Seconds of a transfer of few bytes, the driver's part included (a guess for PCIe, not measured here)."""
REACHED = 0.6
"""Share of a GPU's peaks that kernels of this compiler are taken to reach."""


@dataclass(frozen=True)
class Figures:
    """What times are predicted by, of a GPU: bytes a second of its memory and to the host, f32 operations a second,
    seconds of a launch."""

    memory: float
    link: float
    flops: float
    launch: float

    @staticmethod
    def of(target: GpuTarget) -> Figures:
        """Those of a target file; where it has none, a small device's."""
        return Figures(
            1e9 * (target.bandwidth or 100), 1e9 * (target.link or 8), 1e9 * (target.gflops or 1000),
            1e-9 * (target.launch or 5000),
        )  # fmt: skip


def shared_out(graph: Graph, groups: Sequence[Group], target: GpuTarget, host: Target) -> tuple[list[Group], list[str]]:
    """The groups, some of them as the CPU's, with the least predicted time in all; and what was decided, as notes."""
    if BESIDE not in target.features:
        return list(groups), []
    figures = Figures.of(target)
    where = storage(graph)

    def base(name: str) -> str:
        return where[name][0] if name in where else name

    work = [
        Work(0.0, 0.0, (), [base(n) for n in graph.inputs]),  # the caller's: on the CPU, as what is handed back
        *(_work(g, figures, host, base) for g in groups),
        Work(0.0, 0.0, [base(n) for n in graph.outputs], ()),
    ]
    for end in (0, -1):
        work[end] = replace(work[end], first=inf)
    sizes = {t: _bytes(graph, t) for w in work for t in (*w.reads, *w.makes) if graph.tensors[t].const is None}
    crossing = {t: TRANSFER + n / figures.link for t, n in sizes.items()}
    second = two_sides(work, crossing)[1:-1]
    found = [on_cpu(g) if there and g.key else g for g, there in zip(groups, second, strict=True)]
    return found, _notes(found, work[1:-1])


def _notes(groups: Sequence[Group], work: Sequence[Work]) -> list[str]:
    kernels = [(g, w) for g, w in zip(groups, work, strict=True) if g.key]
    there = [(g, w) for g, w in kernels if is_on_cpu(g)]
    total = sum(w.second if is_on_cpu(g) else w.first for g, w in kernels)
    named = [
        f"{g.label} '{g.nodes[0].name or g.outputs[0]}' on the CPU: {1e6 * w.second:.1f} us there, "
        f"{1e6 * w.first:.1f} us on the GPU, without transfers"
        for g, w in there[:NAMED]
    ]
    return [
        f"{len(there)} of {counted(len(kernels), 'kernel')} on the CPU, by predicted times: "
        f"{1e6 * total:.1f} us in all",
        *named,
        *([f"{len(there) - NAMED} more on the CPU"] if len(there) > NAMED else []),
    ]


def _work(group: Group, figures: Figures, host: Target, base: Callable[[str], str]) -> Work:
    reads, makes = [base(n) for n in group.inputs], [base(n) for n in group.outputs]
    if not group.key or group.scop is None:
        return Work(inf, 0.0, reads, makes)
    asked = work_of(group.scop, host)
    if asked is None:
        return Work(0.0, inf, reads, makes)
    moved = sum(asked.read.get(level, 0.0) + asked.write.get(level, 0.0) for level in LEVELS)
    arithmetic = (asked.flops + asked.operations) / (REACHED * figures.flops)
    gpu = figures.launch + max(arithmetic, moved / (REACHED * figures.memory))
    return Work(gpu, predict(asked, nominal(host)).seconds, reads, makes)


def _bytes(graph: Graph, name: str) -> int:
    tensor = graph.tensors[name]
    if tensor.dtype is None or tensor.shape is None or not all(isinstance(n, int) for n in tensor.shape):
        return 0
    return prod(tensor.shape) * tensor.dtype.bytes  # type: ignore[arg-type]
