"""A schedule as YAML that people can edit: loops by name, values and conditions as Python expressions.

    operator: matmul
    tree:
      loops:
      - i.out: i // 64
        run: parallel
      - i.in: i % 64
      body:
      - S0
      - loops:
        - k: k
        of: [S1]
        body: S1

A mapping is a node: `loops` (a band; `permutable: true`), `promote` or neither; `body` is what is inside:
a mapping, a list (one after another) or the statement. `of` and `where` choose statements and instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import islpy as isl
import yaml

from polyc.poly.forms.affine_text import condition_source, value_source
from polyc.poly.scop import Scop
from polyc.poly.text import print_statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Promote, Sequence
from polyc.scheduler.step import Step

RESERVED = ("loop", "value", "run", "coincident")
PROGRAM_STEPS = (
    "inline", "outline", "split_sum", "expand", "coalesce", "split_statement", "unite_statements", "gather",
    "read_first", "rfactor", "eliminate", "normalise", "in_words", "relayout", "recompute",
)  # fmt: skip
"""Steps that change the program: a tree alone does not say what they did."""


def write(scop: Scop, tree: Node, trace: tuple[Step, ...]) -> str:
    """The text. Steps up to the last one that changed the program are kept as they are, under `first`."""
    last = max((k for k, s in enumerate(trace) if s.name in PROGRAM_STEPS), default=-1)
    out: dict[str, Any] = {
        "operator": scop.name,
        "sizes": list(scop.params),
        "statements": {s.name: print_statement(s) for s in scop.statements.values()},
    }
    if last >= 0:
        out["first"] = [{"do": s.name, **s.args} for s in trace[: last + 1]]
    domains = {n: s.domain.intersect_params(scop.context) for n, s in scop.statements.items()}
    out["tree"] = _node(tree, domains)
    text: str = yaml.dump(out, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return text


class _Dumper(yaml.SafeDumper):
    """Short lists of plain values on one line; what several steps share is written out for each."""

    def ignore_aliases(self, data: Any) -> bool:
        """No part of a schedule stands for another: the reader has no aliases."""
        return True


def _sequence(dumper: yaml.SafeDumper, data: list[Any]) -> Any:
    flat = all(not isinstance(x, (dict, list)) for x in data) or all(isinstance(x, tuple) for x in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flat and len(str(data)) < 90)


_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(tuple, lambda d, t: d.represent_sequence("tag:yaml.org,2002:seq", list(t), flow_style=True))


def _node(node: Node, active: Mapping[str, isl.Set]) -> Any:
    """A node as plain data; `active` are the statements and instances that reach it."""
    if isinstance(node, Leaf):
        return next(iter(active)) if len(active) == 1 else "leaf"
    if isinstance(node, Sequence):
        return [_filter(f, active) for f in node.filters]
    if isinstance(node, Filter):
        return _filter(node, active, short=False)
    if isinstance(node, Band):
        out: dict[str, Any] = {"loops": [_member(m, active) for m in node.members]}
        if node.permutable:
            out["permutable"] = True
        return {**out, "body": _node(node.child, active)}
    assert isinstance(node, Promote)
    copies = [w for w, on in (("in", node.copy_in), ("out", node.copy_out)) if on]
    out = {"promote": node.array, "to": node.buffer, "space": node.space, "copy": copies}
    if node.layout is not None:
        out["layout"] = [tuple(row) for row in node.layout]
    return {**out, "body": _node(node.child, active)}


def _filter(f: Filter, active: Mapping[str, isl.Set], short: bool = True) -> Any:
    inner: dict[str, isl.Set] = {}
    where: dict[str, str] = {}
    for s, part in f.domain.items():
        if s not in active:
            continue
        inner[s] = active[s].intersect(part)
        if not active[s].is_subset(part):
            where[s] = condition_source(part.gist(active[s]))
    below = _node(f.child, inner)
    if short and not where and isinstance(f.child, Leaf) and len(inner) == 1:
        return below
    out: dict[str, Any] = {"of": list(inner)}
    if where:
        out["where"] = where
    if isinstance(f.child, (Band, Promote)):
        return {**out, **below}
    return out if isinstance(f.child, Leaf) else {**out, "body": below}


def _member(m: Member, active: Mapping[str, isl.Set]) -> dict[str, Any]:
    values = {s: _number(value_source(on_instances(m.schedule[s], active[s]))) for s in active if s in m.schedule}
    value: Any = next(iter(values.values())) if len(set(values.values())) == 1 else values
    out: dict[str, Any] = {"loop": m.name, "value": value} if m.name in RESERVED else {m.name: value}
    if m.kind != "serial":
        out["run"] = m.kind if m.factor is None else f"{m.kind} {m.factor}"
    if m.coincident:
        out["coincident"] = True
    return out


def _number(text: str) -> str | int:
    """A constant as a number, so that it needs no quotes."""
    return int(text) if text.isdigit() else text


def on_instances(value: isl.PwAff, where: isl.Set) -> isl.PwAff:
    """A piecewise function simplified for the instances that occur."""
    return value if value.n_piece() == 1 or where.is_empty() else value.gist(where)
