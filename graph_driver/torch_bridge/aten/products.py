"""ATen's products of matrices.

Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten


@aten("mm.default", "bmm.default", "matmul.default")
def matmul(b: Lowering, x: Value, y: Value) -> Value:
    """A product, or several."""
    if not x.dtype.is_float:
        raise Unsupported(f"products of {x.dtype}")
    return b.op("MatMul", x, y)


@aten("mv.default", "dot.default")
def product_with_vector(b: Lowering, x: Value, y: Value) -> Value:
    """A product with a vector."""
    return matmul(b, x, y)


@aten("addmm.default", "baddbmm.default", "addmv.default")
def addmm(b: Lowering, c: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """`beta c + alpha x y`."""
    found = matmul(b, x, y)
    if alpha != 1:
        found = b.op("Mul", found, alpha)
    if beta == 0:
        return found
    return b.op("Add", found, c if beta == 1 else b.op("Mul", c, beta))
