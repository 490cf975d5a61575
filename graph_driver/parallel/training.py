"""Training on several ranks: the graph of a step is split as any other model, optimisers run on all ranks alike."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyc.graph_driver.parallel.layouts import WHOLE, Layout, Split
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.parallelise import GROUP_BYTES, Parallel, Rule, over_ranks
from polyc.graph_driver.parallel.ways import Way
from polyc.graph_driver.training.trainer import Step, Training


class RankedTraining(Training):
    """A `Training` whose steps run on all ranks of `mpiexec`: call it with the same inputs on each; gradients and
    parameters are the same bits everywhere."""

    def save(self, path: str | Path) -> None:
        """As `Training.save`, on all ranks: rank 0 writes the file, and all return when it is there. Any number of
        ranks goes on from it; the same number with equal bits.

        Raises:
            BuildError: it cannot be written.
            RankError: ranks have other parameters, or one is gone.
        """
        from polyc.graph_driver.communication.ranks import world

        world().agree(state_of(self))
        if world().rank == 0:
            super().save(path)
        world().agree({"what was saved": str(self.steps)})


class ParallelTraining(RankedTraining):
    """Steps whose graph is split over ranks. `plan` is the plan of the last shapes."""

    plan: Parallel

    @staticmethod
    def of(
        training: Training, ranks: int, network: Network | str | float | None = None, only: Any = None,
        group_bytes: int = GROUP_BYTES,
    ) -> ParallelTraining:  # fmt: skip
        """The same training over ranks; its parameters and state are shared with it.

        Args:
            training: what `polyc.training` gives.
            ranks: of `mpiexec`.
            network, only, group_bytes: as `polyc.parallelise`.

        Raises:
            ArgumentError: there is no such number of ranks or network.
        """
        made = ParallelTraining.__new__(ParallelTraining)
        made.__dict__.update(training.__dict__)
        made._compiled = {}
        made._over = (ranks, network, only, group_bytes)
        return made

    _over: tuple[int, Any, Any, int]

    def _compile(self, shapes: Mapping[str, Sequence[int]]) -> Step:
        built = self._built(shapes)
        ranks, network, only, group_bytes = self._over
        options = self._options
        self.plan = over_ranks(
            built.graph, ranks, network, only, group_bytes, threads=options.threads, precision=options.precision,
            tier=options.tier,
        )  # fmt: skip
        self.plan.also |= state_of(self)
        return self._step(self.plan, built)


def state_of(training: Training) -> dict[str, str]:
    """What all ranks of a training must have alike, beside its graph."""
    values = (*training.parameters.values(), *training.buffers.values())
    state = hashlib.sha256(b"".join(v.tobytes() for v in values))
    return {"the parameters of the training": f"{state.hexdigest()} after {training.steps} steps"}


def by_batch(*rows: int) -> Rule:
    """A rule for `only`: data parallel. Every node runs on parts of the batch, the first axis of its tensors, and sums
    over it stay partial; what has no batch runs on all ranks alike.

    Args:
        rows: its extent, and those of axes of which it is the first part (rows of all sequences of a batch).
    """

    def batched(layout: Layout | None) -> bool:
        if isinstance(layout, Split):
            return layout.axis == 0 and layout.bounds[-1][1] in rows
        return True

    def only(node: Any, ways: list[Way]) -> list[Way]:
        layouts = [(w, [lay for lay in (*w.gives, *w.wants) if lay is not None]) for w in ways]
        parts = [w for w, some in layouts if any(lay != WHOLE for lay in some) and all(map(batched, some))]
        divided = any(w.share < 1 for w in parts)
        return [*parts, *(w for w in ways if w.gives[0] == WHOLE and not divided)]

    return only
