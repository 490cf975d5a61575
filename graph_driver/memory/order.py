"""The order of steps that needs the least memory.

Exact for small graphs: the bytes that are alive depend on which steps have run, not on their order, so
the best peak is a path through the sets of steps that can have run. Larger graphs keep only the most
promising sets of each size; the order that was given is kept when none is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.poly.records import dataclass

EXACT_STATES = 600  # sets of one size that are followed exactly
BEAM = 24  # and how many of them once there were more


@dataclass(frozen=True)
class Item:
    """A step: the steps that must run before it, and the memories that it touches by name."""

    after: frozenset[int]
    touches: frozenset[str]


@dataclass(frozen=True)
class Order:
    """Steps in the new order, the most bytes alive at once, and whether no order needs less."""

    steps: tuple[int, ...]
    peak: int
    proved: bool


def peak_of(items: Sequence[Item], sizes: Mapping[str, int], order: Sequence[int]) -> int:
    """The most bytes alive at one step: a memory lives from its first to its last touch."""
    remaining = _touches(items)
    alive: set[str] = set()
    most = 0
    for k in order:
        alive |= {t for t in items[k].touches if t in sizes}
        most = max(most, sum(sizes[t] for t in alive))
        for t in items[k].touches:
            remaining[t] -= 1
        alive = {t for t in alive if remaining[t]}
    return most


def best_order(items: Sequence[Item], sizes: Mapping[str, int], exact_states: int = EXACT_STATES) -> Order:
    """An order with the smallest peak that was found; the given one when that is as good.

    `sizes` are bytes of the memories that count (not those of the caller).
    """
    given = peak_of(items, sizes, range(len(items)))
    users: dict[str, frozenset[int]] = {}
    for k, item in enumerate(items):
        for t in item.touches:
            if t in sizes:
                users[t] = users.get(t, frozenset()) | {k}
    touched = [[t for t in item.touches if t in sizes] for item in items]
    followers: list[list[int]] = [[] for _ in items]
    for k, item in enumerate(items):
        for before in item.after:
            followers[before].append(k)
    ready = frozenset(k for k, item in enumerate(items) if not item.after)
    # done -> (peak, bytes alive after it, order, what can run next)
    states: dict[frozenset[int], tuple[int, int, tuple[int, ...], frozenset[int]]] = {frozenset(): (0, 0, (), ready)}
    proved = True
    for _ in items:
        following: dict[frozenset[int], tuple[int, int, tuple[int, ...], frozenset[int]]] = {}
        for done, (peak, alive, order, can) in states.items():
            for k in can:
                after = done | {k}
                begun = sum(sizes[t] for t in touched[k] if not users[t] & done)
                now = max(peak, alive + begun)
                if now > given or (after in following and following[after][0] <= now):
                    continue
                ended = sum(sizes[t] for t in touched[k] if users[t] <= after)
                opened = [f for f in followers[k] if items[f].after <= after]
                following[after] = (now, alive + begun - ended, (*order, k), (can - {k}) | frozenset(opened))
        if len(following) > exact_states:
            kept = sorted(following.items(), key=lambda item: (item[1][0], item[1][1], item[1][2]))[:BEAM]
            following, proved, exact_states = dict(kept), False, BEAM
        states = following
    found = min(states.values(), key=lambda s: (s[0], s[2]), default=None)
    if found is None or found[0] >= given:
        return Order(tuple(range(len(items))), given, proved)
    return Order(found[2], found[0], proved)


def _touches(items: Sequence[Item]) -> dict[str, int]:
    count: dict[str, int] = {}
    for item in items:
        for t in item.touches:
            count[t] = count.get(t, 0) + 1
    return count
