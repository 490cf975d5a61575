"""Einsum of one or two operands."""

from __future__ import annotations

from frontend_dsl.library.einsum import make_einsum
from graph_driver.operators.context import NodeContext, OperatorScop, Unsupported
from graph_driver.operators.registry import accumulates, data, onnx_operator, same_types, scop_of

_BATCH = "0123456789"  # labels of the dimensions that an ellipsis stands for


@onnx_operator("Einsum")
def einsum(ctx: NodeContext) -> OperatorScop:
    """With ellipses, diagonals and implicit outputs."""
    same_types(ctx)
    accumulates(ctx)
    infos = [data(ctx, k) for k in range(len(ctx.inputs))]
    left, arrow, right = str(ctx.attrs["equation"]).replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(infos) or not 1 <= len(infos) <= 2:
        raise Unsupported(f"Einsum of {len(infos)} operands")
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
    scop = scop_of(make_einsum, infos[0].dtype, operands, out, tuple(sizes.items()))
    return OperatorScop(scop, tuple(enumerate(scop.args)), scop.results, False)
