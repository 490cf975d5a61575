"""Bugs of polyc itself that cost one node its kernel: the model still runs, and nobody overlooks them."""

from __future__ import annotations

import warnings

INTERNAL = "internal error"
"""How the reason begins when not the model but polyc is at fault."""


class DefectWarning(RuntimeWarning):
    """polyc failed where it should not: what it was doing runs on the host or in parts, right but slow."""


def warn_of_defect(what: str, reason: str) -> None:
    """Warn when the `reason` for which `what` has no kernel is a bug; the tests make an error of it."""
    if reason.startswith(INTERNAL):
        warnings.warn(f"{what}: {reason} (please report this)", DefectWarning, stacklevel=3)
