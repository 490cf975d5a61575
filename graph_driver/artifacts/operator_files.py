"""An operator as files of its own: `polyc build FILE.py:OP -o DIR`, `op.build(DIR)`.

    NAME.c        C99 source that needs no other file
    NAME.h        header, for C and C++; with it NAME_main.c, a program that runs the operator
    NAME.ll       LLVM IR, before LLVM's passes
    NAME.mlir     MLIR, loops and accesses in the affine dialect
    NAME.s        assembly
    NAME.o        relocatable object file
    NAME.so       shared object, for C and for ctypes

Nothing of them needs Python or polyc. The interface is described in the header (`polyc.emit.interface`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.emit.c import c99
from polyc.emit.linking import shared_object
from polyc.emit.lowering.checks import wanted
from polyc.emit.standalone import SUFFIXES, Standalone, standalone
from polyc.emit.targets import check_threads
from polyc.graph_driver.backends.registry import found
from polyc.graph_driver.worker.compile_operator import auto_schedule, fitting
from polyc.poly.errors import ArgumentError, BuildError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target

if TYPE_CHECKING:
    from polyc.scheduler.schedule import Schedule

KINDS = ("c", "h", "ll", "mlir", "asm", "obj", "so")
"""What `--emit` takes."""

DEFAULT = ("c", "h", "so")
SOURCES = ("c", "h")
PORTABLE = ("c", "c99")
"""Names of the target that is no machine: C source without vectors."""


@dataclass(frozen=True)
class Built:
    """`files` by kind (`main` is the program beside the header) and the C prototype of the function."""

    name: str
    prototype: str
    files: Mapping[str, Path]
    notes: tuple[str, ...]


def kinds_of(emit: str | Sequence[str] | None) -> tuple[str, ...]:
    """Kinds of files as a tuple; text is split at commas.

    Raises:
        ArgumentError: an unknown kind (the known ones are listed), or none.
    """
    wanted = DEFAULT if emit is None else emit.split(",") if isinstance(emit, str) else emit
    kinds = tuple(dict.fromkeys(k.strip() for k in wanted if k.strip()))
    for kind in kinds:
        if kind not in KINDS:
            raise ArgumentError(f"there is no kind of file '{kind}' to emit; choose from {', '.join(KINDS)}")
    if not kinds:
        raise ArgumentError(f"nothing to emit; choose from {', '.join(KINDS)}")
    return kinds


def code_of(
    scop: Scop, target: str | Path | Target | None = None, sizes: Mapping[str, int] | None = None,
    schedule: Schedule | None = None, threads: int | None = None, name: str | None = None, usage: str = "",
    checks: bool | None = None,
) -> Standalone:  # fmt: skip
    """The texts of an operator.

    Args:
        target: a CPU, its name, or a TOML file; `c99`: no machine, C source without vectors.
        sizes: values of sizes; the others are arguments of the function.
        schedule: instead of the automatic ones (None).
        threads: of parallel loops (None: 1).
        name: of the function (None: the operator's own, made fit for C).
        checks: of accesses that are not proven (None: unless `POLYC_CHECK=0`).

    Raises:
        BuildError: the target is unknown or a GPU, or there is no code for the schedule.
        ScheduleError: `schedule` belongs to another operator.
    """
    check_threads(threads)
    portable = c99.target()
    only_c = isinstance(target, str) and target in PORTABLE
    machine = portable if only_c else cpu_target(target).without_matrices()  # whoever calls it has not asked for them
    if schedule is None:
        chosen = auto_schedule(scop, machine, sizes, threads or 1)
        plain = chosen if only_c else auto_schedule(scop, portable, sizes, 1)
    else:
        chosen = plain = fitting(scop, schedule, sizes)
    return standalone(
        (chosen.scop, chosen.tree), (plain.scop, plain.tree), machine, portable, threads or 1, name, usage,
        vectors=not only_c, notes=tuple(chosen.notes), checks=wanted(checks), program=chosen.original,
    )  # fmt: skip


def cpu_target(target: Any) -> Target:
    """The CPU that files are for.

    Raises:
        BuildError: it is unknown, or no CPU.
    """
    backend, machine = found(target)
    cpu = backend.costed(machine)
    if cpu is None:
        texts = "|".join(stage for stage in backend.stages if stage != "loops")
        raise BuildError(f"files of an operator are for CPUs, and {backend.shown(machine)} is none: "
                         f"polyc inspect --stage {texts} prints its kernels")  # fmt: skip
    return cpu


def write_operator(code: Standalone, folder: Path, kinds: Sequence[str]) -> Built:
    """Write files of the given kinds; those of the same names are replaced.

    Raises:
        BuildError: no machine code for C sources, no linker, or the folder cannot be written.
    """
    name = code.interface.name
    made: dict[str, bytes] = {}
    for kind in kinds:
        if kind not in SOURCES and not code.machine.triple:
            raise BuildError(f"--emit {kind} needs a machine, and the target c99 is none: it has {', '.join(SOURCES)}")
        made[kind] = _MAKERS[kind](code)
        if kind == "h":
            made["main"] = code.main().encode("ascii")
    files = {kind: folder / f"{name}{SUFFIXES[kind]}" for kind in made}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, data in made.items():
            files[kind].write_bytes(data)
            files[kind].chmod(0o755 if kind == "so" else 0o644)
    except OSError as error:
        raise BuildError(f"cannot write {folder}: {error.strerror or error}") from None
    return Built(name, code.prototype, files, code.notes)


_MAKERS: Mapping[str, Callable[[Standalone], bytes]] = {
    "c": lambda code: code.c().encode("ascii"),
    "h": lambda code: code.header().encode("ascii"),
    "ll": lambda code: code.llvm().encode(),
    "mlir": lambda code: code.mlir().encode("ascii"),
    "asm": lambda code: code.assembly().encode(),
    "obj": lambda code: code.object(),
    "so": lambda code: shared_object(code.object(), code.machine),
}


def build_operator(
    scop: Scop, folder: str | Path, emit: str | Sequence[str] | None = None, sizes: Mapping[str, int] | None = None,
    **how: Any,
) -> Built:  # fmt: skip
    """Write an operator as files. `emit`: kinds of files (None: C source, header, shared object); the rest as
    `code_of` takes it.

    Raises:
        ArgumentError: an unknown kind.
        BuildError: as `code_of` and `write_operator`.
    """
    kinds = kinds_of(emit)
    return write_operator(code_of(scop, sizes=sizes, **how), Path(folder), kinds)
