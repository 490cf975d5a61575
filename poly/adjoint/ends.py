"""What a program is derived by, and what of."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.poly.adjoint.errors import NotDifferentiable
from polyc.poly.scop import Scop


def results_of(scop: Scop) -> tuple[str, ...]:
    """The floating-point results of a program: those that it returns, then the arrays that it updates in place."""
    names = (*scop.results, *(n for n in scop.args if scop.arrays[n].kind == "inout"))
    return tuple(n for n in names if scop.arrays[n].dtype.is_float)


def arguments_of(scop: Scop, wrt: Sequence[str] | None) -> tuple[str, ...]:
    """The arguments to derive by: those named, or all floating-point ones.

    Raises:
        NotDifferentiable: a name is no argument or no floating-point one, comes twice, or there is none.
    """
    floats = tuple(n for n in scop.args if scop.arrays[n].dtype.is_float)
    if wrt is None:
        if not floats:
            raise NotDifferentiable(f"{scop.name} has no floating-point argument to derive by")
        return floats
    for n in wrt:
        if n not in scop.args:
            known = ", ".join(floats) or "none"
            raise NotDifferentiable(f"{scop.name} has no argument {n} to derive by (floating-point ones: {known})")
        if n not in floats:
            array = scop.arrays[n]
            what = f"{scop.name}: the argument {n} is {array.dtype}"
            raise NotDifferentiable(f"{what}: only floating-point arguments have derivatives", array.span)
    if len(set(wrt)) != len(wrt) or not wrt:
        raise NotDifferentiable(f"{scop.name}: wrt= names each argument to derive by once, and at least one")
    return tuple(wrt)
