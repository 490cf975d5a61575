"""Chains: a contraction, passes over the rows of its result, and a contraction of what they made (attention).

Which nests these are follows from the Scop: a contraction whose result is local, nests that read it, and a
contraction that has what they wrote as an operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from polyc.poly.expr import Var, loads
from polyc.poly.scop import Scop
from polyc.poly.tree import Member
from polyc.scheduler.cost.vector_loops import iterator
from polyc.scheduler.recognition.contraction import Operand
from polyc.scheduler.recognition.group import Group, group_nests
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.joining import try_join
from polyc.scheduler.strategies.planner import Plan, first_loops
from polyc.scheduler.transformations.storage import users

P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Chain:
    """The parts of the outermost sequence from `position` on: `first`, then those over rows from `middle` on, then
    `second` from `last` to `end`. The outputs of both contractions are in one order: heads, rows, columns."""

    position: int
    middle: int
    last: int
    end: int
    first: Group
    second: Group

    @property
    def scores(self) -> str:
        """The array that the first contraction and what follows it make."""
        return self.first.statements()[-1].array


def find_chain(plan: Plan, position: int) -> Chain | None:
    """The chain that begins at a part of the outermost sequence; None when there is none, or a claimed one."""
    scop, nests = plan.scop, [list(f.domain) for f in top_filters(plan)]
    found = group_nests(scop, nests, position)
    if found is None or not _single(found[0]) or plan.claimed & set(nests[position]):
        return None
    middle = last = position + found[1]
    then = None
    while last < len(nests):
        then = group_nests(scop, nests, last)
        if then is not None and not then[0].contraction.sweep:
            break
        last += 1
    if last in (middle, len(nests)) or then is None or not _single(then[0]):
        return None
    between = [scop.statements[s] for n in nests[middle:last] for s in n]
    linked = _linked(scop, found[0], then[0], {s.array for s in between})
    if linked is None:
        return None
    chain = Chain(position, middle, last, last + then[1], *linked)
    reads = any(e.array == chain.scores for s in between for e in loads(s.value))
    return chain if reads and scop.arrays[chain.scores].kind == "local" else None


def _single(group: Group) -> bool:
    """Whether the contraction has two operands and one reduction loop."""
    return not group.contraction.sweep and len(group.contraction.inner) == 1


def _linked(scop: Scop, first: Group, second: Group, between: set[str]) -> tuple[Group, Group] | None:
    """Both groups with their outputs as heads, rows, columns, wherever these stand in subscripts; None unless the
    second reads an array made in `between` whose dimensions, but for those of extent 1, are the first one's."""
    c, made = second.contraction, first.statements()[-1]
    read = next((op for op in c.operands if op.load.array in between), None)
    if read is None or scop.arrays[read.load.array].kind != "local":
        return None
    own = {theirs: output for output, theirs in first.iters[made.name].items()}
    written, reading = ([e.name for e in index if isinstance(e, Var)] for index in (made.index, read.load.index))
    if len(written) != len(reading) or not set(written) <= set(own):
        return None
    links = [(own[w], r) for w, r in zip(written, reading)]
    summed = [a for a, b in links if b in c.inner]
    columns = [o for o in c.outputs if o not in {b for _, b in links}]
    right = [op for op in first.contraction.operands if set(summed) <= set(op.own)]
    other = next(op for op in c.operands if op is not read)
    if len(summed) != 1 or len(right) != 1 or len(columns) != 1 or columns[0] not in other.own:
        return None
    left = next(op for op in first.contraction.operands if op is not right[0])
    rows = [(a, b) for a, b in links if a in left.own and b in read.own]
    if not rows:
        return None
    heads = [link for link in links if link != rows[-1] and link[0] != summed[0]]
    order = ([*(a for a, _ in heads), rows[-1][0], *summed], [*(b for _, b in heads), rows[-1][1], *columns])
    return _ordered(first, order[0]), _ordered(second, order[1])


def _ordered(group: Group, outputs: list[str]) -> Group:
    return replace(group, contraction=replace(group.contraction, outputs=tuple(outputs)))


def shared_loops(plan: Plan, chain: Chain, members: list[Member]) -> list[Member] | None:
    """The loops of the nest in between in the order of heads and rows; None where it has others."""
    made = chain.first.statements()[-1]
    theirs = [chain.first.iters[made.name][o] for o in chain.first.contraction.outputs[:-1]]
    places = [made.index.index(Var(name)) for name in theirs]
    found: dict[int, Member] = {}
    for m in members:
        for stmt in (plan.scop.statements[n] for n in m.schedule):
            name = iterator(stmt, m.schedule[stmt.name])
            for e in (stmt.target, *loads(stmt.value)):
                if e.array == chain.scores and name is not None and Var(name) in e.index:
                    found[e.index.index(Var(name))] = m
    loops = [found[p] for p in places if p in found]
    return loops if len(loops) == len(places) == len(members) == len({m.name for m in loops}) else None


def each_chain(plan: P, propose: Callable[[P, Chain], None]) -> None:
    """`propose` every chain of the outermost sequence, as it is when its turn comes."""
    position = 0
    while position < len(top_filters(plan)):
        chain = find_chain(plan, position)
        if chain is not None:
            propose(plan, chain)
        position += 1


def chain_parts(plan: Plan, chain: Chain) -> list[set[str]]:
    """The statements of the three parts."""
    filters = top_filters(plan)
    bounds = ((chain.position, chain.middle), (chain.middle, chain.last), (chain.last, chain.end))
    return [{n for f in filters[low:high] for n in f.domain} for low, high in bounds]


def handed_on(scop: Scop, parts: list[set[str]]) -> list[str]:
    """Local arrays that one part leaves for the next and nobody else reads."""
    every = set().union(*parts)
    local = [n for n, a in scop.arrays.items() if a.kind == "local" and users(scop, n) <= every]
    return [n for n in local if sum(bool(users(scop, n) & p) for p in parts) > 1]


def with_rows_joined(plan: Plan, chain: Chain) -> Chain:
    """The chain with its nests over rows fused, as far as that is possible."""
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


def operands(group: Group) -> tuple[Operand, Operand]:
    """The one that moves with the rows, and the one that moves with the columns."""
    c = group.contraction
    columns = c.outputs[-1]
    right = next((op for op in c.operands if columns in op.own), c.operands[1])
    return next(op for op in c.operands if op is not right), right


def row_operand(group: Group) -> Operand:
    """The operand that moves with the rows."""
    return operands(group)[0]
