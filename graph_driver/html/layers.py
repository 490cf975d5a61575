"""Places for the boxes and lines of a directed acyclic graph, top to bottom.

Layered drawing after Sugiyama, Tagawa & Toda ("Methods for Visual Understanding of Hierarchical
System Structures", 1981): layers by longest path, a bend in every layer that a line crosses, order
in a layer by barycentres, then positions pulled towards the neighbours without overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.poly.records import dataclass

SWEEPS = 8
GAP = 1.0  # between boxes, in box widths from centre to centre
BEND = 0.35  # room of a line that passes a layer


@dataclass(frozen=True)
class Drawing:
    """`at`: box number to (x, layer), x in box widths; `lines`: for each edge the x in every layer
    from its source's to its target's; `width` from the leftmost to the rightmost box centre."""

    at: tuple[tuple[float, int], ...]
    lines: tuple[tuple[tuple[float, int], ...], ...]
    width: float
    layers: int


def drawn(count: int, edges: Sequence[tuple[int, int]]) -> Drawing:
    """Positions of boxes 0 .. count - 1. Every edge leads from a smaller number to a larger one."""
    layer = _longest_paths(count, edges)
    chains, total = _chains(count, edges, layer)
    level = dict(enumerate(layer))
    for chain in chains:
        for k, node in enumerate(chain):
            level[node] = level[chain[0]] + k
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node in range(total):
        rows[level[node]].append(node)
    above: dict[int, list[int]] = {n: [] for n in range(total)}
    below: dict[int, list[int]] = {n: [] for n in range(total)}
    for chain in chains:
        for a, b in zip(chain, chain[1:]):
            above[b].append(a)
            below[a].append(b)
    _order(rows, above, below)
    x = _positions(rows, above, below, count)
    left = min((x[n] for n in range(total)), default=0.0)
    at = tuple((x[n] - left, level[n]) for n in range(count))
    lines = tuple(tuple((x[n] - left, level[n]) for n in chain) for chain in chains)
    return Drawing(at, lines, max((x[n] - left for n in range(total)), default=0.0), len(rows))


def _longest_paths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Layer of each node; those that nothing leads to stand right above their first reader."""
    into: list[list[int]] = [[] for _ in range(count)]
    out: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        assert a < b, "edges lead forwards"
        into[b].append(a)
        out[a].append(b)
    layer = [0] * count
    for n in range(count):
        layer[n] = max((layer[a] + 1 for a in into[n]), default=0)
    for n in reversed(range(count)):
        if not into[n] and out[n]:
            layer[n] = max(0, min(layer[b] for b in out[n]) - 1)
    return layer


def _chains(count: int, edges: Sequence[tuple[int, int]], layer: Sequence[int]) -> tuple[list[list[int]], int]:
    """Each edge as source, bends, target; and the number of nodes with the bends."""
    chains = []
    total = count
    for a, b in edges:
        bends = list(range(total, total + layer[b] - layer[a] - 1))
        total += len(bends)
        chains.append([a, *bends, b])
    return chains, total


def _order(rows: list[list[int]], above: Mapping[int, list[int]], below: Mapping[int, list[int]]) -> None:
    """Sort each row by the mean position of its neighbours, downwards and upwards in turn."""
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for k in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            place = {n: p for p, n in enumerate(rows[k - 1 if down else k + 1])}
            found = {n: [place[m] for m in near[n] if m in place] for n in rows[k]}
            mean = {n: sum(f) / len(f) if f else float(p) for p, (n, f) in enumerate(found.items())}
            rows[k].sort(key=mean.__getitem__)


def _positions(
    rows: Sequence[Sequence[int]], above: Mapping[int, list[int]], below: Mapping[int, list[int]], count: int
) -> dict[int, float]:
    """x of every node: what its neighbours want, moved apart where boxes would touch."""

    def room(a: int, b: int) -> float:
        return (GAP if a < count else BEND) / 2 + (GAP if b < count else BEND) / 2 + 0.12

    x: dict[int, float] = {}
    for row in rows:
        at = 0.0
        for k, n in enumerate(row):
            at += room(row[k - 1], n) if k else 0.0
            x[n] = at
        middle = (x[row[0]] + x[row[-1]]) / 2 if row else 0.0
        for n in row:
            x[n] -= middle
    for sweep in range(2 * SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            _pull(row, x, near, room)
    return x


def _pull(row: Sequence[int], x: dict[int, float], near: Mapping[int, list[int]], room: object) -> None:
    """Move a row's nodes towards the mean of their neighbours: from the left, from the right, halfway."""
    assert callable(room)
    wish = {n: sum(x[m] for m in near[n]) / len(near[n]) if near[n] else x[n] for n in row}
    left: dict[int, float] = {}
    for k, n in enumerate(row):
        left[n] = wish[n] if k == 0 else max(wish[n], left[row[k - 1]] + room(row[k - 1], n))
    right: dict[int, float] = {}
    for k in range(len(row) - 1, -1, -1):
        n = row[k]
        right[n] = wish[n] if k == len(row) - 1 else min(wish[n], right[row[k + 1]] - room(n, row[k + 1]))
    for n in row:  # both keep the distances, and so does the mean
        x[n] = (left[n] + right[n]) / 2
