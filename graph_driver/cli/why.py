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
    if arguments.writers:
        return _writers(arguments)
    if bool(arguments.output) == bool(arguments.input):
        raise UsageError(
            "say --output 'NAME[SUBSCRIPTS]' (what it depends on), --input (what depends on it) or --writers"
        )
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


def _writers(arguments: argparse.Namespace) -> int:
    """Which statement instances write some elements, of the model (or operator) as one program."""
    from polyc.graph_driver.cli.compile import options_of
    from polyc.graph_driver.cli.models import whole
    from polyc.graph_driver.fusion.whole import Whole
    from polyc.graph_driver.slices.elements import elements_of, name_of
    from polyc.graph_driver.slices.reshaping import reshaped
    from polyc.poly.expr import Const
    from polyc.poly.forms.element_sets import count, subscripts
    from polyc.poly.rewriting.specialise import specialise
    from polyc.poly.text import print_statement

    if is_operator(arguments.what):
        refuse_model_options(arguments)
        scop, sizes = operator_scop(load_operator(arguments.what), parse_numbers(arguments.dim))
        program = Whole(specialise(scop, sizes), {n: n for n in scop.arrays}, {}, {})
    else:
        program = whole(Path(arguments.what), options_of(arguments))
    rows = []
    for text in arguments.writers:
        name = name_of(text)
        array = program.arrays.get(name)
        if array is None:
            raise UsageError(f"'{name}' is no tensor of the program (passes may have taken it away)")
        stored = [int(e.value) if isinstance(e, Const) else 0 for e in program.scop.arrays[array].shape]
        if 0 in stored:
            raise UsageError(f"the shape of '{name}' is not known: give sizes (--dim NAME=V)")
        shape = program.shapes.get(name, stored)
        elements = elements_of(text, name, shape)
        if list(shape) != stored:
            elements = elements.apply(reshaped(("", shape), ("", stored)))
        for statement, instances in program.writers(array, elements).items():
            node = program.nodes.get(statement)
            s = program.scop.statements[statement]
            rows.append(
                {"elements": text, "node": node.name or node.kind if node else "", "statement": statement,
                 "instances": subscripts(instances), "count": count(instances), "iterators": list(s.iters),
                 "text": print_statement(s)}
            )  # fmt: skip
    if arguments.json:
        print(json.dumps({"format": "polyc-writers", "version": 1, "writers": rows}, sort_keys=True))
        return 0
    for r in rows:
        made_by = f" of {r['node']}" if r["node"] else ""
        statement = f"{r['statement']}[{', '.join(r['iterators'])}]{made_by}"
        print(f"{r['elements']}: {statement} at [{r['instances']}], {r['count']}x")
        print(f"    {r['text']}")
    return 0
