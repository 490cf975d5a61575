"""What has to go from host to device and back in a run of a plan whose steps run on both: known before the first run.

The memory of the plan is there twice, with the same offsets. For every byte the plan's steps say on which side it is
valid: a step makes its results valid on its own side only, and needs its operands there. What is valid on the other
side alone is brought before the step; before a stretch of the device, which runs in one piece, all that its steps need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Literal

from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Step
from polyc.poly.records import dataclass

Side = Literal["host", "device"]
Memory = tuple[str, int]
"""Kind of a place, and the number of the input or output (else 0)."""
HOST, DEVICE = 1, 2
BITS: Mapping[Side, int] = {"host": HOST, "device": DEVICE}


@dataclass(frozen=True)
class Transfer:
    """Bytes `begin` to `end` of a memory, to a side."""

    to: Side
    memory: Memory
    begin: int
    end: int


@dataclass(frozen=True)
class Transfers:
    """`before`: by number of a stretch's first step what is brought then; `after`: when results are wanted on the host,
    or stay on the device; `sides`: of each step where it runs."""

    before: Mapping[int, Sequence[Transfer]]
    after: Mapping[Side, Sequence[Transfer]]
    sides: Sequence[Side]
    reads_input: Mapping[Side, frozenset[int]]

    def counted(self) -> dict[Side, tuple[int, int]]:
        """By direction how many transfers a run has between its begin and its end, and their bytes."""
        every = [t for some in self.before.values() for t in some]
        return {
            side: (sum(t.to == side for t in every), sum(t.end - t.begin for t in every if t.to == side))
            for side in BITS
        }

    def text(self) -> str:
        """What a run transfers, as a line."""
        parts = [f"{n} to the {side} ({human(size)})" for side, (n, size) in self.counted().items()]
        return f"transfers between the steps of a run: {', '.join(parts)}"


def transfers(plan: Plan[int], on_host: Set[str]) -> Transfers:
    """The transfers of a plan. `on_host`: symbols of the kernels that run on the host."""
    valid = Valid(plan)
    sides: list[Side] = []
    before: dict[int, list[Transfer]] = {}
    read: dict[Side, set[int]] = {"host": set(), "device": set()}
    first = 0
    for k, step in enumerate(plan.steps):
        side = valid.side(step, on_host)
        if not sides or side != sides[-1] or side == "host":
            first = k
        sides.append(side)
        for name in operands(step):
            slot = plan.slots.get(name)
            if slot is not None and slot.place.kind == "input" and slot.dtype is not None:
                read[side].add(slot.place.index)
        for name in operands(step):
            before.setdefault(first, []).extend(valid.needed(name, side))
        for name in written(plan, step):
            valid.make(name, side)
    after: dict[Side, Sequence[Transfer]] = {
        side: [t for name in plan.outputs for t in valid.needed(name, side, keep=True)] for side in BITS
    }
    kept = {side: frozenset(numbers) for side, numbers in read.items()}
    return Transfers({k: some for k, some in before.items() if some}, after, sides, kept)


def operands(step: Step[int]) -> list[str]:
    """The tensors whose values a step needs."""
    made = {*step.results, *step.scratch}
    args = step.args[:1] if step.kind == "copy" else step.args
    own = made if step.kind in ("kernel", "copy") else ()
    return [*(a for a in args if a not in own), *step.captures]


def written(plan: Plan[int], step: Step[int]) -> list[str]:
    """The tensors that a step makes, as far as the plan has memory of them."""
    return [r for r in step.results if r in plan.slots]


class Valid:
    """On which sides the bytes of a plan are valid: runs of bytes, in order, for each memory.

    What nobody has written yet, inputs (which a run places on both sides as they are read) and weights are valid on
    both.
    """

    def __init__(self, plan: Plan[int]) -> None:
        self.plan = plan
        self._runs: dict[Memory, list[tuple[int, int, int]]] = {}

    def side(self, step: Step[int], on_host: Set[str]) -> Side:
        """Where a step runs. Copies run where what they copy is."""
        if step.kind == "copy":
            return "device" if self.valid_on(step.args[0], "device") else "host"
        return "device" if step.kind == "kernel" and step.symbol not in on_host else "host"

    def valid_on(self, name: str, side: Side) -> bool:
        """Whether all of a tensor is valid there."""
        return all(bits & BITS[side] for _, _, bits in self._of(name))

    def needed(self, name: str, side: Side, keep: bool = False) -> list[Transfer]:
        """What a side lacks of a tensor; with `keep` it is not taken as brought."""
        found = []
        for begin, end, bits in list(self._of(name)):
            if not bits & BITS[side]:
                memory = self._memory(name)
                found.append(Transfer(side, memory, begin, end))
                if not keep:
                    self._set(memory, begin, end, HOST | DEVICE)
        return found

    def make(self, name: str, side: Side) -> None:
        """A tensor is written on a side."""
        slot = self.plan.slots[name]
        if slot.dtype is not None and slot.place.kind in ("arena", "output"):
            self._set(self._memory(name), slot.place.offset, slot.place.offset + slot.nbytes, BITS[side])

    def _memory(self, name: str) -> Memory:
        place = self.plan.slots[name].place
        return place.kind, place.index if place.kind in ("input", "output") else 0

    def _of(self, name: str) -> Iterator[tuple[int, int, int]]:
        slot = self.plan.slots.get(name)
        if slot is None or slot.dtype is None or slot.place.kind not in ("arena", "output"):
            return
        low, high = slot.place.offset, slot.place.offset + slot.nbytes
        for begin, end, bits in self._runs.get(self._memory(name), ()):
            if begin < high and low < end:
                yield max(begin, low), min(end, high), bits

    def _set(self, memory: Memory, low: int, high: int, bits: int) -> None:
        kept = []
        for begin, end, old in self._runs.get(memory, ()):
            kept += [(b, e, old) for b, e in ((begin, min(end, low)), (max(begin, high), end)) if b < e]
        kept.append((low, high, bits))
        kept.sort()
        joined: list[tuple[int, int, int]] = []
        for begin, end, value in kept:
            if joined and joined[-1][1] == begin and joined[-1][2] == value:
                joined[-1] = (joined[-1][0], end, value)
            elif begin < end:
                joined.append((begin, end, value))
        self._runs[memory] = joined
