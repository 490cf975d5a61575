"""ATen operators as nodes of polyc's graphs: a function for each family, in the file of its subject."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from polyc.graph_driver.torch_bridge.lowering import TABLE, Lowered

_MODULES = (
    "elementwise", "casts", "reductions", "movement", "creation", "products", "convolutions", "normalisation",
    "pooling", "indexing", "windows", "strided", "distances", "masks", "sampling", "bags",
)  # fmt: skip


@cache
def table() -> Mapping[str, Lowered]:
    """All functions by `name.overload` of their operators."""
    for name in _MODULES:
        import_module(f"{__name__}.{name}")
    return TABLE
