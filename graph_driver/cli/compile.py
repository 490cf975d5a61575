"""`polyc compile`, and what all commands that compile share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emit.gpu import targets as gpu_targets
from graph_driver.artifacts.package import is_package
from graph_driver.cli.inspect import UsageError, parse_bindings, parse_dims
from graph_driver.model import TARGETS, Model, Progress, compile_model
from graph_driver.passes.manager import Pass, select
from poly.errors import ArgumentError

if TYPE_CHECKING:
    from graph_driver.cli.models import Choices


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Progress | None]:
    """A bar on stderr when that is a terminal, else nothing."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, object] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield update


def pass_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The choice of graph passes, as `compile_model` takes it. Raises `UsageError`."""
    names = {"passes": None, "disable": ""} | vars(arguments)
    chosen = None if names["passes"] is None else [n for n in names["passes"].split(",") if n]
    disabled = [n for n in names["disable"].split(",") if n]
    if names.get("select") == "naive":
        disabled += ["siblings", "winograd", "external"]  # the baseline: each node as its operator is defined
    try:
        select(chosen, disabled)
    except ArgumentError as error:
        raise UsageError(str(error)) from None
    return {
        "passes": chosen, "disable": disabled, "fast_math": bool(names.get("fast_math")),
        "dtype": names.get("dtype"), "keep_f32": [n for n in (names.get("keep_f32") or "").split(",") if n],
    }  # fmt: skip


def pipeline_of(arguments: argparse.Namespace) -> tuple[Pass, ...]:
    """The graph passes that the arguments ask for. Raises `UsageError`."""
    return select(**pass_options(arguments), exact=arguments.exact)


def contiguous_of(arguments: argparse.Namespace) -> list[list[str]]:
    """The groups of tensors that are to lie one behind the other."""
    return [[n for n in text.split(",") if n] for text in vars(arguments).get("contiguous", ())]


def choices_of(arguments: argparse.Namespace) -> Choices:
    """How the arguments of `inspect` and `explain` want a model compiled. Raises `UsageError`."""
    from graph_driver.cli.models import Choices

    return Choices(
        arguments.target or "cpu", arguments.threads, parse_dims(arguments.dim), parse_bindings(arguments.bind),
        pipeline_of(arguments), arguments.select != "naive", arguments.planner, arguments.tasks, arguments.tuned,
    )  # fmt: skip


def check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that make no sense. Raises `UsageError`."""
    if arguments.target not in (None, *TARGETS) and not gpu_targets.is_gpu(arguments.target):
        known = ", ".join((*TARGETS, *gpu_targets.names()))
        raise UsageError(f"no target '{arguments.target}' for models in this version (it has {known})")
    if arguments.threads is not None and arguments.threads < 1:
        raise UsageError(f"--threads must be at least 1, not {arguments.threads}")


def compile_from(
    arguments: argparse.Namespace, shapes: Mapping[str, Sequence[int]] | None = None, memory_limit: int | None = None,
    symbolic: bool | None = None,
) -> Model:  # fmt: skip
    """Compile the model that the arguments name."""
    check_options(arguments)
    if is_package(Path(arguments.model)):
        raise UsageError(f"{arguments.model} is a compiled model already; expected an ONNX file")
    with progress_bar(arguments.json) as progress:
        return compile_model(
            arguments.model, target=arguments.target or "cpu", threads=arguments.threads,
            dims=parse_dims(arguments.dim), shapes=shapes, memory_limit=memory_limit, progress=progress,
            exact=arguments.exact, symbolic=symbolic, **pass_options(arguments),
            bind=parse_bindings(arguments.bind), fuse=arguments.select != "naive", planner=arguments.planner,
            tasks=arguments.tasks, tuned=arguments.tuned, contiguous=contiguous_of(arguments),
        )  # fmt: skip


def compile_command(arguments: argparse.Namespace) -> int:
    """Compile, save, print the report."""
    if arguments.target == "c":
        return _compile_to_c(arguments)
    output: Path = arguments.output or arguments.model.with_suffix(".polyc")
    model = compile_from(arguments, memory_limit=arguments.memory_limit)
    with model.report().stage("save"):
        model.save(output)
    if arguments.json:
        print(json.dumps({"output": str(output)} | model.report().to_dict(), indent=2, sort_keys=True))
    else:
        print(f"wrote    {output}\n{model.report()}")
    return 0


def _compile_to_c(arguments: argparse.Namespace) -> int:
    """Write C sources instead of machine code."""
    from graph_driver.artifacts.c_export import export_c

    check_options(arguments)
    if is_package(arguments.model):
        raise UsageError(f"{arguments.model} is a compiled model already; expected an ONNX file")
    if arguments.threads not in (None, 1):
        raise UsageError("C sources have one thread: leave out --threads")
    if arguments.contiguous:
        raise UsageError("the arena of C sources is their own: leave out --contiguous")
    if arguments.tasks or arguments.tuned:
        raise UsageError("C sources have one thread and schedules for any machine: leave out --tasks and --tuned")
    output: Path = arguments.output or arguments.model.with_name(f"{arguments.model.stem}_c")
    with progress_bar(arguments.json) as progress:
        report, files = export_c(
            arguments.model, output, None, parse_dims(arguments.dim), arguments.memory_limit, progress,
            pipeline_of(arguments), parse_bindings(arguments.bind), arguments.select != "naive", arguments.planner,
        )  # fmt: skip
    if arguments.json:
        print(json.dumps({"output": str(output), "files": list(files)} | report.to_dict(), indent=2, sort_keys=True))
    else:
        print(f"wrote    {output}: {', '.join(files)}\n{report}")
    return 0
