"""What a plan is made of: places, slots (tensors with a place), and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from polyc.poly.records import dataclass
from polyc.poly.rewriting.stored import Layout

if TYPE_CHECKING:  # compiled models of numbers start without formulas
    from polyc.graph_driver.graph.size import Extent

N = TypeVar("N", bound="Extent")
T = TypeVar("T")
PlaceKind = Literal["input", "weight", "arena", "output", "host", "table"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lives. `index` counts inputs and outputs; `offset` is in bytes. In the arena of a plan of formulas
    `index` is the number of the memory in the arena's order, `offset` counts from where that begins."""

    kind: PlaceKind
    index: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Slot(Generic[N]):
    """One tensor of the plan; dtype and shape are None for values of the host. `layout`: how kernels store it, where
    that is not by rows; `nbytes` counts its padding."""

    name: str
    dtype: str | None
    shape: tuple[N, ...] | None
    place: Place
    nbytes: N
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class Step(Generic[N]):
    """`kernel`: machine code `symbol` over `args` (in ABI order); `copy`: args[0] to args[1];
    `host`: host node number `index` reads `args` and writes `results`; `control`: the same, but the node
    is control flow whose bodies are compiled models. `nodes` and `label`
    say where it comes from, `reason` why it is on the host; `scratch` are those of `args` that hold
    no tensor: memory that the code uses while it runs. `sizes` are what the code gets of the model's sizes."""

    kind: Literal["kernel", "copy", "host", "control"]
    label: str
    args: tuple[str, ...]
    results: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    symbol: str = ""
    index: int = -1
    captures: tuple[str, ...] = ()
    reason: str = ""
    scratch: tuple[str, ...] = ()
    sizes: tuple[N, ...] = ()

    def of(self, sizes: tuple[int, ...]) -> Step[int]:
        """The step with these sizes."""
        return Step(  # `dataclasses.replace` takes several times as long
            self.kind, self.label, self.args, self.results, self.nodes, self.symbol, self.index, self.captures,
            self.reason, self.scratch, sizes,
        )  # fmt: skip


class Later(Sequence[T]):
    """A sequence that is made when it is first looked at."""

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Sequence[T]:
        return self._make()

    def __getitem__(self, key: Any) -> Any:
        return self._made[key]

    def __len__(self) -> int:
        return len(self._made)


def in_table(slots: Mapping[str, Slot[Any]], steps: Sequence[Step[Any]]) -> Iterator[tuple[int, tuple[Extent, ...]]]:
    """The steps, by number, whose sizes a run reads in its table: what a kernel gets, or how many bytes are copied."""
    for k, step in enumerate(steps):
        if step.kind == "copy":
            yield k, (slots[step.args[0]].nbytes,)
        elif any_formula(step.sizes):
            yield k, step.sizes


def any_formula(sizes: Sequence[Extent]) -> bool:
    """Whether not all of them are numbers."""
    return not all(isinstance(n, int) for n in sizes)
