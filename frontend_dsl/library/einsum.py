"""Sums of products over named indices (Einstein's summation)."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, grid, op
from polyc.poly.dtypes import DType

Shape = tuple[int, ...]


def subscripts(point: Any, labels: str, shape: Shape, names: str) -> Any:
    """The element of an operand at `point` of the space with axes `names`; extents of 1 broadcast."""
    return tuple(0 if n == 1 else point[names.index(label)] for label, n in zip(labels, shape, strict=True))


def make_einsum(T: DType, operands: tuple[tuple[str, Shape], ...], out: str, sizes: tuple[tuple[str, int], ...]) -> Any:
    """`Y[out] = sum over all other labels of the product of one or two operands`.

    `operands` are (labels, shape); a label repeated in one operand walks its diagonal.
    `sizes` gives every label's extent.
    """
    extent = dict(sizes)
    summed = "".join(label for label in extent if label not in out)
    names = out + summed
    result, inner = tuple(extent[label] for label in out), tuple(extent[label] for label in summed)
    a_labels, a_shape = operands[0]
    b_labels, b_shape = operands[-1]

    @op
    def einsum1(A: T[a_shape]) -> T[result]:
        Y = empty(result, T)
        for o in grid(*result):
            Y[o] = 0
            for k in grid(*inner):
                Y[o] += A[subscripts((*o, *k), a_labels, a_shape, names)]
        return Y

    @op
    def einsum2(A: T[a_shape], B: T[b_shape]) -> T[result]:
        Y = empty(result, T)
        for o in grid(*result):
            Y[o] = 0
            for k in grid(*inner):
                Y[o] += (
                    A[subscripts((*o, *k), a_labels, a_shape, names)]
                    * B[subscripts((*o, *k), b_labels, b_shape, names)]
                )
        return Y

    return einsum1 if len(operands) == 1 else einsum2
