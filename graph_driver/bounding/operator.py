"""Bounds of errors of one operator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polyc.graph_driver.bounding.model import Bound, ErrorBounds, bound_of
from polyc.graph_driver.bounding.ranges import EVERY, Range, enclosed_range
from polyc.poly.error_bounds.evaluate import enclosed
from polyc.poly.error_bounds.iterations import NotBounded
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Const
from polyc.poly.scop import Scop


def operator_bounds(scop: Scop, ranges: Mapping[str, Range]) -> ErrorBounds:
    """Bounds of the results of a Scop at fixed sizes, for arguments in `ranges` (by name; `*`: all others of floats).

    Raises:
        ArgumentError: a range is missing or does not fit.
    """
    strange = [n for n in ranges if n not in scop.args and n != EVERY]
    if strange:
        raise ArgumentError(f"{scop.name} has no argument '{strange[0]}' (its arguments: {', '.join(scop.args)})")
    given = {}
    for name in scop.args:
        array = scop.arrays[name]
        known = ranges.get(name, ranges.get(EVERY) if array.dtype.is_float else None)
        if known is None:
            raise ArgumentError(f"argument '{name}' ({array.dtype}) has no range: give one (--range {name}=LO..HI)")
        shape = tuple(int(e.value) for e in array.shape if isinstance(e, Const))
        given[name] = enclosed_range(name, array.dtype, shape, known)
    wanted = [n for n, a in scop.arrays.items() if n in scop.results or a.kind == "inout"]
    try:
        made = enclosed(scop, given)
    except NotBounded as reason:
        shapes = {n: tuple(int(e.value) for e in scop.arrays[n].shape if isinstance(e, Const)) for n in wanted}
        none = {n: np.full(s, np.inf) for n, s in shapes.items()}
        return ErrorBounds({n: Bound(none[n], -none[n], none[n], str(reason)) for n in wanted}, {})
    return ErrorBounds({n: bound_of(made[n]) for n in wanted}, {})
