"""`polyc prune MODEL --data NPZ`: a model with blocks of zeros, and what it costs in accuracy."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import onnx

from polyc.graph_driver.cli.compile import arrays_of, names_in
from polyc.graph_driver.cli.quantize import print_errors
from polyc.graph_driver.narrowing.prune import prune


def prune_command(arguments: argparse.Namespace) -> int:
    """Write the model; print what became zero and the errors, or `--json`. Raises `UsageError`: data that cannot be
    read."""
    path: Path = arguments.model
    made = prune(
        path, arrays_of(arguments.data), arguments.share, arguments.rows, names_in(arguments.keep or ""),
        arguments.threads,
    )  # fmt: skip
    out = arguments.output or path.with_name(f"{path.stem}.pruned.onnx")
    onnx.save(made.model, str(out))
    if arguments.json:
        record = {
            "model": str(out), "errors": dict(made.errors), "agreement": dict(made.agreement), "samples": made.samples,
            "layers": [{"layer": n, "zero": z, "blocks": b} for n, (z, b) in made.layers.items()],
            "multiply-adds": list(made.work),
        }  # fmt: skip
        print(json.dumps(record, indent=2, sort_keys=True))
        return 0
    print_errors(made.errors, made.agreement)
    for name, (zero, blocks) in made.layers.items():
        print(f"layer  {name}: {zero} of {blocks} blocks are zero")
    before, after = made.work
    print(f"work   {before:,} multiply-adds of one row of these, now {after:,} ({after / before:.0%})")
    print(f"wrote  {out} ({made.samples} runs of the data)")
    return 0
