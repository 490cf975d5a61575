"""ATen operators as nodes of polyc's graphs: a function for each family, in the file of its subject."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from polyc.graph_driver.torch_bridge.lowering import OF_COMPLEX, TABLE, Lowered

_MODULES = (
    "elementwise", "casts", "reductions", "movement", "creation", "products", "convolutions", "normalisation",
    "pooling", "indexing", "windows", "strided", "distances", "masks", "sampling", "bags",
    "complex_numbers", "spectra",
)  # fmt: skip


@cache
def table() -> Mapping[str, Lowered]:
    """All functions by `name.overload` of their operators; those of complex numbers apart (`of_complex`)."""
    for name in _MODULES:
        import_module(f"{__name__}.{name}")
    return TABLE


@cache
def of_complex() -> Mapping[str, Lowered]:
    """The functions of operators that take or give complex numbers."""
    table()
    return OF_COMPLEX
