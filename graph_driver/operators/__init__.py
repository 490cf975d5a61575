"""ONNX operators as Scops: `lookup(domain, op_type)` finds the builder of a node."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators import registry
from polyc.graph_driver.operators.context import Builder, NodeContext, OperatorScop, TensorInfo
from polyc.graph_driver.operators.halves import in_f32
from polyc.graph_driver.operators.registry import accepts

_MODULES = (
    "elementwise", "variadic", "convolution", "matrix", "pooling", "reduction", "normalization", "movement",
    "indexing", "resize", "recurrent", "quantization", "einsum", "sampling",
    "spectral", "sorting", "winograd", "pairs", "sparse", "byte_images", "narrow", "loops", "trees",
    "support_vectors",
)  # fmt: skip

__all__ = ["Builder", "NodeContext", "OperatorScop", "TensorInfo", "Unsupported", "accepts", "lookup", "supported"]


@cache
def _load() -> None:
    for name in _MODULES:
        import_module(f"polyc.graph_driver.operators.{name}")


def lookup(domain: str, op_type: str) -> Builder | None:
    """The builder of an operator, or None when the library has none (the host runs it)."""
    _load()
    found = registry.registered(domain, op_type)
    return None if found is None else _checked(found)


def supported() -> tuple[str, ...]:
    """Names of all operators with a builder."""
    _load()
    return registry.names()


@cache
def _checked(builder: Builder) -> Builder:
    def build(ctx: NodeContext) -> OperatorScop:
        ctx = registry.without_empty(ctx)
        try:
            return builder(ctx)
        except registry.Halves:
            return in_f32(builder, ctx)

    return build
