"""Stores of what an element holds already, left out.

    X[i, j] = X[i, j]                                ->    nothing
    X[i, j] = X[i, j] if i < n[0] else 0             ->    X[i, j] = 0, where not i < n[0]

The second only where the condition is the same along the last dimension: then whole rows are passed over, while in a
row the choice between two values is cheaper than a store that may or may not happen.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.poly.adjoint.algebra import negated
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Expr, Select, variables
from polyc.poly.rewriting.live import with_domains
from polyc.poly.scop import Scop, Statement


def without_kept(scop: Scop, array: str) -> Scop:
    """The Scop without stores to `array` of what is there; the Scop itself where there are none, or nothing else."""
    found = {n: _changing(s) if s.array == array else s for n, s in scop.statements.items()}
    changed = {n: s for n, s in found.items() if s is not None}
    if not changed or all(changed.get(n) is s for n, s in scop.statements.items()):
        return scop
    return with_domains(replace(scop, statements=changed), {n: s.domain for n, s in changed.items()})


def _changing(s: Statement) -> Statement | None:
    """What is left of a statement."""
    if s.reduction is not None:
        return s
    if s.value == s.target:
        return None
    value = s.value
    if not isinstance(value, Select) or s.target not in (value.a, value.b) or not _by_rows(s, value.cond):
        return s
    kept_if_true = value.a == s.target
    when = negated(value.cond) if kept_if_true else value.cond
    predicate = when if s.predicate is None else Binary("and", s.predicate, when, bool_)
    return replace(s, value=value.b if kept_if_true else value.a, predicate=predicate)


def _by_rows(s: Statement, condition: Expr) -> bool:
    """Whether a condition is the same for all elements of a row."""
    return bool(s.index) and bool(variables(s.index[-1])) and not variables(condition) & variables(s.index[-1])
