"""The nests of a chain in a plan: found where they stand, joined, their shared loops named. For CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from polyc.poly.expr import Var, loads
from polyc.poly.tree import Member
from polyc.scheduler.cost.vector_loops import iterator
from polyc.scheduler.recognition.chains import Chain, find_chain, iterations
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.joining import try_join
from polyc.scheduler.strategies.planner import Plan, first_loops

P = TypeVar("P", bound=Plan)


def each_chain(plan: P, propose: Callable[[P, Chain], None]) -> None:
    """`propose` every chain of the outermost sequence that nobody has claimed, as it is when its turn comes."""
    position = 0
    while position < len(top_filters(plan)):
        nests = [list(f.domain) for f in top_filters(plan)]
        chain = None if plan.claimed & set(nests[position]) else find_chain(plan.scop, nests, position)
        if chain is not None:
            propose(plan, chain)
        position += 1


def chain_parts(plan: Plan, chain: Chain) -> list[set[str]]:
    """The statements of its parts: what fills an operand, the first contraction, the passes, the second."""
    filters = top_filters(plan)
    bounds = (chain.start, chain.position, chain.middle, chain.last, chain.end)
    return [{n for f in filters[low:high] for n in f.domain} for low, high in zip(bounds, bounds[1:])]


def with_rows_joined(plan: Plan, chain: Chain) -> Chain:
    """The chain with its passes over rows fused, as far as that is possible."""
    last, end = chain.last, chain.end
    while last > chain.middle + 1:
        before = len(top_filters(plan))
        heads = [first_loops(f.child)[0] for f in top_filters(plan)[chain.middle : chain.middle + 2]]
        try_join(plan, *heads)
        fewer = before - len(top_filters(plan))
        if not fewer:
            break
        last, end = last - fewer, end - fewer
    return replace(chain, last=last, end=end)


def shared_loops(plan: Plan, chain: Chain, members: list[Member]) -> tuple[Chain, list[Member]] | None:
    """The loops of the passes that stand for the shared ones and the rows, in this order; None where they have others.

    Loops of one iteration may be missing there, and are not shared then, or stand there without a counterpart.
    """
    assert chain.rows is not None
    made = chain.first.statements()[-1]
    own = chain.first.iters[made.name]
    found = {place: m for m in members for place in _places(plan, chain, m)}
    shared, loops = [], []
    for link in (*chain.shared, chain.rows):
        place = made.index.index(Var(own[link[0]]))
        if place in found:
            loops.append(found[place])
            shared.append(link)
        elif iterations(chain.first, link[0]) != 1 or link == chain.rows:
            return None
    named = {m.name for m in loops}
    if len(named) < len(loops) or any(plan.extent(m) != 1 for m in members if m.name not in named):
        return None
    return replace(chain, shared=tuple(shared[:-1])), loops


def _places(plan: Plan, chain: Chain, m: Member) -> set[int]:
    """The dimensions of the scores along which a loop of the passes goes."""
    found = set()
    for stmt in (plan.scop.statements[n] for n in m.schedule):
        name = iterator(stmt, m.schedule[stmt.name])
        for e in (stmt.target, *loads(stmt.value)):
            if e.array == chain.scores and name is not None and Var(name) in e.index:
                found.add(e.index.index(Var(name)))
    return found
