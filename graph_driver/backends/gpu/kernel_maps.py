"""What each kernel of a GPU function maps to: loops to blocks and threads, buffers to memories, and what a block
moves and takes. One description for the text, the page and `--json`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import islpy as isl

from polyc.emit.gpu.budget import needs
from polyc.emit.gpu.devices import nvidia
from polyc.emit.gpu.program import Program
from polyc.emit.gpu.resources import Resources, blocks_per_sm
from polyc.emit.gpu.traffic import Traffic, block_traffic, blocks
from polyc.emit.loop_ir.loops import Alloc, Barrier, Block, For, Function, If, Launch, Let, Stmt, Store, walk
from polyc.emit.loop_ir.printer import expr_text
from polyc.poly.binding import evaluate
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Const
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget
from polyc.poly.tree import Band, Node, is_bound
from polyc.poly.tree import walk as walk_tree

if TYPE_CHECKING:
    from polyc.emit.gpu.kernel import GpuKernel

TYPICAL = 1024  # sizes that nobody gave


@dataclass(frozen=True)
class Axis:
    """A dimension of the grid or of a block: its variable in the text, its extent (`count` at the sizes), and the
    loops of the schedule tree that are bound to it."""

    axis: str
    variable: str
    extent: str
    count: int | None
    loops: tuple[str, ...]


@dataclass(frozen=True)
class Held:
    """A buffer inside the kernel (`array`: the promotion that it is for); bytes of a block, or of a thread."""

    space: str
    name: str
    type: str
    bytes: int
    array: str


@dataclass(frozen=True)
class KernelMap:
    """One kernel. `moved` is of its first block at `sizes` (None where they leave something open); `resources`
    are the compiler's; without one `registers` is an estimate and `blocks` of an SM and `limit` follow from it."""

    name: str
    given: str
    axes: tuple[Axis, ...]
    held: tuple[Held, ...]
    threads: int
    shared: int
    barriers: int
    registers: int
    blocks: int
    limit: str
    occupancy: float
    sizes: dict[str, int]
    moved: Traffic | None
    resources: Resources | None

    def data(self) -> dict[str, Any]:
        """As JSON values; traffic as a list of (memory, array, direction, bytes)."""
        plain = asdict(self)
        if self.moved is not None:
            plain["moved"] = {"exact": self.moved.exact, "bytes": [[*k, n] for k, n in self.moved.bytes.items()]}
        return plain


def kernel_maps(kernel: GpuKernel, tree: Node, sizes: Mapping[str, int] | None = None) -> list[KernelMap]:
    """All kernels in the order of their text. Sizes that are not given are taken as `TYPICAL`.

    The resources are those of the CUDA compiler, where the target is NVIDIA's and one is here.
    """
    compiled: dict[str, Resources] = {}
    if kernel.program.language == "cuda" and nvidia.compiler() is not None:
        compiled = {r.kernel: r for r in kernel.cubin().resources}
    return maps_of(kernel.scop, kernel.function, kernel.program, kernel.gpu, tree, sizes or {}, compiled)


def maps_of(
    scop: Scop, fn: Function, program: Program, target: GpuTarget, tree: Node, sizes: Mapping[str, int],
    compiled: Mapping[str, Resources],
) -> list[KernelMap]:  # fmt: skip
    """The same of a function and its text."""
    chosen = typical(scop, sizes)
    return [
        _one(fn, launch, program, target, tree, env, chosen, compiled.get(program.kernels[launch.name].name))
        for launch, env in _launches(fn.body, chosen)
    ]


def typical(scop: Scop, given: Mapping[str, int]) -> dict[str, int]:
    """Values of all sizes: `TYPICAL` where none is given; empty when the operator does not allow that."""
    sizes = {p: given.get(p, TYPICAL) for p in scop.params}
    allowed = scop.context
    for k in range(allowed.dim(isl.dim_type.param)):
        name = allowed.get_dim_name(isl.dim_type.param, k)
        allowed = allowed.fix_val(isl.dim_type.param, k, isl.Val(sizes[name])) if name in sizes else allowed
    return {} if allowed.is_empty() else sizes


def _launches(s: Stmt, env: dict[str, int] | None) -> Iterator[tuple[Launch, dict[str, int] | None]]:
    """Every launch with the host's variables in the first iteration of its loops (None: not known)."""
    if isinstance(s, Launch):
        yield s, env
    elif isinstance(s, Block | If):
        for body in s.bodies():
            yield from _launches(body, env)
    else:
        inner = env
        if isinstance(s, For | Let):
            name, value = (s.var, s.lo) if isinstance(s, For) else (s.name, s.value)
            found = None if env is None else _number(value, env)
            inner = None if env is None or found is None else env | {name: found}
        for body in s.bodies():
            yield from _launches(body, inner)


