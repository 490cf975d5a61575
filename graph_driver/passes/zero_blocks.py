"""Products with constant weights that have blocks of zeros, which then cost nothing.

The columns of a matrix are cut into panels; a panel keeps the rows that are not zero in it, as many as the panel with
the most of them (others keep zeros). The work is that share of the whole. It pays where it is below `WORTH`: elements
of the operand are read by number, and not in order. Where an operand is infinite or NaN, elements that meet only zeros
stay as they are (hence not with `--exact`).
"""

from __future__ import annotations

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.graph_driver.passes.byte_nodes import Making
from polyc.graph_driver.passes.row_codes import Weighed, multiplied
from polyc.poly.dtypes import f32, i32

WIDTHS = (32, 16)  # columns of a panel: two vectors of AVX-512, or one
WORTH = 0.8  # share of the work (128 x 512 x 512, Ice Lake: all rows by number take 1.07 of the product's time)


def skip_zero_blocks(graph: Graph) -> dict[str, int]:
    """Replace products of which enough is zero; how many, and the multiply-adds of one row before and after."""
    if not any(n.op_type in ("MatMul", "Gemm") for n in graph.nodes):
        return {}
    found = {id(w.node): (w, kept) for w in multiplied(graph) if (kept := kept_rows(w)) is not None}
    return _Skipping(graph).rewrite(found) if found else {}


def kept_rows(w: Weighed) -> tuple[int, np.ndarray] | None:
    """The width of panels and `[panel, inner]`, whether a row is kept; None where that does not pay."""
    if w.is_image:
        return None
    inner, columns = w.weights.shape
    for width in WIDTHS:
        if columns % width:
            continue
        first = (w.weights[:, :width] != 0).any(-1)  # most matrices have no zeros: one panel says it
        if first.sum() > WORTH * inner:
            continue
        kept = (w.weights.reshape(inner, -1, width) != 0).any(-1).T
        if kept.sum(1).max() <= WORTH * inner:
            return width, kept
    return None


class _Skipping(Making):
    def rewrite(self, found: dict[int, tuple[Weighed, tuple[int, np.ndarray]]]) -> dict[str, int]:
        """The nodes in their new form."""
        before = after = 0
        for node in self.graph.nodes:
            if id(node) not in found:
                self.nodes.append(node)
                continue
            w, (width, kept) = found[id(node)]
            most = self.product(node, w, width, kept)
            before, after = before + w.weights.size, after + most * w.weights.shape[1]
        self.graph.nodes = self.nodes
        share = f"{after:,} of {before:,} multiply-adds for each row ({after / before:.0%})"
        self.graph.notes.append(f"zero blocks: {len(found)} products do {share}")
        return {"products": len(found)}

    def product(self, node: Node, w: Weighed, width: int, kept: np.ndarray) -> int:
        """One product; how many rows each panel keeps."""
        inner, columns = w.weights.shape
        most = max(int(kept.sum(1).max()), 1)
        at = np.argsort(~kept, axis=1, kind="stable")[:, :most]  # kept rows in order, then others, which are zero here
        panels = w.weights.reshape(inner, -1, width).transpose(1, 0, 2)
        values = np.take_along_axis(panels, at[:, :, None], 1)
        (result,) = node.outputs
        operands = [w.x, self.constant(f"{result}.rows", at, i32), self.constant(f"{result}.kept", values, f32)]
        if not w.bias:
            self.add(node, "KeptRowsMatMul", operands, result, DOMAIN)
            return most
        shape = self.graph.tensors[result].shape or ()
        product = self.add(node, "KeptRowsMatMul", operands, self.tensor(f"{result}.product", f32, shape), DOMAIN)
        self.add(node, "Add", [product, w.bias], result)
        return most
