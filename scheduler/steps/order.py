"""The order of loops, statements and whole trees: `interchange permute reverse skew shift ... set_order`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from polyc.poly.tree import Node
from polyc.scheduler.core import Core, as_list
from polyc.scheduler.texts.addressing import each_loop
from polyc.scheduler.transformations import ordering


class Order(Core):
    """Part of `Schedule`."""

    def interchange(self, a: str, b: str, guarded: bool = False) -> Self:
        """Swap two nested loops.

        Arguments: `a`, `b`. Statements between them are sunk into the inner loop.
        Before -> after: `a ... b` -> `b ... a`.
        Refused when: a dependence would run backwards.
        """
        a, b = self._one(a), self._one(b)
        return self._step(
            "interchange", {"a": a, "b": b}, ordering.interchange(self.scop, self.tree, a, b), guarded=guarded
        )

    def permute(self, *order: str | Sequence[str], loops: Sequence[str] = (), guarded: bool = False) -> Self:
        """Put nested loops in a given order.

        Arguments: the loops, outermost first (or as a list). Statements between them are sunk into the innermost.
        Before -> after: `i, j, k` -> `k, i, j` for `permute("k", "i", "j")`.
        Refused when: a dependence would run backwards.
        """
        names = [n for x in (*order, loops) for n in self._several(x)]
        return self._step("permute", {"loops": names}, ordering.permute(self.scop, self.tree, names), guarded=guarded)

    @each_loop
    def reverse(self, loop: str, guarded: bool = False) -> Self:
        """Run a loop backwards.

        Arguments: `loop`. Before -> after: time `t` -> `-t`.
        Refused when: the loop carries a dependence.
        """
        return self._step("reverse", {"loop": loop}, ordering.reverse(self.scop, self.tree, loop), guarded=guarded)

    @each_loop
    def skew(self, loop: str, by: str, factor: int, guarded: bool = False) -> Self:
        """Make a loop run over `loop + factor * by`; it keeps its name.

        Arguments: `loop`; `by`, a loop around or inside it; `factor`, an integer.
        Before -> after: `by, loop` -> `by, loop + factor * by`.
        Refused when: `by` is inside `loop` and a dependence would run backwards.
        """
        by = self._one(by)
        tree = ordering.skew(self.scop, self.tree, loop, by, factor)
        return self._step("skew", {"loop": loop, "by": by, "factor": factor}, tree, guarded=guarded)

    @each_loop
    def shift(
        self, loop: str, amount: int, statements: Sequence[str] | str | None = None, guarded: bool = False
    ) -> Self:
        """Delay statements by some iterations of a loop.

        Arguments: `loop`; `amount`, iterations (may be negative); `statements`, default all.
        Before -> after: an instance at time `t` runs at `t + amount`.
        Refused when: a dependence would run backwards.
        """
        chosen = None if statements is None else as_list(statements)
        tree = ordering.shift(self.scop, self.tree, loop, amount, chosen)
        return self._step("shift", {"loop": loop, "amount": amount, "statements": chosen}, tree, guarded=guarded)

    def reorder_statements(self, order: Sequence[str], guarded: bool = False) -> Self:
        """Change the order of the parts of a sequence.

        Arguments: `order`, statements (one of each part to be moved) in their new order; a loop
        stands for the part that it is in.
        Before -> after: parts `S0; S1` -> `S1; S0`.
        Refused when: a dependence would run backwards.
        """
        return self._step("reorder_statements", {"order": as_list(order)},
                          ordering.reorder_statements(self.tree, as_list(order)), guarded=guarded)  # fmt: skip

    def set_order(self, tree: Node | str, guarded: bool = False) -> Self:
        """Replace the whole tree by a proposal (a strategy's, or one loaded from a file).

        Arguments: `tree`, a node or its JSON text (`polyc.poly.json_io.dump_tree`).
        Before -> after: any tree -> `tree`.
        Refused when: it breaks a dependence or does not run every instance exactly once.
        """
        from polyc.poly.json_io import dump_tree, load_tree

        text = tree if isinstance(tree, str) else dump_tree(tree)
        return self._step(
            "set_order", {"tree": text}, load_tree(text) if isinstance(tree, str) else tree, guarded=guarded
        )
