"""From one layout of a tensor to another: which message that is, and the bytes that each rank sends."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.communication.running import pieces, transfers
from polyc.graph_driver.parallel.layouts import Layout, Partial, Split, Whole, box, common, elements
from polyc.graph_driver.parallel.network import Network
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Move:
    """`kind`: a communication operator, `Slice` (every rank keeps a part: no message), or nothing. `sent[r]`: bytes
    that rank r gives to others; `messages`: how many of them one rank sends at most. `formula`: the bytes that all
    ranks send together."""

    kind: str
    sent: tuple[int, ...]
    messages: int
    formula: str

    @property
    def total(self) -> int:
        """Bytes that all ranks send."""
        return sum(self.sent)

    def time(self, network: Network) -> float:
        """Seconds."""
        return network.time(self.messages, max(self.sent)) if self.kind not in ("", "Slice") else 0.0


def move(have: Layout, want: Layout, shape: Sequence[int], nbytes: int, ranks: int) -> Move | None:
    """How a tensor with elements of `nbytes` gets from one layout to another. None: in no single step."""
    nothing = (0,) * ranks
    if have == want:
        return Move("", nothing, 0, "0")
    if isinstance(have, Whole):
        return None if isinstance(want, Partial) else Move("Slice", nothing, 0, "0")
    size = " * ".join(map(str, (*shape, nbytes)))
    total = elements([(0, n) for n in shape])
    if isinstance(have, Partial):
        if isinstance(want, Whole):
            own = [b - a for a, b in pieces(total, ranks)]
            sent = tuple(nbytes * (total - n + (ranks - 1) * n) for n in own)
            return Move("AllReduce", sent, 2 * (ranks - 1), f"2 * (p - 1) * {size}")
        if not isinstance(want, Split) or not want.covers(shape[want.axis]):
            return None
        parts = [elements(box(want, shape, r)) for r in range(ranks)]
        return Move("ReduceScatter", tuple(nbytes * (total - n) for n in parts), ranks - 1, f"(p - 1) * {size}")
    if not have.covers(shape[have.axis]) or isinstance(want, Partial):
        return None
    if isinstance(want, Whole):
        parts = [elements(box(have, shape, r)) for r in range(ranks)]
        return Move("AllGather", tuple(nbytes * n * (ranks - 1) for n in parts), ranks - 1, f"(p - 1) * {size}")
    return _exchange(have, want, shape, nbytes, ranks)


def _exchange(have: Split, want: Split, shape: Sequence[int], nbytes: int, ranks: int) -> Move:
    """What is missing on each rank comes from the rank that has it."""
    boxes = [box(have, shape, r) for r in range(ranks)]
    needs = [box(want, shape, r) for r in range(ranks)]
    if have.axis == want.axis:
        plan = transfers(boxes, needs)
        sent = tuple(nbytes * sum(elements(b) for peer in row for b in peer) for row in plan)
        messages = max(sum(bool(peer) for peer in row) for row in plan)
        others = [n for k, n in enumerate(shape) if k != have.axis]
        rows = sum(sent) // max(1, nbytes * elements([(0, n) for n in others]))
        formula = " * ".join(map(str, (rows, *others, nbytes)))
        return Move("Exchange", sent, messages, f"{formula} ({rows} indices of axis {have.axis} beyond the parts)")
    sent = tuple(
        nbytes * sum(common(boxes[r], needs[k]) for k in range(ranks) if k != r) for r in range(ranks)
    )  # fmt: skip
    size = " * ".join(map(str, (*shape, nbytes)))
    return Move("Exchange", sent, ranks - 1, f"(1 - 1 / p) * {size} (equal parts)")
