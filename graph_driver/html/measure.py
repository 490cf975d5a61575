"""The time of every step of a model, measured in runs step by step."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from polyc.graph_driver.checking.check import random_input
from polyc.poly.errors import ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.execution.executor import Look
    from polyc.graph_driver.planning.slots import Step
    from polyc.graph_driver.running.model import Model

SECONDS = 1.0  # of runs, at least
RUNS = 5  # at least


def step_seconds(model: Model, seed: int = 0) -> list[float]:
    """The shortest time of each step on random inputs, in seconds. A step costs half a microsecond more
    than in the one native call that `Model` makes (`Machine.call`).

    Raises:
        ModelError: an input has no known shape or type, so that none can be made up.
    """
    inputs = {}
    for name, (dtype, shape) in model.inputs.items():
        if not dtype:
            raise ModelError(f"cannot make up a value for input '{name}': its type is only known at run time")
        inputs[name] = random_input(name, dtype, shape, seed)
    best = [math.inf] * len(model.plan.steps)
    clock = 0.0

    def before(_: int, __: Step, ___: Look) -> None:
        nonlocal clock
        clock = time.perf_counter()

    def after(step: int, _: Step, __: Look) -> None:
        best[step] = min(best[step], time.perf_counter() - clock)

    executor = model.executor()
    end, runs = time.perf_counter() + SECONDS, 0
    while runs < RUNS or time.perf_counter() < end:
        executor.run_eager(inputs, after, before)
        runs += 1
    return best
