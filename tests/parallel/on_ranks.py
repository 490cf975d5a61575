"""What runs on each rank of a test (`mpi_runs.launch`): a case by its name; each rank says what it found as JSON."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import polyc
from polyc.graph_driver.communication.ranks import world
from tests.parallel.rank_models import MODELS, Builder

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
    b = Builder("classifier", seed)
    x = b.input("x", rows, 32)
    for width, following in ((32, 64), (64, 48)):
        x = b.add("Relu", b.add("Gemm", x, b.weight(width, following), b.weight(following)))
    model = b.model(b.add("Gemm", x, b.weight(48, 10), b.weight(10)))
    return model, {**b.feeds(), "target": np.arange(rows) % 10}


def shared(rows: int) -> tuple[Any, dict[str, Any]]:
    """Layers that share a weight, sums over several of them, and a weight for each row."""
    b = Builder("shared")
    x, w = b.input("x", rows, 10), b.weight(10, 10)
    first = x
    for _ in range(3):
        x = b.add("Tanh", b.add("Gemm", x, w, b.weight(10)))
    x = b.add("Add", b.add("Gemm", x, w), first)
    return b.model(b.add("Mul", x, b.weight(rows, 10))), {**b.feeds(), "target": np.arange(rows) % 10}


def convolutions(rows: int, size: int = 12) -> tuple[Any, dict[str, Any]]:
    """Convolutions with strides, padding and groups, pools, and a sum around one of them."""
    b = Builder("convolutions")
    x = b.add("Relu", b.add("Conv", b.input("x", rows, 3, size, size), b.weight(8, 3, 3, 3), b.weight(8), pads=[1] * 4))
    x = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = b.add("Relu", b.add("Conv", x, b.weight(8, 8, 3, 3), b.weight(8), pads=[1] * 4))
    x = b.add("Add", x, b.add("Conv", y, b.weight(8, 1, 3, 3), group=8, pads=[1] * 4))
    x = b.add("Relu", b.add("Conv", x, b.weight(16, 8, 3, 3), b.weight(16), pads=[1] * 4, strides=[2, 2]))
    x = b.add("Flatten", b.add("GlobalAveragePool", b.add("AveragePool", x, kernel_shape=[2, 2])))
    model = b.model(b.add("Gemm", x, b.weight(10, 16), b.weight(10), transB=1))
    return model, {**b.feeds(), "target": np.arange(rows) % 10}


def trained(model: Any) -> Any:
    """A training of it."""
    return polyc.training(model, "SoftmaxCrossEntropyLoss", threads=1)


@case
def message_gradients() -> None:
    """Gradients of each communication operator against differences of the sum of all ranks' losses."""
    from tests.parallel import messages

    ranks, found = world(), {}
    for k, (name, (_, _, message)) in enumerate(messages.CASES.items()):
        random = np.random.default_rng(k)  # the same on all ranks
        xs, ws = ([random.standard_normal(messages.SHAPE).astype("f") for _ in range(ranks.size)] for _ in "xw")
        factors = [random.standard_normal(y.shape).astype("f") for y in message(xs)]
        model = messages.model(name, ranks.size, ranks.rank, factors[ranks.rank], ws[ranks.rank])
        _, slopes = polyc.training(model, "loss", wrt=["w"], threads=1).gradients({"x": xs[ranks.rank]})
        wide = [[np.array(v, np.float64) for v in some] for some in (xs, ws, factors)]
        wanted = messages.slopes(name, *wide, ranks.rank)
        found[name] = float(np.abs(slopes["w"] - wanted).max() / max(1e-9, np.abs(wanted).max()))
    say(found=found)


