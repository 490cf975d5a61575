"""Runs passes in order; the verifier runs after each, and what each did is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graph_driver.ir import Graph, verify
from graph_driver.passes.batch_norm import fold_affine_into_convolutions
from graph_driver.passes.cleanup import remove_dead, remove_identities
from graph_driver.passes.fold import fold_constants
from graph_driver.passes.parts import share_parts
from graph_driver.passes.views import make_views
from graph_driver.passes.winograd import use_winograd
from poly.target import Target

# A pass changes the graph in place and says how often it did something, by what.
Pass = Callable[[Graph], dict[str, int]]

DEFAULT: tuple[Pass, ...] = (
    remove_identities,
    remove_dead,
    fold_constants,
    fold_affine_into_convolutions,
    make_views,
    remove_dead,
    share_parts,
)


def for_target(target: Target, exact: bool = False) -> tuple[Pass, ...]:
    """The general passes, then those that know the machine; `exact` leaves out what changes rounding."""

    def winograd(graph: Graph) -> dict[str, int]:
        return use_winograd(graph, target)

    return DEFAULT if exact else (*DEFAULT, winograd, remove_dead)


@dataclass(frozen=True)
class PassRecord:
    """One run of one pass: counts, and nodes and seconds after it."""

    name: str
    counts: dict[str, int]
    nodes: int
    seconds: float

    def __str__(self) -> str:
        done = ", ".join(f"{v} {k}" for k, v in self.counts.items() if v) or "nothing to do"
        return f"{self.name}: {done}"


def run(graph: Graph, passes: Sequence[Pass] = DEFAULT) -> list[PassRecord]:
    """Apply `passes` to `graph` in place. Raises `GraphError` when one breaks the graph."""
    records = []
    for step in passes:
        start = time.perf_counter()
        counts = step(graph)
        verify(graph)
        records.append(PassRecord(step.__name__, counts, len(graph.nodes), time.perf_counter() - start))
    return records
