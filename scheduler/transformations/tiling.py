"""Cutting loops into blocks, and back: `split`, `strip_mine`, `tile`, `unsplit`. Pure tree edits, unchecked.

What makes no sense on the tree (no such loop, not one size for each, a name that is taken) is a `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from polyc.poly.errors import ScheduleError
from polyc.poly.records import replace
from polyc.poly.scop import Scop
from polyc.poly.tree import Member, Node, loop_names, time_maps
from polyc.poly.words import counted
from polyc.scheduler.arguments import positive
from polyc.scheduler.transformations.tree_edit import (
    band_of,
    chain_of,
    flatten,
    locate,
    put,
    put_chain,
    refuse_dynamic,
    split_member,
    together,
)


def split(scop: Scop, tree: Node, loop: str, size: int) -> Node:
    """`i` -> `i.out`, `i.in` in place (see `Schedule.split`)."""
    return _cut(scop, tree, loop, size, absolute=False)


def strip_mine(scop: Scop, tree: Node, loop: str, size: int) -> Node:
    """`i` -> `i.out` (number of the strip), `i.in` (the old values of `i`)."""
    return _cut(scop, tree, loop, size, absolute=True)


def unsplit(scop: Scop, tree: Node, loop: str) -> Node:
    """The tree without a loop whose values others determine."""
    spot = locate(tree, loop)
    refuse_dynamic(scop, spot.member, "left out")
    members = (*spot.band.members[: spot.index], *spot.band.members[spot.index + 1 :])
    new = flatten(put(spot.path, band_of(members, spot.band.child, spot.band.permutable)))
    for name in spot.member.schedule:
        times = time_maps(new, {name: scop.statements[name].domain.intersect_params(scop.context)})
        if not reduce(lambda a, b: a.union(b), times).is_injective():
            raise ScheduleError(f"loop '{loop}' is no loop over blocks: without it instances of {name} share a time")
    return new


def _cut(scop: Scop, tree: Node, loop: str, size: int, absolute: bool) -> Node:
    spot = locate(tree, loop)
    positive(size, f"block size of loop '{loop}'")
    refuse_dynamic(scop, spot.member, "split")
    outer, inner = split_member(spot.member, size)
    if absolute:
        inner = replace(inner, schedule=spot.member.schedule)
    _names_free(tree, (outer, inner))
    members = (*spot.band.members[: spot.index], outer, inner, *spot.band.members[spot.index + 1 :])
    return put(spot.path, replace(spot.band, members=members, permutable=False))


def tile(scop: Scop, tree: Node, loops: Sequence[str], sizes: Sequence[int]) -> Node:
    """`i, j` -> `i.out, j.out, i.in, j.in` (see `Schedule.tile`)."""
    if not loops or len(loops) != len(sizes):
        raise ScheduleError(f"tile needs one size a loop: {counted(len(loops), 'loop')}, {counted(len(sizes), 'size')}")
    if len(set(loops)) != len(loops):
        raise ScheduleError(f"tile names a loop twice: {', '.join(loops)}")
    wanted = dict(zip(loops, sizes, strict=True))
    for loop, size in wanted.items():
        positive(size, f"block size of loop '{loop}'")
        refuse_dynamic(scop, locate(tree, loop).member, "tile")
    tree = together(scop, tree, loops)
    chain = chain_of(tree, loops[0])
    places = sorted(chain.position(name) for name in loops)
    first, last = places[0], places[-1]
    between = [m.name for m in chain.members[first : last + 1] if m.name not in wanted]
    if between:
        raise ScheduleError(
            f"tile needs neighbouring loops: {', '.join(between)} lies between {', '.join(loops)} (interchange first)"
        )
    pairs = [split_member(m, wanted[m.name]) for m in chain.members[first : last + 1]]
    outs, ins = [p[0] for p in pairs], [p[1] for p in pairs]
    _names_free(tree, (*outs, *ins))
    before, after = chain.members[:first], chain.members[last + 1 :]
    return put_chain(chain, [(before, False), (outs, False), (ins, False), (after, False)])


def _names_free(tree: Node, new: Sequence[Member]) -> None:
    taken = set(loop_names(tree)) & {m.name for m in new}
    if taken:
        raise ScheduleError(f"loop '{min(taken)}' exists already")
