"""Bugs of polyc itself that cost one node its kernel: the model still runs, and nobody overlooks them."""

from __future__ import annotations

from collections.abc import Iterable

from polyc.graph_driver.graph.watched import warn

INTERNAL = "internal error"
"""What a reason holds when not the model but polyc is at fault."""


PASSING = (INTERNAL, "took more than", "has taken more than", "process died", "not enough memory")
"""What lines of a report hold that tell of something that need not happen again: time, memory, processes, bugs."""


class DefectWarning(RuntimeWarning):
    """polyc failed where it should not: what it was doing runs on the host or in parts, right but slow."""


def warn_of_defects(lines: Iterable[str]) -> None:
    """Warn of each line of a report that tells of a bug, in models from the cache too; tests make errors of them."""
    for line in lines:
        if INTERNAL in line:
            warn(f"{line} (please report this)", DefectWarning, stacklevel=3)
