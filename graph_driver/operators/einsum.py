"""Einsum of any number of operands: one product after another. Equations that this does not do are `Unsupported`."""

from __future__ import annotations

from functools import lru_cache

from polyc.frontend_dsl.library.einsum import make_einsum
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.chain import Wiring, joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import accumulates, data, onnx_operator, same_types, scop_of
from polyc.poly.dtypes import DType
from polyc.poly.words import counted

_BATCH = "0123456789"  # labels of the dimensions that an ellipsis stands for
Operand = tuple[str, tuple[int, ...]]  # labels and shape


@onnx_operator("Einsum")
def einsum(ctx: NodeContext) -> OperatorScop:
    """With ellipses, diagonals and implicit outputs."""
    same_types(ctx)
    accumulates(ctx)
    infos = [data(ctx, k) for k in range(len(ctx.inputs))]
    left, arrow, right = str(ctx.attrs["equation"]).replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(infos):
        raise Unsupported(f"Einsum '{ctx.attrs['equation']}' of {counted(len(infos), 'operand')}")
    hidden = [len(i.shape) - len(t.replace("...", "")) for t, i in zip(terms, infos, strict=True)]
    batch = max((h for h, t in zip(hidden, terms, strict=True) if "..." in t), default=0)
    labels = [t.replace("...", _BATCH[batch - h : batch]) for t, h in zip(terms, hidden, strict=True)]
    if any(len(names) != len(i.shape) for names, i in zip(labels, infos, strict=True)):
        raise Unsupported(f"Einsum '{ctx.attrs['equation']}' of these ranks")
    sizes: dict[str, int] = {}
    for names, info in zip(labels, infos, strict=True):
        for label, n in zip(names, info.shape, strict=True):
            sizes[label] = max(n, sizes.get(label, 1))
    if arrow:
        out = right.replace("...", _BATCH[:batch])
    else:
        every = "".join(labels)
        out = _BATCH[:batch] + "".join(sorted(c for c in sizes if every.count(c) == 1 and c not in _BATCH))
    operands = tuple((names, i.shape) for names, i in zip(labels, infos, strict=True))
    if len(operands) > 2:
        return _chain(infos[0].dtype, operands, out, tuple(sizes.items()))
    scop = scop_of(make_einsum, infos[0].dtype, operands, out, _sizes(operands, sizes))
    return OperatorScop(scop, tuple(enumerate(scop.args)), scop.results, False)


def _sizes(operands: tuple[Operand, ...], sizes: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """The extents of the labels that occur in `operands`."""
    return tuple((c, n) for c, n in sizes.items() if any(c in names for names, _ in operands))


@lru_cache(maxsize=256)
def _chain(dtype: DType, operands: tuple[Operand, ...], out: str, extents: tuple[tuple[str, int], ...]) -> OperatorScop:
    """The first two operands are joined, then the result with the third, and so on.

    A label is summed as soon as neither the output nor a later operand has it.
    """
    sizes = dict(extents)
    inputs = [f"X{k}" for k in range(len(operands))]
    parts: list[Wiring] = []
    (held, shape), name = operands[0], inputs[0]
    for k in range(1, len(operands)):
        later = out + "".join(names for names, _ in operands[k + 1 :])
        both = ((held, shape), operands[k])
        result = (
            out if k == len(operands) - 1 else "".join(dict.fromkeys(c for c in held + operands[k][0] if c in later))
        )
        scop = scop_of(make_einsum, dtype, both, result, _sizes(both, sizes))
        parts.append((scop, {"A": name, "B": inputs[k], scop.results[0]: f"Y{k}"}))
        held, shape, name = result, tuple(sizes[c] for c in result), f"Y{k}"
    return joined("einsum", parts, inputs, [name])
