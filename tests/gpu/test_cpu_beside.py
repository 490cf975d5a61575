"""Plans whose kernels run on a GPU and on the CPU beside it: who runs what, what is transferred, and the results."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from test_devices import INTERFACES, on_stand_in
from test_random_graphs import grown
from texts import needs_opencl, needs_shim
from tiny_models import network, with_host_steps

import polyc
from polyc.emit.gpu import targets
from polyc.graph_driver.backends.gpu.backend import GpuBackend
from polyc.graph_driver.choosing.two_sides import Work, two_sides
from polyc.graph_driver.execution.watching import Watch
from polyc.graph_driver.fusion.joined import Group, on_cpu
from polyc.graph_driver.worker import kernels
from polyc.poly.errors import BuildError

N = 256


def products(n: int = N, tail: int = 8) -> onnx.ModelProto:
    """Large products in front, and little work with few numbers behind them."""
    rng = np.random.default_rng(0)
    weights = {f"w{k}": (rng.standard_normal((n, n)) / 16).astype("f") for k in range(3)}
    weights |= {"v": (rng.standard_normal((n, tail)) / 16).astype("f"), "axis": np.array(1, np.int64)}
    nodes, at = [], "x"
    for k in range(3):
        nodes += [helper.make_node("MatMul", [at, f"w{k}"], [f"m{k}"]), helper.make_node("Relu", [f"m{k}"], [f"a{k}"])]
        at = f"a{k}"
    nodes += [
        helper.make_node("ReduceMean", [at], ["r"], axes=[0], keepdims=1),
        helper.make_node("MatMul", ["r", "v"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"]),
        helper.make_node("CumSum", ["l", "axis"], ["z"]),
    ]
    ends = [helper.make_tensor_value_info(t, 1, s) for t, s in (("x", [n, n]), ("y", [1, tail]), ("z", [1, tail]))]
    made = [numpy_helper.from_array(v, t) for t, v in weights.items()]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is decided anew here is not what other runs remember."""
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))


def sides(model: Any) -> dict[str, str]:
    """Of each kernel by label where it runs."""
    code = model.code
    return {s.label: "cpu" if s.symbol in code.natives else "gpu" for s in model.plan.steps if s.kind == "kernel"}


