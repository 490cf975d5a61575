"""The numbers of a plan of formulas at the sizes of a call.

A text that grows has other sizes at every call, so this is on the way of each token. Formulas that occur several times
are evaluated once, by one function that Python compiles from all of them; slots are made when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.graph.size import Extent, Quotient
from polyc.graph_driver.planning.slots import Place, Slot, Step, any_formula, in_table

if TYPE_CHECKING:
    from polyc.graph_driver.memory import Lifetime
    from polyc.graph_driver.planning.arena import Arena

Numbers = tuple[int, ...]


class Formulas:
    """All formulas of a plan, to be evaluated at once."""

    def __init__(
        self, slots: Mapping[str, Slot[Any]], steps: Sequence[Step[Any]], arena: Arena, names: list[str]
    ) -> None:
        """`names` are the symbols."""
        self.slots, self.steps, self.arena = slots, steps, arena
        self._place: dict[Extent, int] = {}
        self._names = names
        self._bytes = self._some([slots[n].nbytes for n in arena.order])
        self._table = self._some([n for _, sizes in in_table(slots, steps) for n in sizes])
        self._shapes = {n: self._some((s.nbytes, *(s.shape or ()))) for n, s in slots.items()}
        self._sizes = [self._some(s.sizes) if any_formula(s.sizes) else None for s in steps]
        self._function = _compiled(list(self._place), names)
        self.fixed: dict[str, Slot[Any]] = {
            n: s for n, s in slots.items()
            if s.place.kind != "arena" and not any_formula((s.nbytes, *(s.shape or ())))
        }  # fmt: skip

    def _some(self, sizes: Sequence[Extent]) -> Callable[[Numbers], Numbers]:
        """What takes the values of these sizes from those of all."""
        places = [self._place.setdefault(n, len(self._place)) for n in sizes]
        if len(places) > 1:
            return itemgetter(*places)
        return (lambda found: (found[places[0]],)) if places else (lambda found: ())

    def at(self, values: Mapping[str, int]) -> Slots:
        """The slots for these values of the symbols."""
        found = self._function(*[values[n] for n in self._names])
        sizes = dict(zip(self.arena.order, self._bytes(found)))
        offsets, peak = self.arena.place(sizes)
        return Slots(self, found, (*self._table(found), *offsets.values()), tuple(offsets.values()), peak)

    def slot(self, name: str, found: Numbers, starts: Numbers) -> Slot[int]:
        """One of the slots, where all values are `found` and the arena's memories begin at `starts`."""
        if name in self.fixed:
            return self.fixed[name]
        slot, (nbytes, *shape) = self.slots[name], self._shapes[name](found)
        place = slot.place
        if place.kind == "arena":
            place = Place("arena", 0, starts[place.index] + place.offset)
        return Slot(name, slot.dtype, None if slot.shape is None else tuple(shape), place, nbytes, slot.layout)

    def numbered_steps(self, found: Numbers) -> tuple[Step[int], ...]:
        """The steps with their sizes."""
        return tuple([s if some is None else s.of(some(found)) for s, some in zip(self.steps, self._sizes)])

    def lifetimes(self, found: Numbers) -> tuple[Lifetime, ...]:
        """What lies in the arena, with its bytes."""
        return self.arena.lifetimes(dict(zip(self.arena.order, self._bytes(found))))


class Slots(Mapping[str, "Slot[int]"]):
    """The slots of a plan of numbers. `table` are the first numbers in the table of a run, up to the offsets of the
    arena's memories; `peak` is the arena's size."""

    def __init__(self, formulas: Formulas, found: Numbers, table: Numbers, starts: Numbers, peak: int) -> None:
        self._formulas, self._found, self.table, self._starts, self.peak = formulas, found, table, starts, peak
        self._made: dict[str, Slot[int]] = {}

    def __getitem__(self, name: str) -> Slot[int]:
        slot = self._made.get(name)
        if slot is None:
            slot = self._made[name] = self._formulas.slot(name, self._found, self._starts)
        return slot

    def __contains__(self, name: object) -> bool:
        return name in self._formulas.slots

    def __iter__(self) -> Iterator[str]:
        return iter(self._formulas.slots)

    def __len__(self) -> int:
        return len(self._formulas.slots)

    def steps(self) -> tuple[Step[int], ...]:
        """The plan's steps."""
        return self._formulas.numbered_steps(self._found)

    def lifetimes(self) -> tuple[Lifetime, ...]:
        """What lies in the arena."""
        return self._formulas.lifetimes(self._found)


def _compiled(sizes: list[Extent], names: list[str]) -> Callable[..., Numbers]:
    """A function of the symbols that gives all of the formulas' values.

    Its text has numbers, operators and the names `s0`, `s1`, ... alone: no word of the model is evaluated.
    """
    arguments = {n: f"s{k}" for k, n in enumerate(names)}
    values = "".join(f"{_text(s, arguments)}, " for s in sizes)
    function: Callable[..., Numbers] = eval(f"lambda {', '.join(arguments.values())}: ({values})")
    return function


def _text(size: Extent, arguments: Mapping[str, str]) -> str:
    """A formula as Python."""
    if isinstance(size, int):
        return str(size)
    terms = []
    for monomial, factor in size.terms:
        atoms = [f"{_atom(a, arguments)}**{p}" if p > 1 else _atom(a, arguments) for a, p in monomial]
        terms.append("*".join([str(factor), *atoms]))
    return f"({' + '.join(terms)})"


def _atom(atom: str | Quotient, arguments: Mapping[str, str]) -> str:
    if isinstance(atom, str):
        return arguments[atom]
    return f"({_text(atom.above, arguments)} // {_text(atom.below, arguments)})"
