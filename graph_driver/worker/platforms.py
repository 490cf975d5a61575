"""What code is made for: a machine, the back end that makes the code, and how many threads run it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from polyc.emit import targets
from polyc.emit.c import c99, cc
from polyc.emit.gpu import targets as gpu_targets
from polyc.graph_driver.worker.gpu import BACKEND as GPU_BACKEND
from polyc.poly.errors import BuildError
from polyc.poly.target import GpuTarget, Target

C_SOURCES = "c99"
"""What `inspect` and `explain` call the C sources that `polyc compile --target c` writes."""

Kind = Literal["llvm", "c", "c99", "gpu"]
KINDS: tuple[Kind, ...] = ("llvm", "c", "c99", "gpu")


@dataclass(frozen=True)
class Platform:
    """`kind` is the back end: machine code through LLVM or a C compiler, C sources, or kernels of a GPU.

    `machine` is the CPU that schedules and costs assume; of a GPU the host, which runs what has no kernel there.
    `threads` are for parallel loops.
    """

    machine: Target
    kind: Kind
    threads: int = 1
    gpu: GpuTarget | None = None

    @property
    def backend(self) -> str:
        """What jobs and cache keys call the back end."""
        return self.kind if self.gpu is None else GPU_BACKEND + self.gpu.name

    @property
    def name(self) -> str:
        """What reports and errors call it."""
        return self.gpu.name if self.gpu is not None else self.machine.name if self.kind == "llvm" else self.kind

    def for_bodies(self) -> Platform:
        """Where the bodies of control flow run: with the host's steps."""
        return self if self.gpu is None else Platform(self.machine, "llvm")


def platform_of(target: str | Path | Target | GpuTarget, threads: int | None = None) -> Platform:
    """The platform of `target`: `cpu` (LLVM), `c` (gcc or clang), a CPU or a GPU, its name or its file. `threads`:
    None is all cores; of a GPU it is one, whatever is given.

    Raises:
        BuildError: there is no such target, `c` without a C compiler, or no threads.
    """
    targets.check_threads(threads)
    if isinstance(target, GpuTarget):
        return Platform(targets.host(), "gpu", 1, target)
    if isinstance(target, Target):
        return Platform(target, "llvm", threads or target.threads)
    if gpu_targets.is_gpu(target):
        return Platform(targets.host(), "gpu", 1, gpu_targets.get(target))
    if target == "c" and cc.find_compiler() is None:
        raise BuildError("target 'c' needs gcc or clang on PATH; target 'cpu' needs neither")
    machine = targets.host() if target == "c" else targets.get(target)
    return Platform(machine, "c" if target == "c" else "llvm", threads or machine.threads)


def c_sources() -> Platform:
    """The unknown machine that C sources are for."""
    return Platform(c99.target(), "c99")