def poisoned(model: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A run in memory that has nothing of runs before it, on either side."""
    executor = model.executor()
    executor.arena[:] = 0xFF
    executor._host_arena[:] = 0xFF
    return dict(model(inputs))


def near(got: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(got[name]), value, rtol=1e-4, atol=1e-5)


# ---- who runs what -------------------------------------------------------------------------------


def total(work: Sequence[Work], crossing: dict[str, float], second: Sequence[bool]) -> float:
    """The time of an assignment, by its definition: each tensor crosses once if somebody on the other side reads it."""
    time = sum(w.second if there else w.first for w, there in zip(work, second, strict=True))
    for k, w in enumerate(work):
        for t in w.makes:
            if any(t in v.reads and second[j] != second[k] for j, v in enumerate(work)):
                time += crossing.get(t, 0.0)
    return time


@pytest.mark.parametrize("seed", range(30))
def test_the_assignment_is_the_best_of_all(seed: int) -> None:
    pick = random.Random(seed)
    work: list[Work] = []
    for k in range(pick.randint(2, 9)):
        reads = [f"t{j}" for j in range(k) if pick.random() < 0.4]
        times = [pick.choice([0.0, pick.uniform(0, 5), pick.uniform(0, 1)]) for _ in range(2)]
        if pick.random() < 0.2:
            times[pick.randrange(2)] = float("inf")
        work.append(Work(times[0], times[1], reads, [f"t{k}"]))
    crossing = {f"t{k}": pick.uniform(0, 3) for k in range(len(work)) if pick.random() < 0.9}
    found = total(work, crossing, two_sides(work, crossing))
    best = min(total(work, crossing, s) for s in itertools.product([False, True], repeat=len(work)))
    assert found == pytest.approx(best, abs=1e-9)


def test_names_of_targets() -> None:
    target = targets.get("sm_80+tf32+cpu")
    assert {"tf32", "cpu"} <= set(target.features) and target.arch == "sm_80" and target.bandwidth == 1555
    with pytest.raises(BuildError, match=r"ends in nothing, '\+tf32' or '\+cpu'"):
        targets.get("sm_80+npu")


@needs_opencl
def test_one_plan_on_both_by_cost(tmp_path: Path) -> None:
    model, cpu = polyc.compile_model(products(), target="opencl+cpu"), polyc.compile_model(products(), threads=1)
    assert not model.plan.python_steps
    where = sides(model)
    assert where == {"MatMul+Relu": "gpu", "ReduceMean": "gpu", "MatMul": "cpu", "Softmax": "cpu", "CumSum": "cpu"}
    notes = "\n".join(model.report().notes)
    assert "3 of 7 kernels on the CPU, by predicted times" in notes
    assert "transfers between the steps of a run: 1 to the host (1.02 kB), 0 to the device (0 B)" in notes
    x = {"x": np.random.default_rng(1).standard_normal((N, N)).astype("f")}
    for _ in range(2):
        near(poisoned(model, x), cpu(x))
    model.save(tmp_path / "both")
    again = polyc.load(tmp_path / "both")
    assert sides(again) == where
    near(poisoned(again, x), cpu(x))
    alone = polyc.compile_model(products(), target="opencl")
    assert set(sides(alone).values()) == {"gpu"}


@needs_opencl
@pytest.mark.usefixtures("own_cache")
def test_transfers_are_those_that_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = polyc.compile_model(products(), target="opencl+cpu")
    executor: Any = model.executor()
    device, seen = executor.device, []
    for name, way in (("upload", "device"), ("download", "host")):
        real = getattr(device, name)

        def counted(*args: Any, real: Any = real, way: str = way) -> Any:
            array = next(a for a in args if isinstance(a, np.ndarray))
            seen.append((way, array.nbytes))
            return real(*args)

        monkeypatch.setattr(device, name, counted)
    model({"x": np.zeros((N, N), "f")})
    assert seen == [("device", 4 * N * N), ("host", 4 * N)]  # the input, and the only tensor that crosses


# ---- what a GPU has no kernel for ----------------------------------------------------------------


@needs_opencl
@pytest.mark.usefixtures("own_cache")
def test_what_has_no_kernel_is_compiled_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reason is; here all kernels with a root or an exponential are refused."""
    real = kernels.compile_all

    def refusing(jobs: Any, progress: Any = None) -> Any:
        wrong = [j for j in jobs if j.platform.backend.name == "gpu" and '"exp' in j.text]
        return {j.symbol: "refused by the test" for j in wrong} | real([j for j in jobs if j not in wrong], progress)

    monkeypatch.setattr(kernels, "compile_all", refusing)
    model = polyc.compile_model(products(), target="opencl")
    assert sides(model)["Softmax"] == "cpu" and sides(model)["MatMul+Relu"] == "gpu"
    assert not model.plan.python_steps and not model.report().host
    assert any("Softmax at" in n and "has a kernel of the CPU: refused by the test" in n for n in model.report().notes)
    x = {"x": np.random.default_rng(1).standard_normal((N, N)).astype("f")}
    near(poisoned(model, x), polyc.compile_model(products(), threads=1)(x))


# ---- any sides -----------------------------------------------------------------------------------


def at_random(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Kernels go to either side."""
    pick = random.Random(seed)

    def shared_out(self: Any, graph: Any, groups: Sequence[Group], machine: Any) -> tuple[list[Group], list[str]]:
        return [on_cpu(g) if g.key and pick.random() < 0.5 else g for g in groups], []

    monkeypatch.setattr(GpuBackend, "shared_out", shared_out)


def check_any_sides(seed: int) -> None:
    proto, feeds = grown(seed) if seed % 3 else (network() if seed % 2 else with_host_steps(), {})
    dims = {"N": 2} if proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param else {}
    cpu = polyc.compile_model(proto, threads=1, dims=dims)
    model: Any = polyc.compile_model(proto, target="opencl+cpu", dims=dims)
    rng = np.random.default_rng(seed)
    x = feeds or {n: rng.standard_normal(s).astype("f") for n, (_, s) in cpu.inputs.items()}
    expected = cpu(x)
    near(poisoned(model, x), expected)
    watch = Watch()
    near(model.run(x, "eager", (), watch), expected)
    for k in range(len(model.plan.steps)):  # each step looked at by itself
        one = Watch()
        near(model.run(x, "mixed", [str(k)], one), expected)
        for name, value in one.values.items():
            np.testing.assert_array_equal(value, watch.values[name])
    near(
        {n: v for n, v in watch.values.items() if n in expected},
        {n: expected[n] for n in watch.values if n in expected},
    )


@needs_opencl
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_sides(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    at_random(monkeypatch, seed)
    check_any_sides(seed)


@needs_opencl
@pytest.mark.long
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("seed", range(3, 24))
def test_any_sides_of_many(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    at_random(monkeypatch, seed)
    check_any_sides(seed)


@needs_shim
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_plan_on_both_through_the_stand_in_driver(interface: str, tmp_path: Path) -> None:
    on_stand_in(tmp_path, interface, "beside")
