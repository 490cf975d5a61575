"""A stencil from naive to time-tiled, by hand: several sweeps over a block while it is in the cache.

python examples/time_tiles.py --picture time_tiles.svg     the order of execution, before and after
"""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import polyc
from examples.pictures import Panel, executed, panels, picture
from examples.stencil import jacobi
from polyc import Schedule

ROUNDS = 3


def in_lanes(s: Schedule) -> Schedule:
    """The program's order, in vectors: every sweep reads both arrays from memory."""
    return s.vectorize("i", 8).vectorize("j", 8)


def one_nest(s: Schedule) -> Schedule:
    """Both loops over the array as one. As they stand that is refused; the refusal brings the smallest shift."""
    try:
        return s.fuse("i", "j")
    except polyc.IllegalSchedule as refusal:
        return refusal.repair.apply(s)


def tiled(s: Schedule, sweeps: int, elements: int) -> Schedule:
    """`sweeps` sweeps over some `elements` elements at a time. A sweep needs what its left and right neighbours had
    before, two elements further with each sweep (one a loop): skewed by that, tiles depend on earlier tiles only."""
    return one_nest(s).skew("i", "t", 2).tile(["t", "i"], [sweeps, elements])


def time_tiled(s: Schedule, sweeps: int, elements: int) -> Schedule:
    """In a tile, the two loops apart again, so that they have vector lanes."""
    return tiled(s, sweeps, elements).distribute("i.in").vectorize("i.in", 8).vectorize("i.in_1", 8)


def seconds(schedule: Schedule, a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
    """The least time of some runs, and what A is after the first."""
    kernel = jacobi.compile(schedule=schedule)
    x, y = a.copy(), b.copy()
    kernel(x, y)
    result, best = x.copy(), float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        kernel(x, y)
        best = min(best, time.perf_counter() - start)
    return best, result


def drawn() -> str:
    """Small sizes: each point is one instance of the first statement; a line goes through all in order."""
    small = jacobi.scop(N=18, steps=8).schedule()
    written = [p for name, p in executed(small) if name == "S0"]
    blocks = [p for name, p in executed(tiled(small, 4, 8)) if name == "S0"]
    return panels(
        [
            Panel("as written", [(t, i - 1) for t, i in written], [t for t, _ in written]),
            Panel("in tiles, skewed", [(t, i - 1) for t, i in blocks], [(t // 4, (2 * t + i) // 8) for t, i in blocks]),
        ],
        "t",
        "i",
    )


def main() -> None:
    n, sweeps = 2_000_000, 16
    s = jacobi.scop(N=n, steps=sweeps).schedule()
    made = {"as written, in lanes": in_lanes(s), "time-tiled": time_tiled(s, sweeps, 4096)}
    print(made["time-tiled"].program())
    print(made["time-tiled"].tree)
    rng = np.random.default_rng()
    a, b = rng.standard_normal(n), rng.standard_normal(n)
    found = {title: seconds(schedule, a, b) for title, schedule in made.items()}
    for title, (best, _) in found.items():
        print(f"{title}: {1e3 * best:.0f} ms for {sweeps} sweeps over two arrays of {8 * n / 1e6:.0f} MB")
    plain, fast = (result for _, result in found.values())
    print("bit-equal:", np.array_equal(plain, fast))
    assert np.array_equal(plain, fast)
    picture(drawn, __doc__)


if __name__ == "__main__":
    main()
