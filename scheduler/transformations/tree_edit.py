"""Structural editing of schedule trees: finding loops by name, replacing parts, sinking.

Nothing here checks dependences. `hoist` and `split_member` keep the execution order by
construction; everything else is checked by `Schedule` after the edit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import islpy as isl

from polyc.poly.cache import instances
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import const_int
from polyc.poly.records import dataclass, replace
from polyc.poly.scop import ENDLESS, Scop, Statement
from polyc.poly.tree import (
    Band,
    Filter,
    Leaf,
    LoopKind,
    Member,
    Node,
    Promote,
    concurrency,
    loop_names,
    loops_below,
    promotions_below,
)
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.arguments import LARGEST
from polyc.scheduler.texts.addressing import unknown

Path = tuple[tuple[Node, int], ...]
"""From the root: (node, index of the child taken), ..."""


@dataclass(frozen=True)
class Spot:
    """Where a loop is: `band.members[index]`, with `path` leading to `band`."""

    path: Path
    band: Band
    index: int

    @property
    def member(self) -> Member:
        """The loop itself."""
        return self.band.members[self.index]


@dataclass(frozen=True)
class Chain:
    """Maximal run of directly nested bands: `path` leads to the first, `child` follows the last.

    `cuts` are the numbers of members of each band, `flags` their `permutable`.
    """

    path: Path
    members: tuple[Member, ...]
    cuts: tuple[int, ...]
    flags: tuple[bool, ...]
    child: Node

    def position(self, loop: str) -> int:
        """Index of the loop in `members`."""
        return [m.name for m in self.members].index(loop)

    def names(self) -> tuple[str, ...]:
        """Of the loops, outermost first."""
        return tuple(m.name for m in self.members)


def paths(node: Node, path: Path = ()) -> list[tuple[Path, Node]]:
    """All nodes with their paths, parents first."""
    out: list[tuple[Path, Node]] = [(path, node)]
    for k, child in enumerate(node.children()):
        out.extend(paths(child, (*path, (node, k))))
    return out


def locate(tree: Node, loop: str) -> Spot:
    """The loop's place. Raises `ScheduleError` naming the loops that exist."""
    path: list[tuple[Node, int]] = []
    node = tree
    while True:
        if isinstance(node, Band):
            for k, m in enumerate(node.members):
                if m.name == loop:
                    return Spot(tuple(path), node, k)
        for k, child in enumerate(node.children()):
            if loop in loop_names(child):
                path.append((node, k))
                node = child
                break
        else:
            raise unknown(tree, loop)


def put(path: Path, node: Node) -> Node:
    """The tree with `node` at the end of `path`."""
    for parent, k in reversed(path):
        kids = list(parent.children())
        kids[k] = node
        node = parent.with_children(tuple(kids))
    return node


def map_member(tree: Node, loop: str, new: Member) -> Node:
    """The tree with one loop replaced."""
    return put_member(locate(tree, loop), new)


def put_member(spot: Spot, new: Member) -> Node:
    """The tree with the loop at `spot` replaced."""
    members = (*spot.band.members[: spot.index], new, *spot.band.members[spot.index + 1 :])
    return put(spot.path, replace(spot.band, members=members))


def chain_of(tree: Node, loop: str) -> Chain:
    """The chain that holds the loop."""
    path = locate(tree, loop).path
    while path and isinstance(path[-1][0], Band):
        path = path[:-1]
    node = _at(tree, path)
    members: list[Member] = []
    cuts, flags = [], []
    while isinstance(node, Band):
        members.extend(node.members)
        cuts.append(len(node.members))
        flags.append(node.permutable)
        node = node.child
    return Chain(path, tuple(members), tuple(cuts), tuple(flags), node)


def put_chain(chain: Chain, groups: Sequence[tuple[Sequence[Member], bool]]) -> Node:
    """The tree with the chain rebuilt from `(members, permutable)` groups, outermost first."""
    node = chain.child
    for members, permutable in reversed(groups):
        if members:
            node = Band(tuple(members), node, permutable)
    return put(chain.path, node)