def digest_of(values: list[np.ndarray]) -> str:
    """The bits of arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(v).tobytes() for v in values)).hexdigest()


@case
def large(repeats: str) -> None:
    """All collective operators, with arrays of several sizes and types in turn: results, bytes sent, why there
    was no shared memory, and the quickest of some times of the largest."""
    from polyc.graph_driver.communication.running import run

    ranks, results, errors, sent, seconds = world(), [], [], [], {}
    group = list(range(ranks.size))
    for turn, (rows, dtype) in enumerate([(7, "f"), (1000, "f"), (4099, "f"), (600, "e"), (4099, "f"), (800, "d")]):
        random = np.random.default_rng(turn)  # the same on all ranks
        xs = [random.standard_normal((rows, 65)).astype(dtype) for _ in group]
        counts = [5 + r for r in group]
        total, smallest = xs[0].astype("f" if dtype == "e" else dtype), np.minimum.reduce(xs)
        for x in xs[1:]:
            total = total + x
        root = turn % ranks.size
        pieces = [x[:, :n] for x, n in zip(xs, counts)]
        own = {"ranks": group, "rank": ranks.rank}
        columns = [10 + r for r in group[:-1]]
        columns.append(65 - sum(columns))
        even = [x[: rows // ranks.size * ranks.size] for x in xs]
        for kind, attrs, x, wanted in (
            ("AllReduce", {"reduce": "sum"}, xs[ranks.rank], total.astype(dtype)),
            ("AllReduce", {"reduce": "min"}, xs[ranks.rank], smallest),
            ("AllGather", {"axis": 1, "counts": counts}, pieces[ranks.rank], np.concatenate(pieces, 1)),
            ("Broadcast", {"root": root}, xs[ranks.rank], xs[root]),
            (
                "ReduceScatter",
                {"reduce": "sum", "axis": 1, "counts": columns},
                xs[ranks.rank],
                np.split(total, np.cumsum(columns)[:-1], 1)[ranks.rank].astype(dtype),
            ),
            (
                "AllToAll",
                {"split_axis": 0, "concat_axis": 1},
                even[ranks.rank],
                np.concatenate([np.split(x, ranks.size)[ranks.rank] for x in even], 1),
            ),
        ):
            y, before = np.empty_like(wanted), ranks.sent
            run(kind, f"{kind} {turn}", own | attrs, [x], [y])
            errors += [f"{kind} {turn}"] if not np.array_equal(y, wanted) else []
            results.append(y)
            sent.append(ranks.sent - before)
    x = np.ones((1 << 20,), "f")
    y = np.empty_like(x)
    for kind, attrs in (("AllReduce", {"reduce": "sum"}), ("Broadcast", {"root": 0})):
        times = []
        for _ in range(int(repeats)):
            begin = time.perf_counter()
            run(kind, "large", {"ranks": group, **attrs}, [x], [y])
            times.append(time.perf_counter() - begin)
        seconds[kind] = min(times, default=0.0)
    say(errors=errors, sent=sent, digest=digest_of(results), notes=ranks.notes, seconds=seconds)


@case
def large_killed() -> None:
    """A rank dies between two large sums."""
    from polyc.graph_driver.communication.running import run

    x = np.ones(1 << 16, "f")
    for k in range(1000):
        if k == 20 and world().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        run("AllReduce", "large", {"ranks": list(range(world().size)), "reduce": "sum"}, [x], [np.empty_like(x)])


NETWORKS = {"classifier": network, "shared": shared, "convolutions": convolutions}


def against_one(alone: Any, many: Any, feeds: dict[str, Any], steps: int, optimiser: Any) -> dict[str, Any]:
    """Gradients and steps of a training on all ranks against those of one process: the largest errors, what the second
    call sent, and the bits of the parameters."""
    ranks = world()
    alone_loss, wanted = alone.gradients(feeds)
    many.gradients(feeds)
    sent, messages = ranks.sent, ranks.messages
    loss, found = many.gradients(feeds)
    sent, messages = ranks.sent - sent, ranks.messages - messages
    worst = max(float(np.abs(found[n] - w).max() / np.abs(w).max()) for n, w in wanted.items())
    for _ in range(steps):
        alone.step(feeds, optimiser)
        many.step(feeds, optimiser)
    near = max(float(np.abs(many.parameters[n] - v).max() / np.abs(v).max()) for n, v in alone.parameters.items())
    digest = hashlib.sha256(b"".join(v.tobytes() for v in many.parameters.values())).hexdigest()
    return {
        "worst": worst, "near": near, "sent": sent, "predicted": many.plan.sent(ranks.rank), "messages": messages,
        "digest": digest, "loss": abs(loss - alone_loss),
    }  # fmt: skip


@case
def train(name: str, rows: str, steps: str) -> None:
    """Gradients and steps of a data-parallel training against those of one process."""
    from polyc.graph_driver.parallel.training import ParallelTraining, by_batch

    model, feeds = NETWORKS[name](int(rows))
    alone, many = trained(model), ParallelTraining.of(trained(model), world().size, only=by_batch(int(rows)))
    found = against_one(alone, many, feeds, int(steps), polyc.SGD(0.1))
    kinds = sorted({s.move.kind for some in many.plan.sendings for s in some} - {""})
    parameters = sum(v.nbytes for v in many.parameters.values())
    say(**found, groups=len(many.plan.groups), kinds=kinds, parameters=parameters)


@case
def resume(folder: str) -> None:
    """Four steps, with a file after two, and two more of another training: from its file and those of other ranks."""
    from polyc.graph_driver.parallel.training import ParallelTraining, by_batch

    ranks = world()
    model, feeds = network(12)
    adam = polyc.AdamW(0.01)

    def fresh() -> Any:
        return ParallelTraining.of(trained(model), ranks.size, only=by_batch(12))

    def digest(training: Any) -> str:
        return hashlib.sha256(b"".join(v.tobytes() for v in training.parameters.values())).hexdigest()

    own, straight = f"{ranks.size}.npz", fresh()
    for k in range(4):
        if k == 2:
            straight.save(f"{folder}/{own}")
        straight.step(feeds, adam)
    others, digests, other = {}, {}, fresh()
    for name in sorted(os.listdir(folder)):
        other.load(f"{folder}/{name}")
        for _ in range(2):
            other.step(feeds, adam)
        pairs = [(other.parameters[n], v) for n, v in straight.parameters.items()]
        others[name] = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
        digests[name] = digest(other)
    say(straight=digest(straight), resumed=digests[own], others=others)


@case
def overlap(group_bytes: str) -> None:
    """When messages of groups of gradients were asked for, began and ended in a step, and kernels between them."""
    from polyc.graph_driver.parallel.training import ParallelTraining, by_batch

    ranks = world()
    model, feeds = network(16)
    many = ParallelTraining.of(trained(model), ranks.size, only=by_batch(16), group_bytes=int(group_bytes))
    many.gradients(feeds)
    ranks.tracing = True
    _, found = many.gradients(feeds)
    ranks.tracing = False
    _, wanted = trained(model).gradients(feeds)
    worst = max(float(np.abs(found[n] - w).max() / np.abs(w).max()) for n, w in wanted.items())
    kinds = [n.op_type for n in many.plan.program(ranks.rank).model.graph.node]
    starts = [k for k, kind in enumerate(kinds) if kind == "Start"]
    products = [sum(kind in ("Gemm", "MatMul") for kind in kinds[a:b]) for a, b in zip(starts, starts[1:])]
    say(worst=worst, moments=[(m.asked, m.begin, m.end) for m in ranks.moments], products=products,
        before_wait=kinds.index("Wait") > starts[-1])  # fmt: skip


def rehearsed(plan: Any, call: Callable[[], dict[str, Any]], calibration: Any) -> dict[str, Any]:
    """Messages of a call and of its simulation as (kind, carrier, bytes, begun), whether a rehearsal gives the
    same bits, and which of its steps are messages and waits."""
    from polyc.graph_driver.parallel.rehearsal import Rehearsal
    from polyc.graph_driver.parallel.simulate import messages_of, simulated_call

    ranks, machines = world(), calibration.machines()
    rehearsal = Rehearsal(call)
    real = [("" if m.begun else m.what.partition(" ")[0], m.carrier, m.sent, m.begun) for m in rehearsal.messages]
    planned = [(m.move, m.begun) for m in messages_of(plan)]
    simulated = [
        ("" if begun else m.kind, machines.carrier(m.kind, m.operand, ranks.size), m.sent[ranks.rank], begun)
        for m, begun in planned
    ]
    before = digest_of(list(call().values()))
    line = rehearsal()
    seconds = simulated_call(plan, machines, [line] * ranks.size)
    return {
        "real": real, "simulated": simulated, "steps": [(s.message, s.waits, s.begun) for s in line.steps],
        "same": plan.groups != [] or digest_of(list(rehearsal.results.values())) == before,
        "least": seconds >= sum(line.seconds) > 0, "sent": plan.sent(ranks.rank),
    }  # fmt: skip


@case
def simulated(*names: str) -> None:
    """Models (`NAME` or `NAME:AXIS`) and a training: what carries which messages, real and simulated."""
    from polyc.graph_driver.parallel.calibration import Calibration
    from polyc.graph_driver.parallel.training import ParallelTraining, by_batch

    ranks, found = world(), {}
    calibration = Calibration()
    calibration.measure()
    for what in names:
        name, _, axis = what.partition(":")
        model, feeds = MODELS[name]()
        rule = along(int(axis)) if axis else None
        plan = polyc.parallelise(model, ranks.size, "100 GB/s, 10 ns", only=rule, threads=1)
        found[what] = rehearsed(plan, lambda plan=plan, feeds=feeds: plan(feeds), calibration)
    model, feeds = network(16)
    many = ParallelTraining.of(trained(model), ranks.size, only=by_batch(16), group_bytes=16_000)
    many.gradients(feeds)
    found["training"] = rehearsed(many.plan, lambda: many.gradients(feeds)[1], calibration)
    curves = calibration.machines().inside.curves
    say(found=found, curves={f"{kind}, {carried}": c.points for (kind, carried), c in curves.items()})


@case
def pipeline(name: str, micro_batches: str) -> None:
    """A model as a pipeline against one process."""
    from polyc.graph_driver.parallel.pipeline import pipelined

    ranks = world()
    model, feeds = MODELS[name]()
    plan = pipelined(model, ranks.size, int(micro_batches), threads=1)
    before = ranks.sent
    found = plan(feeds)
    sent = ranks.sent - before
    alone = polyc.compile_model(model, threads=1)(feeds)
    error = max(float(np.abs(found[n] - v).max() / np.abs(v).max()) for n, v in alone.items())
    say(error=error, sent=sent, predicted=plan.sent(ranks.rank), crossings=len(plan.crossings), first=plan.first)


@case
def pipeline_train(name: str, rows: str, micro_batches: str, steps: str) -> None:
    """Gradients and steps of a training in stages against those of one process."""
    from polyc.graph_driver.parallel.pipeline_training import PipelineTraining

    model, feeds = NETWORKS[name](int(rows))
    alone, many = trained(model), PipelineTraining.of(trained(model), world().size, int(micro_batches))
    found = against_one(alone, many, feeds, int(steps), polyc.AdamW(0.01))
    say(**found, kept=many.plan.most_kept, first=many.plan.first)


@case
def heat(steps: str, *tiles: str) -> None:
    """The heat equation in three dimensions on blocks: whether its bits are those of one rank, and bytes of halos."""
    from polyc.graph_driver.parallel.stencils import Stencil
    from tests.parallel.heat import heat as step

    ranks = world()
    shape = (20, 18, 16)
    whole = np.random.default_rng(0).random(shape, dtype=np.float32)
    wanted = whole
    for _ in range(int(steps)):
        wanted = step(wanted)
    found = {}
    for grid in ((ranks.size, 1, 1), (2, ranks.size // 2, 1)):
        for tile in map(int, tiles):
            blocks = Stencil(step, shape, grid, tile)
            before = ranks.sent
            part = blocks.advance(blocks.own(ranks.rank, whole), int(steps))
            found[f"{grid} {tile}"] = {
                "equal": part.tobytes() == blocks.own(ranks.rank, wanted).tobytes(),
                "sent": ranks.sent - before,
                "predicted": blocks.sent(ranks.rank) * (int(steps) // tile),
            }
    say(found=found)


@case
def fault(kind: str, victim: str, step: str) -> None:
    """A training in which one rank fails in some way at some step; it would go on for a minute."""
    from polyc.graph_driver.parallel import parallelise as module
    from polyc.graph_driver.parallel.training import ParallelTraining, by_batch

    ranks = world()
    mine = ranks.rank == int(victim)
    if mine and kind == "version":
        module.version = lambda name: "0.0.1"  # type: ignore[assignment]
    model, feeds = network(8 if not (mine and kind == "shapes") else 12, seed=1 if mine and kind == "weights" else 0)
    many = ParallelTraining.of(trained(model), ranks.size, only=by_batch(8, 12))
    say(ready=time.time())
    for k in range(100_000):
        if mine and k == int(step):
            say(failed=time.time())
            if kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            if kind == "raises":
                raise RuntimeError("no more")
            if kind == "inputs":
                feeds = {**feeds, "x": feeds["x"][:, :5]}
            if kind == "returns":
                return
            if kind == "exits":
                os._exit(3)
        many.step(feeds, polyc.SGD(0.01))
        if k == 0:
            say(began=time.time())


if __name__ == "__main__":
    from polyc.graph_driver.worker import kernels

    kernels.IN_PROCESS = 1 << 30  # compilers of their own for each rank would cost more than the kernels
    CASES[sys.argv[1]](*sys.argv[2:])
