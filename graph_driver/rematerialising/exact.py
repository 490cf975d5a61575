"""The cheapest order under a limit, for small programs: a shortest path through the sets of values that are there.

A state is what is there and which steps have run; a step to another one runs a step (at its cost) or drops a value (at
none). It is the problem of Checkmate (1910.02653) without its restriction to stages in the program's order, and
Dijkstra's algorithm instead of an integer program. States grow with 2^values: meant for up to about a dozen steps.
"""

from __future__ import annotations

from heapq import heappop, heappush

from polyc.graph_driver.rematerialising.program import DoesNotFit, Program

MOST_STATES = 60_000


def cheapest(program: Program, limit: int, most_states: int = MOST_STATES) -> list[int] | None:
    """The order of least cost that needs at most `limit` bytes; None when `most_states` states do not decide it.

    Raises:
        DoesNotFit: there is none.
    """
    steps = program.steps
    values = sorted(v for v in program.sizes if v in program.makers)
    bit = {v: 1 << k for k, v in enumerate(values)}
    sizes = [program.sizes[v] for v in values]
    reads = [_mask(bit, s.reads) for s in steps]
    makes = [_mask(bit, s.makes) for s in steps]
    kept = _mask(bit, program.kept)
    before = [  # values of others are there once their step has run
        _mask({v: 1 << k for v, k in program.makers.items() if v not in bit}, s.reads) for s in steps
    ]
    everything = (1 << len(steps)) - 1

    def bytes_of(mask: int) -> int:
        return sum(n for k, n in enumerate(sizes) if mask >> k & 1)

    start = (0, 0)
    best: dict[tuple[int, int], float] = {start: 0.0}
    came: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
    queue: list[tuple[float, int, tuple[int, int]]] = [(0.0, 0, start)]
    count = 0
    while queue:
        cost, _, state = heappop(queue)
        if cost > best[state]:
            continue
        there, ran = state
        if ran == everything and there & kept == kept:
            return _path(came, state)
        if len(best) > most_states:
            return None
        following: list[tuple[float, tuple[int, int], int]] = []
        for k, step in enumerate(steps):
            if there & reads[k] != reads[k] or ran & before[k] != before[k] or (ran >> k & 1 and not step.again):
                continue
            if ran >> k & 1 and there & makes[k] == makes[k]:
                continue
            after = there | makes[k]
            if bytes_of(after) <= limit:
                following.append((cost + step.cost, (after, ran | 1 << k), k))
        rest = there
        while rest:
            low = rest & -rest
            rest ^= low
            following.append((cost, (there ^ low, ran), -1))
        for price, reached, k in following:
            if price < best.get(reached, float("inf")):
                best[reached] = price
                came[reached] = (state, k)
                count += 1
                heappush(queue, (price, count, reached))
    raise DoesNotFit(f"no order of the {len(steps)} steps needs at most {limit} bytes")


def _mask(bit: dict[str, int], names: tuple[str, ...] | frozenset[str]) -> int:
    found = 0
    for v in names:
        found |= bit.get(v, 0)
    return found


def _path(came: dict[tuple[int, int], tuple[tuple[int, int], int]], state: tuple[int, int]) -> list[int]:
    order = []
    while state in came:
        state, k = came[state]
        if k >= 0:
            order.append(k)
    return order[::-1]
