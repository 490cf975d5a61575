"""A heat equation run backwards: its initial state is found by gradient descent through all time steps.

The simulation is an operator of 40 time steps, its gradient is `op.grad` of it (a loop in reversed time). `python
examples/heat.py` prints the error; `--picture FILE.svg` draws the true, the given and the found state.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from examples.pictures import curves
from polyc import dims, empty, f64, op

N = dims("N")
STEPS, RATE = 40, 0.2


@op
def heat(start: f64[N]) -> f64[N]:
    """The state after `STEPS` steps of an explicit scheme; the ends stay as they are."""
    u = empty((STEPS + 1, N), f64)
    end = empty(N, f64)
    for i in range(N):
        u[0, i] = start[i]
    for t in range(STEPS):
        for i in range(1, N - 1):
            u[t + 1, i] = u[t, i] + RATE * (u[t, i - 1] - 2.0 * u[t, i] + u[t, i + 1])
        u[t + 1, 0] = u[t, 0]
        u[t + 1, N - 1] = u[t, N - 1]
    for i in range(N):
        end[i] = u[STEPS, i]
    return end


def found(goal: np.ndarray, iterations: int = 400) -> tuple[np.ndarray, list[float]]:
    """A start whose end is `goal`, by conjugate gradients on the squared error; the errors on the way."""
    gradient = heat.grad("start")
    start = np.zeros_like(goal)
    errors = []
    old = np.zeros_like(goal)
    direction = np.zeros_like(goal)
    for _ in range(iterations):
        gap = heat(start) - goal
        errors.append(float(gap @ gap) / 2)
        g = gradient(start, gap)  # the arguments of `heat`, then the adjoint of its result
        if float(g @ g) == 0:
            break
        direction = -g if not old.any() else -g + (g @ g) / (old @ old) * direction
        moved = heat(direction)  # the scheme is linear: the best length is known
        start = start - (g @ direction) / (moved @ moved) * direction
        old = g
    return start, errors


def hidden(n: int) -> np.ndarray:
    """A bump and a step."""
    x = np.linspace(0, 1, n)
    return np.exp(-(((x - 0.3) / 0.07) ** 2)) + 0.7 * ((x > 0.6) & (x < 0.8))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    truth = hidden(96)
    goal = heat(truth)
    start, errors = found(goal)
    print(f"error of the end: {errors[0]:.3e} to {errors[-1]:.3e} in {len(errors)} steps")
    off = np.abs(start - truth).mean() / np.abs(goal - truth).mean()
    print(f"the start that was found is {off:.1%} as far from the true one as the end is")
    assert errors[-1] < 1e-6 * errors[0] and off < 0.5
    if given.picture:
        drawn = {"true start": truth, "end, which is given": goal, "start that was found": start}
        given.picture.write_text(curves(drawn, "place", "state", lowest=-0.1), encoding="utf-8")


if __name__ == "__main__":
    main()