def regroup(chain: Chain, members: Sequence[Member]) -> Node:
    """The tree with the chain's members replaced one for one, keeping the bands' sizes.

    A band that holds other loops than before, or in another order, loses `permutable`.
    """
    groups: list[tuple[Sequence[Member], bool]] = []
    start = 0
    for size, flag in zip(chain.cuts, chain.flags, strict=True):
        part = members[start : start + size]
        same = {m.name for m in part} == {m.name for m in chain.members[start : start + size]}
        groups.append((part, flag and same))
        start += size
    return put_chain(chain, groups)


def _at(tree: Node, path: Path) -> Node:
    return tree if not path else path[-1][0].children()[path[-1][1]]


def outer_members(path: Path) -> list[Member]:
    """All loops of the bands on a path, outermost first."""
    return [m for node, _ in path if isinstance(node, Band) for m in node.members]


def fresh(tree: Node, name: str) -> str:
    """`name`, or `name_1`, `name_2`, ... whichever no loop has yet."""
    used = set(loop_names(tree))
    candidate, k = name, 0
    while candidate in used:
        k += 1
        candidate = f"{name}_{k}"
    return candidate


def used_names(scop: Scop, tree: Node) -> set[str]:
    """Names of arrays, buffers, sizes, statements and iterators."""
    used = {*scop.arrays, *scop.params, *scop.statements, *(i for s in scop.statements.values() for i in s.iters)}
    return used | {n.buffer for n in promotions_below(tree)}


def reaching(scop: Scop, path: Path) -> dict[str, isl.Set]:
    """The instances of each statement that reach the end of a path (filters on it applied)."""
    active = dict(instances(scop))
    for node, _ in path:
        if isinstance(node, Filter):
            active = {s: _within(scop, s, active[s], d) for s, d in node.domain.items() if s in active}
    return active


def _within(scop: Scop, stmt: str, active: isl.Set, part: isl.Set) -> isl.Set:
    """Those of `part`; the very set, without conditions said twice, where the part is visibly the whole domain."""
    domain = scop.statements[stmt].domain
    return active if part is domain or part.plain_is_equal(domain) else active.intersect(part)


def band_of(members: Sequence[Member], child: Node, permutable: bool = False) -> Node:
    """A band, or the child alone when there are no loops."""
    return Band(tuple(members), child, permutable) if members else child


def floor_div(schedule: Mapping[str, isl.PwAff], size: int) -> dict[str, isl.PwAff]:
    """`floor(f / size)` for every statement."""
    return {s: pa.scale_down_val(isl.Val(size)).floor() for s, pa in schedule.items()}


def modulo(schedule: Mapping[str, isl.PwAff], size: int) -> dict[str, isl.PwAff]:
    """`f mod size` (0 .. size - 1) for every statement."""
    return {s: pa.mod_val(isl.Val(size)) for s, pa in schedule.items()}


def split_member(member: Member, size: int) -> tuple[Member, Member]:
    """`i` -> `i.out` (index of the block), `i.in` (0 .. size - 1); marks go where they still hold."""
    out_kind: LoopKind = member.kind if concurrency(member.kind) == "parallel" else "serial"
    inner = member.kind in ("vector", "unroll")
    return (
        Member(f"{member.name}.out", floor_div(member.schedule, size), out_kind, None, member.coincident),
        Member(
            f"{member.name}.in",
            modulo(member.schedule, size),
            member.kind if inner else "serial",
            member.factor if inner else None,
            member.coincident,
        ),
    )


