"""The schedule tree for the page: bands, sequences, promotions and the statements at the leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import islpy as isl

from polyc.poly.forms.affine_text import condition_source, value_source
from polyc.poly.forms.boxes import box_of
from polyc.poly.forms.ranges import extremes
from polyc.poly.ordering.regions import regions
from polyc.poly.scop import Scop
from polyc.poly.text import layout_text, member_values, print_statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Promote, Sequence


def tree_data(tree: Node, scop: Scop) -> dict[str, Any]:
    """The tree as nested dictionaries; `key` is what the node's highlighting goes by."""
    found = ((r.node.buffer, box_of(scop, r)) for r in regions(scop, tree))
    boxes = {buffer: box.text() for buffer, box in found if box is not None}
    return _Tree(scop, boxes).node(tree, tuple(scop.statements))


class _Tree:
    def __init__(self, scop: Scop, boxes: Mapping[str, str]) -> None:
        self.scop, self.boxes = scop, boxes

    def node(self, n: Node, active: tuple[str, ...]) -> dict[str, Any]:
        """A node and what is below it; `active` statements reach it."""
        if isinstance(n, Band):
            members = [_member(m, self.scop, active) for m in n.members]
            child = self.node(n.child, active)
            return {"type": "band", "permutable": n.permutable, "members": members, "children": [child]}
        if isinstance(n, Sequence):
            return {"type": "sequence", "children": [self.node(f, active) for f in n.filters]}
        if isinstance(n, Filter):
            return self.part(n)
        if isinstance(n, Promote):
            return {
                "type": "promote", "key": f"copy:{n.buffer}", "array": n.array, "buffer": n.buffer, "space": n.space,
                "in": n.copy_in, "out": n.copy_out, "box": self.boxes.get(n.buffer),
                "layout": None if n.layout is None else layout_text(n.layout), "children": [self.node(n.child, active)],
            }  # fmt: skip
        assert isinstance(n, Leaf), type(n)
        known = self.scop.statements
        leaves = [{"key": f"stmt:{s}", "name": s, "text": print_statement(known[s])} for s in active]
        return {"type": "leaf", "statements": leaves, "children": []}

    def part(self, n: Filter) -> dict[str, Any]:
        """A filter; `parts` are the conditions of the statements that it cuts."""
        inner, known = tuple(n.domain), self.scop.statements
        cut = {s: d for s, d in n.domain.items() if not known[s].domain.is_subset(d)}
        parts = {s: condition_source(d.gist(known[s].domain)) for s, d in cut.items()}
        return {"type": "filter", "statements": list(inner), "parts": parts, "children": [self.node(n.child, inner)]}


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
            found.add(value_source(span.add_constant_val(isl.Val(1))))
        else:
            bound = extremes(span)[1]
            found.add(str(bound.to_python() + 1) if bound.is_int() else "")
    return (found.pop() or None) if len(found) == 1 else None