def _number(e: object, env: Mapping[str, int]) -> int | None:
    try:
        return int(evaluate(e, dict(env)))  # type: ignore[arg-type]
    except (ArgumentError, KeyError):
        return None


def _one(
    fn: Function, launch: Launch, program: Program, target: GpuTarget, tree: Node, env: dict[str, int] | None,
    sizes: dict[str, int], compiled: Resources | None,
) -> KernelMap:  # fmt: skip
    info = program.kernels[launch.name]
    known = env if env and all(_number(n, env) is not None for _, n in launch.grid) else None
    if not fn.params and env is not None:
        known = env
    registers = compiled.registers if compiled else needs(launch).registers
    resident, limit = blocks_per_sm(target, launch.block_threads, registers, info.shared)
    share = resident * launch.block_threads / target.sm_threads if target.sm_threads else 0.0
    return KernelMap(
        info.name, " and ".join(map(expr_text, launch.given)), tuple(_axes(launch, tree, known)), tuple(_held(launch)),
        launch.block_threads, info.shared, sum(isinstance(s, Barrier) for s in walk(launch.body)), registers,
        resident, limit, compiled.occupancy if compiled else share, sizes,
        None if known is None else block_traffic(fn, launch, known), compiled,
    )  # fmt: skip


def _axes(launch: Launch, tree: Node, env: Mapping[str, int] | None) -> Iterator[Axis]:
    statements = {s.origin.statement for s in walk(launch.body) if isinstance(s, Store) and s.origin is not None}
    bound: dict[str, list[str]] = {}
    for node in walk_tree(tree):
        for m in node.members if isinstance(node, Band) else ():
            if is_bound(m.kind) and statements & m.schedule.keys():
                bound.setdefault(m.kind, []).append(m.name)
    counts = blocks(launch, env) if env is not None else (None,) * len(launch.grid)
    for letter, (v, extent), count in zip("xyz", launch.grid, counts):
        yield Axis(f"block.{letter}", v, expr_text(extent), count, tuple(bound.get(f"block.{letter}", ())))
    for letter, (v, n) in zip("xyz", launch.threads):
        yield Axis(f"thread.{letter}", v, str(n), n, tuple(bound.get(f"thread.{letter}", ())))


def _held(launch: Launch) -> Iterator[Held]:
    for s in walk(launch.body):
        if isinstance(s, Alloc):
            b = s.buffer
            shape = ", ".join(expr_text(e) for e in b.shape)
            count = math.prod(int(e.value) if isinstance(e, Const) else 1 for e in b.shape)
            yield Held(b.space, b.name, f"{b.dtype}[{shape}]", count * b.dtype.bytes, b.promoted)


def lines(k: KernelMap) -> list[str]:
    """A kernel for people."""
    out = [k.name + (f", when {k.given}" if k.given else "")]
    for a in k.axes:
        loops = f"loop {', '.join(a.loops)}" if a.loops else "no loop of the schedule"
        out.append(f"  {a.axis:9} {a.variable} < {a.extent}: {loops}")
    out += [f"  {h.space:9} {h.name}: {h.type}, {h.bytes} bytes" + (f", holds {h.array}" if h.array else "")
            for h in k.held]  # fmt: skip
    out.append(f"  a block   {k.threads} threads, {k.shared} bytes of shared memory, {k.barriers} barriers")
    if k.moved is not None:
        at = f" at {', '.join(f'{n} = {v}' for n, v in k.sizes.items())}" if k.sizes else ""
        most = "" if k.moved.exact else " at most"
        out.append(f"  moves    {most} {_traffic(k.moved)} (the first block{at})")
    how = f"{k.registers} registers a thread" if k.resources else f"about {k.registers} registers a thread (estimate)"
    if k.resources:
        how += f", {k.resources.spill_loads + k.resources.spill_stores} bytes spilled"
    if k.blocks:
        how += f"; {k.blocks} blocks an SM, {100 * k.occupancy:.0f} % of its warps, limited by {k.limit}"
    return [*out, f"  takes     {how}"]


def _traffic(found: Traffic) -> str:
    parts = []
    for memory in ("global", "shared"):
        for way in ("read", "written"):
            arrays = {a: n for (m, a, w), n in found.bytes.items() if (m, w) == (memory, way)}
            if arrays:
                each = ", ".join(f"{n} {a}" for a, n in arrays.items())
                parts.append(f"{memory} {way} {sum(arrays.values())} bytes ({each})")
    return "; ".join(parts) or "nothing"
