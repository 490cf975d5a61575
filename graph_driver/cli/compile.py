"""`polyc compile`, and what all commands that compile share."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polyc.graph_driver.artifacts.package import is_package
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.cli.inspect import UsageError, check_target, is_operator, parse_bindings, parse_dims
from polyc.graph_driver.cli.sizes import with_sizes
from polyc.graph_driver.compile_model import compile_with
from polyc.graph_driver.compiling.from_source import compile_built, compile_staged, import_with
from polyc.graph_driver.graph.progress import Progress, progress_bar
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.graph.timings import chrome_trace, timings
from polyc.graph_driver.importing.graph_files import is_graph_file, is_stage_file
from polyc.graph_driver.options import FULL, USUAL, CompileOptions
from polyc.graph_driver.passes import manager
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError
from polyc.poly.spans import Span, keep, recording


def options_of(
    arguments: argparse.Namespace, shapes: Mapping[str, Sequence[int]] | None = None, symbolic: bool | None = None,
    progress: Progress | None = None,
) -> CompileOptions:  # fmt: skip
    """How the arguments of any command want a model compiled.

    Raises:
        UsageError: a value that makes no sense.
    """
    check_target(arguments)
    given = vars(arguments)
    naive = given["select"] == "naive"  # the baseline: each node as its operator is defined
    if naive and given["keep_op_borders"]:
        raise UsageError("--keep-op-borders has no effect beside --select naive, which keeps them")
    passes = None if given["passes"] is None else names_in(given["passes"])
    disabled = names_in(given["disable"]) + (["siblings", "winograd", "external"] if naive else [])
    try:
        manager.select(passes, disabled)
    except ArgumentError as error:
        raise UsageError(str(error)) from None
    as_they_are = (
        "threads", "exact", "reproducible", "fast_math", "planner", "tasks", "tuned", "precision", "layouts",
        "strict_annotations",
        "max_error", "allow_downcast",
    )  # fmt: skip
    return CompileOptions(
        target=given["target"] or "cpu",
        dims=parse_dims(given["dim"]),
        bind=parse_bindings(given["bind"]),
        shapes=shapes or {},
        symbolic=symbolic,
        fuse=not (naive or given["keep_op_borders"]),
        passes=passes,
        disable=disabled,
        keep_f32=names_in(given["keep_f32"] or ""),
        narrow_only=names_in(given["narrow_only"] or ""),
        data={} if given["data"] is None else arrays_of(given["data"]),
        memory_limit=given.get("memory_limit"),
        memory=given.get("memory", USUAL),
        contiguous=[names_in(text) for text in given.get("contiguous", ())],
        progress=progress,
        strict_shapes=True,
        checks=False if given["no_checks"] else None,
        tier=given.get("tier", FULL),
        **{name: given[name] for name in as_they_are},
    )


def names_in(text: str) -> list[str]:
    """`A,B,...` as a list."""
    return [n for n in text.split(",") if n]


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of `--data`. Raises `UsageError`: it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        text = " ".join(str(error).split())[:120]
        raise UsageError(f"--data {path}: no .npz file with an array for each input ({text})") from None


def refuse_compiled(arguments: argparse.Namespace, path: Path, sizes: bool = False) -> None:
    """Refuse options of compiling beside a compiled directory, where they would have no effect.

    Args:
        sizes: `--dim` has an effect: it chooses the sizes of inputs.

    Raises:
        UsageError: names the first one.
    """
    for name, absent in (OF_COMPILING | ({} if sizes else {"dim": []})).items():
        if vars(arguments).get(name, absent) != absent:
            raise UsageError(f"--{name.replace('_', '-')} says how to compile, and {path} is compiled already")


OF_COMPILING: dict[str, Any] = {
    "target": None, "threads": None, "bind": [], "exact": False, "reproducible": False,
    "passes": None, "disable": "", "select": "cost",
    "keep_op_borders": False,
    "planner": None, "tasks": False, "tuned": None, "fast_math": False, "precision": None, "keep_f32": None,
    "narrow_only": None, "max_error": None, "data": None, "allow_downcast": False,
    "contiguous": [], "memory_limit": None, "memory": USUAL, "layouts": "auto", "strict_annotations": False,
    "no_checks": False, "tier": FULL,
}  # fmt: skip
"""Options that say how a model is compiled, and what they are when not given."""


def compile_from(
    arguments: argparse.Namespace, shapes: Mapping[str, Sequence[int]] | None = None, symbolic: bool | None = None
) -> Model:
    """Compile the model that the arguments name.

    With `symbolic` False sizes that nothing fixes are chosen, and the report says which.
    """
    _not_compiled(arguments)
    with progress_bar(arguments.json) as progress:
        options, chosen = options_of(arguments, shapes, symbolic, progress), ""
        if is_graph_file(arguments.model):
            platform = platform_of(options.target, options.threads)
            return compile_built(import_with(arguments.model, platform, replace(options, shapes={})), platform, options)
        if is_stage_file(arguments.model):
            return compile_staged(arguments.model, platform_of(options.target, options.threads), options)
        if symbolic is False:
            options, chosen = with_sizes(arguments.model, options)
        model = compile_with(arguments.model, options)
    model.report().sizes += [chosen] if chosen else []
    return model


def _not_compiled(arguments: argparse.Namespace) -> None:
    if is_package(Path(arguments.model)):
        raise UsageError(f"{arguments.model} is a compiled model already; expected an ONNX file")


def compile_command(arguments: argparse.Namespace) -> int:
    """Compile, save, print the report. Raises `UsageError`: it is an operator, which `polyc build` takes."""
    if is_operator(str(arguments.model)):
        raise UsageError(
            f"polyc compile takes an ONNX model; {arguments.model} is an operator: polyc build makes files of it"
        )
    shared = arguments.emit == "so"
    if shared and (arguments.stop_after is not None or arguments.dump_after is not None):
        raise UsageError("--emit so compiles to the end: leave out --stop-after and --dump-after")
    if (
        (arguments.emit is not None and not shared)
        or arguments.stop_after is not None
        or arguments.dump_after is not None
    ):
        from polyc.graph_driver.cli.dumps import dump

        if dump(arguments, options_of(arguments)):
            return 0
    with recording() as spans, _compilers(arguments.dask):
        keep(_before())
        make = _compile_to_shared if shared else _compile_to_c if arguments.target == "c" else _compile_to_directory
        files, report = make(arguments)
    if arguments.trace is not None:
        arguments.trace.write_text(json.dumps(chrome_trace(spans)), encoding="utf-8")
    if arguments.json:
        more = {"timings": [s.data() for s in spans]} if arguments.timings else {}
        print(json.dumps(files | report.to_dict() | more, indent=2, sort_keys=True))
    else:
        names = f": {', '.join(files['files'])}" if "files" in files else ""
        print(f"wrote    {files['output']}{names}\n{report}")
        print(*timings(spans) if arguments.timings else (), sep="\n", end="\n" if arguments.timings else "")
    return 0


@contextlib.contextmanager
def _compilers(dask: str | None) -> Iterator[None]:
    """What compiles kernels: processes here, or the workers of a Dask cluster."""
    if dask is None:
        yield
        return
    from polyc.graph_driver.farm.kernels import FarmCompilers
    from polyc.graph_driver.farm.opening import farm_at
    from polyc.graph_driver.worker.kernels import compiled_by

    with farm_at(dask) as farm, compiled_by(FarmCompilers(farm)):
        yield


def _before() -> Span:
    """What this process has done so far: Python's start and imports."""
    now, spent = time.monotonic(), time.process_time()
    return Span("start", now - spent, now, spent, os.getpid())


