"""What the automatic strategies make of a Scop on a target: canonical texts and their hashes."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.emit.gpu import targets as gpu_targets
from polyc.emit.gpu.kernel import compile_gpu
from polyc.poly import json_io
from polyc.poly.errors import PolycError
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget, Target
from polyc.poly.text import print_tree
from polyc.scheduler.strategies.auto import automatic

from .canonical import canonical_loops, canonical_tree

TARGETS = ("x86-64-v3", "x86-64-v3/2", "x86-64-v4", "aarch64", "sm_80", "sm_90", "opencl")
"""Machines; `/2` is a CPU with two threads, on the others it is one."""


@dataclass(frozen=True)
class Made:
    """The tree and the loops as text, up to names; where there are none, the refusal in both."""

    tree: str
    loops: str
    exact_tree: str

    @property
    def text(self) -> str:
        """The tree, an empty line, the loops."""
        return f"{self.tree}\n\n{self.loops}".rstrip("\n") + "\n"

    @property
    def hashes(self) -> tuple[str, str]:
        """12 hexadecimal digits for the tree, 12 for the loops."""
        return _short(self.exact_tree), _short(self.loops)


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def machine_of(target: str) -> tuple[Target | GpuTarget, int]:
    """The machine of one of `TARGETS`, and its threads."""
    machine, _, threads = target.partition("/")
    return (gpu_targets if gpu_targets.is_gpu(machine) else targets).get(machine), int(threads or 1)


def make(scop: Scop, target: str) -> Made:
    """What the automatic strategies make of `scop` on `target` today."""
    machine, workers = machine_of(target)
    try:
        schedule = automatic(scop, machine, workers)
        if isinstance(machine, GpuTarget):
            loops = compile_gpu(schedule.scop, schedule.tree, machine, "golden").program.text
        else:
            kernel = compile_kernel(schedule.scop, schedule.tree, machine, "interp", workers, "golden")
            loops = str(kernel.source("loops"))
    except PolycError as error:
        refusal = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return Made(refusal, refusal, refusal)
    tree = canonical_tree(schedule.tree)
    loops = canonical_loops(loops, {*scop.args, *scop.results})
    return Made(print_tree(tree, schedule.scop), loops, json_io.dump_tree(tree))
