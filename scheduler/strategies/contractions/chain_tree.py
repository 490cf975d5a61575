"""The tree of a chain as one nest: what attention on CPUs and on GPUs builds alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

import islpy as isl

from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.scop import Scop
from polyc.poly.tree import Filter, Node, Promote, loop_dim, loop_names
from polyc.poly.tree import Sequence as InOrder
from polyc.scheduler.strategies.contractions.chains import Chain, find_chain
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.planner import Plan, first_loops
from polyc.scheduler.transformations.guarding import renamed
from polyc.scheduler.transformations.storage import buffer_name

P = TypeVar("P", bound=Plan)
CHAIN_OPERATIONS = 20_000_000  # of isl, to find out whether a chain becomes one nest


def each_chain(plan: P, propose: Callable[[P, Chain], None]) -> None:
    """`propose` every chain of the outermost sequence, as it is when its turn comes."""
    position = 0
    while position < len(top_filters(plan)):
        chain = find_chain(plan, position)
        if chain is not None:
            propose(plan, chain)
        position += 1


def rows_of_chain(plan: P, strategy: Callable[[P], None]) -> tuple[int | None, str]:
    """Rows at a time in the first chain that `strategy` makes one nest; None where there are none, and why."""
    why = "they are no chain of two products with passes over rows between them"
    try:
        with quota(CHAIN_OPERATIONS):
            strategy(plan)
    except QuotaExceeded as error:
        return None, str(error)
    for d in plan.schedule.decisions:
        if "rows" in d.figures and d.outcome == "done":
            return int(d.figures["rows"]), ""
        why = d.reason or why
    return None, why


class ChainTree(Generic[P]):
    """The two contractions of `chain` and the one nest over rows between them, for blocks of `rows` rows.

    `over` are the loops that all parts share (the last one is over rows), `body` is what the nest has inside them.
    """

    def __init__(self, plan: P, chain: Chain, rows: int) -> None:
        self.plan, self.chain, self.rows = plan, chain, rows
        self.scop: Scop = plan.scop
        self.filters = top_filters(plan)
        self.middle = self.filters[chain.middle]
        self.over, self.body = plan.nest(first_loops(self.middle.child)[0])

    def domains(self) -> list[dict[str, isl.Set]]:
        """The statements of the three parts."""
        c = self.chain
        bounds = ((c.position, c.middle), (c.middle, c.last), (c.last, c.end))
        return [{n: d for f in self.filters[low:high] for n, d in f.domain.items()} for low, high in bounds]

    def in_sequence(self, parts: Sequence[Node]) -> Node:
        """The three parts one after another, with loops of different names."""
        first, middle, last = parts
        last = renamed(last, {n for p in (first, middle) for n in loop_names(p)})
        return InOrder(tuple(Filter(d, p) for d, p in zip(self.domains(), (first, middle, last), strict=True)))

    def kept_near(self, node: Node, arrays: Sequence[str], space: Literal["local", "shared"]) -> Node:
        """The node with a buffer for each of the arrays, of which nothing is copied in or out."""
        for name in arrays:
            node = Promote(name, buffer_name(self.scop, self.plan.tree, name), space, node, None, False, False)
        return node

    def in_place(self, node: Node, every: Mapping[str, isl.Set]) -> Node:
        """The whole tree with `node` where the chain was."""
        rest = [*self.filters[: self.chain.position], Filter(dict(every), node), *self.filters[self.chain.end :]]
        return rest[0].child if len(rest) == 1 else InOrder(tuple(rest))

    def value(self, stmt: str, k: int) -> isl.PwAff:
        """Loop `k` of those that all parts share, for a statement."""
        if stmt in self.middle.domain:
            return self.over[k].schedule[stmt]
        s = self.scop.statements[stmt]
        group = self.chain.first if stmt in self.chain.first.iters else self.chain.second
        name = group.iters[stmt][group.contraction.outputs[k]]
        return loop_dim(s.domain, s.iters.index(name))

    def block_values(self, every: Mapping[str, isl.Set]) -> list[dict[str, isl.PwAff]]:
        """The values of the shared loops, the last of them by blocks of rows."""
        values = [{n: self.value(n, k) for n in every} for k in range(len(self.over))]
        values[-1] = {n: pa.scale_down_val(isl.Val(self.rows)).floor() for n, pa in values[-1].items()}
        return values
