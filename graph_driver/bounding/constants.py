"""Enclosures of a graph's constants: exact where the model has them, else as far off as folding and passes may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.provenance import Ledger, Made, Off, Origin
from polyc.poly.error_bounds.enclosure import Enclosure, anything, point, tidy

Evaluate = Callable[[Node, dict[str, Enclosure]], list[Enclosure]]
"""A node on enclosures of its operands: its results, in order."""


class Constants:
    """The constants of one compilation.

    Args:
        ledger: what was noted while the model was imported and optimised.
        own: the arrays of the model itself.
    """

    def __init__(self, ledger: Ledger, own: Iterable[np.ndarray], evaluate: Evaluate) -> None:
        self.ledger, self.evaluate = ledger, evaluate
        self.own = list(own)
        self.ids = {id(a) for a in self.own}
        self.values: np.ndarray | None = None

    def of(self, tensor: Tensor) -> Enclosure:
        """The enclosure of a constant."""
        value = tensor.const
        assert value is not None
        exact = point(np.asarray(value, np.float64))
        if value.dtype.kind in "biu" or not value.size:
            return exact
        origins = self.ledger.of(value)
        if origins:
            return self._off(exact, origins, value.shape)
        if id(value) in self.ids or any(
            np.shares_memory(value, a) for a in self.own if a.base is value.base is not None
        ):
            return exact
        return self._moved(exact, value)

    def _off(self, exact: Enclosure, origins: Iterable[Origin], shape: tuple[int, ...]) -> Enclosure:
        err = np.zeros(shape)
        for origin in origins:
            if isinstance(origin, Off):
                one = np.abs(exact.lo) * origin.relative * (1 + 2.0**-40) + origin.absolute
                err = np.maximum(err, np.where(np.isnan(one), np.inf, one))
            else:
                found = self._made(origin)
                if found.why:
                    return anything(shape, found.why)
                lo, hi = found.lo.reshape(shape), found.hi.reshape(shape)
                apart = np.maximum(exact.lo - lo, hi - exact.lo) * (1 + 2.0**-40)
                err = np.maximum(err, np.where(np.isnan(apart), np.inf, apart))
        why = "a constant that is made of constants which were rounded before" if np.isinf(err).any() else ""
        return tidy(exact.lo - err, exact.hi + err, exact.clo, exact.chi, err, why)

    def _made(self, made: Made) -> Enclosure:
        given = {name: self.of(t) for name, t in made.operands.items()}
        return self.evaluate(made.node, given)[made.output]

    def _moved(self, exact: Enclosure, value: np.ndarray) -> Enclosure:
        """A constant that a pass has made: exact if it has only numbers of the model's own constants."""
        if self.values is None:
            kept = [np.unique(np.asarray(a, np.float64)) for a in self.own if a.dtype.kind not in "OUSb"]
            self.values = np.unique(np.concatenate([*kept, np.array([0.0, 1.0, -1.0, -np.inf, np.inf])]))
        distinct = np.unique(exact.lo)
        at = np.clip(np.searchsorted(self.values, distinct), 0, len(self.values) - 1)
        if np.array_equal(self.values[at], distinct) and not self.ledger.entries:
            return exact
        rounded = [o for _, origins in self.ledger.entries.values() for o in origins]
        if np.array_equal(self.values[at], distinct) and all(isinstance(o, Off) for o in rounded):
            relative = max((o.relative for o in rounded if isinstance(o, Off)), default=0.0)
            absolute = max((o.absolute for o in rounded if isinstance(o, Off)), default=0.0)
            return self._off(exact, [Off(relative, absolute)], value.shape)
        return anything(value.shape, "a constant that a pass has computed")


def of_model(graph: Graph) -> list[np.ndarray]:
    """The arrays of all constants that a graph has."""
    return [t.const for t in graph.tensors.values() if t.const is not None]
