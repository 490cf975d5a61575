"""Timings on a farm: each row by a process of its own on a worker, alone on its cores."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from polyc.graph_driver.farm import onworker
from polyc.graph_driver.farm.farm import Farm, Work
from polyc.poly.target import Target

WAIT = 1.0
"""Seconds between two looks for answers."""
ROW_SECONDS = 1800.0
"""For one row, compiling included."""

Row = dict[str, Any]


def rows_on(
    farm: Farm, module: str, asked: Sequence[Any], target: Target, cores: int,
    failed: Callable[[int, str], Row], seen: Callable[[int, Row], None] | None = None,
) -> list[Row]:  # fmt: skip
    """Of each thing that is asked for the row that `python -m module` answers, which gets it as a line of JSON.

    Only workers with the CPU of `target` work, each row alone on `cores` cores. `failed(k, why)` is the row of what
    could not be done; `seen(k, row)` is called with each as it comes.

    Raises:
        BuildError: there are no workers that suit, or the scheduler is gone.
    """
    needs = farm.need(target)
    number: dict[int, int] = {}
    given: list[Work] = []  # keeps them, and so their ids
    done: dict[int, Row] = {}
    left = list(enumerate(asked))
    while len(done) < len(asked):
        while left and farm.open < max(1, farm.slots(needs)):
            k, one = left.pop(0)
            line = json.dumps({"module": module, "line": json.dumps(one), "limit": ROW_SECONDS, "cores": cores})
            work = Work(onworker.module, line, needs, ROW_SECONDS, f"row {k + 1}")
            given.append(work)
            number[id(work)] = k
            farm.give(work)
        if answer := farm.take(WAIT):
            k = number[id(answer.work)]
            done[k] = failed(k, answer.error) if answer.error else dict(json.loads(answer.text))
            if seen is not None:
                seen(k, done[k])
    return [done[k] for k in range(len(asked))]
