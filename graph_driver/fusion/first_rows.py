"""Kernels that differ only in the row from which they read an operand are one kernel that is told the row.

A loop that a network has unrolled, step by step, has a slice for each step; compiled one by one they are most of the
time of compiling it (`polyc.poly.rewriting.first_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyc.graph_driver.fusion.joined import Group, text_of
from polyc.graph_driver.graph.ir import Graph
from polyc.poly.budgets import STEP, scaled
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.rewriting.first_rows import any_first_rows
from polyc.poly.scop import Scop


def share_first_rows(graph: Graph, groups: Sequence[Group]) -> list[Group]:
    """The groups; where several kernels become one by a row as a parameter, with that kernel and their rows.

    Only for symbolic sizes: kernels get these, and so rows, from the run. With sizes as numbers most such slices are
    parts of their operand and no kernel at all.
    """
    if graph.symbols is None:
        return list(groups)
    known: dict[str, tuple[Scop, dict[str, int], str, str]] = {}  # by key
    shared: dict[str, set[str]] = {}  # keys of kernels by the key of the one that they become
    for group in groups:
        if group.scop is None or group.key in known:
            continue
        scop, first = _within_budget(group.scop)
        if first:
            known[group.key] = scop, first, *text_of(scop)
            shared.setdefault(known[group.key][3], set()).add(group.key)
    out: list[Group] = []
    for group in groups:
        if group.key in known and len(shared[known[group.key][3]]) > 1:
            scop, first, text, key = known[group.key]
            group = replace(group, scop=scop, text=text, key=key, first_rows=tuple(first.items()))
        out.append(group)
    return out


def _within_budget(scop: Scop) -> tuple[Scop, dict[str, int]]:
    """The Scop for any rows, or as it is where that takes too long."""
    try:
        with quota(scaled(STEP)):
            return any_first_rows(scop)
    except QuotaExceeded as error:
        if not error.spent:
            raise
        return scop, {}
