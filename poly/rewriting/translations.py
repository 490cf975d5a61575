"""Translations of a Scop: instances and elements that move together, so that what was computed here is computed there.

    y[h] += x[2 * h + k] * w[k]      one row of y further down is two rows of x further down, and the same w

Moves are linear: every subscript is a sum of multiples of iterators, so an instance moves by `t` where its subscripts
move by their coefficients times `t`. The equations have a null space, whose basis are the directions. That relations
(flow of values, accesses, conditions) are the same after a move is asked of isl, for moves by any number of steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.expr import COMPARISONS, Binary, Expr, Load, Var, loads, variables
from polyc.poly.forms.affine import NotAffine, linear_aff, set_space, to_set
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Filter, Node, loops_below

Key = tuple[str, str, int]
"""An unknown: ("instance", statement, iterator), ("element", array, dimension), ("time", loop, 0)."""
Row = dict[Key, Fraction]


@dataclass(frozen=True, eq=False, slots=True)
class Directions:
    """Steps in each of which statements and arrays move together. `steps[e]`: by unknown how far, 0 where it is not
    there."""

    steps: Sequence[Mapping[Key, int]]

    def row(self, key: Key) -> tuple[int, ...]:
        """How far an unknown moves in each direction."""
        return tuple(s.get(key, 0) for s in self.steps)


def directions(scop: Scop, statements: Collection[str], still: Collection[Key]) -> Directions:
    """How these statements of a Scop at fixed sizes, and the arrays they access, can move.

    Args:
        still: what does not move.
    """
    equations: list[dict[Key, int]] = [{k: 1} for k in still]
    names: dict[Key, None] = {}
    for a in accesses(scop):
        if a.stmt in statements:
            s = scop.statements[a.stmt]
            for d, e in enumerate(a.load.index):
                equations += _moving_with(s, e, ("element", a.array, d))
    for name in statements:
        s = scop.statements[name]
        equations += [{("instance", name, s.iters.index(v)): 1} for v in _values_of_iterators(s) if v in s.iters]
    for m in loops_below(scop.tree):
        for name, time in m.schedule.items():
            if name in statements:
                equations += _at_a_time(scop.statements[name], time, ("time", m.name, 0))
    for equation in equations:
        names.update(dict.fromkeys(equation))
    return Directions(_null_space(equations, list(names)))


def independent(moves: Directions, keys: Sequence[Key]) -> Directions:
    """Those directions that move some of these unknowns, each in another way than all before it."""
    chosen: list[Mapping[Key, int]] = []
    for step in moves.steps:
        if _independent([*chosen, step], keys):
            chosen.append(step)
    return Directions(chosen)


class Steps:
    """Directions that are independent of each other on some unknowns: how many steps move these so far."""

    def __init__(self, moves: Directions, keys: Sequence[Key]) -> None:
        self.moves, self.keys = moves, list(keys)
        self.rows = [[Fraction(n) for n in moves.row(k)] for k in self.keys]

    def to(self, targets: Mapping[Key, int]) -> tuple[int, ...] | None:
        """None: there is no whole number of steps."""
        many = len(self.moves.steps)
        left = [[*row, Fraction(targets.get(k, 0))] for k, row in zip(self.keys, self.rows, strict=True)]
        for e in range(many):
            at = next((r for r in range(e, len(left)) if left[r][e]), None)
            if at is None:
                return None
            left[e], left[at] = left[at], left[e]
            left[e] = [n / left[e][e] for n in left[e]]
            for r in range(len(left)):
                if r != e and left[r][e]:
                    factor = left[r][e]
                    left[r] = [a - factor * b for a, b in zip(left[r], left[e], strict=True)]
        if any(row[-1] for row in left[many:]) or any(row[-1].denominator != 1 for row in left[:many]):
            return None
        return tuple(int(row[-1]) for row in left[:many])


def _independent(steps: Sequence[Mapping[Key, int]], keys: Sequence[Key]) -> bool:
    rows = [[Fraction(s.get(k, 0)) for k in keys] for s in steps]
    for n in range(len(rows)):
        at = next((c for c, v in enumerate(rows[n]) if v), None)
        if at is None:
            return False
        for m in range(n + 1, len(rows)):
            if rows[m][at]:
                factor = rows[m][at] / rows[n][at]
                rows[m] = [a - factor * b for a, b in zip(rows[m], rows[n], strict=True)]
    return True


# ---- equations ----------------------------------------------------------------------------------


def _moving_with(s: Statement, e: Expr, place: Key) -> Iterator[dict[Key, int]]:
    """A subscript moves by its coefficients; one that is no sum of multiples of iterators does not move."""
    try:
        linear = linear_aff(e, set_space(s.name, s.iters, ()))
    except NotAffine:
        linear = None
    if linear is None:
        yield {place: 1}
        yield from ({("instance", s.name, s.iters.index(v)): 1} for v in _outside_loads(e) if v in s.iters)
        return
    found = {place: -1}
    for d in range(len(s.iters)):
        factor = int(linear.get_coefficient_val(isl.dim_type.in_, d).to_python())
        if factor:
            found["instance", s.name, d] = factor
    yield found


def _at_a_time(s: Statement, time: isl.PwAff, loop: Key) -> Iterator[dict[Key, int]]:
    """All statements of a loop move by the same number of iterations."""
    pieces = time.get_pieces()
    plain = len(pieces) == 1 and not pieces[0][1].dim(isl.dim_type.div)
    found = {loop: -1}
    for d in range(len(s.iters)):
        key = "instance", s.name, d
        if not plain:
            if time.involves_dims(isl.dim_type.in_, d, 1):
                yield {key: 1}
            continue
        factor = pieces[0][1].get_coefficient_val(isl.dim_type.in_, d)
        if not factor.is_int():
            yield {key: 1}
        elif not factor.is_zero():
            found[key] = int(factor.to_python())
    yield found


def _values_of_iterators(s: Statement) -> set[str]:
    """Iterators whose values count beside subscripts and affine conditions."""
    parts = [s.value] if s.predicate is None else [s.value, s.predicate]
    found = {v for p in parts for v in _outside_loads(p, s)}
    return found | {v for b in s.dynamic for e in (b.lo, b.hi) for v in variables(e)}


def _outside_loads(e: Expr, s: Statement | None = None) -> Iterator[str]:
    """Variables of an expression that stand in no subscript, and in no affine condition of `s`."""
    if isinstance(e, Var):
        yield e.name
    elif not isinstance(e, Load) and (s is None or _condition(e, s) is None):
        for part in e.children():
            yield from _outside_loads(part, s)


def conditions(s: Statement) -> list[isl.Set]:
    """The affine conditions in a statement's value and predicate: where each of them holds."""
    parts = [s.value] if s.predicate is None else [s.value, s.predicate]
    waiting, found = list(parts), []
    while waiting:
        e = waiting.pop()
        holds = _condition(e, s)
        if holds is not None:
            found.append(holds)
        elif not isinstance(e, Load):
            waiting += e.children()
    return found


