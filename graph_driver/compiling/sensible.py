"""Sizes for a run of a model when nothing is said of them: small ones that its operators take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from polyc.graph_driver.graph.size import evaluate
from polyc.graph_driver.importing.binding import TYPICAL, SizesMissing
from polyc.graph_driver.importing.declared import Declared, declared
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.importing.reading import read
from polyc.poly.errors import ArgumentError, ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.graph.ir import Graph
    from polyc.graph_driver.options import CompileOptions

TRIED = (64, 128, 224, 256, 32, 48, 416, 512, 640, 16, 8, 3, 2, 1)
"""Values of the sizes that are not leading ones, where a model does not say what it takes."""
FEW = 3
"""How many of them are tried of a model that may be broken."""


def sensible_sizes(source: str | Path | onnx.ModelProto | bytes, options: CompileOptions) -> dict[str, int]:
    """A number for each size that neither the file nor the options fix, by its name in the file.

    Leading sizes (batches) are 1, others a size that the operators allow.

    Raises:
        SizesMissing: none of the sizes tried fits, or an input has no rank.
        ModelError: the file is broken.
    """
    said = declared(read(source)[0], options.bind)
    names = _open(said, options)
    if not names:
        return {}
    batches = _batches(said) & set(names)
    try:
        graph = _imported(source, options, {}, symbolic=True)
    except ModelError as error:
        return _first_that_fits(source, options, _guesses(names, batches), error)
    found, allowed = _of_symbols(graph, said, names, batches)
    if allowed:
        return found
    both = iter((found, _typical(graph, said, names)))  # what a guard excludes may be right with numbers
    return _first_that_fits(source, options, both, SizesMissing("no sizes fit the guards"))


def some_sizes_fit(source: str | Path | onnx.ModelProto | bytes, options: CompileOptions) -> bool:
    """Whether a model that is refused with symbolic sizes can be imported with numbers (a few are tried)."""
    try:
        said = declared(read(source)[0], options.bind)
        names = _open(said, options)
    except SizesMissing:
        return True
    except ModelError:
        return False
    for sizes in islice(_guesses(names, _batches(said) & set(names)), FEW) if names else ():
        try:
            _imported(source, options, sizes, symbolic=False)
        except ModelError:
            continue
        return True
    return False


def chosen_text(sizes: Mapping[str, int]) -> str:
    """What was chosen, and how to choose otherwise."""
    each = ", ".join(f"{n} = {v}" for n, v in sizes.items())
    return f"{each} chosen, because nothing was said (--dim {next(iter(sizes))}=V for another)"


def _open(said: Declared, options: CompileOptions) -> list[str]:
    """The sizes that nothing fixes."""
    found: dict[str, None] = {}
    for name, shape in said.shapes.items():
        if name not in said.tensors or name in options.shapes:
            continue
        if shape is None:
            raise SizesMissing(f"input '{name}' has no shape in the model; give an input array")
        found.update(
            (s, None)
            for axis, s in enumerate(shape)
            if isinstance(s, str) and s not in options.dims and f"{name}.{axis}" not in options.dims
        )
    given = {
        s for name, shape in options.shapes.items() for s in (said.shapes.get(name) or ()) if isinstance(s, str)
    }  # fmt: skip
    return [n for n in found if n not in given]


def _batches(said: Declared) -> set[str]:
    """Sizes that are leading ones wherever they stand."""
    leading = {s[0] for s in said.shapes.values() if s and isinstance(s[0], str)}
    return leading - {n for s in said.shapes.values() for n in (s or ())[1:] if isinstance(n, str)}


def _of_symbols(graph: Graph, said: Declared, names: list[str], batches: set[str]) -> tuple[dict[str, int], bool]:
    """The representative sizes with batches of 1, and whether the ranges and guards allow that."""
    symbols = graph.symbols
    if symbols is None:
        return _at(graph, said, names, {}), True
    values = {n: 1 if r.key in batches else r.typical for n, r in symbols.ranges.items()}
    try:
        symbols.check(values)
    except ArgumentError:
        return _at(graph, said, names, values), False
    return _at(graph, said, names, values), True


def _typical(graph: Graph, said: Declared, names: list[str]) -> dict[str, int]:
    return _at(graph, said, names, {} if graph.symbols is None else graph.symbols.typical)


def _at(graph: Graph, said: Declared, names: list[str], values: Mapping[str, int]) -> dict[str, int]:
    """The sizes by name, from the inputs' shapes at these values of the symbols."""
    found = {}
    for name, shape in said.shapes.items():
        for size, extent in zip(shape or (), graph.tensors[name].shape or ()):
            if isinstance(size, str) and size in names:
                found[size] = evaluate(extent, values)
    return found


def _guesses(names: list[str], batches: set[str]) -> Iterator[dict[str, int]]:
    further = [n for n in names if n not in batches]
    rest = dict.fromkeys(batches, 1)
    for each in TRIED:
        yield {n: rest.get(n, each) for n in names}
        if not further:
            return
    different = dict(zip(further, (*TYPICAL, *TRIED)))
    yield {n: rest.get(n, different.get(n, 1)) for n in names}


def _first_that_fits(
    source: str | Path | onnx.ModelProto | bytes, options: CompileOptions, candidates: Iterator[dict[str, int]],
    failure: ModelError,
) -> dict[str, int]:  # fmt: skip
    sizes: dict[str, int] = {}
    for sizes in candidates:
        try:
            _imported(source, options, sizes, symbolic=False)
        except ModelError as error:
            failure = error
            continue
        return sizes
    raise SizesMissing(f"sizes not given: {', '.join(sizes)} (--dim NAME=V); none that was tried fits: {failure}")


def _imported(
    source: str | Path | onnx.ModelProto | bytes, options: CompileOptions, sizes: Mapping[str, int], symbolic: bool
) -> Graph:
    return import_model(source, {**options.dims, **sizes}, options.shapes, symbolic, options.bind, warn=False)
