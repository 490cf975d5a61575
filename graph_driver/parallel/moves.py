"""From one layout of a tensor to another: which message that is, and the bytes that each rank sends."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.communication.running import pieces, transfers
from polyc.graph_driver.parallel.layouts import Layout, Partial, Split, Whole, box, common, elements
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.volumes import Volume, of_halos
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Move:
    """`kind`: a communication operator, `Slice` (every rank keeps a part: no message), or nothing. `sent[r]`: bytes
    that rank r gives to others; `messages`: how many of them one rank sends at most. `volume`: the bytes that all
    ranks send together as a formula. `operand`: bytes of the largest operand of a rank."""

    kind: str
    sent: tuple[int, ...]
    messages: int
    volume: Volume
    operand: int = 0

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
        return Move("", nothing, 0, Volume())
    if isinstance(have, Whole):
        return None if isinstance(want, Partial) else Move("Slice", nothing, 0, Volume())
    axes = tuple(range(len(shape)))
    others = Volume(1, True, (), axes, nbytes)
    total = elements([(0, n) for n in shape])
    if isinstance(have, Partial):
        if isinstance(want, Whole):
            own = [b - a for a, b in pieces(total, ranks)]
            sent = tuple(nbytes * (total - n + (ranks - 1) * n) for n in own)
            return Move("AllReduce", sent, 2 * (ranks - 1), Volume(2, True, (), axes, nbytes), nbytes * total)
        if not isinstance(want, Split) or not want.covers(shape[want.axis]):
            return None
        parts = [elements(box(want, shape, r)) for r in range(ranks)]
        return Move("ReduceScatter", tuple(nbytes * (total - n) for n in parts), ranks - 1, others, nbytes * total)
    if not have.covers(shape[have.axis]) or isinstance(want, Partial):
        return None
    if isinstance(want, Whole):
        parts = [elements(box(have, shape, r)) for r in range(ranks)]
        return Move("AllGather", tuple(nbytes * n * (ranks - 1) for n in parts), ranks - 1, others, nbytes * max(parts))
    return _exchange(have, want, shape, nbytes, ranks)


def _exchange(have: Split, want: Split, shape: Sequence[int], nbytes: int, ranks: int) -> Move:
    """What is missing on each rank comes from the rank that has it."""
    boxes = [box(have, shape, r) for r in range(ranks)]
    needs = [box(want, shape, r) for r in range(ranks)]
    operand = nbytes * max(map(elements, boxes))
    if have.axis == want.axis:
        plan = transfers(boxes, needs)
        sent = tuple(nbytes * sum(elements(b) for peer in row for b in peer) for row in plan)
        messages = max(sum(bool(peer) for peer in row) for row in plan)
        across, rows = of_halos(have.bounds, want.bounds, shape[have.axis])
        rest = tuple(k for k in range(len(shape)) if k != have.axis)
        return Move("Exchange", sent, messages, Volume(1, across, rows, rest, nbytes), operand)
    sent = tuple(
        nbytes * sum(common(boxes[r], needs[k]) for k in range(ranks) if k != r) for r in range(ranks)
    )  # fmt: skip
    return Move("Exchange", sent, ranks - 1, _turned(have, want, shape, nbytes, ranks), operand)


def _turned(have: Split, want: Split, shape: Sequence[int], nbytes: int, ranks: int) -> Volume:
    """Of a tensor that was split along one axis and is then along another: all that is not on its rank already."""
    parts = {b - a for a, b in have.bounds}, {b - a for a, b in want.bounds}
    if want.covers(shape[want.axis]) and all(len(sizes) == 1 for sizes in parts):
        return Volume(1, True, (), tuple(range(len(shape))), nbytes, True)
    rest = tuple(k for k in range(len(shape)) if k not in (have.axis, want.axis))
    lacking = [(shape[have.axis] - (b - a)) * (y - x) for (a, b), (x, y) in zip(have.bounds, want.bounds, strict=True)]
    return Volume(1, False, tuple(lacking), rest, nbytes)
