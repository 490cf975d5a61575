"""Chains: a contraction, passes over the rows of its result, and a contraction of what they made (attention).

Which nests these are follows from the Scop: a contraction whose result is local, nests that read it, and a
contraction that has what they wrote as an operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from polyc.poly.expr import loads
from polyc.poly.scop import Scop
from polyc.scheduler.strategies.contractions.group import Group, group_nests
from polyc.scheduler.strategies.contractions.recognise import Operand
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.joining import try_join
from polyc.scheduler.strategies.planner import Plan, first_loops
from polyc.scheduler.transformations.storage import users

P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Chain:
    """The parts of the outermost sequence from `position` on: `first`, then those over rows from `middle` on, then
    `second` from `last` to `end`."""

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
    if found is None or not _plain(found[0]) or plan.claimed & set(nests[position]):
        return None
    middle = last = position + found[1]
    then = None
    while last < len(nests):
        then = group_nests(scop, nests, last)
        if then is not None and not then[0].contraction.sweep:
            break
        last += 1
    if last in (middle, len(nests)) or then is None or not _plain(then[0]):
        return None
    chain = Chain(position, middle, last, last + then[1], found[0], then[0])
    between = [scop.statements[s] for n in nests[middle:last] for s in n]
    reads = any(e.array == chain.scores for s in between for e in loads(s.value))
    left = row_operand(chain.second).load.array
    local = scop.arrays[chain.scores].kind == scop.arrays[left].kind == "local"
    return chain if local and reads and left in {s.array for s in between} else None


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


def _plain(group: Group) -> bool:
    """Whether this is a product of matrices: one loop of rows, of columns, and of the reduction."""
    c = group.contraction
    if c.sweep or len(c.outputs) < 2 or len(c.inner) != 1:
        return False
    left, right = operands(group)
    return c.outputs[-2] in left.own and c.outputs[-1] in right.own
