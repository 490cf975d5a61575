"""What drawing a case is, and the numbers that draws are made of."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from benchmarks.cases import Case

Draw = Callable[[Random], Case | None]  # None: such a case would take too long; another one is drawn
MOST_FLOPS = 1.0e9  # about 10 ms of one core
MOST_BYTES = 24 << 20
ROUND = (4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 576, 768, 1024, 1280, 1536, 2048)


def size(rng: Random, low: int, high: int) -> int:
    """Half of the time a number that people choose, half of the time any; small ones as often as large ones."""
    chosen = [n for n in ROUND if low <= n <= high]
    if chosen and rng.random() < 0.5:
        return rng.choice(chosen)
    return min(high, int(low * ((high + 1) / low) ** rng.random()))  # of a uniform logarithm
