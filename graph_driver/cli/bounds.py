"""`polyc bounds`: how far the results of a model or operator may be from those of exact arithmetic."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polyc.graph_driver.bounding.model import Bound, ErrorBounds, bounds_of
from polyc.graph_driver.bounding.ranges import read_ranges
from polyc.graph_driver.cli.inspect import (
    UsageError,
    is_operator,
    load_operator,
    operator_schedule,
    operator_scop,
    parse_numbers,
    refuse_model_options,
)

VERSION = 1


def bounds_command(arguments: argparse.Namespace) -> int:
    """Print the bound of each output, and write them element by element with `--save`.

    Raises:
        UsageError: a compiled directory is given, a size is missing, or options contradict each other.
        ArgumentError: a range is missing or makes no sense, or no blocks of sums are enough.
    """
    of_schedule = (arguments.schedule, arguments.at_most, arguments.save_schedule)
    if not is_operator(arguments.what) and any(a is not None for a in of_schedule):
        raise UsageError("--schedule, --at-most and --save-schedule are for operators (FILE.py:OP)")
    if arguments.at_most is not None and arguments.schedule is not None:
        raise UsageError("--at-most makes a schedule: --schedule gives one")
    if arguments.save_schedule is not None and arguments.at_most is None:
        raise UsageError("--save-schedule needs --at-most")
    found = _operator(arguments) if is_operator(arguments.what) else _model(arguments)
    if arguments.save is not None:
        np.savez(arguments.save, **{name: b.error for name, b in found.outputs.items()})  # type: ignore[arg-type]
    if arguments.json:
        print(json.dumps(described(found, arguments.tensors), sort_keys=True))
        return 0
    print("\n".join(lines(found, arguments.tensors)))
    return 0


def _model(arguments: argparse.Namespace) -> ErrorBounds:
    from polyc.graph_driver.backends.registry import platform_of
    from polyc.graph_driver.cli.compile import options_of
    from polyc.graph_driver.cli.sizes import with_sizes

    path = Path(arguments.what)
    if path.is_dir():
        raise UsageError("a compiled directory keeps no Scops: give the ONNX file")
    options, _ = with_sizes(path, options_of(arguments))
    platform = platform_of(options.target, options.threads, runs=False)
    return bounds_of(path, read_ranges(arguments.range), platform, replace(options, symbolic=False))


def _operator(arguments: argparse.Namespace) -> ErrorBounds:
    from polyc.graph_driver.bounding.limited import limited
    from polyc.graph_driver.bounding.operator import operator_bounds
    from polyc.poly.rewriting.specialise import specialise

    refuse_model_options(arguments)
    scop, sizes = operator_scop(load_operator(arguments.what), parse_numbers(arguments.dim))
    missing = [p for p in scop.params if p not in sizes]
    if missing:
        raise UsageError(f"say how large {', '.join(missing)} is: --dim {missing[0]}=NUMBER")
    ranges = read_ranges(arguments.range)
    if arguments.at_most is not None:
        schedule, found = limited(specialise(scop, sizes), ranges, arguments.at_most)
        if arguments.save_schedule is not None:
            arguments.save_schedule.write_text(schedule.save(), encoding="utf-8")
        return found
    if arguments.schedule is None:
        return operator_bounds(specialise(scop, sizes), ranges)
    return operator_bounds(operator_schedule(scop, arguments.target, sizes, arguments.schedule).scop, ranges)


def described(found: ErrorBounds, tensors: bool) -> dict[str, Any]:
    """As data: of each tensor the largest bound, where it is, and the exact values' range."""
    data = {"format": "polyc-bounds", "version": VERSION, "outputs": _rows(found.outputs)}
    return data | {"tensors": _rows(found.tensors)} if tensors else data


def _rows(bounds: Mapping[str, Bound]) -> list[dict[str, Any]]:
    return [
        {"name": name, "error": _number(b.largest), "at": _where(b), "why": b.why,
         "low": _number(float(np.min(b.low, initial=np.inf))), "high": _number(float(np.max(b.high, initial=-np.inf)))}
        for name, b in bounds.items()
    ]  # fmt: skip


def _number(value: float) -> float | str:
    """JSON has no infinities."""
    return value if np.isfinite(value) else str(value)


def _where(b: Bound) -> Sequence[int]:
    if not b.error.size:
        return []
    return [int(i) for i in np.unravel_index(int(np.argmax(b.error)), b.error.shape)]


def lines(found: ErrorBounds, tensors: bool) -> Iterator[str]:
    """For people: an output a line; what is infinite, and why."""
    for title, bounds in (("results", found.outputs), ("between", found.tensors if tensors else {})):
        if bounds:
            yield f"{title}, |computed - exact| at most:"
        for name, b in bounds.items():
            at = f" at [{', '.join(map(str, _where(b)))}]" if b.error.ndim and b.error.size else ""
            low, high = float(np.min(b.low, initial=np.inf)), float(np.max(b.high, initial=-np.inf))
            yield f"  {name}: {b.largest:.3g}{at}; exact values in {low:.4g}..{high:.4g}"
            if b.why:
                finite = np.isfinite(b.error)
                yield f"    infinite for {b.error.size - int(finite.sum())} of {b.error.size} elements: {b.why}"
