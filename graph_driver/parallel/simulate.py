"""Plans on networks that are not here: times of the same plans for other numbers of ranks and other links.

The parts that one rank has stay as they are (weak scaling): so does its work, and what it sends follows from the kind
of each message. Machines have several ranks, which share the link to the others; what is true of real ones is measured
(`polyc.graph_driver.parallel.calibration`). A call on the plan's own ranks is simulated message by message, from what
each rank does by itself (`polyc.graph_driver.parallel.rehearsal`).
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.parallel.machines import Inside, Machines
from polyc.graph_driver.parallel.moves import Move
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.parallelise import Parallel
from polyc.graph_driver.parallel.rehearsal import Timeline
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Message:
    """A message of a plan; the program goes on where it is `begun`."""

    move: Move
    begun: bool


def messages_of(plan: Parallel) -> list[Message]:
    """The messages of a plan in the order in which its programs come to them."""
    grouped = {s for g in plan.groups for s in g.members}
    made: list[Message] = []
    for number, moves in enumerate(plan.sendings):
        alone = (s.move for s in moves if s not in grouped and s.move.kind not in ("", "Slice"))
        made += [Message(m, False) for m in alone]
        made += [Message(g.move, True) for g in plan.groups if g.after == number]
    return made


@dataclass(frozen=True)
class Simulated:
    """A call on `ranks` ranks: seconds of work and of messages, and bytes that one rank sends."""

    ranks: int
    work: float
    messages: float
    sent: float

    @property
    def seconds(self) -> float:
        """Of the call, messages not hidden."""
        return self.work + self.messages


def simulate(plan: Parallel, machines: Machines, ranks: int | None = None, work: float | None = None) -> Simulated:
    """A call of a plan on other machines.

    Args:
        plan: what `polyc.parallelise` gives.
        machines: where it shall run.
        ranks: how many, each with a part as large as in the plan (None: as many as the plan has).
        work: seconds of a rank's kernels where they were measured; None: as the plan's costs say.
    """
    p, n = ranks or plan.ranks, plan.ranks
    seconds = sent = 0.0
    for m in (message.move for message in messages_of(plan)):
        if p == 1:
            break
        most = max(m.sent)
        if m.kind == "AllReduce":
            nbytes, pieces = most * n / (n - 1) * (p - 1) / p, 2 * (p - 1)
        elif m.kind == "ReduceScatter":
            nbytes, pieces = most * (p - 1) / (n - 1), p - 1
        elif m.kind == "AllGather":
            nbytes, pieces = most * (p - 1) / (n - 1), p - 1
        elif m.messages <= 2 < n or m.messages < n - 1:
            nbytes, pieces = float(most), m.messages  # neighbours: the same for any number
        else:
            nbytes, pieces = most * n / (n - 1) * (p - 1) / p, p - 1
        seconds += machines.time(m.kind, nbytes, pieces, p, m.operand)
        sent += nbytes
    if work is None:
        work = sum(plan.costs.of_way(k, w) for k, w in enumerate(plan.choice.ways))
    return Simulated(p, work, seconds, sent)


def simulated_call(plan: Parallel, machines: Machines, timelines: Sequence[Timeline]) -> float:
    """Seconds of a call of a plan on its ranks, until the last of them is done.

    A message is over at the same time on all ranks: it takes its time from when the last of them came to it. One that
    is begun waits for those before it, and takes its time from the kernels where a rank has no core to spare for it.

    Args:
        plan: what `polyc.parallelise` gives.
        machines: where it runs.
        timelines: of each rank, what it does between its messages.
    """
    inside, p = machines.inside, plan.ranks
    busy = isinstance(inside, Inside) and not inside.spare and p <= machines.per_machine
    seconds = [
        machines.time(m.move.kind, max(m.move.sent), m.move.messages, p, m.move.operand) for m in messages_of(plan)
    ]
    now, free, over = [0.0] * p, [0.0] * p, [0.0] * len(seconds)
    for number, step in enumerate(timelines[0].steps):
        own = [t + line.steps[number].seconds for t, line in zip(now, timelines, strict=True)]
        if step.waits:
            now = [max(t, over[step.message]) for t in own]
            continue
        took = seconds[step.message]
        end = max(map(max, zip(own, free, strict=True))) + took
        over[step.message], free = end, [end] * p
        if not step.begun:
            now = [end] * p
        else:
            now = [t + took if busy else t for t in own]
    return max(t + line.rest for t, line in zip(now, timelines, strict=True))


@dataclass(frozen=True)
class Overlap:
    """Messages of groups of sums behind what the program does meanwhile: seconds of all of them, and of the rest that
    the program waits for at its end."""

    messages: float
    waited: float

    @property
    def hidden(self) -> float:
        """The share of the messages that costs no time."""
        return 1 - self.waited / self.messages if self.messages else 1.0


def overlap(plan: Parallel, network: Network, work: float | None = None) -> Overlap:
    """How much of a plan's grouped messages is hidden: each begins when its last sum is made and the one before has
    ended, and all have to end before the program does.

    Args:
        plan: what `polyc.parallelise` gives.
        network: of the ranks.
        work: seconds of a rank's kernels where they were measured; None: as the plan's costs say.
    """
    times = [plan.costs.of_way(k, w) for k, w in enumerate(plan.choice.ways)]
    scale = 1.0 if work is None else work / sum(times)
    now = free = messages = 0.0
    for number, seconds in enumerate(times):
        now += seconds * scale
        for group in (g for g in plan.groups if g.after == number):
            took = group.move.time(network)
            free = max(free, now) + took
            messages += took
    return Overlap(messages, max(0.0, free - now))


def pipeline_seconds(stages: Sequence[float], send: float, micro_batches: int) -> float:
    """Seconds of a pipeline: each micro-batch takes `stages[s]` in stage s, and `send` between two. A stage works on
    one at a time, in their order."""
    ready = [0.0] * micro_batches
    for seconds in stages:
        free = 0.0
        for k, when in enumerate(ready):
            free = max(free, when) + seconds
            ready[k] = free + send
    return ready[-1] - send
