"""Training in stages, one for each rank: micro-batches forward and backward in turn (1F1B), gradients added up.

The graph of a step is cut twice at the same nodes: a stage has the forward nodes of its layers and the nodes of their
gradients. Between the two it keeps the tensors that its backward part reads, for as many micro-batches as are under
way. What another stage reads is sent and not waited for, so that two stages may send to each other at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.communication.running import run
from polyc.graph_driver.parallel.layouts import Partial
from polyc.graph_driver.parallel.micro_batches import Batches, Part, in_micro_batches, joined
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.parallelise import facts_of
from polyc.graph_driver.parallel.pipeline import Crossing, Turn, cut, leaving, one_forward_one_backward, readers
from polyc.graph_driver.parallel.training import RankedTraining, state_of
from polyc.graph_driver.training.trainer import Built, Step, Training
from polyc.poly.errors import ArgumentError

if TYPE_CHECKING:
    from polyc.graph_driver.running.model import Model

FORWARD, BACKWARD = "forward", "backward"
PHASES = (FORWARD, BACKWARD)


class PipelineStep:
    """A step of a training in stages. Call it on every rank with all inputs: it gives all results, on each rank.

    `first[s]`: the number of the first forward node of stage s; `stages_of[k]`: the stage of node k.
    """

    def __init__(self, batches: Batches, built: Built, stages: int, options: Mapping[str, Any]) -> None:
        self.batches, self.graph, self.stages, self._options = batches, built.graph, stages, dict(options)
        self.micro_batches, self.forward = batches.count, built.forward
        self.first = self._cut(built)
        self.stages_of = self._stages_of(built)
        self.also: dict[str, str] = {}  # further facts that all ranks must have alike
        self.most_kept = 0  # micro-batches whose tensors this rank has kept at once, in the last call
        self._models: dict[tuple[int, str], tuple[Part, Model]] = {}
        self._agreed = False

    # ---- which node runs where ----

    def _cut(self, built: Built) -> list[int]:
        """Stages of nearly equal time, forward and backward together."""
        number = {n.name: k for k, n in enumerate(self.graph.nodes[: self.forward])}
        times = self.batches.times[: self.forward]
        for k in range(self.forward, len(self.graph.nodes)):
            of = built.made_for.get(self.graph.nodes[k].name)
            if of in number:
                times[number[of]] += self.batches.times[k]
        crossing = [leaving(self.batches, k, self.forward) for k in range(self.forward + 1)]
        return cut(times, crossing, self.stages, self.batches.costs.network)

    def _stages_of(self, built: Built) -> list[int]:
        """A backward node is with the forward node whose gradient it is a part of; others (sums of shared weights) with
        the last, on the way back, of what they read."""
        found = [sum(k >= f for f in self.first[1:]) for k in range(self.forward)]
        number = {n.name: k for k, n in enumerate(self.graph.nodes[: self.forward])}
        for node in self.graph.nodes[self.forward :]:
            of = number.get(built.made_for.get(node.name, ""))
            makers = [self.batches.maker[i] for i in node.reads() if i in self.batches.maker]
            behind = min((found[k] for k in makers if k >= self.forward), default=self.stages - 1)
            found.append(behind if of is None else found[of])
        return found

    def _phase(self, number: int) -> str:
        return FORWARD if number < self.forward else BACKWARD

    def _numbers(self, stage: int, phase: str) -> list[int]:
        return [k for k, s in enumerate(self.stages_of) if s == stage and self._phase(k) == phase]

    @cached_property
    def crossings(self) -> dict[str, list[Crossing]]:
        """What is sent for each micro-batch, by phase: behind the part that makes it, or, of what was kept, behind the
        backward part.

        Raises:
            ArgumentError: a later stage needs what the backward part of an earlier one makes.
        """
        found: dict[str, list[Crossing]] = {p: [] for p in PHASES}
        read, count = readers(self.graph), 0
        for name, made in self.batches.maker.items():
            source = self.stages_of[made]
            for to in sorted({self.stages_of[k] for k in read.get(name, ())} - {source}):
                phase = FORWARD if self._phase(made) == FORWARD and to > source else BACKWARD
                if phase == BACKWARD and to > source:
                    raise ArgumentError(f"'{name}' of stage {source} comes too late for stage {to}")
                found[phase].append(Crossing(name, source, to, self.batches.bytes_of(name), count))
                count += 1
        return found

    def sent(self, rank: int) -> int:
        """Bytes that a rank sends in a call: for each micro-batch, and its results to all ranks."""
        total = sum(c.nbytes for some in self.crossings.values() for c in some if c.source == rank)
        results = sum(self.graph.tensors[n].nbytes for n in self._owned(rank))
        return int(total * self.micro_batches + results * (self.stages - 1))

    def _owned(self, stage: int) -> list[str]:
        """Results that a stage makes."""
        return [o for o in self.graph.outputs if o in self.batches.maker and self._owner(o) == stage]

    def _owner(self, name: str) -> int:
        return self.stages_of[self.batches.maker[name]]

    # ---- programs ----

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """dtype and shape of the whole inputs, by name."""
        tensors = self.graph.tensors
        return {n: (str(tensors[n].dtype), tuple(tensors[n].shape or ())) for n in self.graph.inputs}

    def part(self, stage: int, phase: str) -> Part:
        """The program of a stage's forward or backward nodes."""
        numbers = self._numbers(stage, phase)
        inside = set(numbers)
        read = readers(self.graph)
        made = [o for k in numbers for o in self.graph.nodes[k].writes()]
        wanted = {o for o in made if o in self.graph.outputs or not inside.issuperset(read.get(o, ()))}
        return self.batches.part(numbers, wanted, f"stage {stage} {phase}")

    def compile(self, stage: int, phase: str) -> tuple[Part, Model]:
        """The same, compiled."""
        if (stage, phase) not in self._models:
            from polyc.graph_driver.compile_model import compile_model

            part = self.part(stage, phase)
            self._models[stage, phase] = part, compile_model(part.model, **self._options)
        return self._models[stage, phase]

    def _agree(self) -> None:
        from polyc.graph_driver.communication.ranks import world

        ranks = world()
        if ranks.size != self.stages:
            raise ArgumentError(f"the pipeline has {self.stages} stages, but {ranks.size} ranks run")
        if not self._agreed:
            plan = f"stages of nodes {self.stages_of}, {self.micro_batches} micro-batches"
            ranks.agree(facts_of(self.graph, plan) | self.also)
            self._agreed = True

    # ---- running ----

    def __call__(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Run this rank's stage; all ranks must call with the same inputs. Outputs named in `out` are written there.

        Raises:
            ArgumentError: inputs do not fit, or there are other ranks than stages.
            RankError: ranks do not agree on the program, or one is gone.
        """
        from polyc.graph_driver.communication.ranks import world

        self._agree()
        rank = world().rank
        kept: dict[int, dict[str, np.ndarray]] = {}
        made: dict[str, list[np.ndarray]] = {n: [] for n in self._owned(rank)}
        self.most_kept = 0
        for turn in one_forward_one_backward(rank, self.stages, self.micro_batches):
            self._turn(turn, inputs, kept.setdefault(turn[1], {}), made)
            self.most_kept = max(self.most_kept, len(kept))
            if turn[0] == BACKWARD:
                del kept[turn[1]]
        world().settle("the end of the pipeline")
        own = {n: joined(self.batches.layouts[n], values) for n, values in made.items()}
        return self._shared(own, out or {})

    def _turn(
        self, turn: Turn, inputs: Mapping[str, Any], have: dict[str, np.ndarray], made: Mapping[str, list[np.ndarray]]
    ) -> None:
        """A micro-batch through the forward or the backward part; `have`: what is kept of it between the two."""
        from polyc.graph_driver.communication.ranks import world

        ranks, (phase, number) = world(), turn
        part, model = self.compile(ranks.rank, phase)
        for c in self.crossings[phase]:
            if c.to == ranks.rank:
                dtype = self.graph.tensors[c.tensor].dtype
                assert dtype is not None
                into = have[c.tensor] = np.empty(self.batches.shape(c.tensor), dtype.np)
                what = f"Recv '{c.tensor}'"
                ranks.do(partial(ranks.receive, into, c.source, c.tag, what), what)
        feeds = self.batches.fed(part.feeds, inputs, number)
        found = model(feeds | {name: have[tensor] for name, tensor in part.takes.items()})
        have |= {tensor: found[name] for name, tensor in part.gives.items()}
        for c in self.crossings[phase]:
            if c.source == ranks.rank:
                ranks.post(have[c.tensor], c.to, c.tag, f"Send '{c.tensor}'")
        for tensor in part.gives.values():
            if tensor in made:
                made[tensor].append(have[tensor])

    def _shared(self, own: Mapping[str, np.ndarray], out: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The results of all stages, on each rank: a message for each stage and type of elements."""
        found: dict[str, np.ndarray] = {}
        tensors = self.graph.tensors
        for stage in range(self.stages):
            by_type: dict[Any, list[str]] = {}
            for name in self._owned(stage):
                by_type.setdefault(tensors[name].dtype, []).append(name)
            for dtype, names in by_type.items():
                sizes = [int(tensors[n].size) for n in names]
                flat = np.empty(sum(sizes), dtype.np)
                if own.keys() >= set(names):
                    np.concatenate([own[n].reshape(-1) for n in names], out=flat)
                into = np.empty_like(flat)
                attrs = {"ranks": list(range(self.stages)), "root": stage}
                run("Broadcast", f"results of stage {stage}", attrs, [flat], [into])
                for name, piece in zip(names, np.split(into, np.cumsum(sizes)[:-1]), strict=True):
                    found[name] = _written(piece.reshape(tensors[name].shape or ()), out.get(name))
        for name in self.graph.outputs:
            const = tensors[name].const
            if const is not None:
                found[name] = _written(np.array(const), out.get(name))
        return found


def _written(value: np.ndarray, into: np.ndarray | None) -> np.ndarray:
    if into is None:
        return value
    np.copyto(into, value)
    return into


class PipelineTraining(RankedTraining):
    """Steps whose graph is cut in stages, one for each rank. `plan` is the step of the last shapes."""

    plan: PipelineStep

    @staticmethod
    def of(
        training: Training, stages: int, micro_batches: int, network: Network | str | float | None = None
    ) -> PipelineTraining:
        """The same training in stages; its parameters and state are shared with it.

        Args:
            training: what `polyc.training` gives.
            stages: ranks of `mpiexec`.
            micro_batches: parts of the batch (the first axis of each input of a step), of equal size.
            network: as `polyc.parallelise`.
        """
        made = PipelineTraining.__new__(PipelineTraining)
        made.__dict__.update(training.__dict__)
        made._compiled = {}
        made._over = (stages, micro_batches, network)
        return made

    _over: tuple[int, int, Any]

    def _compile(self, shapes: Mapping[str, Sequence[int]]) -> Step:
        built = self._built(shapes)
        stages, micro_batches, network = self._over
        if not 1 <= stages <= built.forward:
            raise ArgumentError(f"{built.forward} nodes are not {stages} stages")
        extents = {s[0] for s in shapes.values() if len(s)}
        if len(extents) != 1:
            raise ArgumentError(f"inputs with first axes {sorted(extents)} have no batch in common")
        batches = in_micro_batches(built.graph, extents.pop(), micro_batches, network)
        running = [o for o in built.graph.outputs if o in self._prepared.running]
        odd = [o for o in running if isinstance(batches.layouts.get(o), Partial)]
        if odd:
            raise ArgumentError(f"'{odd[0]}' needs more than one micro-batch")
        options = self._options
        self.plan = PipelineStep(
            batches, built, stages, {"threads": options.threads, "precision": options.precision, "tier": options.tier}
        )
        self.plan.also |= state_of(self)
        return self._step(self.plan, built)
