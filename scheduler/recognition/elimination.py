"""Eliminations: updates by products of elements that the same nest has completed at earlier steps.

    for steps k, rows i > k, columns j > k:    A[i, j] -= A[i, k] * A[k, j]

Factorizations (lu, Cholesky) and triangular solves are such, in whichever order of their loops. What is a product from
the nest's point of view (the rest of the matrix, by a block of complete columns and rows) is one only for blocks of
steps, so blocks of steps are cut first (`scheduler.programs.factorization`).
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.poly.expr import Binary, Load, Var, variables
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import loop_dim


@dataclass(frozen=True, slots=True)
class Elimination:
    """`update` of `A[row, column]` at a `step`, which are its iterators; `left` is the factor that rows move, `right`
    that of columns. `behind`: rows, columns or both, which come after the step in every instance: their blocks that
    hold the step itself are no product."""

    update: str
    row: str
    column: str
    step: str
    left: Load
    right: Load
    behind: tuple[str, ...]


def eliminations(scop: Scop, names: Sequence[str]) -> list[Elimination]:
    """Those among the statements of a nest, in the order of the text."""
    written = {scop.statements[n].array for n in names}
    found = (_examined(scop, scop.statements[n]) for n in names)
    return [e for e in found if e is not None and {e.left.array, e.right.array} & written]


def _examined(scop: Scop, stmt: Statement) -> Elimination | None:
    if stmt.reduction != "+" or stmt.predicate is not None or stmt.dynamic or len(stmt.iters) != 3:
        return None
    value = stmt.value
    if not isinstance(value, Binary) or not isinstance(value.b, Binary) or value.b.op != "*":
        return None
    outputs = [e.name for e in stmt.index if isinstance(e, Var) and e.name in stmt.iters]
    if len(outputs) != 2 or len(stmt.index) != 2 or outputs[0] == outputs[1]:
        return None
    row, column = outputs
    (step,) = (i for i in stmt.iters if i not in outputs)
    moved: dict[frozenset[str], Load] = {}
    for factor in (value.b.a, value.b.b):
        if isinstance(factor, Load) and all(isinstance(e, Var) for e in factor.index) and len(factor.index) == 2:
            moved[frozenset(n for e in factor.index for n in variables(e))] = factor
    left, right = moved.get(frozenset((row, step))), moved.get(frozenset((step, column)))
    if left is None or right is None:
        return None
    behind = tuple(i for i in (row, column) if _after(scop, stmt, step, i))
    return Elimination(stmt.name, row, column, step, left, right, behind) if behind else None


def _after(scop: Scop, stmt: Statement, step: str, other: str) -> bool:
    """Whether one iterator is larger than the other in every instance."""
    domain: isl.Set = stmt.domain.intersect_params(scop.context)
    a, b = (loop_dim(stmt.domain, stmt.iters.index(i)) for i in (step, other))
    return bool(domain.is_subset(a.lt_set(b)))
