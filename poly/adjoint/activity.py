"""Which arrays carry derivatives: those that depend on what is derived by, and on which a result depends."""

from __future__ import annotations

from collections.abc import Collection

from polyc.poly.adjoint.partials import depends
from polyc.poly.scop import Scop


def varied(scop: Scop, wrt: Collection[str]) -> set[str]:
    """The floating-point arrays whose values may change smoothly with those of `wrt`."""
    found = set(wrt)
    growing = True
    while growing:
        growing = False
        for s in scop.statements.values():
            if s.array not in found and s.value.dtype.is_float and depends(s.value, found):
                found.add(s.array)
                growing = True
    return found


def useful(scop: Scop, results: Collection[str]) -> set[str]:
    """The floating-point arrays on whose values those of `results` may depend smoothly."""
    found = set(results)
    growing = True
    while growing:
        growing = False
        for s in scop.statements.values():
            if s.array in found:
                for name, array in scop.arrays.items():
                    if name not in found and array.dtype.is_float and depends(s.value, {name}):
                        found.add(name)
                        growing = True
    return found


def active(scop: Scop, wrt: Collection[str], results: Collection[str]) -> set[str]:
    """The arrays that need adjoints, or tangents."""
    return varied(scop, wrt) & useful(scop, results)
