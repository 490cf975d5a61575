"""Registers, spills and shared memory of compiled kernels, and the occupancy that they allow."""

from __future__ import annotations

import math
import re

from polyc.emit.gpu.program import KernelInfo, KernelText
from polyc.poly.records import dataclass
from polyc.poly.target import GpuTarget

WARP_UNIT = 4  # an SM has four schedulers, each with a quarter of the registers


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes (bytes, except `registers` of a thread and `threads` of a block).

    `blocks` run at a time on one SM, limited by `limit`; `occupancy` is their share of its warps.
    """

    kernel: str
    threads: int
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    blocks: int
    limit: str
    occupancy: float


def read_log(log: str, program: KernelText, target: GpuTarget) -> list[Resources]:
    """The resources of all kernels, from what `ptxas -v` printed."""
    found = []
    by_name = {k.name: k for k in program.kernels.values()}
    for part in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'([^']+)'", part)
        if name is None or name[1] not in by_name:
            continue
        kernel = by_name[name[1]]
        registers = _number(r"Used (\d+) registers", part)
        shared = _number(r"(\d+) bytes smem", part) + kernel.dynamic_shared
        blocks, limit = blocks_per_sm(target, math.prod(kernel.threads), registers, shared)
        found.append(
            Resources(
                kernel.name, math.prod(kernel.threads), registers, _number(r"(\d+) bytes stack frame", part),
                _number(r"(\d+) bytes spill stores", part), _number(r"(\d+) bytes spill loads", part), shared,
                blocks, limit, _share(target, kernel, blocks),
            )
        )  # fmt: skip
    return found


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return 0 if match is None else int(match[1])


def _share(target: GpuTarget, kernel: KernelInfo, blocks: int) -> float:
    warps = -(-math.prod(kernel.threads) // target.warp)
    return blocks * warps * target.warp / target.sm_threads if target.sm_threads else 0.0


def blocks_per_sm(target: GpuTarget, threads: int, registers: int, shared: int) -> tuple[int, str]:
    """Blocks that run on one SM at a time, and what limits them.

    The rules are those of NVIDIA's occupancy calculator: registers are given to warps in units and
    each scheduler has its own, shared memory to blocks in units, some of it to the system.
    """
    if not target.sm_threads:
        return 0, "unknown"
    warps = -(-threads // target.warp)
    limits = {"threads": target.sm_threads // target.warp // warps, "blocks": target.sm_blocks}
    if registers:
        unit = target.register_unit
        per_warp = -(-registers * target.warp // unit) * unit
        limits["registers"] = target.sm_registers // WARP_UNIT // per_warp * WARP_UNIT // warps
    taken = -(-(shared + target.shared_reserved) // target.shared_unit) * target.shared_unit
    if taken:
        limits["shared memory"] = target.sm_shared // taken
    limit = min(limits, key=lambda name: limits[name])
    return limits[limit], limit


def lines(resources: list[Resources]) -> list[str]:
    """One line a kernel, for people."""
    return [
        f"{r.kernel}: {r.threads} threads, {r.registers} registers, {r.spill_stores + r.spill_loads} bytes spilled, "
        f"{r.shared} bytes shared, {r.blocks} blocks an SM ({100 * r.occupancy:.0f} % of its warps, "
        f"limited by {r.limit})"
        for r in resources
    ]