def _condition(e: Expr, s: Statement) -> isl.Set | None:
    if not isinstance(e, Binary) or e.op not in COMPARISONS or any(True for _ in loads(e)) or not e.a.dtype.is_int:
        return None
    try:
        return to_set(e, set_space(s.name, s.iters, ()))
    except NotAffine:
        return None


def branches(node: Node) -> Iterator[tuple[str, isl.Set]]:
    """The domains of all filters of a tree, by statement."""
    if isinstance(node, Filter):
        yield from node.domain.items()
    for child in node.children():
        yield from branches(child)


def _null_space(equations: Sequence[Mapping[Key, int]], names: Sequence[Key]) -> list[dict[Key, int]]:
    """A basis, in whole numbers, of what makes all equations 0."""
    solved: dict[Key, Row] = {}
    for equation in equations:
        row: Row = {}
        for key, factor in equation.items():
            for k, f in solved[key].items() if key in solved else ((key, Fraction(1)),):
                row[k] = row.get(k, Fraction(0)) + factor * f
        row = {k: f for k, f in row.items() if f}
        if not row:
            continue
        pivot = min(row, key=lambda k: (abs(row[k]) != 1, k[0] == "instance"))
        own = {k: -f / row[pivot] for k, f in row.items() if k != pivot}
        for key, known in solved.items():
            if pivot in known:
                times = known.pop(pivot)
                for k, f in own.items():
                    known[k] = known.get(k, Fraction(0)) + times * f
                solved[key] = {k: f for k, f in known.items() if f}
        solved[pivot] = own
    found = []
    for free in names:
        if free in solved:
            continue
        step = {free: Fraction(1)} | {k: known[free] for k, known in solved.items() if free in known}
        scale = lcm(*(f.denominator for f in step.values()))
        whole = {k: int(f * scale) for k, f in step.items()}
        common = gcd(*whole.values())
        found.append({k: n // common for k, n in whole.items()})
    return found


# ---- relations after a move ---------------------------------------------------------------------


class Moved:
    """Relations and sets of a Scop seen from where a move leads.

    Args:
        moves: the directions.
        by: how many steps in each of them; None: any number, `q0`, `q1`, ... in the sets.
    """

    def __init__(self, moves: Directions, by: Sequence[int] | None) -> None:
        self.moves, self.by = moves, by
        self.params = [f"q{e}" for e in range(len(moves.steps))] if by is None else []
        self._known: dict[tuple[str, str, int], isl.MultiAff] = {}

    def map(self, relation: isl.Map, kinds: tuple[str, str]) -> isl.Map:
        """The pairs that are in `relation` after the move. `kinds`: whether its sides are "instance" or "element"."""
        source = self._move(kinds[0], relation.get_tuple_name(isl.dim_type.in_), relation.dim(isl.dim_type.in_))
        sink = self._move(kinds[1], relation.get_tuple_name(isl.dim_type.out), relation.dim(isl.dim_type.out))
        return relation.preimage_domain_multi_aff(source).preimage_range_multi_aff(sink)

    def set(self, points: isl.Set, kind: str) -> isl.Set:
        """The points that are in `points` after the move."""
        return points.preimage_multi_aff(self._move(kind, points.get_tuple_name() or "", points.dim(isl.dim_type.set)))

    def _move(self, kind: str, name: str, rank: int) -> isl.MultiAff:
        if (kind, name, rank) not in self._known:
            dims = [f"i{d}" for d in range(rank)]
            moved = [f"{i} + {self._by(self.moves.row((kind, name, d)))}" for d, i in enumerate(dims)]
            text = f"{{ {name}[{', '.join(dims)}] -> {name}[{', '.join(moved)}] }}"
            prefix = f"[{', '.join(self.params)}] -> " if self.params else ""
            self._known[kind, name, rank] = isl.MultiAff(prefix + text)
        return self._known[kind, name, rank]

    def _by(self, row: Sequence[int]) -> str:
        if self.by is not None:
            return f"({sum(n * q for n, q in zip(row, self.by, strict=True))})"
        return "(" + (" + ".join(f"{n} * {q}" for n, q in zip(row, self.params, strict=True) if n) or "0") + ")"
