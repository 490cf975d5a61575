"""Plans on real ranks of this machine beside their simulation, and messages behind the backward pass.

mpiexec -n 2 python -m benchmarks.ranks             simulated and measured times
mpiexec -n 2 python -m benchmarks.ranks --overlap   how much of a slow link hides behind the backward pass
python -m benchmarks.ranks --curves                 simulated times for 2 to 4,096 ranks
python -m benchmarks.ranks --known                  the splits of ResNet-50, BERT and a mixture of experts
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

import polyc
from polyc.graph_driver.communication.ranks import Link, world
from polyc.graph_driver.parallel.calibration import Calibration
from polyc.graph_driver.parallel.layouts import Partial, Split
from polyc.graph_driver.parallel.machines import Machines
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.parallelise import Parallel, parallelise
from polyc.graph_driver.parallel.rehearsal import Rehearsal, together
from polyc.graph_driver.parallel.simulate import overlap, simulate, simulated_call
from polyc.graph_driver.parallel.training import ParallelTraining, by_batch
from tests.parallel.rank_models import Builder, Made, block, experts, images, mlp

REPEATS = 15
PAIRS = 3  # of a call and a rehearsal, in each of the repeats
CLUSTER = Machines(Network(bandwidth=25e9, latency=3e-6), 8, Network(bandwidth=100e9, latency=1e-6))


def seconds(call: Any) -> float:
    """The quickest of some calls."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def channels(node: Any, ways: list[Any]) -> list[Any]:
    """A rule: nodes run on parts along axis 1 where they can, or on sums over it."""
    parts = [w for w in ways if isinstance(w.gives[0], Split) and w.gives[0].axis == 1]
    return parts or [w for w in ways if isinstance(w.gives[0], Partial)] or ways


def deep(rows: int = 256, first: int = 64, width: int = 512) -> tuple[ParallelTraining, dict[str, Any]]:
    """A training of eight layers by parts of the batch, with a group of gradients for each layer."""
    b = Builder("deep")
    x = b.add("Relu", b.add("Gemm", b.input("x", rows, first), b.weight(first, width), b.weight(width)))
    for _ in range(6):
        x = b.add("Relu", b.add("Gemm", x, b.weight(width, width), b.weight(width)))
    model = b.model(b.add("Gemm", x, b.weight(width, 10), b.weight(10)))
    feeds = {**b.feeds(), "target": np.arange(rows) % 10}
    training = polyc.training(model, "SoftmaxCrossEntropyLoss", threads=1)
    many = ParallelTraining.of(training, world().size, only=by_batch(rows), group_bytes=width * width * 4)
    return many, feeds


def calls() -> Iterator[tuple[str, Parallel, Callable[[], Any]]]:
    """Plans over the ranks that there are, and a call of each."""

    def planned(name: str, made: Made, only: Any = None) -> tuple[str, Parallel, Callable[[], Any]]:
        plan = parallelise(made[0], world().size, "100 GB/s, 1 us", only=only, threads=1)
        return name, plan, lambda: plan(made[1])

    for rows, width, hidden in ((64, 512, 1024), (256, 1024, 2048), (512, 1024, 4096)):
        yield planned(f"MLP, {rows} rows, {width} to {hidden}", mlp(rows, width, hidden))
    yield planned("attention by heads, 128 of 512", block(length=128, width=512, heads=8))
    yield planned("convolutions by channels, 64 of 32 x 32", images(batch=4, size=32, channels=64), channels)
    many, feeds = deep()
    many.gradients(feeds)
    yield "gradients by batch, 256 of 512", many.plan, lambda: many.gradients(feeds)


def against_simulation(plan: Parallel, call: Callable[[], Any]) -> dict[str, Any]:
    """Times of a call, and simulations of it from rehearsals and from messages that are measured in turn with it: the
    quickest with the quickest, the median with the median."""
    ranks, rehearsal, calibration = world(), Rehearsal(call), Calibration()
    ended, lines = [], []
    for _ in range(REPEATS):
        call()  # both find in the caches what a call leaves there
        for _ in range(PAIRS):
            begin = together(ranks)
            call()
            ended.append(time.perf_counter() - begin)
            lines.append(rehearsal())
        calibration.measure()
    real = list(ranks.gathered(np.array(ended), "times").max(axis=0))
    seconds = ranks.gathered(np.array([line.seconds for line in lines]), "rehearsals")
    found: dict[str, Any] = {"messages": len(rehearsal.messages), "sent": plan.sent(ranks.rank)}
    for name, summary in (("quickest", min), ("median", median)):
        machines = calibration.machines(summary)
        times = [
            simulated_call(plan, machines, [lines[0].with_seconds(r) for r in row])
            for row in np.moveaxis(seconds, 1, 0)
        ]
        work = summary([float(row.sum(axis=1).max()) for row in np.moveaxis(seconds, 1, 0)])
        simulated, took = summary(times), summary(real)
        found[name] = {
            "real_ms": took * 1e3, "simulated_ms": simulated * 1e3, "work_ms": work * 1e3, "ratio": simulated / took,
        }  # fmt: skip
    return found


def preferred() -> None:
    """Under a real-time priority (as timings here run) threads of equal priority never interrupt each other: the
    thread of messages, which is nearly always asleep, gets one more than the kernels, as it has under the normal
    scheduler."""
    if os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        (thread,) = [t for t in threading.enumerate() if t.name == "polyc messages"]
        priority = os.sched_getparam(0).sched_priority + 1
        os.sched_setscheduler(int(thread.native_id or 0), os.SCHED_FIFO, os.sched_param(priority))


