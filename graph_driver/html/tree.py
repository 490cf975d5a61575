"""The schedule tree for the page: bands, sequences, promotions and the statements at the leaves."""

from __future__ import annotations

from typing import Any

import islpy as isl

from poly.canonical import value_text
from poly.scop import Scop
from poly.text import member_values, print_statement, relation_text
from poly.tree import Band, Filter, Leaf, Member, Node, Promote, Sequence


def tree_data(tree: Node, scop: Scop) -> dict[str, Any]:
    """The tree as nested dictionaries; `key` is what the node's highlighting goes by."""
    return _node(tree, scop, tuple(scop.statements))


def _node(n: Node, scop: Scop, active: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(n, Band):
        members = [_member(m, scop, active) for m in n.members]
        return {
            "type": "band",
            "permutable": n.permutable,
            "members": members,
            "children": [_node(n.child, scop, active)],
        }
    if isinstance(n, Sequence):
        return {"type": "sequence", "children": [_node(f, scop, active) for f in n.filters]}
    if isinstance(n, Filter):
        inner = tuple(n.domain)
        parts = {s: relation_text(d) for s, d in n.domain.items() if not scop.statements[s].domain.is_subset(d)}
        return {"type": "filter", "statements": list(inner), "parts": parts, "children": [_node(n.child, scop, inner)]}
    if isinstance(n, Promote):
        return {
            "type": "promote", "key": f"copy:{n.buffer}", "array": n.array, "buffer": n.buffer, "space": n.space,
            "in": n.copy_in, "out": n.copy_out, "packed": n.layout is not None,
            "children": [_node(n.child, scop, active)],
        }  # fmt: skip
    assert isinstance(n, Leaf), type(n)
    leaves = [{"key": f"stmt:{s}", "name": s, "text": print_statement(scop.statements[s])} for s in active]
    return {"type": "leaf", "statements": leaves, "children": []}


def _member(m: Member, scop: Scop, active: tuple[str, ...]) -> dict[str, Any]:
    values = member_values(m, active)
    return {
        "key": f"loop:{m.name}", "name": m.name, "kind": m.kind, "factor": m.factor,
        "values": [[value, names] for value, names in values.items()], "most": _most(m, scop, active),
    }  # fmt: skip


def _most(m: Member, scop: Scop, active: tuple[str, ...]) -> str | None:
    """How many values the loop takes over all iterations of those around it, where that is one formula
    for all statements (a number that bounds it, where it is several)."""
    found: set[str] = set()
    for s in active:
        if s not in m.schedule:
            continue
        domain = scop.statements[s].domain.intersect_params(scop.context)
        values = isl.Map.from_pw_aff(m.schedule[s]).intersect_domain(domain).range()
        span = values.dim_max(0).sub(values.dim_min(0)).gist_params(scop.context).coalesce()
        if span.n_piece() == 1:
            text = value_text(span.add_constant_val(isl.Val(1)))
            found.add(text.rpartition("{")[2].partition("[(")[2].rpartition(")]")[0])
        else:
            bound = span.max_val()
            found.add(str(bound.to_python() + 1) if bound.is_int() else "")
    return (found.pop() or None) if len(found) == 1 else None
