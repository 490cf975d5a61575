"""What compiling decided about a graph, with its reasons: plain records that reports and pages show."""

from __future__ import annotations

from polyc.poly.records import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether `tensor` (made by `producer`, read by `consumer`) stays inside a kernel, and why."""

    tensor: str
    producer: str
    consumer: str
    joined: bool
    reason: str

    def __str__(self) -> str:
        verb = "joined" if self.joined else "kept apart from"
        return f"{self.producer} {verb} {self.consumer} ('{self.tensor}'): {self.reason}"


@dataclass(frozen=True, slots=True)
class Overwriting:
    """Whether `output` of a group is written over its operand `source`, and why."""

    group: str
    output: str
    source: str
    joined: bool
    reason: str

    def __str__(self) -> str:
        verb = "is" if self.joined else "is not"
        return f"{self.group} {verb} in place ('{self.output}' over '{self.source}'): {self.reason}"


@dataclass(frozen=True)
class Considered:
    """A candidate for one node: its cost, or why it cannot be it."""

    name: str
    device: str
    cost: float | None
    refusal: str = ""


@dataclass(frozen=True)
class Selection:
    """What one node runs as, and everything that was considered for it."""

    node: str
    operator: str
    results: tuple[str, ...]
    chosen: str
    candidates: tuple[Considered, ...]

    def __str__(self) -> str:
        own = next(c for c in self.candidates if c.name == self.chosen)
        parts = [
            f"{c.name}: {c.refusal}" if c.cost is None else f"{c.name} {c.cost:,.0f}"
            for c in self.candidates if c is not own
        ]  # fmt: skip
        return f"{self.operator} '{self.node}': {own.name} {own.cost or 0:,.0f} cycles ({'; '.join(parts)})"