def hidden(share: float) -> dict[str, Any]:
    """How much of the gradients' messages is behind the backward pass, on a link on which they take `share` of it."""
    ranks = world()
    many, feeds = deep()
    many.gradients(feeds)
    preferred()
    plain = seconds(lambda: many.gradients(feeds))
    sent = many.plan.sent(ranks.rank)
    link = Link(0.0, sent / (plain * share))
    model_says = overlap(many.plan, Network(link.bandwidth, 0.0), work=plain)
    quick, slow, waited, late, ranks.tracing = [], [], [], [], True
    for _ in range(REPEATS):
        ranks.link, before, begin = None, ranks.waited, time.perf_counter()
        many.gradients(feeds)
        quick.append(time.perf_counter() - begin)
        late.append(ranks.waited - before)  # for the other rank
        ranks.link = link
        ranks.moments.clear()
        before, begin = ranks.waited, time.perf_counter()
        many.gradients(feeds)
        slow.append(time.perf_counter() - begin)
        waited.append(ranks.waited - before)
        if slow[-1] == min(slow):
            trace = [[round((t - begin) * 1e3, 2) for t in (m.asked, m.begin, m.end)] for m in ranks.moments]
    ranks.link, ranks.tracing = None, False
    messages = plain * share
    return {
        "groups": len(many.plan.groups), "plain_ms": min(quick) * 1e3, "slow_ms": min(slow) * 1e3,
        "messages_ms": messages * 1e3, "waited_ms": median(waited) * 1e3, "waited_without_link_ms": median(late) * 1e3,
        "hidden": 1 - max(0.0, median(waited) - median(late)) / messages,
        "hidden_by_time_of_step": 1 - max(0.0, min(slow) - min(quick)) / messages,
        "hidden_by_median_step": 1 - max(0.0, median(slow) - median(quick)) / messages,
        "hidden_predicted": model_says.hidden,
        "asked_began_ended_ms": trace,
    }  # fmt: skip


def curves() -> list[str]:
    """Simulated efficiency with parts of one size, for 2 to 4,096 ranks in machines of 8."""
    plans: dict[str, Parallel] = {
        "tensor-parallel MLP": parallelise(mlp(rows=256, width=1024, hidden=8192)[0], 8, CLUSTER.network),
        "attention by heads": parallelise(block(length=128, width=512, heads=8)[0], 8, CLUSTER.network),
    }
    lines = ["| ranks | " + " | ".join(plans) + " |", "| --- |" + " --- |" * len(plans)]
    for p in (2**k for k in range(1, 13)):
        row = []
        for plan in plans.values():
            found = simulate(plan, CLUSTER, p)
            row.append(f"{found.seconds * 1e3:.2f} ms, {found.work / found.seconds:.0%} work")
        lines.append(f"| {p} | " + " | ".join(row) + " |")
    return lines


def resnet50(batch: int = 64) -> Any:
    """ResNet-50's convolutions with random weights (He et al., 2016), batch norms folded."""
    b = Builder("resnet50")

    def conv(x: str, cin: int, cout: int, k: int, stride: int = 1) -> str:
        return str(b.add("Conv", x, b.weight(cout, cin, k, k), b.weight(cout), strides=[stride] * 2, pads=[k // 2] * 4))

    x = b.add("Relu", conv(b.input("x", batch, 3, 224, 224), 3, 64, 7, 2))
    x, width = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for stage, (mid, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for k in range(count):
            stride = 2 if stage and not k else 1
            y = b.add("Relu", conv(x, width, mid, 1))
            y = b.add("Relu", conv(y, mid, mid, 3, stride))
            y = conv(y, mid, 4 * mid, 1)
            x = b.add("Relu", b.add("Add", y, conv(x, width, 4 * mid, 1, stride) if not k else x))
            width = 4 * mid
    x = b.add("Flatten", b.add("GlobalAveragePool", x))
    return b.model(b.add("Gemm", x, b.weight(width, 1000), b.weight(1000)))


def known() -> None:
    """The splits of three networks on 8 ranks, counted by operator and layout."""
    cases = (
        ("ResNet-50, batch 64, 10 GB/s", lambda: resnet50(), "10 GB/s"),
        ("BERT (12 layers of 768, 12 heads, 128 tokens), 100 GB/s",
         lambda: block(length=128, width=768, heads=12, layers=12)[0], "100 GB/s, 1 us"),
        ("mixture of 64 experts, 50 GB/s",
         lambda: experts(tokens=256, width=256, hidden=1024, count=64)[0], "50 GB/s"),
    )  # fmt: skip
    for name, make, network in cases:
        begin = time.perf_counter()
        plan = parallelise(make(), 8, network)
        took = time.perf_counter() - begin
        counts: dict[str, int] = {}
        for node, way in zip(plan.graph.nodes, plan.choice.ways, strict=True):
            if node.op_type in ("Conv", "MatMul", "Gemm"):
                key = f"{node.op_type} {str(way.gives[0]).partition(',')[0]}"
                counts[key] = counts.get(key, 0) + 1
        print(f"{name}: {counts}, {plan.sent():,} bytes, proved {plan.choice.proved}, {took:.1f} s", flush=True)


def main() -> None:
    """As the module says."""
    if "--curves" in sys.argv:
        print("\n".join(curves()))
    elif "--known" in sys.argv:
        known()
    else:
        found = [hidden(s) for s in (0.25, 0.5)] if "--overlap" in sys.argv else None
        for name, plan, call in () if found else calls():
            one = against_simulation(plan, call)
            if world().rank == 0:
                print(json.dumps({name: one}), flush=True)
        if found and world().rank == 0:
            print(json.dumps(found, indent=1))
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
