"""Strategy: a loop is cut where subscripts wrap round, so that what lies between is read in whole vectors.

    for j: B[j] = A[(j + n - 1) % n] + A[(j + 1) % n]
    ->   j = 0: ...; for j from 1 to n - 2: B[j] = A[j - 1] + A[j + 1]; j = n - 1: ...

Neighbours in a periodic field, or edges that count on (`A[max(i - 1, 0)]`), are affine in pieces: `%`, `//`, `min` and
`max` of the loop change their form at a few of its iterations. Between two of these each is one affine function, which
the bounds of the loop then tell later passes (index-set splitting: Griebl, Feautrier and Lengauer, "Index set
splitting", IJPP 2000). Where the form depends on loops inside, too (`A[max(i + k - 5, 0)]`, a window over an edge), the
cut is where it has changed for all of their iterations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import islpy as isl

from polyc.poly.binding import linear_form
from polyc.poly.expr import Binary, Const, Expr, const_int, rewrite, variables, walk
from polyc.poly.forms.ranges import value_range
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Member, loop_dim
from polyc.scheduler.cost.vector_loops import (
    GAIN,
    LEAST_VECTORS,
    MOST_PLACES,
    iterator,
    lanes_for,
    subscripts,
    vector_cost,
)
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner
from polyc.scheduler.transformations.tree_edit import is_dynamic, locate, reaching

Ends = tuple[int, int]


def cut_at_wraps(plan: Planner, members: Sequence[Member]) -> list[str]:
    """Cut that one of nested loops which, but for subscripts that wrap round, would be the best vector loop.

    Returns:
        The parts that fill a vector; none where nothing wraps or nothing is gained.
    """
    stmts = tuple(members[-1].schedule)
    kept = min(_cost(plan, plan.scop, m, stmts) for m in members)
    for m in reversed(members):
        ends = _ends(plan, m)
        if ends is None or is_dynamic(plan.scop, m) or not plan.carried()[m.name].vector:
            continue
        places = _places(plan.scop, m, stmts, ends)
        lanes = lanes_for(plan.scop, stmts, ends[1] - ends[0] + 1, plan.target)
        if not 0 < len(places) <= MOST_PLACES or ends[1] - ends[0] < LEAST_VECTORS * lanes * len(places):
            continue
        if _cost(plan, _unfolded(plan.scop, m, stmts, ends), m, stmts) < GAIN * kept:
            return _cut(plan, m, members, places, ends, lanes)
    return []


def _cost(plan: Planner, scop: Scop, m: Member, stmts: Sequence[str]) -> float:
    """Of an iteration in lanes, or one by one where lanes are not legal."""
    extent = plan.extent(m, stmts)
    lanes = lanes_for(scop, stmts, extent, plan.target) if plan.carried()[m.name].vector else 1
    return vector_cost(scop, m, stmts, lanes, extent)


def _cut(
    plan: Planner, m: Member, nest: Sequence[Member], places: Sequence[int], ends: Ends, lanes: int
) -> list[str]:  # fmt: skip
    """The loop cut there, as the innermost of its nest but for sums; its parts that fill a vector."""
    names, given = [m.name], [x.name for x in nest]
    others = [x for x in nest if x is not m]
    place = len(others)
    while place and _adds_up(plan, others[place - 1]):
        place -= 1
    order = [x.name for x in (*others[:place], m, *others[place:])]

    def apart(s: Schedule) -> Schedule:
        if order != given:  # it is to be the vector loop
            s = s.permute(order)
        for at in places:
            before = set(s.loops)
            s = s.index_split(names[-1], at)
            names.append(next(n for n in s.loops if n not in before))
        return s

    shown = ", ".join(map(str, places))
    if not plan.attempt(f"loop {m.name}", f"cut at {shown}, where subscripts wrap round", apart, at=shown):
        return []
    edges = [ends[0], *places, ends[1] + 1]
    return [name for name, low, high in zip(names, edges, edges[1:], strict=False) if high - low >= lanes]


def _adds_up(plan: Planner, m: Member) -> bool:
    """Whether a loop only runs over sums."""
    found = ((s, iterator(s, m.schedule[s.name])) for s in (plan.scop.statements[n] for n in m.schedule))
    return all(s.reduction is not None and i is not None and i not in variables(s.target) for s, i in found)


def _ends(plan: Planner, m: Member) -> Ends | None:
    """First and last value of a loop, where it stands, that follows an iterator of each statement."""
    inside = reaching(plan.scop, locate(plan.tree, m.name).path)
    found: list[Ends] = []
    for name, time in m.schedule.items():
        values = value_range(time, inside[name])
        if values is None or _origin(plan.scop.statements[name], m) is None:
            return None
        found.append(values)
    return min(low for low, _ in found), max(high for _, high in found)


def _origin(s: Statement, m: Member) -> tuple[str, int] | None:
    """The iterator whose value plus a number is the loop's."""
    name = iterator(s, m.schedule[s.name])
    if name is None:
        return None
    aff = m.schedule[s.name].get_pieces()[0][1]
    if not aff.get_coefficient_val(isl.dim_type.in_, s.iters.index(name)).is_one():
        return None
    constant = aff.get_constant_val()
    return (name, int(constant.to_python())) if constant.is_int() else None


