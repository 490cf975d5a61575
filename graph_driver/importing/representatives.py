"""Other representative sizes, for a model that does not take the usual ones.

An import at representative sizes that a model cannot have (the height of a reader of text lines must become 1
after its strides) fails with what should have held. From the requirements of all attempts so far the
search here finds sizes for the next one; that attempt decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product

from polyc.graph_driver.graph.symbols import Guard, Range

MOST = 2048
ALIGNED = 32  # as the strides of networks want sizes


def other_sizes(ranges: Mapping[str, Range], wanted: Sequence[Guard]) -> dict[str, int] | None:
    """Values of all symbols that keep every guard of `wanted`, changed in as few symbols as possible.

    Of one symbol all values up to 2048 are tried, of two the multiples of 16 up to 512; multiples of 32 first, then
    what is near to the value now.

    Returns:
        None when there are no such values.
    """
    now = {n: r.typical for n, r in ranges.items()}
    names = sorted(set().union(*(g.size.symbols() for g in wanted)))
    for count, step, most in ((1, 1, MOST), (2, 16, 512)):
        for changed in combinations(names, count):
            choices = (_candidates(ranges[n], step, most) for n in changed)
            for values in product(*choices):
                found = now | dict(zip(changed, values))
                if all(g.holds(found) for g in wanted):
                    return found
    return None


def _candidates(of: Range, step: int, most: int) -> list[int]:
    high = most if of.asked[1] is None else min(most, of.asked[1])
    values = [n for n in range(step, high + 1, step) if n >= of.asked[0]]
    return sorted(values, key=lambda n: (-min(n & -n, ALIGNED), abs(n - of.typical)))
