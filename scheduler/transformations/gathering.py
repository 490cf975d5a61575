"""`gather`: an update that scatters runs over the elements that it updates.

The tree edit is a change of loops (their values are other functions of the same instances), which the one judge of
order decides about on the program as it is. Only then do the instances get the loops' values as names, so that later
steps see loops over elements: a bijection that isl computes (`poly/rewriting/gather.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Load, Var, variables
from polyc.poly.records import dataclass, replace
from polyc.poly.reduction import identity
from polyc.poly.rewriting.gather import MOST_PHASES, Coordinates, Phase, coordinates, gathered, strides
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Promote, loop_dim, loops_around, loops_below
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.transformations.added import minus, named, new_name, program, taken, value_range
from polyc.scheduler.transformations.tree_edit import Path, fresh, put, reaching, sequence


@dataclass(frozen=True)
class Gathering:
    """The program order of a gather, for the Scop as it is (`order`), and the program with the new statements."""

    order: Node
    scop: Scop
    tree: Node


def shared_loops(tree: Node, statement: str) -> tuple[str, ...]:
    """Loops around the statement that other statements are in, outermost first."""
    return tuple(m.name for m in loops_around(tree, statement) if len(m.schedule) > 1)


def gather(
    scop: Scop, tree: Node, statement: str, summed: Sequence[str] | None, phases: bool, keep: Sequence[str] | None
) -> Gathering:
    """The loops of `statement` inside those that it shares as loops over elements and sums.

    Raises:
        ScheduleError: it is no update, its element or its instances depend on data, its loops are in several parts.
    """
    s = _update(scop, statement)
    kept_loops = shared_loops(tree, statement) if keep is None else tuple(keep)
    path, _ = _place(tree, statement, kept_loops)
    if not reaching(scop, path)[statement].is_equal(s.domain.intersect_params(scop.context)):
        raise ScheduleError(f"{statement} cannot be gathered: its instances are in several parts of the tree")
    kept = _iterators(s, tree, kept_loops)
    choices = coordinates(scop, s, kept, summed)
    used = taken(scop, tree) | {i for x in scop.statements.values() for i in x.iters}
    found, counts = choices[0], (1,) * len(choices[0].element)
    if phases:
        counts = strides(found)
        if prod(counts) == 1:
            raise ScheduleError(f"{statement} has no phases: its elements are alike")
        if prod(counts) > MOST_PHASES:
            raise ScheduleError(f"{statement} has {prod(counts)} phases: at most {MOST_PHASES} make sense")
        found = min(choices, key=lambda c: c.summands)
    if found.values == _loop_values(tree, statement, len(found.values)) and not phases:
        raise ScheduleError(f"{statement} is gathered already: its loops are its elements and sums")
    names = _names(statement, prod(counts), {*used, *scop.statements})
    parts = gathered(scop, found, counts, names, used)
    return _made(scop, tree, path, s, found, parts)


def _update(scop: Scop, statement: str) -> Statement:
    if statement not in scop.statements:
        raise ScheduleError(f"no statement '{statement}': the statements are {', '.join(scop.statements)}")
    s = scop.statements[statement]
    if s.reduction is None:
        raise ScheduleError(f"{statement} cannot be gathered: it is no update of a reduction")
    return s


def _loop_values(tree: Node, statement: str, count: int) -> tuple[isl.PwAff, ...] | None:
    around = loops_around(tree, statement)
    return tuple(m.schedule[statement] for m in around) if len(around) == count else None


def _iterators(s: Statement, tree: Node, loops: Sequence[str]) -> list[str]:
    """The iterators that some loops run over, outermost first."""
    found: list[str] = []
    for m in loops_around(tree, s.name):
        if m.name in loops:
            value = m.schedule[s.name]
            found += [i for k, i in enumerate(s.iters)
                      if value.involves_dims(isl.dim_type.in_, k, 1) and i not in found]  # fmt: skip
    return found


def _place(tree: Node, statement: str, kept: Sequence[str]) -> tuple[Path, Node]:
    """The part of the tree inside the kept loops, which holds this statement only, and the path to it."""
    left, path, node = list(kept), list[tuple[Node, int]](), tree
    while True:
        if isinstance(node, Band):
            inside = 0
            while left and inside < len(node.members) and node.members[inside].name == left[0]:
                left.pop(0)
                inside += 1
            if inside < len(node.members):
                if left:
                    raise ScheduleError(f"loops {', '.join(kept)} are not the outermost ones around {statement}")
                rest = Band(node.members[inside:], node.child) if inside else node
                _alone(rest, statement)
                if inside:
                    path.append((Band(node.members[:inside], rest), 0))
                return tuple(path), rest
            path.append((node, 0))
            node = node.child
        elif isinstance(node, SequenceNode):
            holders = [k for k, f in enumerate(node.filters) if statement in f.domain]
            if len(holders) != 1:
                raise ScheduleError(f"{statement} cannot be gathered: its instances are in several parts of the tree")
            path.append((node, holders[0]))
            node = node.filters[holders[0]]
        elif isinstance(node, Leaf):
            raise ScheduleError(f"{statement} cannot be gathered: all of its loops are kept")
        else:
            path.append((node, 0))
            node = node.children()[0]


def _alone(node: Band, statement: str) -> None:
    """Refuse loops that others are in, and promotions."""
    others = sorted({n for m in loops_below(node) for n in m.schedule} - {statement})
    if others:
        raise ScheduleError(
            f"{statement} cannot be gathered: {', '.join(others)} in loop '{node.members[0].name}' too "
            "(distribute it, or keep the loop)"
        )
    waiting: list[Node] = [node]
    while waiting:
        n = waiting.pop()
        if isinstance(n, Promote):
            raise ScheduleError(f"{statement} cannot be gathered: '{n.array}' is promoted in its loops (gather first)")
        waiting += n.children()


def _names(statement: str, count: int, used: set[str]) -> list[str]:
    """Names of the phases: the first keeps the statement's."""
    names = [statement]
    k = 0
    while len(names) < count:
        k += 1
        if f"{statement}_{k}" not in used:
            names.append(f"{statement}_{k}")
    return names


