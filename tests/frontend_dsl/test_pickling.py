"""Operators, schedules, Scops and kernels as pickles: what they read travels along, results are the same."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import Operator, PolycError, bf16, dims, empty, f32, inout, op
from polyc.emit.gpu.targets import get as gpu_target
from polyc.frontend_dsl import frozen, pickling
from polyc.frontend_dsl.library.matrix import make_matmul

ROOT = Path(__file__).resolve().parents[2]
N = dims("N")
gain, table, halves = 2.0, [1.0, 2.0], np.array([0.5, 1.5], np.float32)


class Settings:
    def __init__(self) -> None:
        self.shift = 3.0


settings = Settings()
é, square = 1.0, lambda v: v * v  # the lambda's columns are counted in bytes


def helper(x: Any) -> Any:
    return x * gain + table[1] + settings.shift


def even(n: int) -> bool:
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n > 0 and even(n - 1)


def made(k: float) -> Operator:
    def inner(x: Any) -> Any:
        return x * k

    @op(reassociate=False)
    def f(X: f32[N], *, act: Any = lambda v: v + 1.0, steps: int = 2) -> f32[N]:
        Y = empty((N,), f32)
        for i in range(N):
            Y[i] = act(inner(helper(square(X[i]))))
            if even(steps):
                Y[i] = Y[i] + halves[0] + np.float32(é)
        return Y

    return f


@op
def inner_op(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = X[i] + gain
    return Y


@op
def outer_op(X: f32[N], A: inout(bf16[N])):
    Y = inner_op(X)
    for i in range(N):
        A[i] += bf16(Y[i])


scaled = made(3.0)
X = np.arange(4, dtype=np.float32)


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_an_operator_brings_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = scaled(X)
    data = pickle.dumps(scaled)
    monkeypatch.setitem(globals(), "gain", 100.0)
    monkeypatch.setitem(globals(), "square", None)
    monkeypatch.setattr(settings, "shift", 100.0)
    table[1] = 100.0
    try:
        copied = pickle.loads(data)
        for f in (copied, again(copied)):
            assert f.name == "f" and not f.reassociate and f.signature.constants["steps"] == 2
            np.testing.assert_array_equal(f(X), expected)
            np.testing.assert_array_equal(f.python(X), expected)
            np.testing.assert_array_equal(f(X, steps=1), expected - 1.5)
            assert f.scop().statements["S0"].span.file == __file__
    finally:
        table[1] = 2.0


def test_operators_inside_operators() -> None:
    a, b = np.ones(4, polyc.bf16.np), np.ones(4, polyc.bf16.np)
    outer_op(X, a)
    again(outer_op)(X, b)
    np.testing.assert_array_equal(a, b)
    both = again([outer_op, inner_op, {"x": inner_op}])
    assert both[1] is both[2]["x"]


def test_operators_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(again(make_matmul(f32, 2, 3, 2))(a, a.T), a @ a.T)
    monkeypatch.setattr(frozen, "is_library", lambda fn: True)
    monkeypatch.setattr(pickling, "is_library", lambda fn: True)
    assert again(inner_op) is inner_op  # by name


def test_errors_in_a_copy_name_the_place() -> None:
    @op
    def wrong(X: inout(f32[N])):
        X[0] = nothing(X[0])

    with pytest.raises(polyc.DslError) as here:
        wrong.scop()
    with pytest.raises(polyc.DslError) as there:
        again(wrong).scop()
    assert str(here.value) == str(there.value) and __file__ in str(there.value)


def test_what_cannot_be_pickled_is_named() -> None:
    stream = (n for n in range(3))

    @op
    def f(X: inout(f32[N])):
        X[0] = f32(next(stream))

    message = r"f: the variable 'stream' of the function around it \(generator\) cannot be pickled"
    with pytest.raises(PolycError, match=message):
        pickle.dumps(f)


def test_a_worker_compiles_once() -> None:
    data = pickle.dumps(scaled)
    assert pickle.loads(data) is pickle.loads(data) is not scaled
    kernel = pickle.dumps(scaled.compile())
    assert pickle.loads(kernel) is pickle.loads(kernel)


def test_copies_are_the_object() -> None:
    schedule = scaled.scop().schedule()
    for value in (scaled, schedule, schedule.scop, scaled.compile()):
        assert copy.copy(value) is value and copy.deepcopy([value])[0] is value
        assert "f" in repr(value) and len(repr(value)) < 200


def test_schedules_and_scops() -> None:
    scop = scaled.scop(N=4, steps=3)
    assert again(scop) == scop and again(scop).origin.constants["steps"] == 3
    schedule = scop.schedule().split("i", 2).vectorize("i.in").noted("a remark")
    copied = again(schedule)
    assert copied == schedule and copied.trace == schedule.trace and copied.notes == schedule.notes
    assert str(copied.unroll("i.out")) == str(schedule.unroll("i.out"))
    assert copied.program() == schedule.program()
    np.testing.assert_array_equal(scaled.compile(schedule=copied)(X), scaled.compile(schedule=schedule)(X))
    automatic = make_matmul(f32, 64, 64, 64).schedule()
    assert again(automatic) == automatic and again(automatic).decisions == automatic.decisions


def test_kernels() -> None:
    expected = scaled(X)
    for options in ({}, {"N": 4}, {"target": "c"}, {"schedule": scaled.scop().schedule().split("i", 2)}):
        kernel = scaled.compile(threads=1, **options)
        copied = again(kernel)
        np.testing.assert_array_equal(copied(X), expected)
        assert (copied.name, copied.backend, copied.threads) == (kernel.name, kernel.backend, kernel.threads)
        assert copied.source("llvm") == kernel.source("llvm")
        assert copied.report()["notes"] == kernel.report()["notes"]
    gpu = scaled.compile(target=gpu_target("cuda"), N=64)
    assert again(gpu).source("cuda") == gpu.source("cuda")


SCRIPT = """
import multiprocessing, sys
import numpy as np
import polyc
from polyc import dims, empty, f32, op
N = dims("N")
alpha = 1.0

