"""Which order of steps: the exact one of small programs, the best of several methods of large ones."""

from __future__ import annotations

from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.rematerialising.eviction import SCORES, evicting
from polyc.graph_driver.rematerialising.exact import cheapest
from polyc.graph_driver.rematerialising.program import DoesNotFit, Need, Program, measure
from polyc.graph_driver.rematerialising.segments import by_segments
from polyc.poly.records import dataclass

SMALL = 12
"""Steps of a program that is searched for the cheapest order."""
TRIMMED = 400
"""Steps of an order whose repeats are tried one by one."""


@dataclass(frozen=True)
class Chosen:
    """An order, what it needs, and how it was found."""

    order: tuple[int, ...]
    need: Need
    method: str


def choose(program: Program, limit: int) -> Chosen:
    """The cheapest order that was found to need at most `limit` bytes.

    Raises:
        DoesNotFit: none was found; the line has the numbers.
    """
    plain = tuple(range(len(program.steps)))
    need = measure(program, plain)
    if need.peak <= limit:
        return Chosen(plain, need, "as given")
    if program.least > limit:
        raise DoesNotFit(
            f"one step needs {human(program.least)}, more than the memory limit of {human(limit)}, whatever is "
            f"computed again"
        )
    if len(program.steps) <= SMALL:
        found = cheapest(program, limit)
        if found is not None:
            return Chosen(tuple(found), measure(program, found), "exact")
    best: Chosen | None = None
    least = need.peak
    for method, order in _candidates(program, limit):
        made = measure(program, order)
        least = min(least, made.peak)
        if made.peak <= limit and (best is None or made.cost < best.need.cost):
            best = Chosen(tuple(order), made, method)
    if best is None:
        raise DoesNotFit(
            f"no order was found that needs at most {human(limit)}: {human(need.peak)} without computing anything "
            f"again, {human(least)} with it, {human(program.least)} for the largest step alone"
        )
    return _trimmed(program, best, limit)


def _candidates(program: Program, limit: int) -> list[tuple[str, list[int]]]:
    found = [("segments", by_segments(program, limit)[0])]
    for name, score in SCORES.items():
        try:
            found.append((f"eviction by {name}", evicting(program, limit, score)))
        except (DoesNotFit, RecursionError):
            continue
    return found


def _trimmed(program: Program, chosen: Chosen, limit: int) -> Chosen:
    """Without repeats that the limit has room for after all, the dearest first."""
    order, need = [*chosen.order], chosen.need
    if len(order) > TRIMMED:
        return chosen
    seen: set[int] = set()
    repeats = []
    for at, k in enumerate(order):
        if k in seen:
            repeats.append((-program.steps[k].cost, at))
        seen.add(k)
    gone: set[int] = set()
    for _, at in sorted(repeats):
        shorter = [k for a, k in enumerate(order) if a not in gone and a != at]
        made = measure(program, shorter)
        if made.peak <= limit:
            gone.add(at)
            need = made
    kept = tuple(k for a, k in enumerate(order) if a not in gone)
    return Chosen(kept, need, chosen.method)
