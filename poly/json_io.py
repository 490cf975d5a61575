"""Scops and schedule trees as JSON, without loss and in one canonical form.

Sets and functions are isl's own text. Spans are kept. `dumps(loads(x)) == x`.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import islpy as isl

from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Span, StraightLine, Temp, Unary, Var
from polyc.poly.forms.canonical import set_text, value_text
from polyc.poly.scop import Array, DynamicBound, LoopMark, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Promote, Sequence

VERSION = 1


def dumps(scop: Scop) -> str:
    """The Scop as canonical JSON text."""
    return json.dumps(_scop(scop), separators=(",", ":"), sort_keys=True)


def loads(text: str) -> Scop:
    """The Scop back from `dumps`.

    Raises:
        ScopError: not such a text, or of another version.
    """
    try:
        data = json.loads(text)
        if data.get("version") != VERSION:
            raise ScopError(f"a Scop of format {data.get('version')!r}; this polyc reads format {VERSION}")
        return _scop_back(data)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, isl.Error) as error:
        raise ScopError(f"not a Scop in JSON: {error}") from None


def dump_tree(tree: Node) -> str:
    """A schedule tree as canonical JSON text."""
    return json.dumps(_node(tree), separators=(",", ":"), sort_keys=True)


def load_tree(text: str) -> Node:
    """The tree back from `dump_tree`. Raises `ScopError` when it is not one."""
    try:
        return _node_back(json.loads(text))
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, isl.Error) as error:
        raise ScopError(f"not a schedule tree in JSON: {error}") from None


# ---- writing -------------------------------------------------------------------------------


def dump_expr(e: Expr) -> str:
    """An expression as JSON, on one line."""
    return json.dumps(_expr(e), separators=(",", ":"))


def load_expr(text: str) -> Expr:
    """The expression back. Raises `ScopError` when the text is not one."""
    try:
        return _expr_back(json.loads(text))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ScopError(f"not an expression: {error}") from None


def _scop(s: Scop) -> dict[str, Any]:
    return {
        "version": VERSION,
        "name": s.name,
        "params": list(s.params),
        "context": set_text(s.context),
        "arrays": [
            [a.name, a.dtype.name, [_expr(e) for e in a.shape], a.kind, a.scalar, _span(a.span)]
            + ([None if a.given is None else [_expr(e) for e in a.given], a.expanded] if a.given or a.expanded else [])
            for a in s.arrays.values()
        ],
        "statements": [_statement(x) for x in s.statements.values()],
        "tree": _node(s.tree),
        "args": list(s.args),
        "results": list(s.results),
        "reassociate": s.reassociate,
        "fast_math": s.fast_math,
        "notes": list(s.notes),
        **({"marks": [[m.loop, m.kind, m.factor] for m in s.marks]} if s.marks else {}),
    }


def _statement(s: Statement) -> dict[str, Any]:
    return {
        "name": s.name,
        "iters": list(s.iters),
        "domain": set_text(s.domain),
        "array": s.array,
        "index": [_expr(e) for e in s.index],
        "value": _expr(s.value),
        "predicate": None if s.predicate is None else _expr(s.predicate),
        "reduction": s.reduction,
        "dynamic": [[d.iter, _expr(d.lo), _expr(d.hi)] for d in s.dynamic],
        "span": _span(s.span),
    }


def _span(s: Span | None) -> list[Any] | None:
    return None if s is None else [s.file, s.line, s.col, s.end_line, s.end_col, s.text]


def _expr(e: Expr) -> list[Any]:
    kids = [_expr(c) for c in e.children()]
    dtype = e.dtype.name
    if isinstance(e, Const):
        value = e.value.hex() if isinstance(e.value, float) else e.value
        return ["const", dtype, value, isinstance(e.value, float)]
    if isinstance(e, Var):
        return ["var", dtype, e.name, e.count]
    if isinstance(e, Load):
        return ["load", dtype, e.array, _span(e.span), *kids]
    if isinstance(e, Unary):
        return ["unary", dtype, e.op, *kids]
    if isinstance(e, Binary):
        return ["binary", dtype, e.op, *kids]
    if isinstance(e, Call):
        return ["call", dtype, e.fn, *kids]
    if isinstance(e, Select):
        return ["select", dtype, *kids]
    if isinstance(e, Cast):
        return ["cast", dtype, *kids]
    if isinstance(e, Temp):
        return ["temp", dtype, e.name]
    if isinstance(e, StraightLine):
        return ["straight", dtype, list(e.names), *kids]
    raise ScopError(f"{type(e).__name__} is no expression of a Scop")


def _node(n: Node) -> list[Any]:
    if isinstance(n, Leaf):
        return ["leaf"]
    if isinstance(n, Band):
        members = [
            [m.name, {s: value_text(pa) for s, pa in sorted(m.schedule.items())}, m.kind, m.factor, m.coincident]
            for m in n.members
        ]
        return ["band", members, n.permutable, _node(n.child)]
    if isinstance(n, Filter):
        return ["filter", [[s, set_text(d)] for s, d in n.domain.items()], _node(n.child)]
    if isinstance(n, Sequence):
        return ["sequence", *map(_node, n.filters)]
    if isinstance(n, Promote):
        layout = None if n.layout is None else [list(x) for x in n.layout]
        return ["promote", n.array, n.buffer, n.space, layout, n.copy_in, n.copy_out, _node(n.child)]
    raise ScopError(f"{type(n).__name__} is no tree node")


# ---- reading -------------------------------------------------------------------------------

KEPT = 1 << 12  # texts: two in three of a network's kernels were read before


@lru_cache(maxsize=KEPT)
def _set_back(text: str) -> isl.Set:
    return isl.Set(text)


@lru_cache(maxsize=KEPT)
def _function_back(text: str) -> isl.PwAff:
    return isl.PwAff(text)


def _scop_back(d: dict[str, Any]) -> Scop:
    arrays = {
        n: Array(
            n,
            BY_NAME[t],
            tuple(map(_expr_back, shape)),
            kind,
            scalar,
            _span_back(span),
            expanded=rest[1] if rest else 0,
            given=tuple(map(_expr_back, rest[0])) if rest and rest[0] else None,
        )
        for n, t, shape, kind, scalar, span, *rest in d["arrays"]
    }
    statements = {x["name"]: _statement_back(x) for x in d["statements"]}
    return Scop(
        d["name"], tuple(d["params"]), _set_back(d["context"]), arrays, statements, _node_back(d["tree"]),
        tuple(d["args"]), tuple(d["results"]), d["reassociate"], d["fast_math"], tuple(d["notes"]),
        tuple(LoopMark(*m) for m in d.get("marks", ())),
    )  # fmt: skip


def _statement_back(d: dict[str, Any]) -> Statement:
    return Statement(
        d["name"], tuple(d["iters"]), _set_back(d["domain"]), d["array"], tuple(map(_expr_back, d["index"])),
        _expr_back(d["value"]), None if d["predicate"] is None else _expr_back(d["predicate"]), d["reduction"],
        tuple(DynamicBound(i, _expr_back(lo), _expr_back(hi)) for i, lo, hi in d["dynamic"]), _span_back(d["span"]),
    )  # fmt: skip


def _span_back(d: list[Any] | None) -> Span | None:
    return None if d is None else Span(*d)


def _expr_back(d: list[Any]) -> Expr:
    kind, dtype, *rest = d
    t = BY_NAME[dtype]
    if kind == "const":
        value, real = rest
        return Const(float.fromhex(value) if real else value, t)
    if kind == "var":
        return Var(rest[0], t, rest[1])
    if kind == "load":
        return Load(rest[0], tuple(map(_expr_back, rest[2:])), t, _span_back(rest[1]))
    if kind == "unary":
        return Unary(rest[0], _expr_back(rest[1]), t)
    if kind == "binary":
        return Binary(rest[0], _expr_back(rest[1]), _expr_back(rest[2]), t)
    if kind == "call":
        return Call(rest[0], tuple(map(_expr_back, rest[1:])), t)
    if kind == "temp":
        return Temp(rest[0], t)
    if kind == "straight":
        *values, result = map(_expr_back, rest[1:])
        return StraightLine(tuple(rest[0]), tuple(values), result, t)
    kids = tuple(map(_expr_back, rest))
    if kind == "select":
        return Select(kids[0], kids[1], kids[2], t)
    if kind == "cast":
        return Cast(kids[0], t)
    raise ValueError(f"unknown expression '{kind}'")


def _node_back(d: list[Any]) -> Node:
    kind, *rest = d
    if kind == "leaf":
        return Leaf()
    if kind == "band":
        members = tuple(
            Member(n, {s: _function_back(t) for s, t in schedule.items()}, k, f, c) for n, schedule, k, f, c in rest[0]
        )
        return Band(members, _node_back(rest[2]), rest[1])
    if kind == "filter":
        return Filter({s: _set_back(t) for s, t in rest[0]}, _node_back(rest[1]))
    if kind == "sequence":
        return Sequence(tuple(_node_back(x) for x in rest))  # type: ignore[misc]
    if kind == "promote":
        array, buffer, space, layout, copy_in, copy_out, child = rest
        cut = None if layout is None else tuple((a, b, c) for a, b, c in layout)
        return Promote(array, buffer, space, _node_back(child), cut, copy_in, copy_out)
    raise ValueError(f"unknown tree node '{kind}'")
