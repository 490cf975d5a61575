"""`polyc why`: which elements of inputs and weights a result depends on, and which results an input moves."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyc.graph_driver.cli.inspect import (
    UsageError,
    is_operator,
    load_operator,
    operator_scop,
    parse_numbers,
    refuse_model_options,
)


def why_command(arguments: argparse.Namespace) -> int:
    """Print the slice of `--output` (backwards) or `--input` (forwards).

    Raises:
        UsageError: neither or both are given, or `--kernels` with an operator.
    """
    if bool(arguments.output) == bool(arguments.input):
        raise UsageError("say either --output 'NAME[SUBSCRIPTS]' (what it depends on) or --input (what depends on it)")
    data, shapes = _operator(arguments) if is_operator(arguments.what) else _model(arguments)
    if arguments.picture is not None:
        from polyc.graph_driver.slices.picture import picture

        arguments.picture.write_text(picture(data, shapes), encoding="utf-8")
    if arguments.json:
        print(json.dumps(data, sort_keys=True))
        return 0
    from polyc.graph_driver.slices.report import lines

    print("\n".join(lines(data)))
    return 0


def _operator(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Sequence[int]]]:
    import islpy as isl

    from polyc.graph_driver.slices.elements import elements_of, name_of
    from polyc.graph_driver.slices.report import described, row
    from polyc.poly.expr import Const
    from polyc.poly.origins import origins
    from polyc.poly.rewriting.specialise import specialise

    refuse_model_options(arguments)
    if arguments.kernels:
        raise UsageError("--kernels is for models")
    scop, sizes = operator_scop(load_operator(arguments.what), parse_numbers(arguments.dim))
    missing = [p for p in scop.params if p not in sizes]
    if missing:
        raise UsageError(f"say how large {', '.join(missing)} is: --dim {missing[0]}=NUMBER")
    scop = specialise(scop, sizes)
    shapes: dict[str, Sequence[int]] = {
        n: [int(e.value) if isinstance(e, Const) else 0 for e in a.shape] for n, a in scop.arrays.items()
    }  # fmt: skip
    ends = {n for n, a in scop.arrays.items() if a.kind != "local"}
    sets: dict[str, isl.Set] = {}
    for text in arguments.output or arguments.input:
        name = name_of(text)
        if name not in ends:
            raise UsageError(f"{scop.name} has no array '{name}' among its arguments and results")
        more = elements_of(text, name, shapes[name]).set_tuple_name(name)
        sets[name] = sets[name].union(more) if name in sets else more
    relations = origins(scop)
    found = relations.forward(sets) if arguments.input else relations.backward(sets)
    role = "output" if arguments.input else "input"
    rows = []
    for name, elements in found.items():
        of = 1
        for extent in shapes[name]:
            of *= extent
        rows.append(row(name, role, elements, of))
    data = described(arguments.output or arguments.input, bool(arguments.input), rows)
    return data | {"bounds": {scop.name: "; ".join(relations.bounds)} if relations.bounds else {}}, shapes


def _model(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Sequence[int]]]:
    from polyc.graph_driver.cli.compile import options_of
    from polyc.graph_driver.cli.models import groups_and_graph, imported
    from polyc.graph_driver.operators.registry import registered
    from polyc.graph_driver.slices.model import backward, forward
    from polyc.graph_driver.slices.report import described, model_rows

    path, options = Path(arguments.what), options_of(arguments)
    asked, forwards = arguments.output or arguments.input, bool(arguments.input)
    graph, options = imported(path, options)
    found = (forward if forwards else backward)(graph, asked, registered)
    data = described(asked, forwards, model_rows(graph, found))
    data["nodes"] = [{"name": n.name, "operator": n.kind} for n in found.nodes]
    data["bounds"] = dict(found.bounds)
    if arguments.kernels:
        optimised, groups = groups_and_graph(path, options)
        inside = (forward if forwards else backward)(optimised, asked, registered)
        data["kernels_of_model"] = len(groups)
        data["kernels"] = [
            {"kernel": g.label, "elements": n, "of": sum(int(optimised.tensors[o].size) for o in g.outputs)}
            for g in groups
            if (n := sum(inside.count(o) for o in g.outputs))
        ]
    return data, {name: graph.tensors[name].shape or () for name in found.sets}
