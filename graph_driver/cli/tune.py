"""`polyc tune FILE.py:OP|MODEL`: search faster schedules by measuring, and keep them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyc.emit import targets
from polyc.graph_driver.backends.registry import found
from polyc.graph_driver.cli.compile import options_of
from polyc.graph_driver.cli.inspect import (
    UsageError,
    check_target,
    is_operator,
    load_operator,
    operator_scop,
    parse_numbers,
    refuse_model_options,
)  # fmt: skip
from polyc.graph_driver.graph.progress import progress_bar
from polyc.graph_driver.tuning.kernels import SHARE, Kernel, worth_tuning
from polyc.graph_driver.tuning.tune import tune_kernel
from polyc.graph_driver.worker import database
from polyc.graph_driver.worker.database import Record
from polyc.poly.target import Target

Row = tuple[str, int, Record]


def tune_command(arguments: argparse.Namespace) -> int:
    """Tune an operator or the kernels of a model; print a table, or `--json`.

    Raises:
        UsageError: no trials, a target that this machine cannot run, sizes without values, or an option that
            has no effect on kernels.
    """
    if arguments.trials < 1:
        raise UsageError(f"--trials must be at least 1, not {arguments.trials}")
    if arguments.limit <= 0:
        raise UsageError(f"--limit must be positive, not {arguments.limit:g}")
    check_target(arguments)
    refused = f"kernels are tuned by running them on this machine's CPU, not for '{arguments.target}'"
    backend, machine = found(arguments.target)
    if not backend.tunes:
        raise UsageError(refused)
    if arguments.dask is None and (reason := targets.obstacle(machine)):
        raise UsageError(f"{refused}: {reason}")
    for name in ("planner", "tasks", "tuned"):
        if vars(arguments)[name]:
            raise UsageError(f"--{name} changes no kernel: tune without it")
    kernels, left, machine, threads = _operator(arguments) if is_operator(arguments.what) else _model(arguments)
    records = (
        _here(arguments, kernels, machine, threads)
        if arguments.dask is None
        else _on_farm(arguments, kernels, machine, threads)
    )
    _show(arguments.what, records, left, threads, arguments.json)
    return 0


def _here(arguments: argparse.Namespace, kernels: list[Kernel], machine: Target, threads: int) -> list[Row]:
    """Trials on this machine, one after the other."""
    records = []
    with progress_bar(arguments.json) as progress:
        for k, kernel in enumerate(kernels):

            def step(_: str, done: int, total: int, name: str = f"{k + 1}/{len(kernels)} {kernel.label}") -> None:
                if progress is not None:
                    progress(name, done, total)

            record = tune_kernel(kernel.scop, machine, threads, arguments.trials, arguments.limit, step)
            records.append((kernel.label, kernel.uses, record))
    return records


def _on_farm(arguments: argparse.Namespace, kernels: list[Kernel], machine: Target, threads: int) -> list[Row]:
    """Trials on the workers of a Dask cluster."""
    from polyc.graph_driver.farm.opening import farm_at
    from polyc.graph_driver.farm.progress import farm_bar
    from polyc.graph_driver.farm.trials import tune_on

    with farm_at(arguments.dask) as farm, farm_bar(arguments.json) as bar:
        records = tune_on(farm, kernels, machine, threads, arguments.trials, arguments.limit, bar.step, bar.seen)
    return [(k.label, k.uses, record) for k, record in zip(kernels, records, strict=True)]


def _operator(arguments: argparse.Namespace) -> tuple[list[Kernel], int, Target, int]:
    """The operator as one kernel."""
    from polyc.poly.rewriting.specialise import specialise

    refuse_model_options(arguments)
    scop, sizes = operator_scop(load_operator(arguments.what), parse_numbers(arguments.dim))
    missing = [p for p in scop.params if p not in sizes]
    if missing:
        raise UsageError(f"to tune {scop.name} it needs values for {', '.join(missing)} (--dim NAME=V)")
    machine = targets.get(arguments.target)
    return [Kernel(scop.name, 1, specialise(scop, sizes))], 0, machine, arguments.threads or machine.threads


def _model(arguments: argparse.Namespace) -> tuple[list[Kernel], int, Target, int]:
    """The kernels of a model that matter; how many do not."""
    from polyc.graph_driver.artifacts.package import is_package
    from polyc.graph_driver.backends.registry import platform_of
    from polyc.graph_driver.cli.models import optimised
    from polyc.graph_driver.cli.sizes import with_sizes
    from polyc.graph_driver.compiling.stages import formed

    path, options = Path(arguments.what), options_of(arguments)
    if not is_package(path):
        options, chosen = with_sizes(path, options)
        if chosen and not arguments.json:
            print(f"sizes    {chosen}")
    platform = platform_of(options.target, options.threads)
    graph, _ = optimised(path, options, platform)
    if graph.symbols is not None:
        raise UsageError(
            f"to tune a model all sizes are numbers: give {', '.join(graph.symbols.ranges)} (--dim NAME=V)"
        )
    return *worth_tuning(formed(graph, platform, options)[1], platform), platform.machine, platform.threads


def _show(what: str, records: Sequence[Row], left: int, threads: int, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "kernel": label, "uses": uses, "trials": r.ran,
            "failed": sum(o.ratio is None and o.ran for o in r.trials.values()),
            "illegal": sum(o.ratio is None and not o.ran for o in r.trials.values()),
            "chosen": r.chosen or "untuned", "gain": round(r.gain or 1.0, 4),
        }
        for label, uses, r in records
    ]  # fmt: skip
    if as_json:
        data = {
            "format": "polyc-tune", "version": 1, "what": what, "threads": threads, "kernels": rows,
            "left_alone": left, "database": str(database.folder()),
        }  # fmt: skip
        print(json.dumps(data, indent=2, sort_keys=True))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("kernel", "uses", "trials", "failed", "illegal", "chosen", "untuned / tuned")
    for row in rows:
        table.add_row(
            *(str(row[k]) for k in ("kernel", "uses", "trials", "failed", "illegal", "chosen")), f"{row['gain']:.2f}"
        )
    console = Console()
    console.print(table)
    if left:
        console.print(f"{left} kernels with less than {SHARE:.0%} of the predicted time each were left alone")
    console.print("compile, run and bench take these schedules with --tuned, calls of operators with POLYC_TUNED=1")