def restrict(node: Node, keep: frozenset[str]) -> Node:
    """The subtree seen by some statements only: other statements vanish from bands and filters."""
    if isinstance(node, Band):
        members = tuple(replace(m, schedule={s: p for s, p in m.schedule.items() if s in keep}) for m in node.members)
        return replace(node, members=members, child=restrict(node.child, keep))
    if isinstance(node, Filter):
        return Filter({s: d for s, d in node.domain.items() if s in keep}, restrict(node.child, keep))
    if isinstance(node, SequenceNode):
        parts = [f for f in node.filters if keep & set(f.domain)]
        return sequence([Filter({s: d for s, d in f.domain.items() if s in keep}, restrict(f.child, keep))
                         for f in parts])  # fmt: skip
    return node.with_children(tuple(restrict(c, keep) for c in node.children()))


def sequence(filters: Sequence[Filter]) -> Node:
    """A Sequence with directly nested ones flattened."""
    flat: list[Filter] = []
    for f in filters:
        if isinstance(f.child, SequenceNode):
            for g in f.child.filters:
                dom = {s: d.intersect(f.domain[s]) for s, d in g.domain.items() if s in f.domain}
                flat.append(Filter(dom, g.child))
        else:
            flat.append(f)
    return SequenceNode(tuple(flat))


def flatten(node: Node) -> Node:
    """The tree without Sequences directly inside Sequences."""
    node = node.with_children(tuple(flatten(c) for c in node.children())) if node.children() else node
    return sequence(node.filters) if isinstance(node, SequenceNode) else node


def peel_first(node: Node) -> tuple[Member, Node]:
    """The outermost loop of a subtree that begins with a band, and what is below it."""
    assert isinstance(node, Band)
    rest: Node = node.child if len(node.members) == 1 else Band(node.members[1:], node.child, node.permutable)
    return node.members[0], rest


def is_dynamic(scop: Scop, member: Member) -> bool:
    """Whether some statement's loop has data-dependent bounds in this member."""
    return any(
        b.iter in iterators(scop, s, pa) for s, pa in member.schedule.items() for b in scop.statements[s].dynamic
    )


def is_endless(scop: Scop, member: Member) -> bool:
    """Whether only a flag ends the loop: a `while`."""
    ends = {s: {b.iter for b in scop.statements[s].dynamic if b.hi == const_int(ENDLESS)} for s in member.schedule}
    return any(ends[s] & iterators(scop, s, pa) for s, pa in member.schedule.items() if ends[s])


def iterators(scop: Scop, stmt: str, pa: isl.PwAff) -> set[str]:
    """The statement's iterators that the function depends on."""
    iters = scop.statements[stmt].iters
    return {name for k, name in enumerate(iters) if pa.involves_dims(isl.dim_type.in_, k, 1)}


def refuse_dynamic(scop: Scop, member: Member, what: str) -> None:
    """Raise `ScheduleError` for a loop whose bounds are data-dependent."""
    if is_dynamic(scop, member):
        raise ScheduleError(f"cannot {what} loop '{member.name}': its bounds depend on data")


MOST_LANES = 4096
_LONG = re.compile(r"(?<!\w)\d{10,}")


def check_numbers(tree: Node) -> None:
    """Raise `ScheduleError` for more lanes than any vector has, and for numbers in times that overflow 64 bits."""
    for member in loops_below(tree):
        if member.kind == "vector" and (member.factor or 0) > MOST_LANES:
            raise ScheduleError(f"loop '{member.name}' has {member.factor} lanes: at most {MOST_LANES} make sense")
        for stmt, time in member.schedule.items():
            if any(int(number) > LARGEST for number in _LONG.findall(time.to_str())):
                raise ScheduleError(
                    f"loop '{member.name}' runs {stmt} at times with numbers beyond {LARGEST}: 64 bits overflow"
                )


