"""Statements of their own that give whole arrays their first values."""

from __future__ import annotations

import islpy as isl

from polyc.poly.access import array_elements
from polyc.poly.adjoint.names import Names
from polyc.poly.adjoint.trees import loops_over
from polyc.poly.expr import Expr, Load, Var
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Node

Part = tuple[list[Statement], Node]
"""Statements and the tree over them."""


class Fills:
    """Makes such statements; all have the same iterators."""

    def __init__(self, scop: Scop, names: Names) -> None:
        self.scop, self.names = scop, names
        self._iters: list[str] = []

    def filled(self, array: Array, value: Expr) -> Part:
        """`array[x] = value` for all elements x, whose coordinates are those of `iters`."""
        name = self.names.fresh(f"S_{array.name}")
        iters = self.iters(array)
        domain = array_elements(array, self.scop.params).set_tuple_name(name)
        for k, i in enumerate(iters):
            domain = domain.set_dim_name(isl.dim_type.set, k, i)
        s = Statement(name, iters, domain, array.name, tuple(Var(i) for i in iters), value, span=array.span)
        return [s], loops_over(s, [self.names.fresh(f"{name}_{i}") for i in iters])

    def copied(self, array: Array, source: str) -> Part:
        """`array[x] = source[x]` for all elements."""
        return self.filled(array, Load(source, tuple(Var(i) for i in self.iters(array)), array.dtype))

    def iters(self, array: Array) -> tuple[str, ...]:
        """The iterators over the elements of an array."""
        while len(self._iters) < len(array.shape):
            self._iters.append(self.names.fresh(f"x{len(self._iters)}"))
        return tuple(self._iters[: len(array.shape)])
