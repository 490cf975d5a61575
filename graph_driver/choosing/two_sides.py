"""What runs on which of two machines: the assignment with the least time in all, transfers included.

Two machines and costs that add up are a cut in a network (Stone, "Multiprocessor scheduling with the aid of network
flow algorithms", IEEE Transactions on Software Engineering 1977). A tensor that several tasks on the other side read
crosses once: it is a node of its own between its maker and its readers, one for each direction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf

from polyc.poly.records import dataclass

ROUNDING = 1e-15
"""Seconds: what is left of a capacity after additions in another order is none."""


@dataclass(frozen=True)
class Work:
    """A task: its time on the first machine and on the second (infinite: it does not run there), and what it reads and
    makes, by tensor."""

    first: float
    second: float
    reads: Sequence[str]
    makes: Sequence[str]


def two_sides(work: Sequence[Work], crossing: Mapping[str, float]) -> list[bool]:
    """For each task whether it runs on the second machine, with the least sum of times and crossings.

    Args:
        work: in any order; each runs on one machine at least.
        crossing: by tensor the time to bring it from one machine to the other; one that is not named is on both.
    """
    network = _Network(len(work) + 2)
    source, sink = len(work), len(work) + 1
    makers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    for k, w in enumerate(work):
        network.arc(source, k, w.second)  # cut where k is on the second side
        network.arc(k, sink, w.first)
        for t in dict.fromkeys(w.reads):
            readers.setdefault(t, []).append(k)
        for t in dict.fromkeys(w.makes):
            makers.setdefault(t, []).append(k)
    for tensor, users in readers.items():
        made = makers.get(tensor, ()) if tensor in crossing else ()
        for maker in made:  # several make parts of one
            there, back = network.node(), network.node()
            network.arc(maker, there, crossing[tensor] / len(made))
            network.arc(back, maker, crossing[tensor] / len(made))
            for user in users:
                network.arc(there, user, inf)
                network.arc(user, back, inf)
    network.saturate(source, sink)
    first = network.reached(source)
    return [k not in first for k in range(len(work))]


class _Network:
    """Directed arcs with capacities, each with one back; flows by shortest augmenting paths in layers (Dinic, 1970)."""

    def __init__(self, nodes: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(nodes)]
        self.to: list[int] = []
        self.left: list[float] = []

    def node(self) -> int:
        """A new one."""
        self.out.append([])
        return len(self.out) - 1

    def arc(self, a: int, b: int, capacity: float) -> None:
        """From a to b."""
        for u, v, c in ((a, b, capacity), (b, a, 0.0)):
            self.out[u].append(len(self.to))
            self.to.append(v)
            self.left.append(c)

    def saturate(self, source: int, sink: int) -> None:
        """Send as much as goes through."""
        while sink in (depth := self.reached(source)):
            at = [0] * len(self.out)
            while self._push(source, sink, depth, at):
                pass

    def reached(self, source: int) -> dict[int, int]:
        """Nodes to which more can flow, and how many arcs away they are."""
        depth, waiting = {source: 0}, deque([source])
        while waiting:
            u = waiting.popleft()
            for e in self.out[u]:
                v = self.to[e]
                if self.left[e] > ROUNDING and v not in depth:
                    depth[v] = depth[u] + 1
                    waiting.append(v)
        return depth

    def _push(self, source: int, sink: int, depth: Mapping[int, int], at: list[int]) -> bool:
        """One path of the layers; `at`: arcs of each node that lead nowhere any more are behind it."""
        path: list[int] = []
        u = source
        while u != sink:
            while at[u] < len(self.out[u]):
                e = self.out[u][at[u]]
                v = self.to[e]
                if self.left[e] > ROUNDING and depth.get(v, -1) == depth[u] + 1:
                    path.append(e)
                    u = v
                    break
                at[u] += 1
            else:
                if not path:
                    return False
                u = self.to[path.pop() ^ 1]
                at[u] += 1
        flow = min(self.left[e] for e in path)
        assert flow < inf, "a task runs nowhere"
        for e in path:
            self.left[e] -= flow
            self.left[e ^ 1] += flow
        return True
