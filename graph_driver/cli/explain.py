"""`polyc explain`, `polyc diff`, `polyc bisect`: why a schedule is as it is, and what changed it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.cli.inspect import (
    UsageError,
    is_operator,
    load_operator,
    operator_schedule,
    operator_scop,
    parse_numbers,
    refuse_model_options,
    text_of,
)  # fmt: skip
from polyc.graph_driver.worker import tuned as use

if TYPE_CHECKING:
    from polyc.graph_driver.options import CompileOptions


def explain_command(arguments: argparse.Namespace) -> int:
    """What was decided, what was declined and why; `--json` for the same as data."""
    if is_operator(arguments.what):
        data = _operator(arguments)
        return _show(data, arguments.json, lambda: _operator_lines(data))
    data = _model(arguments)
    return _show(data, arguments.json, lambda: _model_lines(data, arguments.verbose))


def _operator(arguments: argparse.Namespace) -> dict[str, Any]:
    refuse_model_options(arguments, checks=True, measure=True)
    from polyc.emit import targets
    from polyc.graph_driver.backends.registry import found
    from polyc.graph_driver.bench.calibration import this_machine
    from polyc.graph_driver.bench.operator_time import OperatorTime, time_of
    from polyc.graph_driver.explaining.explain import explain_schedule

    scop, sizes = operator_scop(load_operator(arguments.what), parse_numbers(arguments.dim))
    checks = False if arguments.no_checks else None
    backend, machine = found(arguments.target)
    threads = backend.threads(machine, arguments.threads)
    with use.tuned(arguments.tuned):
        schedule = operator_schedule(scop, arguments.target, sizes, None, threads)
    if backend.costed(machine) is None:
        times = OperatorTime(None, None, 1)
        return explain_schedule(schedule, machine, sizes, times, checks=checks, verbose=arguments.verbose)
    here = this_machine(machine) if targets.obstacle(machine) is None else None
    times = time_of(schedule, machine, threads, arguments.measure, backend.name, checks)
    return explain_schedule(schedule, machine, sizes, times, here, checks, arguments.verbose)


def _operator_lines(data: Mapping[str, Any]) -> Iterable[str]:
    from polyc.graph_driver.explaining.explain import operator_lines

    return operator_lines(data)


def _model(arguments: argparse.Namespace) -> dict[str, Any]:
    from polyc.graph_driver.artifacts.package import is_package
    from polyc.graph_driver.cli.compile import options_of, refuse_compiled
    from polyc.graph_driver.cli.models import document_of_model
    from polyc.graph_driver.explaining.explain import explain_model

    path, options = Path(arguments.what), options_of(arguments)
    if is_package(path):
        refuse_compiled(arguments, path)
    document = document_of_model(path, options, arguments.measure)
    if not arguments.verbose:
        return explain_model(document, {}, [])
    return explain_model(document, _kernel_decisions(path, options), _blocked(path, options))


def _blocked(path: Path, options: CompileOptions) -> list[dict[str, Any]]:
    """Which dependence stands between each two neighbouring kernels (of sizes that are numbers)."""
    from polyc.graph_driver.cli.models import groups_of_model
    from polyc.graph_driver.fusion.blocking import blocked_pairs

    return blocked_pairs(groups_of_model(path, options))


def _kernel_decisions(path: Path, options: CompileOptions) -> dict[str, list[dict[str, Any]]]:
    """What was decided about the schedule of each distinct kernel."""
    from polyc.graph_driver.cli.models import kernels_of_model, schedule_of

    platform, found = kernels_of_model(path, options)
    with use.tuned(options.tuned):
        return {
            title: [d.data() | {"text": str(d)} for d in schedule_of(g, platform).decisions]
            for title, g in found if g.scop is not None
        }  # fmt: skip


def _model_lines(data: Mapping[str, Any], verbose: bool) -> Iterable[str]:
    from polyc.graph_driver.explaining.explain import model_lines

    return model_lines(data, verbose)


def diff_command(arguments: argparse.Namespace) -> int:
    """The changes from one schedule to another, a line each.

    Raises:
        UsageError: it is a model, or options of models are given.
    """
    if not is_operator(arguments.what):
        raise UsageError("diff is for operators (FILE.py:OP)")
    refuse_model_options(arguments)
    scop, sizes = operator_scop(load_operator(arguments.what), parse_numbers(arguments.dim))
    with use.tuned(arguments.tuned):
        first = operator_schedule(scop, arguments.target, sizes, arguments.first, arguments.threads)
        second = operator_schedule(scop, arguments.target, sizes, arguments.second, arguments.threads)
    found = first.diff(second)
    data = {"format": "polyc-diff", "version": 1, "name": scop.name, "changes": [c.data() for c in found]}
    return _show(data, arguments.json, lambda: str(found).splitlines())


def bisect_command(arguments: argparse.Namespace) -> int:
    """The first step of a trace that is refused, or that makes the operator slower.

    Raises:
        UsageError: it is a model, or options of models or `--tuned` are given.
    """
    from polyc.graph_driver.backends.registry import platform_of
    from polyc.graph_driver.explaining.bisecting import first_refused, first_slower
    from polyc.poly.rewriting.specialise import specialise

    if not is_operator(arguments.what):
        raise UsageError("bisect is for operators (FILE.py:OP)")
    refuse_model_options(arguments)
    if arguments.tuned:
        raise UsageError("bisect looks at the schedule of its trace: leave out --tuned")
    text = text_of(arguments.trace, "the trace")
    scop, sizes = operator_scop(load_operator(arguments.what), parse_numbers(arguments.dim))
    scop = specialise(scop, sizes)
    if arguments.slower is None:
        data = first_refused(scop, text)
    else:
        machine = platform_of(arguments.target).machine
        data = first_slower(scop, text, machine, arguments.slower, arguments.threads)
    return _show(data, arguments.json, lambda: data["lines"])


def _show(data: Mapping[str, Any], as_json: bool, lines: Callable[[], Iterable[str]]) -> int:
    if as_json:
        print(json.dumps({k: v for k, v in data.items() if k != "lines"}, sort_keys=True))
        return 0
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines():
        head = line.strip().split(" ", 1)[0].rstrip(":")
        console.print(Text(line, style=_STYLES.get(head, "")))
    return 0


_STYLES = {"done": "bold green", "declined": "bold yellow", "apart": "yellow", "joined": "green", "host": "yellow"}

COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "explain": explain_command,
    "diff": diff_command,
    "bisect": bisect_command,
}
