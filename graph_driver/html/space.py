"""Instances, their times and their dependences for the page's drawing, exact for all sizes.

Nothing is enumerated here: the page gets the sets and functions as programs (`affine`) and
evaluates them for the sizes that its slider shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import islpy as isl

from polyc.graph_driver.html.affine import Program, condition, value
from polyc.poly.access import Access, accesses, accumulator_of
from polyc.poly.dependences import Kind, value_flow_among
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.scop import Scop, Statement
from polyc.poly.text import relation_text
from polyc.poly.tree import Band, Filter, Leaf, Node, Promote, Sequence

FLOW_QUOTA = 20_000_000  # isl operations for all dependences: a second or two


def space_data(scop: Scop, tree: Node) -> dict[str, Any]:
    """`statements` with domain, bounds and times; `dependences` (value-based, in program order)."""
    domains = {s.name: s.domain.intersect_params(scop.context) for s in scop.statements.values()}
    times: dict[str, list[dict[str, Any]]] = {s: [] for s in domains}
    _times(tree, dict(domains), {s: [] for s in domains}, domains, times)
    found, complete = dependences(scop)
    return {
        "params": list(scop.params),
        "context": condition(scop.context),
        "contextText": relation_text(scop.context),
        "statements": [_statement(s, domains[s.name], times[s.name]) for s in scop.statements.values()],
        "dependences": found,
        "complete": complete,
    }


def _statement(s: Statement, domain: isl.Set, times: list[dict[str, Any]]) -> dict[str, Any]:
    depth = len(s.iters)
    return {
        "name": s.name,
        "iters": list(s.iters),
        "text": relation_text(domain),
        "domain": condition(domain),
        "low": [value(domain.dim_min(k)) for k in range(depth)],
        "high": [value(domain.dim_max(k)) for k in range(depth)],
        "dynamic": [b.iter for b in s.dynamic],
        "times": times,
    }


# ---- times -------------------------------------------------------------------------------------


def _times(
    node: Node,
    active: dict[str, isl.Set],
    prefix: dict[str, list[Any]],
    domains: dict[str, isl.Set],
    out: dict[str, list[dict[str, Any]]],
) -> None:
    """For each branch that a statement takes: `when` (instances), `steps` (`[loop, value]`, or
    `["", position]` in a sequence)."""
    if isinstance(node, Band):
        prefix = {
            s: [*p, *([m.name, value(m.schedule[s])] for m in node.members)] for s, p in prefix.items()
        }  # fmt: skip
        _times(node.child, active, prefix, domains, out)
    elif isinstance(node, Sequence):
        for position, f in enumerate(node.filters):
            inner = {s: active[s].intersect(d) for s, d in f.domain.items() if s in active}
            _times(f.child, inner, {s: [*prefix[s], ["", position]] for s in inner}, domains, out)
    elif isinstance(node, Filter):
        inner = {s: active[s].intersect(d) for s, d in node.domain.items() if s in active}
        _times(node.child, inner, {s: prefix[s] for s in inner}, domains, out)
    elif isinstance(node, Promote):
        _times(node.child, active, prefix, domains, out)
    else:
        assert isinstance(node, Leaf), type(node)
        for s, where in active.items():
            whole = domains[s].is_subset(where)
            if whole or not where.is_empty():
                when: Program = 1 if whole else condition(where)
                out[s].append({"when": when, "steps": prefix[s]})


# ---- dependences -------------------------------------------------------------------------------


def dependences(scop: Scop) -> tuple[list[dict[str, Any]], bool]:
    """All value-based dependences by array and kind, and whether isl found them within its quota."""
    found: list[dict[str, Any]] = []
    try:
        with quota(FLOW_QUOTA):
            for array in scop.arrays:
                for kind, chosen in _questions(scop, array):
                    for pairs in _maps(value_flow_among(scop, chosen, kind)):
                        dependence = _dependence(scop, array, kind, pairs)
                        if dependence not in found:  # one element read twice
                            found.append(dependence)
    except QuotaExceeded:
        return found, False
    return found, True


def _questions(scop: Scop, array: str) -> Iterator[tuple[Kind, list[Access]]]:
    """Read by read, so that the answers are functions: one last write before, one next write after."""
    touching = [a for a in accesses(scop) if a.array == array]
    writes = [a for a in touching if a.write]
    for kind in ("RAW", "WAR"):
        for read in (a for a in touching if not a.write):
            yield kind, [*writes, read]
    yield "WAW", writes


def _maps(u: isl.UnionMap) -> list[isl.Map]:
    maps: list[isl.Map] = []
    u.foreach_map(maps.append)
    names = isl.dim_type.in_, isl.dim_type.out
    return sorted((m.coalesce() for m in maps), key=lambda m: tuple(m.get_tuple_name(t) for t in names))


def _dependence(scop: Scop, array: str, kind: Kind, pairs: isl.Map) -> dict[str, Any]:
    source, sink = pairs.get_tuple_name(isl.dim_type.in_), pairs.get_tuple_name(isl.dim_type.out)
    s = scop.statements[source]
    own = source == sink and s.array == array and accumulator_of(s) is not None
    return {
        "kind": kind,
        "array": array,
        "from": source,
        "to": sink,
        "reduction": own and scop.reassociate,
        "text": relation_text(pairs),
        "distance": _distance(scop, pairs),
        "parts": list(_parts(pairs)),
    }


def _parts(pairs: isl.Map) -> Iterator[dict[str, Any]]:
    """Functions from sink to source or from source to sink that together are `pairs`; where a part is
    neither, its condition on both (`$0..` source, then sink)."""
    whole = _function(pairs)
    if whole is not None:
        yield whole
        return
    for piece in pairs.get_basic_maps():
        part = isl.Map.from_basic_map(piece)
        yield _function(part) or {"by": "pair", "when": condition(part.wrap())}


def _function(pairs: isl.Map) -> dict[str, Any] | None:
    for by, m in (("sink", pairs.reverse()), ("source", pairs)):
        if m.is_single_valued():
            functions = isl.PwMultiAff.from_map(m)
            parts = [functions.get_pw_aff(k) for k in range(m.dim(isl.dim_type.out))]
            return {"by": by, "when": condition(m.domain()), "value": [value(p) for p in parts]}
    return None


def _distance(scop: Scop, pairs: isl.Map) -> str | None:
    """The vector from source to sink when it is one and the same for all pairs: `(1, 0)`."""
    if pairs.dim(isl.dim_type.in_) != pairs.dim(isl.dim_type.out):
        return None
    plain = pairs.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out)
    deltas = plain.intersect_params(scop.context).deltas()
    values = [deltas.plain_get_val_if_fixed(isl.dim_type.set, k) for k in range(deltas.dim(isl.dim_type.set))]
    if all(v.is_int() for v in values):
        return f"({', '.join(str(v.to_python()) for v in values)})"
    return None
