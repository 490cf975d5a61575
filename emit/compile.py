"""From a Scop and its schedule tree to a callable kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from polyc.emit import cache, targets
from polyc.emit.kernel import Kernel, Native, Report, unsupported
from polyc.emit.llvm import jit
from polyc.emit.llvm.ir import STACK_BYTES, STACK_TOTAL
from polyc.emit.loop_ir.loops import Buffer, Function
from polyc.emit.loop_ir.verify import Known, verify
from polyc.emit.lowering.checks import self_describing, wanted
from polyc.emit.lowering.lower import lower
from polyc.emit.mathlib import expand_function
from polyc.emit.passes.prefetch import prefetch_panels
from polyc.emit.passes.stages import cut_into_stages
from polyc.emit.passes.workspace import hoist
from polyc.emit.recipe import Recipe
from polyc.emit.targets import check_runs_here, own_instructions
from polyc.poly.budgets import check_time, time_limit
from polyc.poly.depth import nested
from polyc.poly.errors import BuildError
from polyc.poly.interrupts import interruptible
from polyc.poly.scop import Scop
from polyc.poly.spans import span
from polyc.poly.target import Target
from polyc.poly.tree import Node

BACKENDS = ("llvm", "c", "interp")

__all__ = ["BACKENDS", "build", "check_runs_here", "compile_kernel", "load", "source_text"]


def compile_kernel(
    scop: Scop,
    tree: Node,
    target: Target | str | None = None,
    backend: str = "llvm",
    threads: int = 1,
    name: str | None = None,
    notes: Sequence[str] = (),
    checks: bool | None = None,
) -> Kernel:
    """Lower, print, compile (or find in the cache) and load.

    `backend`: `llvm` needs no compiler; `c` needs gcc or clang; `interp` runs the loop IR in
    Python. `threads` > 1 runs parallel loops on a pool. `notes` start the kernel's report. `checks`: whether
    accesses that may leave their arrays are checked (None: unless `POLYC_CHECK=0`).

    Raises:
        BuildError: unknown back end or target, no C compiler, or no code for this tree.
    """
    if backend not in BACKENDS:
        raise BuildError(f"unknown back end '{backend}'; choose from {', '.join(BACKENDS)}")
    machine = target if isinstance(target, Target) else targets.get(target)
    report = Report(notes=[*notes])
    with interruptible(), time_limit(scop.name), nested(scop.name):
        function = optimised_function(scop, tree, name or scop.name, machine, backend, report, wanted(checks))
        native = None if backend == "interp" else build(function, machine, backend, report)
    report.notes += [n for n in cache.notes() if n not in report.notes]
    kernel = Kernel(scop, function, machine, backend, threads, native, report)
    rest = backend, threads, name, tuple(notes), wanted(checks)
    kernel.recipe = Recipe(compile_kernel, scop, tree, machine, rest)
    return kernel


def compile_step(
    scop: Scop,
    tree: Node,
    target: Target,
    backend: str,
    name: str,
    notes: Sequence[str] = (),
    checks: bool = False,
    overlapping: bool = False,
) -> tuple[Function, tuple[Buffer, ...], Native, Report]:
    """Machine code for one step of a program that plans its memory.

    Large local arrays are buffer arguments after the Scop's own, as far as the sizes of the Scop give
    theirs; they are returned beside the function. With `checks`, the record of violated accesses is one of them, if
    the Scop needs one (`checks.self_describing`). With `overlapping`, no argument is assumed to lie apart from another:
    the code keeps the order of accesses to all of them (`polyc.emit.loop_ir.overlap` says what that allows).

    Raises:
        BuildError: no C compiler, or no code for this tree.
    """
    report = Report(notes=[*notes])
    with interruptible(), time_limit(name), nested(name):
        made = self_describing(optimised_function(scop, tree, name, target, backend, report, checks))
        function, scratch = hoist(made, STACK_BYTES, STACK_TOTAL, symbolic=True)
        scratch = (*made.buffers[-1:], *scratch) if made.checks else scratch
        own = {b.name for b in scratch}  # the plan gives these places at multiples of 64 bytes
        function = replace(function, buffers=tuple(replace(b, aligned=b.name in own) for b in function.buffers))
        if overlapping:
            function = replace(function, buffers=tuple(replace(b, apart=False) for b in function.buffers))
        native = build(function, target, backend, report)
    report.notes += [n for n in cache.notes() if n not in report.notes]
    return function, scratch, native, report


def optimised_function(
    scop: Scop, tree: Node, name: str, target: Target, backend: str, report: Report, checks: bool = False
) -> Function:
    """The finished loop IR, with `checks` of accesses if wanted."""
    known = Known()
    with _stage(report, "lower"):
        function = lower(scop, tree, name, target, checks=checks, known=known)
    report.notes += function.notes
    verified = function.body
    with _stage(report, "expand"):
        function = expand_function(function, own_instructions(target) if backend == "llvm" else frozenset())
    with _stage(report, "stages"):
        function = cut_into_stages(function)
        if function.body is not verified:
            verify(function, "stages", known)
            verified = function.body
    with _stage(report, "prefetch"):
        function = prefetch_panels(function, target)
        if function.body is not verified:
            verify(function, "prefetch", known)
    return function


def build(function: Function, target: Target, backend: str, report: Report) -> Native:
    """Machine code of a finished loop-IR function, loaded into this process if it can run here.

    Raises:
        BuildError: no compiler, or the C back end for another machine (its text is `source_text`).
    """
    here = targets.obstacle(target) is None
    if backend == "c" and not here:
        check_runs_here(target)
    with _stage(report, "print"):
        text = source_text(function, target, backend)
    report.source_bytes = len(text)
    with _stage(report, "compile"):
        if backend == "c":
            from polyc.emit.c import cc

            key = cache.make_key("c", text, repr(target), " ".join(cc.FLAGS), cc.find_compiler() or "")
            image, report.cache_hit = cache.cached(key, lambda: cc.build_shared(text), ".so")
        else:
            key = cache.make_key("llvm", text, repr(target), jit.called(text))
            image, report.cache_hit = cache.cached(key, lambda: jit.build_object(text, target))
    report.code_bytes = len(image)
    if not here:
        report.notes.append(f"not loaded: {targets.obstacle(target)}")
        return Native(0, None, image)
    with _stage(report, "load"):
        return load(image, function.name, backend)


def load(image: bytes, entry: str, backend: str) -> Native:
    """Bring compiled code into this process.

    Raises:
        BuildError: the image is damaged or made for another machine.
    """
    if backend == "c":
        import ctypes

        from polyc.emit.c import cc

        library: Any = cc.load_shared(image)
        address = ctypes.cast(getattr(library, entry), ctypes.c_void_p).value
        return Native(int(address or 0), library, image)
    library = jit.Library([image], [entry])
    return Native(library.address(entry), library, image)


def source_text(function: Function, target: Target, kind: str) -> str:
    """A finished function as text: `loops`, `llvm`, `c`, `asm` or `mlir`."""
    if kind == "loops":
        from polyc.emit.loop_ir.printer import to_text

        return to_text(function)
    if kind == "llvm":
        from polyc.emit.llvm.ir import to_llvm

        return to_llvm(function, target)
    if kind == "c":
        from polyc.emit.c.source import to_c
        from polyc.emit.passes.matrices_in_memory import matrices_in_memory

        plain = expand_function(matrices_in_memory(function))  # what LLVM has an instruction for, too
        return to_c(plain, target)
    if kind == "mlir":
        from polyc.emit.mlir.source import to_mlir

        return to_mlir(function)
    if kind == "asm":
        return jit.assembly(source_text(function, target, "llvm"), target)
    raise unsupported(kind)


@contextmanager
def _stage(report: Report, name: str) -> Iterator[None]:
    check_time(name)
    start = time.perf_counter()
    with span(name):
        yield
    report.seconds[name] = report.seconds.get(name, 0.0) + time.perf_counter() - start
