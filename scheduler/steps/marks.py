"""How a loop runs: `parallel vectorize unroll bind serial`."""

from __future__ import annotations

from typing import Self

from polyc.poly.errors import IllegalSchedule
from polyc.poly.tree import GpuAxis
from polyc.scheduler.core import Core
from polyc.scheduler.texts.addressing import each_loop
from polyc.scheduler.transformations import marks
from polyc.scheduler.transformations.tree_edit import is_dynamic, locate


class Marks(Core):
    """Part of `Schedule`."""

    @each_loop
    def parallel(self, loop: str, guarded: bool = False) -> Self:
        """Run the iterations of a loop on all threads.

        Arguments: `loop`. Before -> after: the loop is marked `parallel`.
        Refused when: the loop carries a dependence (reductions included).
        """
        return self._step(
            "parallel", {"loop": loop}, marks.mark(self.tree, loop, "parallel", None), "mark", loop, guarded=guarded
        )

    @each_loop
    def vectorize(self, loop: str, lanes: int | None = None, guarded: bool = False) -> Self:
        """Run the iterations of a loop in vector lanes.

        Arguments: `loop`; `lanes`, how many iterations run together, default what the target has for the
        element type (then any number of them may).
        Before -> after: the loop is marked `vector`. Where that is illegal, but iterations `lanes` or more apart
        are the only ones that depend on each other: `i` -> `i.out`, `i.in` as by `split(i, lanes)`, and `i.in` is
        marked `vector` (the trace has both steps; the last `i.in` may be shorter).
        Refused when: iterations of one group of lanes depend on each other other than by a reduction's own.
        """
        tree = marks.mark(self.tree, loop, "vector", lanes)
        step = {"loop": loop, "lanes": lanes}
        try:
            return self._step("vectorize", step, tree, "mark", loop, guarded=guarded)
        except IllegalSchedule as whole:
            if lanes is None or lanes < 2 or guarded or is_dynamic(self.scop, locate(self.tree, loop).member):
                raise
            group = {"loop": f"{loop}.in", "lanes": lanes}
            try:
                return self._batch("all", ("split", {"loop": loop, "size": lanes}), ("vectorize", group))
            except IllegalSchedule as inside:
                raise whole.because(inside) from None

    @each_loop
    def unroll(self, loop: str, factor: int | None = None) -> Self:
        """Unroll a loop.

        Arguments: `loop`; `factor`, default the whole loop (which must then have a constant extent).
        Before -> after: the loop is marked `unroll`.
        Refused when: never (the order does not change).
        """
        tree = marks.mark(self.tree, loop, "unroll", factor)
        return self._step("unroll", {"loop": loop, "factor": factor}, tree, "none")

    @each_loop
    def bind(self, loop: str, axis: GpuAxis, guarded: bool = False) -> Self:
        """Run the iterations of a loop as blocks of a GPU's grid or as threads of a block.

        Arguments: `loop`; `axis`, `block.x block.y block.z thread.x thread.y thread.z`, each once
        in a nest, blocks outside threads.
        Before -> after: the loop is marked with the axis. CPU targets run the outermost block
        loop as a parallel loop and other bound loops serially; the kernel's notes say so.
        Refused when: the loop carries a dependence (reductions included).
        """
        return self._step(
            "bind", {"loop": loop, "axis": axis}, marks.bind(self.tree, loop, axis), "mark", loop, guarded=guarded
        )

    @each_loop
    def serial(self, loop: str) -> Self:
        """Run the iterations of a loop one after another: take its mark away.

        Arguments: `loop`.
        Before -> after: the loop is `parallel`, `vector`, `unroll` or bound to an axis -> it has no mark; a loop
        without a mark stays as it is.
        Refused when: never (one of the orders that the mark allows remains).
        """
        return self._step("serial", {"loop": loop}, marks.unmark(self.tree, loop), "none")
