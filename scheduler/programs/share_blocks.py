"""`share_blocks`: nests that follow one another, block by block, so that what one leaves for the next stays near.

    for blocks (and what else all share)
      buffers for what is handed on
      part 1 of this block
      part 2 of this block
      ...

A part is a nest as it is, a `tile_product`, or again several parts that share blocks of their own. (Fusion of tiles by
their producers: Ragan-Kelley et al., "Halide", PLDI 2013, `compute_at`.)
"""

from __future__ import annotations

from dataclasses import dataclass

from polyc.poly.tree import LoopKind
from polyc.scheduler.programs.tile_product import Kept, TiledProduct, order_loops, outer_loops, run_loop, tile_product
from polyc.scheduler.schedule import Schedule


@dataclass(frozen=True)
class Nest:
    """A nest by the names of its outermost loops, in the order that they are to have.

    The last one may be cut into blocks of `cuts[0]` iterations, these into blocks of `cuts[1]`, ...; `runs` says how
    its parts run, outermost first.
    """

    loops: tuple[str, ...]
    cuts: tuple[int, ...] = ()
    runs: tuple[LoopKind, ...] = ()


@dataclass(frozen=True)
class SharedBlocks:
    """What `share_blocks` does.

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


def share_blocks(s: Schedule, blocks: SharedBlocks) -> Schedule:
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
        s = tile_product(s, part)
        return s, outer_loops(s, part)
    s = order_loops(s, part.loops)
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
