"""`polyc inspect`: an operator's or a model's stages as text, or everything as a page."""

from __future__ import annotations

import argparse
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyc.graph_driver.cli.inspect import (
    UsageError,
    document_of,
    is_operator,
    load_operator,
    operator_stage,
    parse_numbers,
    refuse_model_options,
)  # fmt: skip
from polyc.graph_driver.html.page import page, write_page
from polyc.graph_driver.worker import tuned as use


def inspect_command(arguments: argparse.Namespace) -> int:
    """Print one stage (or as JSON `{"stage": ..., "text": ...}`), or without a stage make the page.

    Raises:
        UsageError: options that do not go together, or with this stage.
    """
    if arguments.svg is not None:
        if arguments.html is not None or arguments.json or arguments.yaml or arguments.stage not in (None, "whole"):
            raise UsageError("--svg is a picture of its own: leave out --html, --json, --yaml and --stage")
        write_page(arguments.svg, _picture(arguments))
        return 0
    if is_operator(arguments.what):
        whole = arguments.stage is None and (arguments.html is not None or arguments.json)
        refuse_model_options(arguments, checks=True, measure=whole)
        given, op = parse_numbers(arguments.dim), load_operator(arguments.what)
        checks = False if arguments.no_checks else None
        if whole:
            how = (arguments.schedule, arguments.threads, arguments.measure, checks)
            with use.tuned(arguments.tuned):
                document = document_of(op, arguments.target, given, *how)
            return _document(arguments, document)
        stage = arguments.stage or "scop"
        if arguments.yaml and stage != "schedule":
            raise UsageError("--yaml goes with --stage schedule")
        about = (arguments.target, given, arguments.schedule, arguments.yaml, arguments.threads, checks)
        with use.tuned(arguments.tuned):
            parts = [("", operator_stage(op, stage, *about))]
    else:
        from polyc.graph_driver.artifacts.package import is_package
        from polyc.graph_driver.cli.compile import (  # a model needs onnx, which is slow to import
            options_of,
            refuse_compiled,
        )
        from polyc.graph_driver.cli.models import document_of_kernel, document_of_model, model_stage

        if arguments.schedule is not None or arguments.yaml:
            raise UsageError("--schedule and --yaml are for operators (FILE.py:OP)")
        path, options = Path(arguments.what), options_of(arguments)
        if is_package(path):
            refuse_compiled(arguments, path)
        if arguments.stage is None and (arguments.html is not None or arguments.json):
            if arguments.kernel is None:
                return _document(arguments, document_of_model(path, options, arguments.measure))
            return _document(arguments, document_of_kernel(path, options, arguments.kernel, arguments.measure))
        stage = arguments.stage or "graph"
        if arguments.kernel is not None and stage in ("graph", "stats", "whole", "memory", "plan"):
            raise UsageError(f"--kernel goes with a stage of kernels (scop, schedule, ...) or --html, not with {stage}")
        parts = model_stage(path, stage, options, arguments.kernel)
    text = "\n\n".join(f"# {title}\n{body}" if title else body for title, body in parts)
    if arguments.html is not None:
        _write_html(arguments.html, f"{arguments.what}: {stage}", parts)
    else:
        print(json.dumps({"stage": stage, "text": text}, sort_keys=True) if arguments.json else text)
    return 0


def _picture(arguments: argparse.Namespace) -> str:
    """All instances of an operator under its schedule, or of a model in one tree. Raises `UsageError`."""
    from polyc.graph_driver.html.nested_picture import nested_picture

    if is_operator(arguments.what):
        from polyc.graph_driver.cli.inspect import operator_schedule, operator_scop
        from polyc.poly.enumeration import at_sizes

        refuse_model_options(arguments, checks=True, measure=False)
        scop, sizes = operator_scop(load_operator(arguments.what), parse_numbers(arguments.dim))
        with use.tuned(arguments.tuned):
            schedule = operator_schedule(scop, arguments.target, sizes, arguments.schedule, arguments.threads)
        numbers = {name: int(v) for name, v in sizes.items() if name in schedule.scop.params}
        return nested_picture(*at_sizes(schedule.scop, schedule.tree, numbers), arguments.what)
    from polyc.graph_driver.cli.compile import options_of
    from polyc.graph_driver.cli.models import whole

    if arguments.kernel is not None or arguments.schedule is not None:
        raise UsageError("--svg draws the whole model: leave out --kernel and --schedule")
    found = whole(Path(arguments.what), options_of(arguments))
    nodes = {s: f"{n.kind} '{n.name or n.outputs[0]}'" for s, n in found.nodes.items()}
    tensors = {array: tensor for tensor, array in found.arrays.items()}
    return nested_picture(found.scop, found.scop.tree, Path(arguments.what).stem, nodes, tensors)


def _document(arguments: argparse.Namespace, document: dict[str, Any]) -> int:
    """The whole document as a page, or printed."""
    if arguments.html is None:
        print(json.dumps(document, sort_keys=True))
    else:
        write_page(arguments.html, page(document, f"{document['name']} · polyc"))
    return 0


def _write_html(path: Path, title: str, parts: Sequence[tuple[str, str]]) -> None:
    """The stage as a page of its own, a heading for each titled part."""
    sections = [
        (f"<h2>{html.escape(heading)}</h2>" if heading else "") + f"<pre>{html.escape(body)}</pre>"
        for heading, body in parts
    ]
    text = (
        f"<!doctype html><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<style>body{font-family:sans-serif;margin:2em}pre{background:#f6f6f6;padding:1em;overflow-x:auto}</style>"
        f"<h1>{html.escape(title)}</h1>{''.join(sections)}\n"
    )
    write_page(path, text)