def check_dynamic(scop: Scop, tree: Node) -> None:
    """Raise `ScheduleError` unless every data-dependent loop is inside the loops its bounds use, and has an end.

    A loop over `j + k` outside of the one over a data-dependent `k` has none.
    """
    if not any(s.dynamic for s in scop.statements.values()):
        return
    from polyc.poly.expr import Var
    from polyc.poly.expr import walk as walk_expr

    for path, node in paths(tree):
        if not isinstance(node, Leaf):
            continue
        members = outer_members(path)
        for name in (s for s in scop.statements if all(s in m.schedule for m in members)):
            stmt = scop.statements[name]
            bounds = {b.iter: b for b in stmt.dynamic}
            for depth, m in enumerate(members):
                runs_over = iterators(scop, name, m.schedule[name])
                outer = [o.schedule[name] for o in members[:depth]]
                for b in (bounds[i] for i in runs_over & set(bounds)):
                    used = {e.name for x in (b.lo, b.hi) for e in walk_expr(x) if isinstance(e, Var)}
                    if b.hi == const_int(ENDLESS):  # its flag is one for each iteration of the loops around
                        used |= set(stmt.iters[: stmt.iters.index(b.iter)])
                    missing = {i for i in stmt.iters if i in used and not _decides(outer, stmt, i)}
                    if missing:
                        raise ScheduleError(
                            f"loop '{m.name}' has bounds that depend on data read at {', '.join(sorted(missing))}: "
                            f"it must stay inside"
                        )
                    open_ = [] if len(runs_over) == 1 else [i for i in runs_over if not _decides(outer, stmt, i)]
                    if b.iter in open_ and len(open_) > 1:
                        raise ScheduleError(
                            f"loop '{m.name}' runs over {' and '.join(sorted(open_))} at once, and the bounds of "
                            f"{b.iter} depend on data: its end is not known"
                        )


def _decides(times: Sequence[isl.PwAff], stmt: Statement, iterator: str) -> bool:
    """Whether the values of the loops with these times fix an iterator (of a block alone they do not)."""
    k = stmt.iters.index(iterator)
    of = isl.Map.from_domain_and_range(stmt.domain, isl.Set.universe(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, 0)))
    for time in times:
        of = of.flat_range_product(isl.Map.from_pw_aff(time))
    back = of.reverse().project_out(isl.dim_type.out, k + 1, len(stmt.iters) - k - 1)
    return bool(back.project_out(isl.dim_type.out, 0, k).is_single_valued())


def hoist(scop: Scop, tree: Node, path: Path) -> Node:
    """Pull the first loop of one child of a Sequence above the Sequence; the order does not change.

    `path` ends at `(sequence, k)`, `(filter, 0)`: the filter's child starts with a band.
    Earlier children run in the loop's first iteration, later ones in its last:

        sequence                      k
          S0                   ->       sequence
          k: S1                           S0      (at k = first)
                                          S1
    """
    (seq, k), above = path[-2], path[:-2]
    assert isinstance(seq, SequenceNode)
    member, rest = peel_first(seq.filters[k].child)
    refuse_dynamic(scop, member, "sink statements into")
    active = reaching(scop, above)
    inside = {s: active[s].intersect(d) for s, d in seq.filters[k].domain.items()}
    outer = outer_members(above)
    filters = list(seq.filters)
    parts: list[tuple[Mapping[str, isl.Set], Mapping[str, isl.PwAff]]] = []
    for position, f in enumerate(filters):
        values: Mapping[str, isl.PwAff] = member.schedule
        if position != k:
            values = {s: _beside(scop, s, outer, member, inside, position < k, k > 0) for s in f.domain}
        parts.append((f.domain, values))
    filters[k] = Filter(filters[k].domain, rest)
    kind = member.kind if member.kind == "unroll" else "serial"
    loop = Member(member.name, joined_values(parts), kind, member.factor if kind == "unroll" else None)
    return put(above, Band((loop,), sequence(filters)))


def joined_values(parts: Sequence[tuple[Mapping[str, isl.Set], Mapping[str, isl.PwAff]]]) -> dict[str, isl.PwAff]:
    """The values of one loop over several parts of a sequence: `(instances, values)` of each.

    A statement with instances in several parts gets the values of each part there.
    """
    values: dict[str, isl.PwAff] = {}
    count: dict[str, int] = {}
    for domain, _ in parts:
        for s in domain:
            count[s] = count.get(s, 0) + 1
    for domain, schedule in parts:
        for s, where in domain.items():
            if count[s] == 1:
                values[s] = schedule[s]
            else:
                here = schedule[s].intersect_domain(where)
                values[s] = values[s].union_add(here).coalesce() if s in values else here
    return values


