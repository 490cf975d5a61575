"""`polyc compile MODEL --emit mlir`: all kernels of a model as one MLIR module."""

from __future__ import annotations

import argparse
from pathlib import Path

from polyc.emit.compile import optimised_function
from polyc.emit.kernel import Report
from polyc.emit.loop_ir.loops import Function
from polyc.emit.lowering.checks import self_describing, wanted
from polyc.emit.mlir.source import module
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.cli.inspect import UsageError
from polyc.graph_driver.cli.models import formed_of, kernels_of, optimised, schedule_of
from polyc.graph_driver.compiling.stages import symbol_of
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.worker import tuned as use
from polyc.poly.depth import nested


def write_mlir(arguments: argparse.Namespace, options: CompileOptions) -> None:
    """Write the module; what runs on the host has no kernel and is not in it.

    Raises:
        UsageError: the target is no CPU, or `--stop-after` and `--dump-after` are given, too.
        ModelError: the model cannot be read.
        BuildError: a kernel has no code, or the file cannot be written.
    """
    if arguments.stop_after is not None or arguments.dump_after is not None:
        raise UsageError("--emit mlir needs all stages: leave out --stop-after and --dump-after")
    path: Path = arguments.model
    target: Path = arguments.output or path.with_suffix(".mlir")
    kernels = model_kernels(path, options)
    try:
        target.write_text(module(kernels), encoding="ascii")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from None
    print(f"wrote    {target}: {len(kernels)} kernels")


def model_kernels(path: Path, options: CompileOptions) -> list[tuple[str, Function]]:
    """The distinct kernels of a model, ready to be printed, each with what it computes.

    Raises:
        UsageError: the target is no CPU.
        ModelError: the model cannot be read.
        BuildError: a kernel has no code.
    """
    platform = platform_of(options.target, options.threads, runs=False)
    if "mlir" not in platform.backend.stages:
        raise UsageError(f"--emit mlir is for CPUs, and {platform.meant} is none")
    graph, _ = optimised(path, options, platform)
    groups, _ = formed_of(graph, platform, options)
    made = []
    with use.tuned(options.tuned):
        for title, group in kernels_of(groups):
            schedule, name = schedule_of(group, platform), symbol_of(group.key)
            with nested(name):
                loops = optimised_function(
                    schedule.scop, schedule.tree, name, platform.machine, "mlir", Report(), wanted(options.checks)
                )
                made.append((title, self_describing(loops)))
    return made
