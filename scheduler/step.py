"""One step of a trace."""

from __future__ import annotations

from typing import Any

from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Step:
    """One transformation: its name and arguments (JSON values only)."""

    name: str
    args: dict[str, Any]

    def __str__(self) -> str:
        shown = {k: v if len(str(v)) < 80 else "..." for k, v in self.args.items() if v is not None}
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"
