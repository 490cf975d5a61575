"""Running: from many threads, into given arrays, without allocating, and quickly."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import counted_runs
import numpy as np
import onnx
import pytest
from counted_runs import COUNTER
from onnx import helper
from tiny_models import branching, model_of, network, recurrent, with_host_steps

from polyc.emit.c.cc import build_shared, find_compiler
from polyc.graph_driver.checking.check import random_input
from polyc.graph_driver.checking.poison import differs, poisoned_run
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError


def feeds_of(model: Model, seed: int = 1) -> dict[str, np.ndarray]:
    return {n: random_input(n, d, s, seed) for n, (d, s) in model.inputs.items()}


@pytest.fixture(scope="module")
def net() -> Model:
    return compile_model(network(), threads=1, dims={"N": 2})


def branches() -> onnx.ModelProto:
    return branching(np.random.default_rng(), 10)


@pytest.mark.parametrize("make", [network, with_host_steps, branches])
@pytest.mark.parametrize("threads", [1, 2])
def test_eight_threads_agree_with_one_bit_for_bit(make: Any, threads: int) -> None:
    model = compile_model(make(), threads=threads, tasks=threads > 1)
    feeds = [feeds_of(model, seed) for seed in range(8)]
    expected = [{n: np.array(v) for n, v in model(f).items()} for f in feeds]
    wrong: list[int] = []
    kept: list[list[dict[str, Any]]] = [[] for _ in feeds]

    def work(me: int) -> None:
        for k in range(200):
            which = (me + k) % 8
            out = model(feeds[which])
            if any(not np.array_equal(out[n], expected[which][n]) for n in out):
                wrong.append(me)
            if k % 10 == 0:
                kept[me].append({"which": which, **out})

    threads_ = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads_:
        t.start()
    for t in threads_:
        t.join()
    assert not wrong
    for runs in kept:  # results that are still held were not written again
        for run in runs:
            assert all(np.array_equal(run[n], v) for n, v in expected[run["which"]].items())


def test_results_in_hand_are_never_reused(net: Model) -> None:
    seen = [net(feeds_of(net, seed))["y"][:1] for seed in range(12)]  # views hold their array
    again = [net(feeds_of(net, seed))["y"][:1] for seed in range(12)]
    for a, b in zip(seen, again, strict=True):
        assert np.array_equal(a, b) and not np.shares_memory(a, b)
    starts = {v.__array_interface__["data"][0] for v in seen}
    assert len(starts) == 12 and all(start % 64 == 0 for start in starts)


def test_outputs_go_where_they_are_wanted(net: Model) -> None:
    feeds = feeds_of(net)
    target = np.full((2, 5), np.nan, np.float32)
    assert net(feeds, out={"y": target})["y"] is target
    assert np.array_equal(target, net(feeds)["y"])
    with pytest.raises(ArgumentError, match="must be float32 of shape"):
        net(feeds, out={"y": np.empty((2, 5))})
    with pytest.raises(ArgumentError, match="contiguous"):
        net(feeds, out={"y": np.empty((5, 2), np.float32).T})


def test_a_thousand_runs_allocate_nothing(net: Model) -> None:
    feeds = feeds_of(net)
    for _ in range(3):
        net(feeds)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(1000):
        net(feeds)
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    grown = sum(d.size_diff for d in after.compare_to(before, "filename") if "tracemalloc" not in str(d.traceback))
    assert grown < 2048
    assert len(net.executor()._idle) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux") or find_compiler() is None, reason="needs LD_PRELOAD, gcc")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_thousand_runs_never_ask_the_allocator(threads: int, tmp_path: Path) -> None:
    """Counted exactly, over all threads of a process of its own: no call at all in the native program."""
    (tmp_path / "counter.so").write_bytes(build_shared(COUNTER, ["-ldl"]))
    (tmp_path / "net.onnx").write_bytes(branching(np.random.default_rng(), 10).SerializeToString())
    argv = [sys.executable, counted_runs.__file__, str(tmp_path / "net.onnx"), str(threads)]
    environment = dict(os.environ) | {"LD_PRELOAD": str(tmp_path / "counter.so")}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["probe"] >= 1 and found["tasks"] == (threads > 1)
    assert found["native"] == 0
    assert found["python"] <= found["arrays"] and found["blocks"] < 200 and found["bytes"] < 4096, found


def test_kernels_of_a_plan_never_ask_for_memory(net: Model) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((64, 64, 3, 3)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    wide = compile_model(model_of(nodes, {"x": [1, 64, 40, 40]}, {"y": None}, weights), threads=1, exact=True)
    assert any(s.scratch for s in wide.plan.steps)  # the padded image is larger than a stack should hold
    for model in (net, wide):
        assert all(b"aligned_alloc" not in image and b"malloc" not in image for image in model.code.images.values())


@pytest.mark.parametrize("make", [network, with_host_steps, recurrent])
def test_memory_that_nothing_lives_in_is_never_read(make: Any) -> None:
    model = compile_model(make(), threads=1)
    feeds = feeds_of(model)
    expected = {n: np.array(v) for n, v in model(feeds).items()}
    assert differs(poisoned_run(model, feeds), expected) == []


def test_poison_shows_a_tensor_whose_memory_is_given_away_too_early(net: Model) -> None:
    feeds = feeds_of(net)
    expected = {n: np.array(v) for n, v in net(feeds).items()}
    executor, plan = net.executor(), net.plan
    longest = max(plan.lifetimes, key=lambda t: t.last - t.first)
    early = tuple(replace(t, last=t.first) if t is longest else t for t in plan.lifetimes)
    executor.plan = replace(plan, lifetimes=early)
    try:
        assert differs(poisoned_run(net, feeds), expected) == ["y"]
    finally:
        executor.plan = plan


def test_a_call_is_few_calls_of_python() -> None:
    """What a call costs beside its kernels: counted, since a clock says something else on every machine."""
    rng = np.random.default_rng(0)
    nodes: list[Any] = []
    weights: dict[str, np.ndarray] = {}
    at = "x"
    for k in range(4):
        weights |= {f"w{k}": rng.standard_normal((16, 16)).astype(np.float32), f"b{k}": np.ones(16, np.float32)}
        nodes.append(helper.make_node("Gemm", [at, f"w{k}", f"b{k}"], [f"g{k}"]))
        at = f"g{k}"
        if k < 3:
            nodes.append(helper.make_node("Relu", [at], [f"r{k}"]))
            at = f"r{k}"
    model = compile_model(model_of(nodes, {"x": [1, 16]}, {at: [1, 16]}, weights), threads=1)
    feeds = feeds_of(model)
    model(feeds)
    events: list[str] = []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        model(feeds)
    finally:
        sys.setprofile(None)
    assert events.count("call") <= 8 and events.count("c_call") <= 13


def test_a_profile_is_a_chrome_trace_with_work_and_traffic(net: Model, tmp_path: Any) -> None:
    from polyc.graph_driver.bench.profile import profile, write_profile

    write_profile(net, feeds_of(net), tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"]
    assert len(events) == 5 * len(net.plan.steps) and all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    assert [e["name"] for e in events[: len(net.plan.steps)]] == [s.label for s in net.plan.steps]
    conv = events[0]["args"]
    # 2 images, 8 filters of 3x3x3 on 5x6 pixels: a product and a sum each, a bias, a maximum
    assert 2 * 8 * 30 * 27 * 2 <= conv["flops"] <= 2 * 8 * 30 * (27 * 2 + 4)
    assert conv["bytes"] == 4 * (2 * 3 * 10 * 12 + 8 * 27 + 8 + 2 * 8 * 30)
    assert 0 < conv["% of peak"] < 120 and conv["% of memory bandwidth"] > 0
    assert set(trace["otherData"]) == {s.label for s in net.plan.steps}
    assert profile(net, feeds_of(net), 1)["traceEvents"]
