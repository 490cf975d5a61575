"""What a compiler's own constants stand for, where they are rounded: noted only when somebody asks for it.

Constants of a model are what they are. Those that folding and passes make of them are rounded, and a bound of errors
(`polyc.graph_driver.bounding`) has to know how far they may be from what they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from polyc.poly.records import dataclass

if TYPE_CHECKING:
    from polyc.graph_driver.graph.ir import Node, Tensor


@dataclass(frozen=True)
class Off:
    """Each element is off by at most `relative` times its magnitude and `absolute`."""

    relative: float
    absolute: float


@dataclass(frozen=True, eq=False)
class Made:
    """Result number `output` of a node over constants, which the host has computed."""

    node: Node
    output: int
    operands: Mapping[str, Tensor]


Origin = Off | Made


@dataclass
class Ledger:
    """What is known of constants; by the array's identity, with the array so that this stays its own."""

    entries: dict[int, tuple[np.ndarray, list[Origin]]] = field(default_factory=dict)

    def of(self, value: np.ndarray) -> list[Origin]:
        """What one constant stands for; all of them hold where equal ones have become one."""
        return self.entries[id(value)][1] if id(value) in self.entries else []


_ledger: ContextVar[Ledger | None] = ContextVar("polyc_provenance", default=None)


@contextmanager
def recorded() -> Iterator[Ledger]:
    """Inside, it is noted where rounded constants come from."""
    ledger = Ledger()
    token = _ledger.set(ledger)
    try:
        yield ledger
    finally:
        _ledger.reset(token)


def note(value: np.ndarray | None, *origins: Origin) -> None:
    """A constant that stands for something else, if that is asked for."""
    ledger = _ledger.get()
    if ledger is not None and value is not None and origins:
        ledger.entries.setdefault(id(value), (value, []))[1].extend(origins)


def note_results(node: Node, operands: Mapping[str, Tensor], results: Mapping[str, Tensor]) -> None:
    """The floats among the results of a node that the host has computed."""
    if _ledger.get() is None:
        return
    for k, name in enumerate(node.outputs):
        made = results.get(name)
        if made is not None and made.const is not None and made.dtype is not None and made.dtype.is_float:
            note(made.const, Made(node, k, operands))


def note_equal(kept: np.ndarray, dropped: np.ndarray) -> None:
    """Two equal constants become one, which stands for both."""
    ledger = _ledger.get()
    if ledger is not None:
        note(kept, *ledger.of(dropped))


def known(value: np.ndarray) -> list[Origin]:
    """What is known of a constant; nothing when nobody asked."""
    ledger = _ledger.get()
    return [] if ledger is None else ledger.of(value)