def _places(scop: Scop, m: Member, stmts: Sequence[str], ends: Ends) -> list[int]:
    """The first values of the loop at which a subscript has another form than before."""
    found: set[int] = set()
    for s in (scop.statements[n] for n in stmts):
        origin = _origin(s, m)
        assert origin is not None  # (`_ends`)
        name, shift = origin
        for e in subscripts(s):
            for x in walk(e):
                if isinstance(x, Binary):
                    found |= {at + shift for at in _turns(x, name, (ends[0] - shift, ends[1] - shift), _spans(s))}
    return sorted(found)


def _spans(s: Statement) -> dict[str, Ends]:
    """The first and last value of each iterator that has constant ones."""
    found = {}
    for k, name in enumerate(s.iters):
        values = value_range(loop_dim(s.domain, k), s.domain)
        if values is not None:
            found[name] = values
    return found


def _turns(x: Binary, name: str, ends: Ends, spans: Mapping[str, Ends]) -> set[int]:
    """The values of an iterator, but the first, at which `%`, `//`, `min` or `max` of it begins a new piece: the first
    and the last such value, where other iterators stand in it, too. More than `MOST_PLACES` say that there are too
    many."""
    if x.op in ("%", "//") and isinstance(x.b, Const) and int(x.b.value) > 0:
        found = _along(linear_form(x.a), name, spans)
        if found is None:
            return set()
        by, starts = found
        size = int(x.b.value)
        pieces = [(by * i + start) // size for i in ends for start in starts]
        first, last = min(pieces), max(pieces)
        if last - first > MOST_PLACES:
            return set(range(MOST_PLACES + 1))
        # by > 0: where a multiple is reached; by < 0: behind where the multiple above is left
        turns = {-((start - q * size) // by) if by > 0 else (q * size - start) // by + 1
                 for q in range(first + 1, last + 1) for start in starts}  # fmt: skip
    elif x.op in ("min", "max"):
        found = _along(linear_form(Binary("-", _between(x.a), _between(x.b), x.dtype)), name, spans)
        if found is None:
            return set()
        by, starts = found
        turns = {-(start // by) for start in starts}
    else:
        return set()
    return {t for t in turns if ends[0] < t <= ends[1]}


def _between(e: Expr) -> Expr:
    """What a subscript that is kept between two numbers is where it is none of them (`min(max(i - 1, 0), N - 1)`)."""
    while isinstance(e, Binary) and e.op in ("min", "max") and (isinstance(e.a, Const) or isinstance(e.b, Const)):
        e = e.b if isinstance(e.a, Const) else e.a
    return e


def _along(
    form: tuple[dict[str, Fraction], Fraction] | None, name: str, spans: Mapping[str, Ends]
) -> tuple[int, Ends] | None:
    """Slope along one iterator, and the least and largest start, of an integer function of it and others that have
    constant ends."""
    if form is None:
        return None
    slopes, start = form
    moving = {n: c for n, c in slopes.items() if c}
    if name not in moving or any(c.denominator != 1 for c in (*moving.values(), start)):
        return None
    others = {n: c for n, c in moving.items() if n != name}
    if not others.keys() <= spans.keys():
        return None
    low, high = (sum(pick(c * v for v in spans[n]) for n, c in others.items()) for pick in (min, max))
    return int(moving[name]), (int(start + low), int(start + high))


def _unfolded(scop: Scop, m: Member, stmts: Sequence[str], ends: Ends) -> Scop:
    """The program as its longest part sees it: for the cost model alone."""
    changed = {}
    for name in stmts:
        s = scop.statements[name]
        origin = _origin(s, m)
        assert origin is not None
        own, spans = (ends[0] - origin[1], ends[1] - origin[1]), _spans(s)

        def plain(e: Expr, name: str = origin[0], own: Ends = own, spans: Mapping[str, Ends] = spans) -> Expr:
            if not isinstance(e, Binary) or not _turns(e, name, own, spans):
                return e
            return const_int(0) if e.op == "//" else e.a if name in variables(e.a) else e.b

        index = tuple(rewrite(e, plain) for e in s.index)
        changed[name] = replace(s, value=rewrite(s.value, plain), index=index)
    return replace(scop, statements={**scop.statements, **changed})
