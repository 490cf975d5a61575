"""Chains: a contraction, passes over its result (or none), and a contraction of what they made.

Attention is one (a product, a softmax over the rows of the scores, a product), and so are a depthwise convolution and
the 1x1 convolution after it, or two layers of a perceptron. Which nests these are follows from access relations alone:
a contraction whose result is local, nests that read it, and a contraction that has what they wrote as an operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from polyc.poly.expr import Const, Load, Var, loads
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.scheduler.recognition.contraction import Operand, extent
from polyc.scheduler.recognition.group import Group, group_nests
from polyc.scheduler.transformations.storage import users

Link = tuple[str, str]
"""A dimension of what is handed on: the output loop of the first contraction, the second one's iterator."""


@dataclass(frozen=True)
class Filled:
    """Nests in front of a contraction that fill its operand `source`; nobody else uses it.

    `dims[statement][output of the contraction]` is the statement's iterator over the same dimension.
    """

    source: str
    dims: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Chain:
    """Parts of a sequence of nests: those that fill an operand from `start` on, `first` from `position`, passes over
    its result from `middle`, `second` from `last` to `end`.

    Attributes:
        shared: output loops of both (of `first`, of `second`) over one dimension of what is handed on.
        rows: the one of them that moves only what is handed on and one operand of `first`, as the rows of a matrix do.
        summed: output loops of `first` over which `second` adds up.
        filled: what stands in front, None for chains with `rows`.

    With `rows` the outputs of both contractions are in one order: shared ones, others of one iteration, rows, columns.
    """

    start: int
    position: int
    middle: int
    last: int
    end: int
    first: Group
    second: Group
    shared: tuple[Link, ...]
    rows: Link | None
    summed: tuple[str, ...]
    filled: Filled | None = None

    @property
    def scores(self) -> str:
        """The array that the first contraction and what follows it make."""
        return self.first.statements()[-1].array


def find_chain(scop: Scop, nests: Sequence[list[str]], position: int) -> Chain | None:
    """The chain whose first contraction is at `position` of a sequence of nests (statements by name)."""
    found = group_nests(scop, [*nests], position)
    if found is None:
        return None
    middle = last = position + found[1]
    then = None
    while last < len(nests):
        then = group_nests(scop, [*nests], last)
        if then is not None and not then[0].contraction.sweep:
            break
        last += 1
    if last == len(nests) or then is None:
        return None
    first, second = found[0], then[0]
    between = [scop.statements[s] for n in nests[middle:last] for s in n]
    scores = first.statements()[-1]
    operand = _handed_on(scop, scores.array, between, second)
    links = None if operand is None else _links(scop, first, scores, operand.load)
    if operand is None or links is None:
        return None
    outputs = second.contraction.outputs
    shared = tuple(link for link in links if link[1] in outputs)
    summed = tuple(a for a, b in links if b in second.contraction.inner)
    chain = Chain(position, position, middle, last, last + then[1], first, second, shared, None, summed)
    return _with_rows(chain, operand) or _with_filled(scop, nests, chain)


def _handed_on(scop: Scop, scores: str, between: Sequence[Statement], second: Group) -> Operand | None:
    """The second contraction's operand that stands for the first one's (local) result."""
    made = {s.array for s in between} or {scores}
    reads = not between or any(e.array == scores for s in between for e in loads(s.value))
    operand = next((op for op in second.contraction.operands if op.load.array in made), None)
    if operand is None or not reads:
        return None
    return operand if scop.arrays[scores].kind == scop.arrays[operand.load.array].kind == "local" else None


def _links(scop: Scop, first: Group, made: Statement, read: Load) -> list[Link] | None:
    """The links of all dimensions; those of one element need none."""
    own = {theirs: output for output, theirs in first.iters[made.name].items()}
    written = [*zip(made.index, scop.arrays[made.array].shape, strict=True)]
    reading = [*zip(read.index, scop.arrays[read.array].shape, strict=True)]
    if [_one(n) for _, n in written] != [_one(n) for _, n in reading]:
        written, reading = ([(e, n) for e, n in side if not _one(n)] for side in (written, reading))
    if len(written) != len(reading):
        return None
    links: list[Link] = []
    for (w, size), (r, _) in zip(written, reading, strict=True):
        if isinstance(w, Var) and isinstance(r, Var) and w.name in own:
            links.append((own[w.name], r.name))
        elif not _one(size):
            return None
    return links


def _one(size: object) -> bool:
    return isinstance(size, Const) and size.value == 1


