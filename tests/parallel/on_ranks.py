"""What runs on each rank of a test (`mpi_runs.launch`): a case by its name; each rank says what it found as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import polyc
from polyc.graph_driver.communication.ranks import world
from tests.parallel.rank_models import MODELS

Case = Callable[..., None]
CASES: dict[str, Case] = {}


def case(fn: Case) -> Case:
    """Offer a function to tests."""
    CASES[fn.__name__] = fn
    return fn


def say(**found: Any) -> None:
    """What this rank found: one line at once, so that lines of ranks do not mix."""
    sys.stdout.write("\nSAYS " + json.dumps({"rank": world().rank, **found}) + "\n")
    sys.stdout.flush()


def along(axis: int) -> Callable[[Any, list[Any]], list[Any]]:
    """A rule: nodes run on parts along an axis of their results where they can."""
    from polyc.graph_driver.parallel.layouts import Split

    def only(node: Any, ways: list[Any]) -> list[Any]:
        return [w for w in ways if isinstance(w.gives[0], Split) and w.gives[0].axis == axis] or ways

    return only


@case
def split(*names: str) -> None:
    """Models over all ranks, `NAME` or `NAME:AXIS`: the largest error against one process, bytes sent and predicted."""
    ranks = world()
    found = {}
    for what in names:
        name, _, axis = what.partition(":")
        model, feeds = MODELS[name]()
        rule = along(int(axis)) if axis else None
        plan = polyc.parallelise(model, ranks.size, "100 GB/s, 10 ns", only=rule, threads=1)
        before = ranks.sent
        results = plan(feeds)
        sent = ranks.sent - before
        alone = polyc.compile_model(model, threads=1)(feeds)
        errors = [float(np.abs(results[n] - alone[n]).max() / np.abs(alone[n]).max()) for n in alone]
        kinds = sorted({s.move.kind for some in plan.sendings for s in some} - {"", "Slice"})
        found[what] = {"error": max(errors), "sent": sent, "predicted": plan.sent(ranks.rank), "kinds": kinds}
    say(found=found)


if __name__ == "__main__":
    CASES[sys.argv[1]](*sys.argv[2:])
