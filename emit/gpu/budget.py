"""What a launch needs of its GPU, checked before anything is compiled."""

from __future__ import annotations

from math import prod

from polyc.emit.loop_ir.loops import Alloc, Function, Launch, walk
from polyc.poly.errors import BuildError
from polyc.poly.expr import Const
from polyc.poly.records import dataclass
from polyc.poly.target import GpuTarget

OWN_REGISTERS = 24  # of a thread, for addresses and loops: an estimate


@dataclass(frozen=True, slots=True)
class Needs:
    """`shared`: bytes of a block; `registers`: of 32 bits for each thread, those of buffers and an estimate
    for everything else."""

    launch: str
    threads: int
    shared: int
    registers: int


def needs(launch: Launch) -> Needs:
    """The resources of one launch."""
    sizes = {"shared": 0, "register": 0}
    for s in walk(launch.body):
        if isinstance(s, Alloc) and s.buffer.space in sizes:
            count = prod(int(e.value) if isinstance(e, Const) else 1 for e in s.buffer.shape)
            sizes[s.buffer.space] += count * s.buffer.dtype.bytes
    return Needs(launch.name, launch.block_threads, sizes["shared"], OWN_REGISTERS + -(-sizes["register"] // 4))


def check_budget(fn: Function, target: GpuTarget) -> Function:
    """`fn`, if all its launches fit.

    Raises:
        BuildError: too many threads, too much shared memory or too many registers; says how many.
    """
    for s in walk(fn.body):
        if isinstance(s, Launch):
            n = needs(s)
            _within(n.launch, n.threads, target.max_threads, "threads a block", target)
            for (_, count), most, axis in zip(s.threads, target.max_block, "xyz"):
                _within(n.launch, count, most, f"threads along {axis}", target)
            _within(n.launch, n.shared, target.shared, "bytes of shared memory a block", target)
            _within(n.launch, n.registers, target.registers, "registers a thread", target)
            together = n.registers * n.threads
            _within(n.launch, together, target.block_registers, "registers a block", target)
    return fn


def _within(launch: str, wanted: int, most: int, what: str, target: GpuTarget) -> None:
    if wanted > most:
        raise BuildError(f"{launch} needs {wanted} {what}, but '{target.name}' has {most}: make the tiles smaller")