@dataclass(frozen=True)
class _Part:
    """A phase in the new program: the statements of its nest, their loops, and the array that holds its sums."""

    statements: tuple[Statement, ...]
    node: Node
    array: Array | None


def _made(scop: Scop, tree: Node, path: Path, s: Statement, c: Coordinates, parts: Sequence[Phase]) -> Gathering:
    first = len(c.kept)
    order: list[Filter] = []
    made: list[_Part] = []
    scratch = put(path, Leaf())
    arrays: dict[str, Array] = {}
    for part in parts:
        loops = []
        for k in range(first, len(part.times)):
            loop = fresh(scratch, part.statement.iters[k])
            loops.append(loop)
            scratch = Band((Member(loop, {}),), scratch)
        members = [Member(n, {s.name: t}) for n, t in zip(loops, part.times[first:], strict=True)]
        order.append(Filter({s.name: part.old}, Band(tuple(members), Leaf())))
        made.append(_nest(replace(scop, arrays={**scop.arrays, **arrays}), tree, part, c, loops, len(parts) > 1))
        array = made[-1].array
        arrays |= {} if array is None else {array.name: array}
    new = [Filter({t.name: t.domain for t in m.statements}, m.node) for m in made]
    one = len(parts) == 1
    statements: dict[str, Statement] = {}
    for n, x in scop.statements.items():
        statements |= {t.name: t for m in made for t in m.statements} if n == s.name else {n: x}
    everything = [t for m in made for t in m.statements]
    after = _renamed_above(path, new[0].child if one else sequence(new), s.name, everything, c)
    changed = replace(scop, statements=statements, arrays={**scop.arrays, **arrays}, tree=program(after))
    return Gathering(_put(path, order[0].child if one else sequence(order)), changed, after)