def _compile_to_directory(arguments: argparse.Namespace) -> tuple[dict[str, Any], Report]:
    output: Path = arguments.output or arguments.model.with_suffix(".polyc")
    model = compile_from(arguments)
    with model.report().stage("save"):
        model.save(output)
    return {"output": str(output)}, model.report()


def _compile_to_shared(arguments: argparse.Namespace) -> tuple[dict[str, Any], Report]:
    """Write a shared object with its header and its loader."""
    from polyc.graph_driver.artifacts.shared_model import write_shared

    output: Path = arguments.output or arguments.model.with_suffix(".so")
    if output.suffix != ".so":
        raise UsageError(f"--emit so writes a file NAME.so, not {output}")
    model = compile_from(arguments)
    with model.report().stage("save"):
        files = write_shared(model, output)
    return {"output": str(output), "files": list(files)}, model.report()


def _compile_to_c(arguments: argparse.Namespace) -> tuple[dict[str, Any], Report]:
    """Write C sources instead of machine code."""
    from polyc.graph_driver.artifacts.c_export import export_c

    _not_compiled(arguments)
    output: Path = arguments.output or arguments.model.with_name(f"{arguments.model.stem}_c")
    with progress_bar(arguments.json) as progress:
        report, files = export_c(arguments.model, output, None, options_of(arguments, progress=progress))
    return {"output": str(output), "files": list(files)}, report
