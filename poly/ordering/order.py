"""Execution order of a schedule tree as relations between statement instances."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from typing import TypeVar

import islpy as isl

from polyc.poly.cache import instances
from polyc.poly.ordering.one_dim import OneDims, forms
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Leaf, Node, Sequence

Pair = tuple[str, str]


def in_order(scop: Scop, pairs: Mapping[Pair, isl.Map]) -> dict[Pair, isl.Map]:
    """The part of each `{ S[x] -> T[y] }` with x before y in the Scop's own tree; empty ones left out."""
    walk = _Order(forms(scop))
    walk.visit(scop.tree, dict(instances(scop)), dict(pairs))
    return {key: m.coalesce() for key, m in walk.before.items() if not m.is_empty()}


class _Order:
    """Walks a tree once; `tied` are the pairs that the loops so far give equal times."""

    def __init__(self, known: OneDims) -> None:
        self.before: dict[Pair, isl.Map] = {}
        self.known = known

    def _add(self, key: Pair, pairs: isl.Map) -> None:
        if not pairs.plain_is_empty():
            self.before[key] = self.before[key].union(pairs) if key in self.before else pairs

    def visit(self, node: Node, active: dict[str, isl.Set], tied: dict[Pair, isl.Map]) -> None:
        """Add the pairs ordered in `node` to `before`."""
        if isinstance(node, Leaf):
            return
        if isinstance(node, Band):
            for member in node.members:
                left = {}
                for (a, b), pairs in tied.items():
                    earlier, equal = self._compared(pairs, member.schedule[a], member.schedule[b])
                    self._add((a, b), earlier)
                    if not equal.plain_is_empty():
                        left[a, b] = equal
                tied = left
            self.visit(node.child, active, tied)
        elif isinstance(node, Sequence):
            self._sequence(node, active, tied)
        elif isinstance(node, Filter):
            inner = {s: active[s].intersect(d) for s, d in node.domain.items() if s in active}
            self.visit(node.child, inner, _between(tied, inner, inner))
        else:
            self.visit(node.children()[0], active, tied)

    def _compared(self, pairs: isl.Map, a: isl.PwAff, b: isl.PwAff) -> tuple[isl.Map, isl.Map]:
        """The pairs that the values `a` and `b` of a loop order, and those that they leave tied. Most loops are
        iterators: comparing two dimensions takes isl a quarter of the time of comparing two functions."""
        dims = self.known.iterators(a, b)
        if dims is None:
            return pairs.intersect(a.lt_map(b)), pairs.intersect(a.eq_map(b))
        ends = isl.dim_type.in_, dims[0], isl.dim_type.out, dims[1]
        return pairs.order_lt(*ends), pairs.equate(*ends)

    def _sequence(self, node: Sequence, active: dict[str, isl.Set], tied: dict[Pair, isl.Map]) -> None:
        parts = [{s: d for s, d in f.domain.items() if s in active} for f in node.filters]
        groups = by_parts(parts, tied)
        forwards: dict[int, list[int]] = {}
        for i, j in sorted(groups):
            if i < j:
                forwards.setdefault(i, []).append(j)
        for i, first in enumerate(parts):
            for j in forwards.get(i, ()):
                for key, pairs in _between(groups[i, j], first, parts[j]).items():
                    self._add(key, pairs)
            self.visit(node.filters[i].child, first, _between(groups.get((i, i), {}), first, first))


V = TypeVar("V")


def by_parts(parts: ListOf[Mapping[str, isl.Set]], pairs: Mapping[Pair, V]) -> dict[tuple[int, int], dict[Pair, V]]:
    """The pairs from a statement of part i to one of part j, by (i, j); only those that have any.

    A sequence of n parts has n * n of them, but a pair is in few: all walks over sequences go by this.
    """
    places: dict[str, list[int]] = {}
    for k, part in enumerate(parts):
        for s in part:
            places.setdefault(s, []).append(k)
    out: dict[tuple[int, int], dict[Pair, V]] = {}
    for (s, t), value in pairs.items():
        for i in places.get(s, ()):
            for j in places.get(t, ()):
                out.setdefault((i, j), {})[s, t] = value
    return out


def _between(tied: dict[Pair, isl.Map], a: dict[str, isl.Set], b: dict[str, isl.Set]) -> dict[Pair, isl.Map]:
    """The pairs from statements of `a` to statements of `b`, restricted to these sets."""
    out = {}
    for (s, t), pairs in tied.items():
        if s in a and t in b:
            out[s, t] = pairs.intersect_domain(a[s]).intersect_range(b[t])
    return out
