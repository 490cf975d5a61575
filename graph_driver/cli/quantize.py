"""`polyc quantize MODEL --data NPZ`: a narrow model, and what it costs in accuracy."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import onnx

from polyc.graph_driver.cli.compile import arrays_of, names_in
from polyc.graph_driver.narrowing import Quantised, quantize

WORST = 5  # layers that are named


def quantize_command(arguments: argparse.Namespace) -> int:
    """Write the model; print the errors, or `--json`. Raises `UsageError`: data that cannot be read."""
    path: Path = arguments.model
    made = quantize(
        path, arrays_of(arguments.data), "dynamic" if arguments.dynamic else "static", arguments.weights,
        arguments.calibration, arguments.max_error, names_in(arguments.keep_f32 or ""), arguments.threads,
    )  # fmt: skip
    out = arguments.output or path.with_name(f"{path.stem}.{arguments.weights}bit.onnx")
    onnx.save(made.model, str(out))
    if arguments.json:
        print(json.dumps(_record(made, out), indent=2, sort_keys=True))
    else:
        _print(made, out)
    return 0


def _record(made: Quantised, out: Path) -> dict[str, object]:
    return {
        "model": str(out), "errors": dict(made.errors), "agreement": dict(made.agreement), "samples": made.samples,
        "layers": [{"layer": n, "error": e} for n, e in made.layers], "kept": list(made.kept),
        "bytes before": made.bytes_before, "bytes after": made.bytes_after,
    }  # fmt: skip


def print_errors(errors: Mapping[str, float], agreement: Mapping[str, float]) -> None:
    """A line for each output: its error, and how many answers are the same."""
    for name, error in errors.items():
        same = agreement.get(name)
        answers = "" if same is None else f", the same largest element in {100 * same:.2f} % of rows"
        print(f"output {name}: relative error {error:.2e}{answers}")


def _print(made: Quantised, out: Path) -> None:
    print_errors(made.errors, made.agreement)
    for name, error in made.layers[:WORST]:
        print(f"layer  {name}: relative error {error:.2e} alone")
    print(f"layers {len(made.layers)} narrow, in f32: {', '.join(made.kept) or 'none'}")
    share = made.bytes_before / max(made.bytes_after, 1)
    print(f"bytes  {made.bytes_before:,} of weights, now {made.bytes_after:,} ({share:.2f} times less)")
    print(f"wrote  {out} ({made.samples} runs of the data)")
