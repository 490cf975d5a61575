"""One operator: polyc and PyTorch in processes of their own, which take turns."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.gradients.subjects import SUBJECTS

PAUSE = 0.005  # seconds, in which the threads of the other process go to sleep
LEAST = 0.01  # seconds that a round takes at least
TOLERANCE = 1e-4  # of the largest element: float32 sums of a thousand terms in another order

KEPT = str(1 << 30)  # bytes that glibc keeps of what is freed: page faults of each call are nobody's speed
MALLOC = {"MALLOC_TRIM_THRESHOLD_": KEPT, "MALLOC_MMAP_THRESHOLD_": KEPT}

Times = dict[str, list[float]]


def race(name: str, threads: int, rounds: int) -> dict[str, Any]:
    """Least and median milliseconds of forward and backward by both, operations, and the largest difference.

    Raises:
        RuntimeError: the gradients differ.
    """
    os.environ |= MALLOC  # (of the two processes)
    context = get_context("spawn")
    ends, workers = [], []
    for side in (polyc_side, torch_side):
        ours, theirs = context.Pipe()
        workers.append(context.Process(target=side, args=(theirs, name, threads)))
        workers[-1].start()
        ends.append(ours)
    row: dict[str, Any] = {"operator": name, "threads": threads}
    ready = [end.recv() for end in ends]
    row["flops"] = ready[0]["flops"]
    row["difference"] = _difference(ready[0]["gradients"], ready[1]["gradients"])
    measured: Times = {}
    for _ in range(rounds):
        for end in ends:
            end.send(True)
            for key, value in end.recv().items():
                measured.setdefault(key, []).append(value)
            time.sleep(PAUSE)
    for end, worker in zip(ends, workers, strict=True):
        end.send(False)
        worker.join()
    row["ms"] = {k: [1e3 * min(v), 1e3 * statistics.median(v)] for k, v in measured.items()}
    if row["difference"] > TOLERANCE:
        raise RuntimeError(f"{name}: the gradients differ by {row['difference']:.1e} of the largest element")
    return row


def _difference(ours: list[Any], theirs: list[Any]) -> float:
    """The largest, over the largest element of each gradient."""
    pairs = zip(ours, theirs, strict=True)
    return max(float(np.abs(a.ravel() - b.ravel()).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def _tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def _given(shapes: list[tuple[int, ...]]) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape).astype("f") for shape in shapes]


def _answer(end: Any, ready: dict[str, Any], calls: dict[str, Callable[[], Any]]) -> None:
    """Say what is known, then time the calls each time one is asked to."""
    for call in calls.values():
        call()
    end.send(ready)
    while end.recv():
        end.send({name: _seconds(call) for name, call in calls.items()})


def _seconds(call: Callable[[], Any]) -> float:
    """The least of the calls of a round."""
    best, spent = float("inf"), 0.0
    while spent < LEAST:
        start = time.perf_counter()
        call()
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    return best


def polyc_side(end: Any, name: str, threads: int) -> None:
    """polyc's process: the kernels of the operator, of its gradient, and of both parts of its gradient."""
    subject = SUBJECTS[name]
    operator, args = subject.make(), subject.arguments()
    alone = operator.grad()
    forward, gradient = operator.compile(threads=threads), alone.compile(threads=threads)
    keeping, backward = (part.compile(threads=threads) for part in operator.vjp())
    given = _given([y.shape for y in _tuple(forward(*args))])
    kept = _tuple(keeping(*args))
    found = [
        [np.asarray(g) for g in _tuple(made)] for made in (gradient(*args, *given), backward(*args, *kept, *given))
    ]
    if _difference(*found) > TOLERANCE:
        raise RuntimeError(f"{name}: the gradient in two parts differs from that in one by {_difference(*found):.1e}")
    flops = {"flops": {n: _flops(o) for n, o in (("forward", operator), ("gradient", alone))}}
    _answer(end, {**flops, "gradients": found[0]}, {
        "forward": lambda: forward(*args), "gradient": lambda: gradient(*args, *given),
        "keeping": lambda: keeping(*args), "backward": lambda: backward(*args, *kept, *given),
    })  # fmt: skip


def _flops(operator: Any) -> int:
    """Floating-point operations that a program executes."""
    return int(operator.scop().schedule().count("flops")())


def torch_side(end: Any, name: str, threads: int) -> None:
    """PyTorch's process: eager forward without a graph, backward alone (its forward has kept what it needs), both."""
    import torch

    torch.set_num_threads(threads)
    subject = SUBJECTS[name]
    args = [torch.tensor(a, requires_grad=True) for a in subject.arguments()]
    results = _tuple(subject.torch(*args))
    given = [torch.tensor(d) for d in _given([tuple(y.shape) for y in results])]

    def forward() -> Any:
        with torch.no_grad():
            return subject.torch(*args)

    def backward() -> Any:
        return torch.autograd.grad(results, args, given, retain_graph=True)

    def together() -> Any:
        return torch.autograd.grad(_tuple(subject.torch(*args)), args, given)

    ready = {"gradients": [g.numpy() for g in backward()]}
    _answer(end, ready, {"torch forward": forward, "torch backward": backward, "torch both": together})