def _beside(
    scop: Scop, stmt: str, outer: Sequence[Member], member: Member, inside: Mapping[str, isl.Set],
    before: bool, some_before: bool,
) -> isl.PwAff:  # fmt: skip
    """The loop's value for a statement that stands before or after the loop.

    Where the loop is empty any value will do, as long as what stands after it is not put before
    what stands before it.
    """
    value, everywhere = _embedding(scop, stmt, outer, member, inside, before)
    if before or everywhere or not some_before:
        return value
    start = _embedding(scop, stmt, outer, member, inside, True)[0]
    past = value.add_constant_val(isl.Val(1))  # an iteration of its own, where that has fewer cases
    if past.n_piece() == 1 and scop.statements[stmt].domain.is_subset(past.ge_set(start)):
        return past
    return value.max(start).coalesce()


def _embedding(
    scop: Scop, stmt: str, outer: Sequence[Member], member: Member, inside: Mapping[str, isl.Set], first: bool
) -> tuple[isl.PwAff, bool]:
    """The loop's first (or last) value at the statement's own outer time, as a function of it,
    and whether the loop is never empty there."""
    domain = scop.statements[stmt].domain
    values: isl.Map | None = None
    for other, there in inside.items():
        same = isl.Map.from_domain_and_range(domain, there)
        for m in outer:
            a = isl.Map.from_pw_aff(m.schedule[stmt])
            b = isl.Map.from_pw_aff(m.schedule[other])
            same = same.intersect(a.apply_range(b.reverse()))
        here = same.apply_range(isl.Map.from_pw_aff(member.schedule[other]))
        values = here if values is None else values.union(here)
    assert values is not None
    end = (values.lexmin_pw_multi_aff() if first else values.lexmax_pw_multi_aff()).get_pw_aff(0).coalesce()
    where = end.domain()
    everywhere = bool(domain.intersect_params(scop.context).is_subset(where))
    end = end.gist(where)
    if end.n_piece() == 1 and end.domain().plain_is_universe():
        return isl.PwAff.from_aff(end.get_pieces()[0][1]), everywhere
    zero = isl.PwAff.zero_on_domain(isl.LocalSpace.from_space(domain.get_space()))
    return end.intersect_domain(where).union_add(zero.intersect_domain(where.complement())).coalesce(), everywhere


def together(scop: Scop, tree: Node, loops: Sequence[str]) -> Node:
    """Sink statements until all the loops are in one chain. Raises `ScheduleError` if not nested."""
    spots = {name: locate(tree, name) for name in loops}
    if set(loops) <= set(chain_of(tree, loops[0]).names()):
        return tree
    inner = max(loops, key=lambda n: (len(spots[n].path), spots[n].index))
    while True:
        deepest = locate(tree, inner)
        above = {id(node) for node, _ in deepest.path} | {id(deepest.band)}
        for name in loops:
            if id(locate(tree, name).band) not in above:
                raise ScheduleError(f"loops '{name}' and '{inner}' are not nested in one another")
        inside = chain_of(tree, inner).names()
        missing = [n for n in loops if n not in inside]
        if not missing:
            return tree
        path = chain_of(tree, inner).path
        if path and isinstance(path[-1][0], Promote):
            raise ScheduleError(f"the promotion of '{path[-1][0].array}' stands between {missing[0]} and {inner}")
        if len(path) >= 2 and isinstance(path[-2][0], SequenceNode):
            tree = hoist(scop, tree, path)
        elif path and isinstance(path[-1][0], Filter):
            parent, node = path[-1][0], _at(tree, path)
            assert isinstance(node, Band)
            tree = put(path[:-1], Band(node.members, parent.with_children((node.child,)), node.permutable))
        else:
            raise ScheduleError(f"loops '{missing[0]}' and '{inner}' cannot be brought together")
