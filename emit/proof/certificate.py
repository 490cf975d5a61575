"""A certificate of generated loops: model and loops as plain text, for `polyc.emit.proof.checker`.

JSON with: the Scop's sizes, arrays, statements (domain, time in program order, accesses,
expressions) as isl and Python text, and the loops as Python-like text with the instance that each
store stands for. Nothing in it refers to polyc's data structures.
"""

from __future__ import annotations

import json
from typing import Any

import islpy as isl

from polyc.emit.loop_ir.loops import Function, Store, walk
from polyc.emit.loop_ir.printer import expr_text, to_text
from polyc.emit.passes.simplify import simplify_expr
from polyc.poly.access import accesses
from polyc.poly.errors import BuildError
from polyc.poly.expr import Load
from polyc.poly.reduction import reorders
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import time_maps

FORMAT = "polyc certificate of loops, version 1"


def certificate(scop: Scop, fn: Function) -> str:
    """The text for `fn`, loops as `build_loops` gives them.

    Raises:
        BuildError: the program has data-dependent loops, whose bounds the checker cannot follow.
    """
    if any(s.dynamic for s in scop.statements.values()):
        raise BuildError(f"no certificate for '{scop.name}': it has data-dependent loops")
    data: dict[str, Any] = {
        "format": FORMAT,
        "kernel": fn.name,
        "sizes": list(scop.params),
        "context": str(scop.context),
        "arrays": {a.name: {"kind": a.kind, "shape": [expr_text(e) for e in a.shape]} for a in scop.arrays.values()},
        "statements": {s.name: _statement(scop, s) for s in scop.statements.values()},
        "loops": to_text(fn).splitlines(),
        "instances": [_instance(s) for s in walk(fn.body) if isinstance(s, Store)],
    }
    return json.dumps(data, indent=1) + "\n"


def _statement(scop: Scop, s: Statement) -> dict[str, Any]:
    times = time_maps(scop.tree, {n: x.domain for n, x in scop.statements.items()})
    own = [a for a in accesses(scop) if a.stmt == s.name]
    swap = reorders(scop, s)  # in a fixed order updates conflict like all else
    return {
        "iterators": list(s.iters),
        "domain": str(s.domain),
        "time": [str(m) for m in times if m.get_tuple_name(isl.dim_type.in_) == s.name],
        "operator": s.reduction,
        "accesses": [{"map": str(a.map), "write": a.write, "accumulator": a.accumulator and swap} for a in own],
        "target": expr_text(Load(s.array, s.index, s.value.dtype)),
        "value": expr_text(simplify_expr(s.value)),
        "condition": None if s.predicate is None else expr_text(simplify_expr(s.predicate)),
    }


def _instance(s: Store) -> str | None:
    if s.instance is None:
        return None
    name, values = s.instance
    return f"{name}[{', '.join(map(expr_text, values))}]"
