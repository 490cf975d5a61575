"""All checks of one certificate."""

from __future__ import annotations

import itertools
from typing import Any

import islpy as isl

from .proving import Proof
from .reading import Loops
from .running import Enough, Run
from .text import Opaque, Rejected

LARGEST = 5  # sizes that are run: all combinations of 1 to this ...
COMBINATIONS = 40  # ... but at most so many, evenly chosen


def check(text: str, most: int | None = None) -> dict[str, Any]:
    """Check a certificate; returns what was looked at: the number of `stores`, the `sizes` run, and at how many of
    these it was `cut` short.

    Args:
        most: how many stores run at each of the sizes; None is all. The order, the domain and the bounds are decided
            for all of them.

    Raises:
        Rejected: the certificate does not hold, and why.
    """
    try:
        return _checked(Loops(text), most)
    except Opaque:
        raise Rejected("a bound, an instance or a subscript is not affine") from None


def _checked(loops: Loops, most: int | None) -> dict[str, Any]:
    proof = Proof(loops)
    proof.check_domain()
    proof.check_order()
    proof.check_bounds()
    chosen = chosen_sizes(loops)
    cut = 0
    for sizes in chosen:
        try:
            Run(loops, sizes, most).block(loops.body, dict(sizes))
        except Enough:
            cut += 1
    return {"stores": len(loops.lines), "sizes": chosen, "cut": cut}


def chosen_sizes(loops: Loops) -> list[dict[str, int]]:
    """Small sizes of the context."""
    every = []
    for values in itertools.product(range(1, LARGEST + 1), repeat=len(loops.sizes)):
        point = " and ".join(f"{n} = {v}" for n, v in zip(loops.sizes, values)) or "true"
        here = isl.Set(f"[{', '.join(loops.sizes)}] -> {{ : {point} }}")
        if not loops.context.intersect(here).is_empty():
            every.append(dict(zip(loops.sizes, values)))
    return every[:: max(1, len(every) // COMBINATIONS)]
