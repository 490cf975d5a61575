"""`Model.bind`: a run whose arrays are checked once, called again and again."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest
from lent_arrays import Lends
from onnx import helper
from tiny_models import model_of, with_host_steps

import polyc
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError

N = 23


def layers(rows: int | str = 3) -> onnx.ModelProto:
    weights = {"m": np.linspace(-1, 1, N * N, dtype=np.float32).reshape(N, N)}
    nodes = [
        helper.make_node("MatMul", ["x", "m"], ["p"]),
        helper.make_node("Tanh", ["p"], ["t"]),
        helper.make_node("MatMul", ["t", "m"], ["y"]),
    ]
    return model_of(nodes, {"x": [rows, N]}, {"y": [rows, N], "t": [rows, N]}, weights)


def inputs(rows: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((rows, N)).astype(np.float32)}


@pytest.fixture(scope="module", params=[1, 2])
def model(request: pytest.FixtureRequest) -> Model:
    return polyc.compile_model(layers(), threads=request.param)


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_bound_run_reads_what_the_arrays_hold_now(model: Model) -> None:
    mine, out = inputs(), {"y": np.full((3, N), np.nan, np.float32)}
    run = model.bind(mine, out)
    first = run()
    assert first["y"] is out["y"]
    same(first, model(inputs()))
    mine["x"][:] = inputs(seed=1)["x"]
    again = run()
    assert again["t"] is first["t"]
    same(again, model(inputs(seed=1)))


def test_two_bound_runs_share_nothing(model: Model) -> None:
    runs = [model.bind(inputs(seed=k)) for k in range(3)]
    for run in runs:
        run()
    for k, run in enumerate(runs):
        same(run(), model(inputs(seed=k)))
    assert len({id(run()["y"]) for run in runs}) == 3


def test_threads_that_share_one_take_turns(model: Model) -> None:
    run, wanted, wrong = model.bind(inputs()), model(inputs()), []

    def work() -> None:
        for _ in range(50):
            if any((run()[n] != v).any() for n, v in wanted.items()):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_symbolic_sizes_are_those_of_the_arrays() -> None:
    model = polyc.compile_model(layers("n"), threads=1)
    runs = {n: model.bind(inputs(n)) for n in (2, 5, 9)}
    for n, run in runs.items():
        same(run(), model(inputs(n)))


def test_steps_of_the_host_run_too() -> None:
    proto = with_host_steps()
    model = polyc.compile_model(proto, threads=1)
    rng = np.random.default_rng(3)
    given = {n: rng.standard_normal(shape).astype(np.float32) for n, (_, shape) in model.inputs.items()}
    run = model.bind(given)
    same(run(), model(given))
    for value in given.values():
        value += 1
    same(run(), model(given))


def test_memory_of_other_packages_is_read_where_it_lies(model: Model) -> None:
    mine = inputs()["x"]
    run = model.bind({"x": Lends(mine)})
    mine *= 2
    same(run(), model({"x": mine}))


def test_what_cannot_be_bound_is_one_line(model: Model) -> None:
    x = inputs()["x"]
    with pytest.raises(ArgumentError, match="'x' is no contiguous array"):
        model.bind({"x": np.asfortranarray(x)})
    with pytest.raises(ArgumentError, match="shape"):
        model.bind({"x": x[:2]})
    with pytest.raises(ArgumentError, match="no output 'z'"):
        model.bind({"x": x}, {"z": x})
    with pytest.raises(ArgumentError, match="share memory"):
        model.bind({"x": x}, {"y": (same := np.empty((3, N), np.float32)), "t": same})


def test_an_output_over_an_input_that_is_needed_later_is_refused() -> None:
    nodes = [helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node("Add", ["p", "a"], ["q"])]
    model = polyc.compile_model(model_of(nodes, {"a": [N, N], "b": [N, N]}, {"p": [N, N], "q": [N, N]}, {}), threads=1)
    a, b = (np.random.default_rng(k).standard_normal((N, N)).astype(np.float32) for k in (0, 1))
    with pytest.raises(ArgumentError, match="written over input 'a' while it is needed"):
        model.bind({"a": a, "b": b}, {"p": a})
