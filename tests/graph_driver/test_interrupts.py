"""Ctrl-C ends what polyc is doing, in whatever stage: a process gets SIGINT once it is there.

Without care each of these would go on for minutes (isl, a native run) or lose the signal (callbacks of isl).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HARD = """
import sys
from polyc.frontend_dsl import dims, inout, op
from polyc.poly.dtypes import f32

N = dims("N")

@op
def down(A: inout(f32[N])):
    for i in range(N - 1, 0, -1):
        if (N - 1 - i) % 3 == 0:
            A[i] = A[i] * 2.0

def here():
    print("here", flush=True)

schedule = down.scop().schedule().split("i", 2).parallel("i.in").split("i.out", 8)
"""

STEP = (
    HARD
    + """
from polyc.scheduler.transformations import splitting
ends = splitting._ends
def announced(*args):
    here()
    return ends(*args)
splitting._ends = announced
for _ in range(100):
    schedule.peel("i.out.in", first=2, last=1)
"""
)

AST = (
    HARD
    + """
from polyc.emit.lowering import accesses
class Announced(accesses._Planner):
    def plan(self, *args):
        here()
        for _ in range(10 ** 9):  # a callback of isl, which loses what is raised there
            pass
        return super().plan(*args)
accesses._Planner = Announced
down.compile(schedule=schedule)
"""
)

LONG_CALL = (
    HARD
    + """
from polyc.emit.lowering import accesses
import islpy as isl
build = accesses.run_build
schedule = schedule.split("i.out.in", 3).index_split("i.out.out", "-(N // 32)")
def announced(*args):
    here()
    for _ in range(1000):
        build(*args)
import polyc.emit.lowering.lower as lower
lower.run_build = announced
down.compile(schedule=schedule)
"""
)

PASS = (
    HARD
    + """
from polyc.emit import pipeline
def slow(fn, target):
    here()
    while True:
        pass
pipeline.unroll = lambda fn, **how: slow(fn, None)
down.compile(schedule=schedule)
"""
)

MODEL = """
import numpy as np, onnx, polyc
from onnx import TensorProto as T, helper, numpy_helper

def network(n, layers):
    rng = np.random.default_rng(0)
    inits = [numpy_helper.from_array(rng.random((n, n), np.float32) / n, f"w{k}") for k in range(layers)]
    nodes = [helper.make_node("MatMul", [f"x{k}", f"w{k}"], [f"x{k + 1}"]) for k in range(layers)]
    ends = [helper.make_tensor_value_info(name, T.FLOAT, [n, n]) for name in ("x0", f"x{layers}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
"""

RUN = (
    MODEL
    + """
m = polyc.compile_model(network(512, 60), threads=THREADS)
feeds = {"x0": np.ones((512, 512), np.float32)}
print("here", flush=True)
try:
    while True:
        m(feeds)
except KeyboardInterrupt:
    assert np.array_equal(m(feeds)["x60"], m(feeds)["x60"])  # still usable
    raise
"""
)

WORKERS = (
    MODEL
    + """
import os
from polyc.graph_driver.worker.pool import Pool
fork = Pool._fork
def announced(self):
    if not self.forked:
        print("here", flush=True)
    return fork(self)
Pool._fork = announced
polyc.compile_model(network(64, 3), dims={}, disable=())
shapes = [helper.make_node("Relu", ["x"], ["y"])]
nodes, ends, x = [], [], "x"
for k in range(40):
    w = numpy_helper.from_array(np.ones((8 + k, 9 + k), np.float32), f"v{k}")
    ends.append(w)
    nodes.append(helper.make_node("MatMul", [x, f"v{k}"], [f"y{k}"]))
    x = f"y{k}"
io = [helper.make_tensor_value_info("x", T.FLOAT, [5, 8]), helper.make_tensor_value_info(x, T.FLOAT, [5, 48])]
graph = helper.make_graph(nodes, "g", io[:1], io[1:], ends)
polyc.compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
"""
)

CASES = {
    "step": STEP,
    "callback": AST,
    "long isl call": LONG_CALL,
    "pass": PASS,
    "run": RUN.replace("THREADS", "1"),
    "threaded run": RUN.replace("THREADS", "2"),
    "workers": WORKERS,
}


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("stage", CASES)
def test_an_interrupt_ends_it(stage: str, tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(CASES[stage])
    environment = dict(os.environ, PYTHONPATH=str(ROOT), POLYC_BUDGET="100000", POLYC_CACHE=str(tmp_path / "cache"))
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "here\n", process.communicate()[1]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert "KeyboardInterrupt" in errors.splitlines()[-1]
    assert process.returncode == -signal.SIGINT
