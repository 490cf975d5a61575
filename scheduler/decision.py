"""What a strategy decided, as data: `polyc explain` prints it, reports keep its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from polyc.poly.records import dataclass

DIGITS = 3  # after the point, of figures that people read


def rounded(figure: float) -> float:
    """A figure with the digits that people read."""
    return round(figure, DIGITS)


Outcome = Literal["done", "declined", "refused", "impossible"]


@dataclass(frozen=True)
class Decision:
    """`what` was done to `subject` in `stage`, or was not, and why.

    `declined`: not tried because the strategy's model says that it does not pay; `refused`:
    tried and illegal; `impossible`: it makes no sense here. `figures` are the numbers behind it
    (predicted shares of peak, costs per instance, tile sizes, bytes against cache sizes, ...).
    """

    stage: str
    subject: str
    what: str
    outcome: Outcome = "done"
    reason: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        if self.outcome == "done":
            return self.what
        if self.outcome == "declined":
            return f"{self.subject}: {self.what}, {self.reason}" if self.reason else f"{self.subject}: {self.what}"
        word = "refused" if self.outcome == "refused" else "not possible"
        return f"{self.what}: {word}, {self.reason}"

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {"stage": self.stage, "subject": self.subject, "what": self.what, "outcome": self.outcome,
                "reason": self.reason, "figures": dict(self.figures)}  # fmt: skip
