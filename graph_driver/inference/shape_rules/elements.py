"""Element by element, and products of matrices and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyc.graph_driver.graph.size import Extent
from polyc.graph_driver.inference.shape_rules.call import Call, NoRule, Shape, rule
from polyc.poly.dtypes import u8


def broadcast(call: Call, shapes: Sequence[Shape]) -> Shape:
    """NumPy's rule; two different formulas must be equal in every run (a guard)."""
    rank = max(len(s) for s in shapes)
    out: list[Extent] = []
    for axis in range(rank):
        extent: Extent = 1
        for s in shapes:
            k = axis - (rank - len(s))
            if k < 0 or (isinstance(s[k], int) and s[k] == 1) or s[k] == extent:
                continue
            if isinstance(extent, int) and extent == 1:
                extent = s[k]
                continue
            call.symbols.require_equal(extent, s[k], f"{call.op_type} broadcasts")
            extent = s[k] if isinstance(s[k], int) else extent
        out.append(extent)
    return tuple(out)


@rule(
    *"""Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh CumSum CumProd Dropout Elu
    Erf Exp EyeLike Floor Gelu Hardmax HardSigmoid HardSwish Identity InstanceNormalization GroupNormalization IsInf
    IsNaN LRN LayerNormalization RMSNormalization LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization
    Mish Neg Not PRelu QuantizeLinear DequantizeLinear Reciprocal Relu Round ScatterElements ScatterND Selu Shrink
    Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu BatchNormalization
    ReverseSequence Scatter TensorScatter""".split()
)
def like_first(call: Call) -> list[Shape]:
    """The first operand's shape, for each output.

    Raises:
        NoRule: outputs of other shapes are asked for, or the shape is unknown.
    """
    if call.op_type in ("BatchNormalization", "LayerNormalization") and call.outputs > 1:
        raise NoRule(f"{call.op_type} with further outputs")
    return [call.shape()] * call.outputs


@rule(
    *"""Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min
    Mod Mul Or Pow Sub Sum Where Xor""".split()
)
def elementwise(call: Call) -> list[Shape]:
    """All operands broadcast together."""
    return [broadcast(call, [call.shape(k) for k in range(len(call.inputs))])]


@rule("MatMul", "MatMulInteger")
def matmul(call: Call) -> list[Shape]:
    """Leading axes broadcast, the last two are multiplied; a vector is one row or column that the result has not."""
    a, b = call.shape(0), call.shape(1)
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    call.symbols.require_equal(left[-1], right[-2], "the inner sizes of a matrix product")
    out = broadcast(call, [left[:-2], right[:-2]]) if len(left) > 2 or len(right) > 2 else ()
    return [(*out, *left[-2:-1][: len(a) > 1], *right[-1:][: len(b) > 1])]


@rule("QLinearMatMul")
def quantised_matmul(call: Call) -> list[Shape]:
    """As MatMul, of the operands 0 and 3; the others are scales and zero points."""
    return matmul(replace(call, inputs=[call.inputs[0], call.inputs[3]]))


@rule("Gemm")
def gemm(call: Call) -> list[Shape]:
    """(rows of A, columns of B), after transposing; C broadcasts to it."""
    a, b = call.shape(0), call.shape(1)
    rows, inner = reversed(a) if call.attrs.get("transA", 0) else a
    depth, columns = reversed(b) if call.attrs.get("transB", 0) else b
    call.symbols.require_equal(inner, depth, "the inner sizes of a matrix product")
    return [(rows, columns)]


@rule("Einsum")
def einsum(call: Call) -> list[Shape]:
    """The extents of the labels on the right side; a label has one extent everywhere (a guard).

    Raises:
        NoRule: the equation has an ellipsis or no right side.
    """
    left, arrow, right = str(call.attrs["equation"]).replace(" ", "").partition("->")
    if "..." in left or not arrow:
        raise NoRule("Einsum with an ellipsis or an implicit output")
    sizes: dict[str, Extent] = {}
    for k, labels in enumerate(left.split(",")):
        for label, n in zip(labels, call.shape(k), strict=True):
            if label in sizes:
                call.symbols.require_equal(sizes[label], n, f"'{label}' of an Einsum")
            sizes.setdefault(label, n)
    return [tuple(sizes[label] for label in right)]


@rule("DynamicQuantizeLinear")
def dynamic_quantize(call: Call) -> list[Shape]:
    """The quantised tensor, a scale, a zero point."""
    return [call.shape(), (), ()]


@rule("MatMulNBits")
def block_product(call: Call) -> list[Shape]:
    """Rows of A, N columns."""
    return [(*call.shape()[:-1], int(call.attrs["N"]))]


@rule("AppendToCache")
def append_to_cache(call: Call) -> list[Shape]:
    """As many positions as before, or with `grows` those of the rows more."""
    batch, groups, held, inner = call.shape()
    return [(batch, groups, held + call.shape(1)[1] * int(call.attrs.get("grows", 0)), inner)]


@rule("TreeScores")
def tree_scores(call: Call) -> list[Shape]:
    """For each row what the groups of trees have."""
    return [(call.shape()[0], int(call.attrs["groups"]) * call.shape(5)[1])]


@rule("Distances")
def distances(call: Call) -> list[Shape]:
    """Rows of one matrix by columns of another."""
    return [(call.shape()[0], call.shape(1)[1])]


@rule("CoupledProbabilities")
def coupled(call: Call) -> list[Shape]:
    """A row for each square."""
    return [call.shape()[:2]]


@rule("PutRows")
def put_rows(call: Call) -> list[Shape]:
    """The first operand's, which has room for the rows."""
    shape, rows, axis = call.shape(), call.shape(1), call.axis(0)
    (at,) = call.values(2) or [0]
    call.symbols.require_at_least(shape[axis] - rows[axis] - at, 0, "there is room for all rows")
    return [shape]


@rule("Attention")
def attention(call: Call) -> list[Shape]:
    """Heads apart or side by side; the caches have heads apart, and are as long as past and rows together."""
    q, k, v = (call.shape(n) for n in range(3))
    if len(q) == 3:
        heads, groups = int(call.attrs["q_num_heads"]), int(call.attrs["kv_num_heads"])
        k, v = ((t[0], groups, t[1], t[2] // groups) for t in (k, v))
        y: Shape = (q[0], q[1], heads * v[3])
        q = (q[0], heads, q[1], q[2] // heads)
    else:
        y = (*q[:3], v[3])
    past = call.shape(4)[2] if len(call.inputs) > 4 and call.inputs[4] is not None else 0
    total = k[2] + past
    return [y, (*k[:2], total, k[3]), (*v[:2], total, v[3]), (*q[:3], total)]


@rule("GatherBlockQuantized")
def gather_blocks(call: Call) -> list[Shape]:
    """The table with the indices' axes in the place of one of its own; a byte has one or more codes."""
    shape, index = call.shape(), call.shape(1)
    axis, bits, table = call.axis(0, "gather_axis"), int(call.attrs.get("bits", 4)), call.inputs[0]
    per = 8 // bits if table is not None and table.dtype == u8 else 1
    whole = (*shape[:-1], shape[-1] * per)
    return [(*whole[:axis], *index, *whole[axis + 1 :])]