def _with_rows(chain: Chain, read: Operand) -> Chain | None:
    """The chain with its rows, outputs in one order; None where its contractions are no products of matrices."""
    first, second = chain.first.contraction, chain.second.contraction
    if any(c.sweep or len(c.inner) != 1 for c in (first, second)):
        return None
    right = [op for op in first.operands if set(chain.summed) <= set(op.own)]
    linked = {b for _, b in chain.shared}
    free = [o for o in second.outputs if o not in linked]
    columns = [o for o in free if o not in second.single] or free[-1:]
    other = next(op for op in second.operands if op is not read)
    if len(chain.summed) != 1 or len(right) != 1 or len(columns) != 1:
        return None
    if columns[0] not in other.own and columns[0] not in second.single:
        return None
    left = next(op for op in first.operands if op is not right[0])
    rows = [(a, b) for a, b in chain.shared if a in left.own and b in read.own]
    if not rows:
        return None
    shared = tuple(link for link in chain.shared if link != rows[-1])
    one = _ordered(chain.first, shared, 0, rows[-1][0], chain.summed[0])
    two = _ordered(chain.second, shared, 1, rows[-1][1], columns[0])
    if one is None or two is None:
        return None
    return replace(chain, first=one, second=two, shared=shared, rows=rows[-1])


def _ordered(group: Group, shared: Sequence[Link], side: int, rows: str, columns: str) -> Group | None:
    """The group with outputs in the order of a chain; None where others than those have several iterations."""
    c = group.contraction
    outer = [link[side] for link in shared]
    others = [o for o in c.outputs if o not in (*outer, rows, columns)]
    if any(o not in c.single for o in others):
        return None
    return replace(group, contraction=replace(c, outputs=(*outer, *others, rows, columns)))


def _with_filled(scop: Scop, nests: Sequence[list[str]], chain: Chain) -> Chain | None:
    """The chain with the nests that fill an operand of the first contraction, and those shared loops for each of whose
    iterations they fill a part of its own; None where there are no such nests or loops."""
    first, c, made = chain.first, chain.first.contraction, chain.first.statements()[-1]
    source = next((o.load for o in c.operands if scop.arrays[o.load.array].kind == "local"), None)
    ours = [*first.statements(), *chain.second.statements()]
    if source is None or chain.last > chain.middle or not _only(scop, made.array, ours):
        return None
    whole = {e.name for e in source.index if isinstance(e, Var)}  # not shifted by the window
    summed = tuple(o for o in chain.summed if o in whole)
    shared = tuple(link for link in chain.shared if link[0] in whole)
    start = chain.position
    while start > 0 and {scop.statements[s].array for s in nests[start - 1]} == {source.array}:
        start -= 1
    feeders = [scop.statements[s] for n in nests[start : chain.position] for s in n]
    dims = _dims(feeders, source, [*(a for a, _ in shared), *summed])
    if not summed or not shared or not feeders or dims is None:
        return None
    if len(summed) + len(shared) == len(chain.summed) + len(chain.shared):
        return None  # nothing is left for a tile inside
    if not _only(scop, source.array, [*feeders, *first.statements()]):
        return None
    return replace(chain, start=start, shared=shared, summed=summed, filled=Filled(source.array, dims))


def _only(scop: Scop, array: str, stmts: Iterable[Statement]) -> bool:
    """Whether nobody else uses the (local) array."""
    return scop.arrays[array].kind == "local" and users(scop, array) <= {s.name for s in stmts}


def _dims(feeders: Sequence[Statement], source: Load, outputs: Sequence[str]) -> dict[str, dict[str, str]] | None:
    """The iterators of the statements that fill `source` that stand for the contraction's output loops."""
    dims: dict[str, dict[str, str]] = {}
    for s in feeders:
        mine = {}
        for written, reading in zip(s.index, source.index, strict=True):
            if isinstance(reading, Var) and reading.name in outputs and isinstance(written, Var):
                mine[reading.name] = written.name
        if set(mine) != set(outputs):
            return None
        dims[s.name] = mine
    return dims


def handed_on(scop: Scop, parts: Sequence[set[str]]) -> list[str]:
    """Local arrays that one part of a chain leaves for the next and nobody else reads."""
    every = set().union(*parts)
    local = [n for n, a in scop.arrays.items() if a.kind == "local" and users(scop, n) <= every]
    return [n for n in local if sum(bool(users(scop, n) & p) for p in parts) > 1]


def operands(group: Group) -> tuple[Operand, Operand]:
    """The one that moves with the rows, and the one that moves with the columns."""
    c = group.contraction
    columns = c.outputs[-1]
    right = next((op for op in c.operands if columns in op.own), c.operands[1])
    return next(op for op in c.operands if op is not right), right


def row_operand(group: Group) -> Operand:
    """The operand that moves with the rows."""
    return operands(group)[0]


def iterations(group: Group, output: str) -> int | None:
    """Of an output loop; None where sizes decide."""
    return extent(group.contraction.update, output)
