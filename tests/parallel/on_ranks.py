"""What runs on each rank of a test (`mpi_runs.launch`): a case by its name; each rank says what it found as JSON."""

from __future__ import annotations

import hashlib
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


def network(rows: int, seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """A classifier to train, and a batch."""
    from tests.parallel.rank_models import Builder

    b = Builder("classifier", seed)
    x = b.input("x", rows, 32)
    for width, following in ((32, 64), (64, 48)):
        x = b.add("Relu", b.add("Gemm", x, b.weight(width, following), b.weight(following)))
    model = b.model(b.add("Gemm", x, b.weight(48, 10), b.weight(10)))
    return model, {**b.feeds(), "target": np.arange(rows) % 10}


def trained(model: Any) -> Any:
    """A training of it."""
    return polyc.training(model, "SoftmaxCrossEntropyLoss", threads=1)


@case
def train(rows: str, steps: str) -> None:
    """Gradients and steps of a data-parallel training against those of one process."""
    from polyc.graph_driver.parallel.training import ParallelTraining, by_batch

    ranks = world()
    model, feeds = network(int(rows))
    alone, many = trained(model), ParallelTraining.of(trained(model), ranks.size, only=by_batch(int(rows)))
    _, wanted = alone.gradients(feeds)
    many.gradients(feeds)
    sent, messages = ranks.sent, ranks.messages
    loss, found = many.gradients(feeds)
    sent, messages = ranks.sent - sent, ranks.messages - messages
    worst = max(float(np.abs(found[n] - w).max() / np.abs(w).max()) for n, w in wanted.items())
    optimiser = polyc.SGD(0.1)
    for _ in range(int(steps)):
        alone.step(feeds, optimiser)
        many.step(feeds, optimiser)
    near = max(float(np.abs(many.parameters[n] - v).max() / np.abs(v).max()) for n, v in alone.parameters.items())
    digest = hashlib.sha256(b"".join(v.tobytes() for v in many.parameters.values())).hexdigest()
    say(worst=worst, near=near, sent=sent, predicted=many.plan.sent(ranks.rank), messages=messages,
        groups=len(many.plan.groups), digest=digest, loss=loss)  # fmt: skip


if __name__ == "__main__":
    CASES[sys.argv[1]](*sys.argv[2:])
