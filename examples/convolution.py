"""A convolution: three ways to run the same loops, and the automatic schedule as a program that one can edit.

python examples/convolution.py --picture convolution.svg     how fast each is
"""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.plots import bars
from examples.pictures import picture
from polyc import Schedule, dims, empty, f32, grid, op
from polyc.emit import targets
from polyc.graph_driver.bench.calibration import this_machine

K, C, H, W, R, S = dims("K C H W R S")
SIZES = {"K": 64, "C": 32, "H": 28, "W": 28, "R": 3, "S": 3}
ROUNDS = 5


@op
def convolution(X: f32[C, H + R - 1, W + S - 1], F: f32[K, C, R, S]) -> f32[K, H, W]:
    Y = empty((K, H, W), f32)
    for k, h, w in grid(K, H, W):
        Y[k, h, w] = 0.0
        for c, r, s in grid(C, R, S):
            Y[k, h, w] += X[c, h + r, w + s] * F[k, c, r, s]
    return Y


def by_hand(s: Schedule) -> Schedule:
    """Rows of the image in the innermost loop, so that it goes along memory; sums in lanes."""
    s = s.distribute("k").permute("k_1", "c", "r", "s", "h_1", "w_1")
    return s.vectorize("w").vectorize("w_1")


def measured(schedule: Schedule, x: np.ndarray, f: np.ndarray) -> tuple[float, np.ndarray]:
    """GFLOP/s of the best of some runs, and the result."""
    kernel = convolution.compile(schedule=schedule)
    result, best = kernel(x, f), float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        kernel(x, f)
        best = min(best, time.perf_counter() - start)
    return schedule.count("flops").largest() / best / 1e9, result


def main() -> None:
    s = convolution.scop(**SIZES).schedule()
    automatic = convolution.schedule(**SIZES)
    print(automatic.program())
    print(automatic.tree)
    print(*automatic.notes, sep="\n")

    rng = np.random.default_rng()
    size = SIZES
    x = rng.standard_normal((size["C"], size["H"] + 2, size["W"] + 2)).astype(np.float32)
    f = rng.standard_normal((size["K"], size["C"], 3, 3)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(1, 2))
    exact = np.einsum("chwrs,kcrs->khw", windows, f)
    speed = {}
    for title, schedule in {"as written": s, "by hand": by_hand(s), "automatic": automatic}.items():
        speed[title], result = measured(schedule, x, f)
        print(f"{title}: {speed[title]:.1f} GFLOP/s, largest error {np.abs(result - exact).max():.1e}")
        assert np.allclose(result, exact, atol=1e-3)
    peak = this_machine(targets.host()).flops_per_second / 1e9
    picture(lambda: bars(speed, {"peak": peak}, "GFLOP/s"), __doc__)


if __name__ == "__main__":
    main()
