"""Names that nothing else in a program has."""

from __future__ import annotations

from collections.abc import Mapping

from polyc.poly.expr import Expr, Load
from polyc.poly.scop import Scop
from polyc.poly.tree import loop_names


class Names:
    """What is taken in a Scop, and names beside it."""

    def __init__(self, scop: Scop) -> None:
        self._taken = {*scop.arrays, *scop.params, *scop.statements, *loop_names(scop.tree)}
        self._taken |= {i for s in scop.statements.values() for i in s.iters}

    def fresh(self, name: str) -> str:
        """`name`, or with the smallest number behind it that makes it new."""
        found, n = name, 0
        while found in self._taken:
            n += 1
            found = f"{name}_{n}"
        self._taken.add(found)
        return found


def renamed(e: Expr, arrays: Mapping[str, str]) -> Expr:
    """The expression over arrays of other names."""
    children = tuple(renamed(c, arrays) for c in e.children())
    if children:
        e = e.with_children(children)
    if isinstance(e, Load) and e.array in arrays:
        return Load(arrays[e.array], e.index, e.dtype, e.span)
    return e
