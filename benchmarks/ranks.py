"""Plans on real ranks of this machine beside their simulation, and messages behind the backward pass.

mpiexec -n 2 python -m benchmarks.ranks             simulated and measured times, and how much of a slow link hides
python -m benchmarks.ranks --curves                 simulated times for 2 to 4,096 ranks
python -m benchmarks.ranks --known                  the splits of ResNet-50, BERT and a mixture of experts
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from statistics import median
from typing import Any

import numpy as np

import polyc
from polyc.graph_driver.communication.ranks import Link, world
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.parallelise import Parallel, parallelise
from polyc.graph_driver.parallel.simulate import Machines, calibrated, overlap, simulate
from polyc.graph_driver.parallel.training import ParallelTraining, by_batch
from tests.parallel.rank_models import Builder, block, experts, mlp

REPEATS = 15
CLUSTER = Machines(Network(bandwidth=25e9, latency=3e-6), 8, Network(bandwidth=100e9, latency=1e-6))


def seconds(call: Any) -> float:
    """The quickest of some calls."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def against_simulation() -> dict[str, Any]:
    """A tensor-parallel MLP: the time of a call, and the simulation with the kernels' time of one process."""
    ranks = world()
    model, feeds = mlp(rows=256, width=1024, hidden=2048)
    network = calibrated()
    plan = parallelise(model, ranks.size, "100 GB/s, 1 us", threads=1)
    plan(feeds)
    real = seconds(lambda: plan(feeds))
    whole = polyc.compile_model(model, threads=1)
    alone = seconds(lambda: whole(feeds))
    work = alone * sum(w.share for w in plan.choice.ways) / len(plan.choice.ways)
    found = simulate(plan, Machines(network), work=work)
    return {
        "real_ms": real * 1e3, "simulated_ms": found.seconds * 1e3, "ratio": found.seconds / real,
        "latency_us": network.latency * 1e6, "bandwidth_GBs": network.bandwidth / 1e9,
        "sums_GBs": network.sums / 1e9,
    }  # fmt: skip


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
    rows, first, width = 256, 64, 512
    b = Builder("deep")
    x = b.add("Relu", b.add("Gemm", b.input("x", rows, first), b.weight(first, width), b.weight(width)))
    for _ in range(6):
        x = b.add("Relu", b.add("Gemm", x, b.weight(width, width), b.weight(width)))
    model = b.model(b.add("Gemm", x, b.weight(width, 10), b.weight(10)))
    feeds = {**b.feeds(), "target": np.arange(rows) % 10}
    training = polyc.training(model, "SoftmaxCrossEntropyLoss", threads=1)
    many = ParallelTraining.of(training, ranks.size, only=by_batch(rows), group_bytes=width * width * 4)
    many.gradients(feeds)
    preferred()
    plain = seconds(lambda: many.gradients(feeds))
    sent = many.plan.sent(ranks.rank)
    link = Link(0.0, sent / (plain * share))
    model_says = overlap(many.plan, Network(link.bandwidth, 0.0), work=plain)
    quick, slow, waited, ranks.tracing = [], [], [], True
    for _ in range(REPEATS):
        ranks.link, begin = None, time.perf_counter()
        many.gradients(feeds)
        quick.append(time.perf_counter() - begin)
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
        "messages_ms": messages * 1e3, "waited_ms": median(waited) * 1e3, "hidden": 1 - median(waited) / messages,
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
        found = {"simulation": against_simulation(), "overlap": [hidden(s) for s in (0.25, 0.5)]}
        if world().rank == 0:
            print(json.dumps(found, indent=1))
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
