"""What a program does not need is left out: statements whose array nobody reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from polyc.poly.adjoint.trees import in_place
from polyc.poly.expr import Expr, loads
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Leaf


def expressions(s: Statement) -> Iterator[Expr]:
    """All expressions of a statement in which it may read."""
    yield s.value
    yield from s.index
    if s.predicate is not None:
        yield s.predicate
    for bound in s.dynamic:
        yield bound.lo
        yield bound.hi


def read_by(s: Statement) -> set[str]:
    """The arrays that a statement reads, but the one that it writes."""
    return {load.array for e in expressions(s) for load in loads(e)} - {s.array}


def needed(statements: Mapping[str, Statement], results: set[str]) -> set[str]:
    """The names of the statements on which `results` depend, by the arrays that they read."""
    by_array: dict[str, list[Statement]] = {}
    for s in statements.values():
        by_array.setdefault(s.array, []).append(s)
    live: set[str] = set()
    waiting, seen = sorted(results), set(results)
    while waiting:
        for s in by_array.get(waiting.pop(), ()):
            live.add(s.name)
            new = read_by(s) - seen
            seen |= new
            waiting += sorted(new)
    return live


def without_idle(scop: Scop, always: tuple[str, ...] = ()) -> Scop:
    """The Scop without the statements on which no result depends, and without the arrays that then nobody uses.
    `always` are arrays that stay."""
    results = {n for n, a in scop.arrays.items() if a.kind in ("out", "inout")}
    live = needed(scop.statements, results)
    statements = {n: s for n, s in scop.statements.items() if n in live}
    tree = in_place(scop.tree, {n: [s] for n, s in statements.items()}, str)
    used = {*scop.args, *scop.results, *always}
    used |= {name for s in statements.values() for name in (s.array, *read_by(s))}
    arrays = {n: a for n, a in scop.arrays.items() if n in used}
    return replace(scop, arrays=arrays, statements=statements, tree=Leaf() if tree is None else tree)
