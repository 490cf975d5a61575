"""The cheapest ways of all nodes together: work of each rank, and messages where a layout is not the wanted one.

A tensor is moved to each further layout that its readers want once, however many they are; the cheapest of the layouts
that it has already is where it comes from. The search goes through the nodes in order and keeps, for each combination
of layouts that later nodes can still see, the best choice so far: costs add up part by part, so that is exact (as in
`polyc.graph_driver.choosing.solve`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.parallel.layouts import WHOLE, Layout
from polyc.graph_driver.parallel.moves import Move, move
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.ways import Nodes, Way
from polyc.poly.records import dataclass

MOST_STATES = 20_000
"""Combinations of layouts kept at once; beyond, the cheapest, and the choice is not proved."""

Held = tuple[tuple[str, tuple[Layout, ...]], ...]


@dataclass(frozen=True)
class Choice:
    """A way for each node (in the graph's order), and seconds of the slowest rank. `proved`: none is cheaper."""

    ways: tuple[Way, ...]
    seconds: float
    proved: bool = True


class Costs:
    """Seconds of ways and moves, remembered."""

    def __init__(self, nodes: Nodes, network: Network) -> None:
        self.nodes, self.network = nodes, network
        self._moves: dict[object, Move | None] = {}
        self._ways: dict[object, float] = {}

    def of_way(self, number: int, way: Way) -> float:
        """The work of the rank with most of it: operations, and the bytes of its parts of all tensors."""
        key = (number, way)
        if key not in self._ways:
            node, nodes = self.nodes.graph.nodes[number], self.nodes
            named = [*zip(node.writes(), way.gives, strict=True)]
            named += [(n, w) for n, w in zip(node.inputs, way.wants, strict=True) if n and w is not None]
            moved = max(sum(nodes.bytes_of(n, w, r) for n, w in named) for r in range(nodes.ranks))
            self._ways[key] = self.network.work(nodes.flops(node) * way.share, moved)
        return self._ways[key]

    def move(self, name: str, have: Layout, want: Layout) -> Move | None:
        """From a layout of a tensor to another."""
        t = self.nodes.graph.tensors[name]
        key = (t.shape, t.dtype, have, want)
        if key not in self._moves:
            nbytes = t.dtype.bytes if t.dtype is not None else 0
            self._moves[key] = move(have, want, self.nodes.shape(name), nbytes, self.nodes.ranks)
        return self._moves[key]

    def cheapest(self, name: str, held: Sequence[Layout], want: Layout) -> tuple[float, Layout] | None:
        """Where a further layout comes from, and its seconds. None: from nowhere."""
        best: tuple[float, Layout] | None = None
        for have in held:
            found = self.move(name, have, want)
            if found is not None and (best is None or found.time(self.network) < best[0]):
                best = (found.time(self.network), have)
        return best


def step(
    costs: Costs, held: Mapping[str, tuple[Layout, ...]], number: int, way: Way
) -> tuple[dict[str, tuple[Layout, ...]], float] | None:
    """The layouts of all tensors after a node, and the seconds that it adds; None: a layout cannot be had."""
    node, now = costs.nodes.graph.nodes[number], dict(held)
    seconds = costs.of_way(number, way)
    for name, want in zip(node.inputs, way.wants, strict=True):
        if not name or want is None or name in costs.nodes.constants or want in now[name]:
            continue
        found = costs.cheapest(name, now[name], want)
        if found is None:
            return None
        seconds += found[0]
        now[name] = (*now[name], want)
    for name in node.captures:
        if name not in costs.nodes.constants and WHOLE not in now[name]:
            found = costs.cheapest(name, now[name], WHOLE)
            if found is None:
                return None
            seconds += found[0]
            now[name] = (*now[name], WHOLE)
    now |= {name: (layout,) for name, layout in zip(node.writes(), way.gives, strict=True)}
    return now, seconds


def at_end(costs: Costs, name: str, held: Sequence[Layout]) -> tuple[float, float] | None:
    """What a result costs until all ranks have it: seconds, and those that it shares with all other sums (they go in
    one message, `program.groups_of`: its latency). None: it cannot be had."""
    found = costs.cheapest(name, held, WHOLE)
    if found is None:
        return None
    moved = costs.move(name, found[1], WHOLE)
    shared = costs.network.time(moved.messages, 0) if moved is not None and moved.kind == "AllReduce" else 0.0
    return found[0] - shared, shared


def final(costs: Costs, held: Mapping[str, tuple[Layout, ...]], outputs: Sequence[str]) -> float | None:
    """Seconds until all ranks have all results."""
    seconds, shared = 0.0, 0.0
    for name in dict.fromkeys(outputs):
        if name in costs.nodes.constants:
            continue
        end = at_end(costs, name, held[name])
        if end is None:
            return None
        seconds, shared = seconds + end[0], max(shared, end[1])
    return seconds + shared


State = tuple[Held, float]
"""Layouts that later nodes can see, and the latency of the message that the sums among the results share so far. (A
result that no later node reads is paid for at once: states do not multiply with the number of results.)"""


def choose(costs: Costs, options: Sequence[Sequence[Way]], most_states: int = MOST_STATES) -> Choice:
    """The cheapest choice; beyond `most_states` combinations at once the cheapest of those that were kept."""
    graph = costs.nodes.graph
    last, ends = _last_uses(graph), _ends(costs)
    states: dict[State, tuple[float, tuple[Way, ...]]] = {((), 0.0): (0.0, ())}
    proved = True
    for number, ways in enumerate(options):
        following: dict[State, tuple[float, tuple[Way, ...]]] = {}
        for (state, shared), (seconds, chosen) in states.items():
            held = dict(state)
            for way in ways:
                made = step(costs, held, number, way)
                if made is None:
                    continue
                paid = [at_end(costs, name, made[0][name]) for name in ends.get(number, ())]
                if None in paid:
                    continue
                kept = ((n, (f[0], *sorted(f[1:], key=str))) for n, f in made[0].items() if last.get(n, -1) > number)
                pairs = [end for end in paid if end is not None]
                key = (tuple(sorted(kept, key=lambda item: item[0])), max((shared, *(s for _, s in pairs))))
                total = seconds + made[1] + sum(s for s, _ in pairs)
                if key not in following or total < following[key][0]:
                    following[key] = (total, (*chosen, way))
        if len(following) > most_states:
            cheapest = sorted(following.items(), key=lambda item: item[1][0])[:most_states]
            following, proved = dict(cheapest), False
        states = following
    seconds, chosen = min(((s + shared, c) for (_, shared), (s, c) in states.items()), key=lambda found: found[0])
    return Choice(chosen, seconds, proved)


def brute_force(costs: Costs, options: Sequence[Sequence[Way]]) -> Choice:
    """The same by trying every combination."""

    def candidates() -> Iterator[Choice]:
        for ways in product(*options):
            held: dict[str, tuple[Layout, ...]] = {}
            total: float | None = 0.0
            for number, way in enumerate(ways):
                made = step(costs, held, number, way)
                if made is None:
                    break
                held, total = made[0], (total or 0.0) + made[1]
            else:
                end = final(costs, held, costs.nodes.graph.outputs)
                if end is not None:
                    yield Choice(ways, (total or 0.0) + end)

    return min(candidates(), key=lambda c: c.seconds)


def _last_uses(graph: Graph) -> dict[str, int]:
    """The last node that reads each tensor."""
    last: dict[str, int] = {}
    for k, node in enumerate(graph.nodes):
        last |= dict.fromkeys(node.reads(), k)
    return last


def _ends(costs: Costs) -> dict[int, list[str]]:
    """The results that no node behind a node reads or makes, by that node."""
    graph, last = costs.nodes.graph, _last_uses(costs.nodes.graph)
    made = {name: k for k, node in enumerate(graph.nodes) for name in node.writes()}
    ends: dict[int, list[str]] = {}
    for name in dict.fromkeys(graph.outputs):
        if name not in costs.nodes.constants:
            ends.setdefault(max(made[name], last.get(name, -1)), []).append(name)
    return ends