def helper(x):
    return x * alpha

@op
def f(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = helper(X[i])
    return Y

def call(g, *args):
    return g(*args)

def schedule_text(s):
    return str(s)

if __name__ == "__main__":
    alpha = 4.0  # the worker's own is 1.0
    x = np.arange(3, dtype="f")
    schedule = f.scop(N=3).schedule().split("i", 2)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print([y.tolist() for y in pool.map(f, [x, x + 1])])
        print(pool.apply(call, (f.compile(schedule=schedule), x)).tolist())
        print(pool.apply(schedule_text, (schedule,)) == str(schedule))
    if "joblib" in sys.argv:
        from joblib import Parallel, delayed
        print([y.tolist() for y in Parallel(n_jobs=2)(delayed(f)(x + k) for k in range(2))])
"""
PRINTED = ["[[0.0, 4.0, 8.0], [4.0, 8.0, 12.0]]", "[0.0, 4.0, 8.0]", "True", "[[0.0, 4.0, 8.0], [4.0, 8.0, 12.0]]"]


@pytest.mark.parametrize("joblib", [False, True])
def test_other_processes(joblib: bool, tmp_path: Path) -> None:
    if joblib:
        pytest.importorskip("joblib")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script), *(["joblib"] if joblib else [])], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout.splitlines() == PRINTED[: 4 if joblib else 3], done.stderr


def subclasses(kind: type) -> list[type]:
    return [kind, *(s for k in kind.__subclasses__() for s in subclasses(k))]


def test_errors_reach_the_parent_process() -> None:
    """An error that does not unpickle would hang a pool of workers."""
    for kind in subclasses(PolycError):
        error = kind.__new__(kind, "what", "where")
        error.args = ("what", "where")
        error.__dict__["unsendable"] = (n for n in range(2))
        if "__reduce__" not in vars(kind):
            assert again(error).args == error.args and type(again(error)) is kind

    @op
    def f(X: inout(f32[N]), k: polyc.i32):
        X[k] = 1.0

    with pytest.raises(polyc.BoundsError) as caught:
        f(np.zeros(3, np.float32), 5)
    copied = again(caught.value)
    assert str(copied) == str(caught.value) and vars(copied).keys() == vars(caught.value).keys()