def _nest(scop: Scop, tree: Node, part: Phase, c: Coordinates, loops: Sequence[str], apart: bool) -> _Part:
    """The loops of a phase. Elements that are `apart` are summed up next to each other, in a local array:

    X[2 * x + 1] += e(x, k)   ->   x: (t[x] = 0; k: t[x] += e(x, k); X[2 * x + 1] += t[x])
    """
    t, first = part.statement, len(c.kept)
    inside = first + len(c.element)
    plain = Band(tuple(_loop(n, [t], k) for k, n in enumerate(loops, first)), Leaf())
    own = t.reduction
    if not apart or not c.summed or own is None or t.predicate is not None:
        return _Part((t,), plain, None)
    if set(t.iters[inside:]) & variables(t.target):
        return _Part((t,), plain, None)
    labels = t.iters[:inside]
    points = t.domain.project_out(isl.dim_type.set, inside, len(c.summed))
    ranges = [value_range(scop, _values(points, k), f"loop '{n}'") for k, n in enumerate(labels)]
    array = Array(new_name(scop, tree, f"{t.array}_part"), t.value.dtype, tuple(n for _, n in ranges), "local")
    known = replace(scop, arrays={**scop.arrays, array.name: array})
    at = Load(array.name, tuple(minus(Var(n), low) for n, (low, _) in zip(labels, ranges, strict=True)), array.dtype)
    assert isinstance(t.value, Binary)
    start, join = (new_name(known, tree, f"{t.name}_{end}") for end in ("start", "join"))
    operator = "+" if t.value.op == "-" else t.value.op
    statements = (
        Statement(start, labels, named(points, start, labels, scop), array.name, at.index,
                  identity(own, array.dtype), span=t.span),
        replace(t, array=array.name, index=at.index, value=replace(t.value, a=at)),
        Statement(join, labels, named(points, join, labels, scop), t.array, t.index,
                  Binary(operator, t.target, at, array.dtype), reduction=own, span=t.span),
    )  # fmt: skip
    sums = Band(tuple(_loop(n, [statements[1]], k) for k, n in enumerate(loops[len(c.element) :], inside)), Leaf())
    body = [Filter({x.name: x.domain}, sums if x is statements[1] else Leaf()) for x in statements]
    outer = tuple(_loop(n, statements, k) for k, n in enumerate(loops[: len(c.element)], first))
    return _Part(statements, Band(outer, sequence(body)), array)


def _loop(name: str, statements: Sequence[Statement], k: int) -> Member:
    """A loop over iterator `k` of some statements."""
    return Member(name, {t.name: loop_dim(t.domain, k) for t in statements})


def _values(points: isl.Set, k: int) -> isl.Set:
    """Those of one dimension."""
    total = points.dim(isl.dim_type.set)
    points = points.project_out(isl.dim_type.set, k + 1, total - k - 1)
    return points.project_out(isl.dim_type.set, 0, k)


def _put(path: Path, node: Node) -> Node:
    """The tree with a node at the end of a path; sequences in sequences become one."""
    if isinstance(node, SequenceNode) and len(path) > 1 and isinstance(path[-1][0], Filter):
        parent, k = path[-2]
        assert isinstance(parent, SequenceNode)
        filters = (*parent.filters[:k], *node.filters, *parent.filters[k + 1 :])
        return put(path[:-2], SequenceNode(filters))
    return put(path, node)


def _renamed_above(path: Path, node: Node, old: str, new: Sequence[Statement], c: Coordinates) -> Node:
    """The tree with the new statements, whose kept iterators the loops above run over as before."""
    spliced = isinstance(node, SequenceNode) and len(path) > 1 and isinstance(path[-1][0], Filter)
    for depth, (parent, k) in reversed(list(enumerate(path))):
        if isinstance(parent, Band):
            members = tuple(_over(m, old, new, c) for m in parent.members)
            node = replace(parent, members=members, child=node)
        elif isinstance(parent, Filter):
            if spliced and depth == len(path) - 1:
                continue
            own = {t.name: t.domain for t in new}
            node = Filter({n: x for m, d in parent.domain.items()
                           for n, x in (own.items() if m == old else [(m, d)])}, node)  # fmt: skip
        elif isinstance(parent, SequenceNode) and spliced and depth == len(path) - 2:
            assert isinstance(node, SequenceNode)
            node = SequenceNode((*parent.filters[:k], *node.filters, *parent.filters[k + 1 :]))
        else:
            kids = list(parent.children())
            kids[k] = node
            node = parent.with_children(tuple(kids))
    return node


def _over(member: Member, old: str, new: Sequence[Statement], c: Coordinates) -> Member:
    """A loop above with its value for the new statements."""
    schedule: dict[str, isl.PwAff] = {}
    for n, value in member.schedule.items():
        schedule |= {t.name: _pulled(value, t, c) for t in new} if n == old else {n: value}
    return replace(member, schedule=schedule)


def _pulled(value: isl.PwAff, new: Statement, c: Coordinates) -> isl.PwAff:
    """A function of kept iterators as one of a new statement's."""
    space = new.domain.get_space()
    local = isl.LocalSpace.from_space(space)
    iterators = isl.AffList.alloc(isl.DEFAULT_CONTEXT, len(c.statement.iters))
    for i in c.statement.iters:
        aff = isl.Aff.zero_on_domain(local)
        if i in c.kept:
            aff = isl.Aff.var_on_domain(local, isl.dim_type.set, c.kept.index(i))
        iterators = iterators.add(aff)
    into = isl.Space.map_from_domain_and_range(space, c.statement.domain.get_space())
    return value.pullback_multi_aff(isl.MultiAff.from_aff_list(into, iterators))
