"""The exact work of kernels, and of a model before and after its passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.operators.pieces import translate
from polyc.poly import json_io
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass


def counted_work(g: Group) -> dict[str, Any]:
    """Of a group that is a kernel: its `statements`, and its `flops`, `bytes` (every element of an argument read and of
    a result written once) and `traffic` (all loads and stores); None where they depend on data or sizes."""
    from polyc.scheduler.schedule import Schedule

    assert g.scop is not None
    schedule = Schedule.start(g.scop)
    found: dict[str, Any] = {"statements": len(g.scop.statements)}
    for what in ("flops", "bytes", "traffic"):
        try:
            formula = schedule.count(what)
            found[what] = formula(dict.fromkeys(formula.names, 1)) if not formula.names else None
        except PolycError:
            found[what] = None
    return found


def operations_of(graph: Graph) -> tuple[int, int]:
    """Floating-point operations of a graph's nodes as their operators define them (nodes without loops have none), and
    how many nodes are not counted because data decide how far their loops go."""
    from polyc.scheduler.schedule import Schedule

    known: dict[str, int | None] = {}
    found: list[int | None] = []
    for piece in translate(graph, lookup):
        if piece.operator is not None:
            scop = piece.operator.scop
            text = json_io.dumps(scop)
            if text not in known:
                try:
                    known[text] = Schedule.start(scop).count("flops")()
                except PolycError:
                    known[text] = None
            found.append(known[text])
    counted = [n for n in found if n is not None]
    return sum(counted), len(found) - len(counted)


@dataclass(frozen=True)
class Statistics:
    """What a model does at one stage: `bytes` move between kernels and memory if caches keep all that one kernel uses;
    `uncounted` kernels are in neither sum, because data or sizes decide their work; `host` nodes run in Python."""

    stage: str
    nodes: int
    kernels: int
    host: int
    flops: int
    bytes: int
    uncounted: int


def statistics(stage: str, nodes: int, groups: Sequence[Group]) -> Statistics:
    """The sums over all kernels; equal ones are counted once and added as often as they run."""
    work: dict[str, dict[str, Any]] = {}
    flops = moved = uncounted = 0
    kernels = [g for g in groups if g.scop is not None]
    for g in kernels:
        if g.key not in work:
            work[g.key] = counted_work(g)
        of = work[g.key]
        if of["flops"] is None or of["bytes"] is None:
            uncounted += 1
        else:
            flops, moved = flops + of["flops"], moved + of["bytes"]
    host = sum(g.in_python for g in groups)
    return Statistics(stage, nodes, len(kernels), host, flops, moved, uncounted)


def statistics_table(rows: Sequence[Statistics]) -> str:
    """The rows as a table for people."""
    head = ("", "nodes", "kernels", "on the host", "flops", "bytes moved", "not counted")
    lines: list[tuple[str, ...]] = [head]
    for r in rows:
        numbers = (r.nodes, r.kernels, r.host, r.flops, r.bytes, r.uncounted)
        lines.append((r.stage, *(f"{n:,}" for n in numbers)))
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in lines
    )
