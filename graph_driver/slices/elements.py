"""`y[3, 0:5, :]`: elements of a tensor as a user writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import islpy as isl

from polyc.poly.errors import ArgumentError
from polyc.poly.forms.element_sets import Run, box

WRITTEN = re.compile(r"(?P<name>[^\[\]]+?)\s*(?:\[(?P<inside>[^\[\]]*)\])?\s*")
NUMBER = re.compile(r"-?[0-9]{1,18}")


def name_of(text: str) -> str:
    """The tensor that is meant.

    Raises:
        ArgumentError: it is no name with subscripts behind it.
    """
    found = WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ArgumentError(f"expected NAME or NAME[SUBSCRIPTS], as y[0, 3:7], not '{text}'")
    return found["name"]


def elements_of(text: str, name: str, shape: Sequence[int]) -> isl.Set:
    """The elements that are meant, of a tensor with this shape: NumPy's basic subscripts, numbers and slices.

    Raises:
        ArgumentError: there are more subscripts than dimensions, one is outside, or one is neither of these.
    """
    found = WRITTEN.fullmatch(text.strip())
    inside = found["inside"] if found else None
    parts = [p.strip() for p in inside.split(",")] if inside and inside.strip() else []
    if len(parts) > len(shape):
        raise ArgumentError(f"'{text}' has {len(parts)} subscripts, {name} has {len(shape)} dimensions")
    sides = [_run(text, p, d, n) for d, (p, n) in enumerate(zip(parts, shape))]
    sides += [Run(0, n - 1) for n in shape[len(parts) :]]
    return box("", [[side] for side in sides])


def _run(text: str, part: str, d: int, extent: int) -> Run:
    pieces = [p.strip() for p in part.split(":")]
    if len(pieces) > 3 or not all(NUMBER.fullmatch(p) or (not p and len(pieces) > 1) for p in pieces):
        raise ArgumentError(f"'{part}' in '{text}' is neither a number nor a slice")
    if len(pieces) == 1:
        at = int(part)
        if not -extent <= at < extent:
            raise ArgumentError(f"{at} in '{text}' is outside of dimension {d}, which has {extent} elements")
        return Run(at % extent, at % extent)
    if len(pieces) == 3 and pieces[2] and int(pieces[2]) <= 0:
        raise ArgumentError(f"'{part}' in '{text}': steps are at least 1")
    chosen = range(extent)[slice(*(int(p) if p else None for p in pieces))]
    if not chosen:
        raise ArgumentError(f"'{part}' in '{text}' has no elements (dimension {d} has {extent})")
    return Run(chosen[0], chosen[-1], chosen.step)
