"""In which order the statements of a Scop can run whole, all instances of one at once.

Statements that do not depend on each other in a circle run one after the other; where they do, the outermost loop
around them runs step by step, and what is left of the dependences inside a step is looked at again (Allen & Kennedy,
"Automatic translation of Fortran programs to vector form", TOPLAS 1987). Updates of one element by a reduction may
come in any order here: what is summed up has a bound that holds for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.dependences import Pair, conflicts
from polyc.poly.error_bounds.iterations import NotBounded
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Member, loops_around


@dataclass(frozen=True, eq=False, slots=True)
class Whole:
    """All instances of a statement at once."""

    statement: str


@dataclass(frozen=True, eq=False, slots=True)
class Stepwise:
    """`steps` for one iteration of a loop after the other. `times`: the loop's value, by statement."""

    times: Mapping[str, isl.PwAff]
    steps: Sequence[Whole | Stepwise]


Steps = Sequence[Whole | Stepwise]


def steps_of(scop: Scop) -> Steps:
    """The order.

    Raises:
        NotBounded: there is none by loops.
    """
    found = conflicts(replace(scop, reassociate=True)).ordered
    loops = {s: loops_around(scop.tree, s) for s in scop.statements}
    return _steps(list(scop.statements), dict(found), loops, 0)


def _steps(
    names: Sequence[str], found: Mapping[Pair, isl.Map], loops: Mapping[str, Sequence[Member]], at: int
) -> Steps:
    out: list[Whole | Stepwise] = []
    for part in _components(names, found):
        inside = {pair: m for pair, m in found.items() if set(pair) <= set(part) and not m.is_empty()}
        if not inside:
            out += [Whole(s) for s in part]
            continue
        shared = {tuple(m.name for m in loops[s][: at + 1]) for s in part}
        if len(shared) != 1 or len(next(iter(shared))) <= at:
            raise NotBounded(f"statements {', '.join(part)} depend on each other in a circle without a loop")
        times = {s: loops[s][at].schedule[s] for s in part}
        left = {(s, t): m.intersect(_together(times[s], times[t])) for (s, t), m in inside.items()}
        out.append(Stepwise(times, _steps(part, left, loops, at + 1)))
    return out


def _together(a: isl.PwAff, b: isl.PwAff) -> isl.Map:
    return isl.Map.from_pw_aff(a).apply_range(isl.Map.from_pw_aff(b).reverse())


def _components(names: Sequence[str], found: Mapping[Pair, isl.Map]) -> list[list[str]]:
    """Strongly connected components, sources first (Tarjan); those that are free stay in the order of the text."""
    after: dict[str, set[str]] = {n: set() for n in names}
    for (s, t), m in found.items():
        if s in after and t in after and s != t and not m.is_empty():
            after[s].add(t)
    reach = {n: _reached(n, after) for n in names}
    left, out = list(names), []
    while left:
        circles = (_circle(n, left, reach) for n in left)
        part = next(c for c in circles if all(_free(m, left, reach, c) for m in c))
        out.append(part)
        left = [n for n in left if n not in part]
    return out


def _circle(n: str, left: Iterable[str], reach: Mapping[str, set[str]]) -> list[str]:
    return [m for m in left if m == n or (m in reach[n] and n in reach[m])]


def _free(m: str, left: Iterable[str], reach: Mapping[str, set[str]], part: Sequence[str]) -> bool:
    return not any(m in reach[o] for o in left if o not in part)


def _reached(start: str, after: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for n in after[waiting.pop()] - seen:
            seen.add(n)
            waiting.append(n)
    return seen
