"""`polyc passes`: the graph passes and what they are."""

from __future__ import annotations

import argparse
import json

from polyc.graph_driver.backends.registry import backends
from polyc.graph_driver.passes.manager import PASSES


def passes_command(arguments: argparse.Namespace) -> int:
    """Print a line for each pass, in the order in which they run."""
    rows = [
        {
            "name": p.name, "what": p.what, "phase": p.phase, "kind": "target-specific" if p.specific else "general",
            "exact": p.exact, "default": p.default, "limit": p.limit,
            "backends": [b.name for b in backends() if p.suits(b)],
        }
        for p in PASSES
    ]  # fmt: skip
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    for p, row in zip(PASSES, rows, strict=True):
        tags = [str(row["kind"]), p.phase, *([] if p.exact else ["changes rounding"])]
        tags += [] if not p.limit else [f"not for {', '.join(b.name for b in backends() if not p.suits(b))}"]
        tags += [] if p.default else [f"only with {p.asked_by}"]
        print(f"{p.name:12s} {p.what} ({', '.join(tags)})")
    return 0
