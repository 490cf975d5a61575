"""The instances of a statement at fixed sizes as a grid of NumPy arrays, and the elements that accesses are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import islpy as isl
import numpy as np

from polyc.poly.error_bounds.enclosure import Array
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Select, Unary, Var
from polyc.poly.forms.affine_expr import set_expr
from polyc.poly.forms.ranges import bounds
from polyc.poly.records import dataclass


class NotBounded(Exception):
    """There is no enclosure of what a Scop computes; the text says why."""


@dataclass(frozen=True, eq=False, slots=True)
class Grid:
    """The box around some instances: an axis for each iterator. `mask`: which of it are instances; None: all."""

    iters: tuple[str, ...]
    first: tuple[int, ...]
    extents: tuple[int, ...]
    values: Mapping[str, Array]
    mask: Array | None

    @property
    def size(self) -> int:
        """Points of the box."""
        return math.prod(self.extents)

    def integers(self, e: Expr) -> Array:
        """An integer expression of the iterators, with one element along axes that it does not depend on."""
        return np.asarray(_integers(e, self.values)).reshape(_ranked(_integers(e, self.values), len(self.iters)))

    def halves(self) -> tuple[isl.Set | None, int, int]:
        """Where to cut the grid in two: nothing of the domain, the longest axis and its middle."""
        axis = max(range(len(self.extents)), key=lambda d: self.extents[d])
        return None, axis, self.first[axis] + self.extents[axis] // 2


def _ranked(a: Array, rank: int) -> tuple[int, ...]:
    shape = np.shape(a)
    return shape if len(shape) == rank else (1,) * rank


def grid(domain: isl.Set, iters: Sequence[str]) -> Grid | None:
    """The grid of a domain without parameters; None where it is empty.

    Raises:
        NotBounded: it has no end.
    """
    if domain.is_empty():
        return None
    rank = len(iters)
    sides = [bounds(domain, d) for d in range(rank)]
    if any(s is None for s in sides):
        raise NotBounded("a loop whose end the data decide")
    known = [s for s in sides if s is not None]
    values = {
        name: np.arange(low, high + 1).reshape([-1 if d == k else 1 for d in range(rank)])
        for k, (name, (low, high)) in enumerate(zip(iters, known, strict=True))
    }
    box = isl.Set.universe(domain.get_space())
    for d, (low, high) in enumerate(known):
        box = box.lower_bound_val(isl.dim_type.set, d, isl.Val(low))
        box = box.upper_bound_val(isl.dim_type.set, d, isl.Val(high))
    mask = None
    if not box.is_subset(domain):
        mask = np.asarray(_integers(set_expr(domain, iters, box), values)).astype(bool)
    return Grid(
        tuple(iters), tuple(s[0] for s in known), tuple(s[1] - s[0] + 1 for s in known), values,
        None if mask is None else mask.reshape(_ranked(mask, rank)),
    )  # fmt: skip


def _integers(e: Expr, values: Mapping[str, Array]) -> Array:
    """The value of an expression without loads.

    Raises:
        NotBounded: it has what is no integer expression.
    """
    match e:
        case Const():
            return np.asarray(e.value)
        case Var():
            return values[e.name]
        case Cast():
            return _integers(e.a, values)
        case Unary(op="neg"):
            return -_integers(e.a, values)
        case Unary(op="not"):
            return np.logical_not(_integers(e.a, values))
        case Select():
            return np.where(_integers(e.cond, values), _integers(e.a, values), _integers(e.b, values))
        case Call(fn="position"):
            j, size = (_integers(x, values) for x in e.args)
            return np.maximum(np.minimum(j, size - 1), 0)
        case Binary(op=op) if op in _OPERATIONS:
            return np.asarray(_OPERATIONS[op](_integers(e.a, values), _integers(e.b, values)))
    raise NotBounded(f"a subscript with {type(e).__name__}")


_OPERATIONS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod, "min": np.minimum,
    "max": np.maximum, "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater,
    ">=": np.greater_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
