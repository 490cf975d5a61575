"""Where inputs lie: `x=-1..1`, `x=0.5`, `x=FILE.npy`, `x=FILE.npy+-0.01`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.planning.index_limits import index_limits
from polyc.poly.error_bounds.enclosure import Enclosure, within
from polyc.poly.errors import ArgumentError

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
BETWEEN = re.compile(rf"(?P<lo>{NUMBER})(?:\.\.(?P<hi>{NUMBER}))?")
AROUND = re.compile(rf"(?P<path>.+?)(?:\+-(?P<by>{NUMBER}))?")
EVERY = "*"
"""Stands for all inputs that have no range of their own."""

Range = tuple[Any, Any]
"""Least and greatest values: numbers, or arrays in the input's shape."""


def read_ranges(texts: Sequence[str]) -> dict[str, Range]:
    """`NAME=RANGE` each.

    Raises:
        ArgumentError: one is neither of the forms, or its file cannot be read.
    """
    found: dict[str, Range] = {}
    for text in texts:
        name, equals, what = text.partition("=")
        if not equals or not name or not what:
            raise ArgumentError(f"expected NAME=LO..HI, NAME=NUMBER or NAME=FILE.npy[+-BY], not '{text}'")
        found[name] = _read(name, what.strip())
    return found


def _read(name: str, text: str) -> Range:
    numbers = BETWEEN.fullmatch(text)
    if numbers:
        low = float(numbers["lo"])
        high = low if numbers["hi"] is None else float(numbers["hi"])
        if not low <= high or not math.isfinite(low) or not math.isfinite(high):
            raise ArgumentError(f"the range of '{name}' is empty or not finite: {text}")
        return low, high
    found = AROUND.fullmatch(text)
    assert found is not None
    path = Path(found["path"])
    try:
        value = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"the range of '{name}' is no LO..HI, and {path} cannot be read as .npy: {error}") from None
    by = abs(float(found["by"] or 0))
    if value.dtype.kind not in "biuf":
        raise ArgumentError(f"{path} holds {value.dtype}, no numbers")
    value = value.astype(np.float64)
    return (value, value) if by == 0 else (np.nextafter(value - by, -np.inf), np.nextafter(value + by, np.inf))


def input_ranges(graph: Graph, given: Mapping[str, Range]) -> dict[str, Enclosure]:
    """The enclosures of a graph's inputs. Inputs that choose rows of tables may choose any of them.

    Raises:
        ArgumentError: an input has no range, there is no such input, or a range does not fit it.
    """
    strange = [n for n in given if n not in graph.inputs and n != EVERY]
    if strange:
        raise ArgumentError(f"the model has no input '{strange[0]}' (its inputs: {', '.join(graph.inputs)})")
    limits = index_limits(graph)
    found = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.const is not None:
            continue
        if tensor.dtype is None or tensor.shape is None or not all(isinstance(n, int) for n in tensor.shape):
            raise ArgumentError(f"the shape of input '{name}' is not known: give sizes (--dim NAME=V)")
        known = given.get(name, given.get(EVERY) if tensor.dtype.is_float else None)
        if known is None and name in limits:
            known = 0, limits[name] - 1
        if known is None and tensor.dtype.kind == "bool":
            known = 0, 1
        if known is None:
            raise ArgumentError(f"input '{name}' ({tensor.dtype}) has no range: give one (--range {name}=LO..HI)")
        found[name] = enclosed_range(name, tensor.dtype, tensor.shape, known)
    return found


def enclosed_range(name: str, dtype: Any, shape: Sequence[int], known: Range) -> Enclosure:
    """A range as one of an array of this type and shape. Raises `ArgumentError`: it does not fit."""
    low, high = (np.asarray(v, np.float64) for v in known)
    try:
        low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    except ValueError:
        raise ArgumentError(f"the range of '{name}' has the shape {list(low.shape)}, the input {list(shape)}") from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ArgumentError(f"the range of '{name}' is empty or not finite")
    if dtype.is_float:
        return within(low, high)
    return within(np.ceil(low), np.floor(high))
