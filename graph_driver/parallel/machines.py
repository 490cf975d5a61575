"""Machines of several ranks: what a message takes inside of one, by what carries it there, and between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.graph_driver.communication.shared_memory import MESSAGES, carrier
from polyc.graph_driver.parallel.network import Network
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Curve:
    """Seconds by bytes, as measured: `points` in the order of the bytes, straight lines between them. Beyond the last a
    byte costs what it costs before it; below the first all take as long."""

    points: tuple[tuple[float, float], ...]

    def time(self, nbytes: float) -> float:
        """Seconds."""
        points = self.points
        if nbytes <= points[0][0] or len(points) == 1:
            return points[0][1]
        last = next((k for k, (size, _) in enumerate(points) if nbytes <= size), len(points) - 1)
        (size, seconds), (end, more) = points[last - 1 : last + 1]
        return seconds + (more - seconds) / (end - size) * (nbytes - size)


@dataclass(frozen=True)
class Inside:
    """The ranks of one machine: the seconds of a message by its kind and its carrier, over the bytes that a rank sends
    in it; sums are part of them. `messages`: two of them that send messages, as a network. `spare`: whether each rank
    has a core for messages beside those of its kernels."""

    curves: Mapping[tuple[str, str], Curve]
    messages: Network
    spare: bool = True

    def carrier(self, kind: str, operand: int) -> str:
        """What carries a message with an operand of so many bytes."""
        found = carrier(kind, operand)
        return found if (kind, found) in self.curves else MESSAGES

    def time(self, kind: str, nbytes: float, operand: int) -> float:
        """Seconds of a message in which a rank sends `nbytes` of an operand of so many bytes."""
        return self.curves[kind, self.carrier(kind, operand)].time(nbytes)


@dataclass(frozen=True)
class Machines:
    """`network` joins machines of `per_machine` ranks each, which share its bandwidth; `inside` joins those of one."""

    network: Network
    per_machine: int = 1
    inside: Network | Inside | None = None

    def carrier(self, kind: str, operand: int, ranks: int) -> str:
        """What carries a message between so many ranks: whatever shares memory needs all of them on one machine."""
        if ranks <= self.per_machine and isinstance(self.inside, Inside):
            return self.inside.carrier(kind, operand)
        return MESSAGES

    def time(self, kind: str, nbytes: float, messages: int, ranks: int, operand: int = 0) -> float:
        """Seconds of a message of all ranks in which each sends `nbytes` in so many pieces, of an operand of so many
        bytes: to all others alike, or, of an `Exchange` of up to two pieces, to its neighbours."""
        inside = self.inside
        if ranks <= self.per_machine and isinstance(inside, Inside):
            return inside.time(kind, nbytes, operand)
        added = {"AllReduce": nbytes / 2, "ReduceScatter": nbytes}.get(kind, 0.0)  # of an AllReduce half are results
        sums = added / self.network.sums
        link = inside.messages if isinstance(inside, Inside) else inside
        if ranks <= self.per_machine and link is not None:
            return link.time(messages, nbytes) + sums
        near = kind == "Exchange" and messages <= 2
        outside = 1 / self.per_machine if near else (ranks - self.per_machine) / max(1, ranks - 1)
        outside = min(1.0, max(0.0, outside))
        there = self.network.time(messages, nbytes * outside * self.per_machine)
        if link is not None:
            there = max(there, link.time(messages, nbytes * (1 - outside)))
        return there + sums


def curve(sizes: Sequence[float], seconds: Sequence[float]) -> Curve:
    """A curve through measured points: seconds that get less for more bytes are noise, the later ones count."""
    made: list[tuple[float, float]] = []
    least = float("inf")
    for size, took in sorted(zip(sizes, seconds, strict=True), reverse=True):
        least = min(least, took)
        made.append((size, least))
    return Curve(tuple(reversed(made)))
