"""Nests that follow one another, block by block, so that what one leaves for the next stays near: `share_blocks`.

    for blocks (and what else all share)
      buffers for what is handed on
      part 1 of this block
      part 2 of this block
      ...

A part is a nest as it is, a tiled product, or again several parts that share blocks of their own. (Fusion of tiles by
their producers: Ragan-Kelley et al., "Halide", PLDI 2013, `compute_at`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.records import dataclass
from polyc.poly.tree import LoopKind, Space
from polyc.scheduler.programs.tiles import Kept, TiledProduct, order_loops, outer_loops, run_loop, tiled
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.storage import users
from polyc.scheduler.transformations.tree_edit import chain_of, locate


@dataclass(frozen=True)
class Nest:
    """A nest by the names of its outermost loops, in the order that they are to have; loops between them go inside.

    The last one may be cut into blocks of `cuts[0]` iterations, these into blocks of `cuts[1]`, ...; `runs` says how
    its parts run, outermost first.
    """

    loops: tuple[str, ...]
    cuts: tuple[int, ...] = ()
    runs: tuple[LoopKind, ...] = ()


@dataclass(frozen=True)
class SharedBlocks:
    """What `in_blocks` does.

    Attributes:
        parts: in execution order.
        runs: how the shared loops run, outermost first; there are so many of them.
        near: the buffers inside the innermost of them, `around`: those made once around it, innermost first
            (places of their own are not looked at).
    """

    parts: tuple[Nest | TiledProduct | SharedBlocks, ...]
    runs: tuple[LoopKind, ...]
    near: tuple[Kept, ...] = ()
    around: tuple[Kept, ...] = ()


def share_blocks(
    s: Schedule, *nests: str | Sequence[str], size: int | None = None, keep: Sequence[str] | str = (),
    space: Space = "local", run: LoopKind | Sequence[LoopKind] = "serial",
) -> Schedule:  # fmt: skip
    """Run nests that follow one another block by block, so that what one leaves for the next stays near.

    Arguments: `nests`, two or more in execution order, each by its outermost loop or a list of them, outermost first
    (all of them are shared); `size`, iterations of the last of these loops in a block, default its iterations one by
    one (what `tile_product` made has blocks already: `block`); `keep`, arrays with a buffer (`space`) for each block,
    copied where somebody else needs them; `run`, how the shared loops run, outermost first or one for the outermost:
    `serial`, `parallel`, or an axis of a GPU.
    Before -> after: `i: T = ...; i_1: ... = T` -> `i.out: (T block; i.in: T = ...; i_1.in: ... = T)`.
    Refused when: a later nest of a block needs what an earlier one makes in a later block, or data decide how large
    a buffer is.
    """
    parts = [(n,) if isinstance(n, str) else tuple(n) for n in nests]
    depth = len(parts[0]) if parts else 0
    if len(parts) < 2 or depth == 0 or any(len(p) != depth for p in parts):
        raise ScheduleError("share_blocks takes two or more nests, by equally many loops each")
    kinds: tuple[LoopKind, ...] = (run,) if isinstance(run, str) else tuple(run)
    if len(kinds) > depth:
        raise ScheduleError(f"share_blocks: {len(kinds)} kinds of loops for {depth} that are shared")
    kinds += tuple[LoopKind, ...]("serial" for _ in range(depth - len(kinds)))
    arrays = (keep,) if isinstance(keep, str) else tuple(keep)
    inside = {n for p in parts for n in locate(s.tree, p[0]).member.schedule}
    cuts = () if size is None else (size,)
    what = f"share_blocks of {', '.join(p[-1] for p in parts)}"
    refusal: IllegalSchedule | None = None
    for fill in (False, True) if arrays else (False,):
        near = tuple(Kept(a, None, space, copy_in=fill, copy_out=_used_elsewhere(s, a, inside)) for a in arrays)
        blocks = SharedBlocks(tuple(Nest(p, cuts) for p in parts), kinds, near)
        try:
            return s.in_one_check(partial(in_blocks, blocks=blocks), what)
        except IllegalSchedule as error:
            refusal = error
    assert refusal is not None
    raise refusal


def _used_elsewhere(s: Schedule, array: str, inside: set[str]) -> bool:
    """Whether anybody but these statements needs the array."""
    if array not in s.scop.arrays:
        raise ScheduleError(f"share_blocks: no array '{array}'")
    return s.scop.arrays[array].kind != "local" or not users(s.scop, array) <= inside


def in_blocks(s: Schedule, blocks: SharedBlocks) -> Schedule:
    """The schedule with the parts inside loops that all of them share.

    Before -> after: `i: T = ...; i_1: ... = T` -> `i.out: (T block; i.in: T = ...; i_1.in: ... = T)`.
    Refused when: a later part of a block needs what an earlier part makes in a later block, or data decide
    how large a buffer is.
    """
    return _shared(s, blocks)[0]


def _shared(s: Schedule, blocks: SharedBlocks) -> tuple[Schedule, list[str]]:
    """The schedule, and the names of the shared loops."""
    shared: list[str] = []
    for part in blocks.parts:
        s, loops = _made(s, part)
        loops = loops[: len(blocks.runs)]
        s, shared = (s.fuse(shared, loops), shared) if shared else (s, loops)
    for kept in blocks.near:
        s = _kept(s, kept, at=shared[-1])
    for kept in blocks.around:
        s = _kept(s, kept, around=shared[-1])
    for name, run in zip(shared, blocks.runs, strict=True):
        s = run_loop(s, name, run)
    return s, shared


def _made(s: Schedule, part: Nest | TiledProduct | SharedBlocks) -> tuple[Schedule, list[str]]:
    """One part as it is to be, and its outermost loops."""
    if isinstance(part, SharedBlocks):
        return _shared(s, part)
    if isinstance(part, TiledProduct):
        s = tiled(s, part)
        return s, outer_loops(s, part)
    nest = chain_of(s.tree, part.loops[0]).names()
    places = [nest.index(n) for n in part.loops if n in nest]
    between = [n for n in nest[min(places) : max(places)] if n not in part.loops]
    s = order_loops(s, [*part.loops, *between])
    *loops, last = part.loops
    for size in part.cuts:
        s = s.split(last, size)
        loops, last = [*loops, f"{last}.out"], f"{last}.in"
    loops.append(last)
    for name, run in zip(loops[len(part.loops) - 1 :], part.runs, strict=False):
        s = run_loop(s, name, run)
    return s, loops


def _kept(s: Schedule, kept: Kept, at: str | None = None, around: str | None = None) -> Schedule:
    return s.promote(
        kept.array, at, kept.space, kept.layout, None if kept.copy_in else False, None if kept.copy_out else False,
        around=around, buffer=kept.buffer,
    )  # fmt: skip
