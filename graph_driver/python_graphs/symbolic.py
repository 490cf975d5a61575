"""Which sizes of a traced call stay symbolic: `sizes` of `polyc.trace`, and for which later calls the graph holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.importing.binding import TYPICAL, TYPICAL_BATCH
from polyc.poly.errors import ArgumentError

Shape = Sequence[int | str | None]


class AskedSizes:
    """The sizes of one call by name.

    A name is a symbol in the graph; but names with equal values are one symbol (arrays that are added have one length),
    and `numbers` are none. So a graph holds for calls with the same equalities and the same numbers.
    """

    def __init__(self, sizes: Mapping[str, Shape]) -> None:
        self.sizes = sizes
        self.values: dict[str, int] = {}
        self.numbers: frozenset[str] = frozenset()
        self.symbols: Symbols | None = None
        self._formulas: dict[str, Any] = {}

    def guard(self, path: str, shape: tuple[int, ...]) -> tuple[int | str, ...]:
        """An array's shape with names where sizes may be any.

        Raises:
            ArgumentError: the array has another shape than was asked for, or a size has two values.
        """
        wanted = self.sizes.get(path)
        if wanted is None:
            return shape
        text = f"[{', '.join('any' if n is None else str(n) for n in wanted)}]"
        if len(wanted) != len(shape):
            raise ArgumentError(f"{path} has shape {list(shape)}, sizes say {text}")
        for want, n in zip(wanted, shape, strict=True):
            if isinstance(want, int) and want != n:
                raise ArgumentError(f"{path} has shape {list(shape)}, sizes say {text}")
            if isinstance(want, str) and self.values.setdefault(want, n) != n:
                raise ArgumentError(f"{path} has shape {list(shape)}, sizes say {text}: {want} is {self.values[want]}")
        return tuple(w if isinstance(w, str) else n for w, n in zip(wanted, shape, strict=True))

    @property
    def ones(self) -> frozenset[str]:
        """The names that are 1 in this call."""
        return frozenset(n for n, v in self.values.items() if v == 1)

    def begin(self, numbers: Iterable[str] = ()) -> AskedSizes:
        """The same, for a graph that is recorded now; `numbers` (and sizes of 0) are no symbols in it."""
        made = AskedSizes(self.sizes)
        made.values = self.values
        made.numbers = frozenset(numbers) | {n for n, v in self.values.items() if v == 0}
        symbols, first = Symbols(), dict[int, Any]()
        free = iter([TYPICAL_BATCH, *TYPICAL])
        for name, value in self.values.items():
            if name in made.numbers:
                continue
            if value == 1:  # another value represents it, with which it stays apart from the others and from numbers
                typical = next((n for n in free if n not in self.values.values()), max(self.values.values()) + 1)
                made._formulas[name] = symbols.new(name, 1, None, typical)
            else:
                if value not in first:
                    first[value] = symbols.new(name, 1, None, value)
                made._formulas[name] = first[value]
        made.symbols = symbols if symbols else None
        return made

    def again(self) -> AskedSizes:
        """The same as it was when this began."""
        return self.begin(self.numbers)

    def shape(self, path: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """An argument's shape with formulas."""
        wanted = self.sizes.get(path) or [None] * len(shape)
        return tuple(self._formulas.get(str(w), n) for w, n in zip(wanted, shape, strict=True))

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether a graph with these symbols is right for a call with these sizes."""
        if any(values[n] != self.values[n] for n in self.numbers):
            return False
        if any(values[n] != values[str(formula)] for n, formula in self._formulas.items()):
            return False
        try:
            if self.symbols is not None:
                self.symbols.check(values)
        except ArgumentError:
            return False
        return True
