"""Stencils over ranks: blocks of an array with halos that are exactly what several steps of an operator read.

One step is an operator of the user's, from an array to an array of the same shape. What an element reads after `tile`
steps is the step's access relation composed with itself (`polyc.graph_driver.parallel.flow`), so the halo of a time
tile follows from the operator: nobody states a radius. A rank runs the very operator on its block with the halo, `tile`
times: what is wrong at the block's own edge never reaches its part, and that is proved by the same relations.
(Time tiles with halos that grow: Kamil et al., Impact of modern memory subsystems on cache optimizations for stencil
computations, 2005.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Any

import islpy as isl
import numpy as np

from polyc.graph_driver.communication.running import run, transfers
from polyc.graph_driver.operators.context import OperatorScop
from polyc.graph_driver.parallel.flow import flow_of
from polyc.graph_driver.parallel.layouts import Range, elements
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Var

Box = tuple[Range, ...]


class Stencil:
    """A step over a grid of ranks. `step` is an `Operator` with one array argument and one result of the same shape,
    for any size or this one; `grid` how many ranks there are along each axis; `tile` steps run between two messages.

    `parts[r]`: the box of the array that rank r has; `needs[r]`: the box that `tile` steps of it read.

    Raises:
        ArgumentError: the step has other arguments, more ranks than indices along an axis, or reads in a way that
            blocks cannot follow.
    """

    def __init__(self, step: Any, shape: Sequence[int], grid: Sequence[int], tile: int = 1) -> None:
        if len(grid) != len(shape) or tile < 1 or any(not 1 <= g <= n for g, n in zip(grid, shape, strict=True)):
            raise ArgumentError(f"a grid of {list(grid)} ranks does not divide an array of {list(shape)}")
        self.step, self.shape, self.grid, self.tile = step, tuple(shape), tuple(grid), tile
        self.dtype = np.dtype(BY_NAME[self._scop(self.shape).arrays[self._scop(self.shape).args[0]].dtype.name].np)
        cuts = [[(k * n // g, (k + 1) * n // g) for k in range(g)] for n, g in zip(self.shape, self.grid, strict=True)]
        self.parts: list[Box] = [tuple(box) for box in product(*cuts)]
        self.needs: list[Box] = [self._read(box) for box in self.parts]
        for part, need in zip(self.parts, self.needs, strict=True):
            self._prove(part, need)

    @property
    def ranks(self) -> int:
        """How many ranks it is for."""
        return len(self.parts)

    def _scop(self, shape: Sequence[int]) -> Any:
        free = self.step.scop()
        sizes = {}
        if free.params:
            extents = free.arrays[free.args[0]].shape
            sizes = {e.name: n for e, n in zip(extents, shape, strict=True) if isinstance(e, Var)}
        scop = self.step.scop(**sizes) if sizes else free
        arrays = [scop.arrays[a] for a in scop.args]
        if len(arrays) != 1 or len(scop.results) != 1:
            raise ArgumentError(f"a step takes one array and gives one, not {scop!r}")
        return scop

    def _relation(self, shape: Sequence[int], steps: int) -> isl.Map:
        """`{ Y[y] -> Y[x] }`: what an element reads after some steps."""
        scop = self._scop(shape)
        wiring = OperatorScop(scop, ((0, scop.args[0]),), scop.results, False)
        flow = flow_of(wiring, {0: tuple(shape)}, [tuple(shape)])
        if flow is None or 0 not in flow.reads[0]:
            raise ArgumentError("what the step reads is not known")
        one = flow.reads[0][0].set_tuple_name(isl.dim_type.out, "Y")
        found = one
        for _ in range(steps - 1):
            found = found.apply_range(one).coalesce()
        return found

    @cached_property
    def _tile_reads(self) -> isl.Map:
        return self._relation(self.shape, self.tile)

    def _read(self, part: Box) -> Box:
        reached = self._tile_reads.intersect_domain(_set(part)).range()
        own = [(reached.dim_min_val(k).to_python(), reached.dim_max_val(k).to_python() + 1) for k in range(len(part))]
        return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(part, own, strict=True))

    def _prove(self, part: Box, need: Box) -> None:
        """That the operator on the block reads, for the part, what the whole operator reads there."""
        shape = [b - a for a, b in need]
        shift = [a for a, _ in need]
        inner = tuple((a - s, b - s) for (a, b), s in zip(part, shift, strict=True))
        block = self._relation(shape, self.tile).intersect_domain(_set(inner))
        names = [f"d{k}" for k in range(len(part))]
        moved = isl.Map(f"{{ Y[{', '.join(names)}] -> Y[{', '.join(f'd{k} - {s}' for k, s in enumerate(shift))}] }}")
        whole = self._tile_reads.intersect_domain(_set(part)).apply_domain(moved).apply_range(moved)
        if not block.is_equal(whole):
            raise ArgumentError(f"{self.tile} steps on the block {need} are not those of the whole array")

    # ---- what is sent ----

    def sent(self, rank: int) -> int:
        """Bytes that a rank sends before each tile of steps."""
        return self.dtype.itemsize * sum(elements(b) for peer in transfers(self.parts, self.needs)[rank] for b in peer)

    def halo(self, rank: int) -> int:
        """Bytes that a rank gets before each tile: the elements that it needs and has not."""
        return self.dtype.itemsize * (elements(self.needs[rank]) - elements(self.parts[rank]))

    def own(self, rank: int, whole: np.ndarray) -> np.ndarray:
        """A rank's part of an array (a copy)."""
        return np.ascontiguousarray(whole[tuple(slice(a, b) for a, b in self.parts[rank])])

    # ---- running ----

    def advance(self, part: np.ndarray, steps: int) -> np.ndarray:
        """This rank's part after some steps, a multiple of `tile`; all ranks call it.

        Raises:
            ArgumentError: the part has another shape, or the steps are no whole tiles.
            RankError: a rank is gone.
        """
        from polyc.graph_driver.communication.ranks import world

        ranks = world()
        if ranks.size != self.ranks:
            raise ArgumentError(f"the blocks are for {self.ranks} ranks, but {ranks.size} run")
        mine, need = self.parts[ranks.rank], self.needs[ranks.rank]
        if part.shape != tuple(b - a for a, b in mine) or steps % self.tile:
            raise ArgumentError(
                f"rank {ranks.rank} advances {mine} by multiples of {self.tile} steps, not {part.shape}"
            )
        attrs = {
            "ranks": list(range(self.ranks)), "have": [v for b in self.parts for r in b for v in r],
            "need": [v for b in self.needs for r in b for v in r], "rank": ranks.rank,
        }  # fmt: skip
        inner = tuple(slice(a - s, b - s) for (a, b), (s, _) in zip(mine, need, strict=True))
        block = np.empty(tuple(b - a for a, b in need), self.dtype)
        for _ in range(steps // self.tile):
            run("Exchange", "halo", attrs, [np.ascontiguousarray(part)], [block])
            now = block
            for _ in range(self.tile):
                now = self.step(now)
            part = now[inner]
        return np.ascontiguousarray(part)


def _set(box: Box) -> isl.Set:
    names = [f"d{k}" for k in range(len(box))]
    rules = [f"{a} <= {d} < {b}" for d, (a, b) in zip(names, box, strict=True)]
    return isl.Set(f"{{ Y[{', '.join(names)}] : {' and '.join(rules)} }}")
