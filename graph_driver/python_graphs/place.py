"""Where in the user's program something is said: for messages, and names of nodes."""

from __future__ import annotations

import sys
from pathlib import Path

_OURS = ("polyc", "numpy", "importlib")


def place() -> str:
    """`FILE:LINE` of the innermost frame that is neither polyc's nor NumPy's; empty where there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _OURS:
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def placed(text: str) -> str:
    """A message with the place in front."""
    where = place()
    return f"{where}: {text}" if where else text
