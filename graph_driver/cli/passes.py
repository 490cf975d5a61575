"""`polyc passes`: the graph passes and what they are."""

from __future__ import annotations

import argparse
import json

from polyc.graph_driver.passes.manager import PASSES
from polyc.graph_driver.worker.platforms import KINDS


def passes_command(arguments: argparse.Namespace) -> int:
    """Print a line for each pass, in the order in which they run."""
    rows = [
        {
            "name": p.name, "what": p.what, "phase": p.phase, "kind": "target-specific" if p.specific else "general",
            "exact": p.exact, "default": p.default, "backends": list(p.backends), "limit": p.limit,
        }
        for p in PASSES
    ]  # fmt: skip
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    for p, row in zip(PASSES, rows, strict=True):
        tags = [str(row["kind"]), p.phase, *([] if p.exact else ["changes rounding"])]
        tags += [] if not p.limit else [f"not for {', '.join(k for k in KINDS if k not in p.backends)}"]
        tags += [] if p.default else [f"only with {p.asked_by}"]
        print(f"{p.name:12s} {p.what} ({', '.join(tags)})")
    return 0
