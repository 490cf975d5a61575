"""Run by a test in a process of its own, with the stand-in driver on the loader's path.

Arguments: the interface (`cuda-bindings` or `pycuda`), then what to do. Prints `ok` when all is right.
"""

from __future__ import annotations

import importlib
import sys

import numpy as np
import onnx

from polyc.emit.gpu import devices
from polyc.emit.gpu.arrays import DeviceArray, to_device
from polyc.emit.gpu.devices import LANGUAGES, Device, nvidia, shim
from polyc.emit.gpu.program import KernelText
from polyc.poly.target import GpuTarget


def use(interface: str) -> Device:
    """Only this interface, with shared objects of the shim for machine code."""

    def code(program: KernelText, target: GpuTarget) -> bytes:
        return shim.build(program, shared=True)

    modules = {"pycuda": f"{devices.__name__}.pycuda_device", "cuda-bindings": f"{devices.__name__}.cuda_device"}
    importlib.import_module(modules[interface])
    for name in modules.values():
        if name in sys.modules:
            sys.modules[name].cubin_for = code
    nvidia.compiler = lambda: None  # NVRTC looks into the driver and crashes on the stand-in
    LANGUAGES["cuda"] = (interface,)
    device = devices.open_device("cuda")
    assert device.interface == interface and device.name == "stand-in" and device.architecture() == "sm_80"
    return device


def operators(device: Device) -> None:
    """A kernel on host arrays, on arrays of the device, and on a foreign array."""
    from examples.matmul import matmul

    kernel = matmul.compile(target="cuda")
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((33, 17), (17, 20)))
    expected = matmul(a, b)
    np.testing.assert_array_equal(kernel(a, b), expected)
    there = kernel(to_device(device, a), b)
    assert isinstance(there, DeviceArray)
    np.testing.assert_array_equal(np.asarray(there), expected)

    class Foreign:
        """An array of another package."""

        owner = to_device(device, a)
        __cuda_array_interface__ = owner.__cuda_array_interface__

    np.testing.assert_array_equal(kernel(Foreign(), b).numpy(), expected)

    class OnlyDlpack:
        """The same from one that knows DLPack alone."""

        __dlpack__, __dlpack_device__ = Foreign.owner.__dlpack__, Foreign.owner.__dlpack_device__

    np.testing.assert_array_equal(kernel(OnlyDlpack(), b).numpy(), expected)
    stream = device.stream()
    first, last = device.event(stream), device.event(stream)
    device.synchronize(stream)
    assert 0 <= device.elapsed(first, last) < 60


def model(device: Device) -> None:
    """A whole model, against the CPU."""
    from tiny_models import network, with_host_steps

    import polyc
    from polyc.graph_driver.execution.watching import Watch

    for proto, graphs in ((network(), 1), (with_host_steps(), 2)):
        gpu, cpu = polyc.compile_model(proto, target="cuda"), polyc.compile_model(proto)
        rng = np.random.default_rng()
        stream = device.stream()
        for stay in (False, True, True, False):  # the first run launches, the others replay graphs
            inputs = {n: rng.standard_normal(shape).astype(np.float32) for n, (_, shape) in cpu.inputs.items()}
            given = {n: to_device(device, x) for n, x in inputs.items()} if stay else inputs
            got = gpu(given, stream=stream)
            device.synchronize(stream)
            for name, value in cpu(inputs).items():
                assert isinstance(got[name], DeviceArray) == (stay and name != "pairs"), "the host makes `pairs`"
                np.testing.assert_allclose(np.asarray(got[name]), value, rtol=1e-4, atol=1e-5)
        assert gpu.executor().recording == f"replayed as {graphs} recorded graphs"
        expected = gpu(inputs)
        for k in range(len(gpu.plan.steps)):  # mixed: this step by itself, the others in recorded or launched stretches
            watch = Watch()
            got = gpu.run(inputs, "mixed", [str(k)], watch)
            assert {s.step for s in watch.seen} == {k}
            for name, value in expected.items():
                np.testing.assert_array_equal(got[name], value)
                np.testing.assert_array_equal(watch.values.get(name, value), value)


def bounds(device: Device) -> None:
    """An index outside is an error of the call, launched or replayed, and the next call is as if nothing had been."""
    from test_index_checks import CASES, feeds

    import polyc
    from polyc import BoundsError

    for name in ("Gather", "ScatterND"):
        proto, _, outside, array = CASES[name]
        gpu, cpu = polyc.compile_model(proto, target="cuda"), polyc.compile_model(proto)
        good, wrong = feeds(name, None), feeds(name, outside)
        for run in (gpu, gpu, gpu.executor().run_eager):
            try:
                run(wrong)
            except BoundsError as error:
                assert (error.array, error.axis, error.index, error.size) == (array, 0, outside, 10), error
            else:
                raise AssertionError("an index outside")
            np.testing.assert_array_equal(run(good)["y"], cpu(good)["y"])


def aliases(device: Device) -> None:
    """`out=` over inputs: results are those for the inputs as they were; what cannot be written is refused."""
    from tiny_models import model_of

    import polyc
    from polyc.poly.errors import ArgumentError

    nodes = [onnx.helper.make_node("Sub", ["w", "g"], ["wn"]), onnx.helper.make_node("Mul", ["w", "w"], ["sq"])]
    proto = model_of(nodes, {"w": [7, 9], "g": [7, 9]}, {"wn": [7, 9], "sq": [7, 9]}, {})
    model = polyc.compile_model(proto, target="cuda")
    for run in (model, model, model.executor().run_eager):
        buffer = np.random.default_rng().standard_normal(100).astype(np.float32)
        w, g, out = (buffer[k : k + 63].reshape(7, 9) for k in (0, 5, 37))
        expected = model({"w": w.copy(), "g": g.copy()})
        got = run({"w": w, "g": g}, out={"wn": out})
        np.testing.assert_array_equal(out, expected["wn"])
        np.testing.assert_array_equal(got["sq"], expected["sq"])
    narrow = np.lib.stride_tricks.as_strided(np.zeros(9, np.float32), (7, 9), (0, 4))
    for given, words in (({"wn": w, "sq": g}, "share memory"), ({"wn": narrow}, "contiguous")):
        try:
            model({"w": w, "g": g}, out=given)
        except ArgumentError as error:
            assert words in str(error)
        else:
            raise AssertionError("two outputs in one place")


def package(device: Device) -> None:
    """A compiled directory brings its machine code: no compiler is needed to run it."""
    import tempfile

    from tiny_models import with_host_steps

    import polyc

    proto = with_host_steps()
    nvidia.compiler = lambda: "stand-in"
    nvidia.compile_cubin = lambda program, target: nvidia.Cubin(shim.build(program, shared=True), (), "stand-in")
    x = {"x": np.random.default_rng().standard_normal((4, 5)).astype(np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        polyc.compile_model(proto, target="cuda").save(folder)
        polyc.compile_model(proto, target="sm_90").save(f"{folder}/newer")
        for name in ("pycuda_device", "cuda_device"):
            if module := sys.modules.get(f"polyc.emit.gpu.devices.{name}"):
                del module.cubin_for
        got = polyc.load(folder)(x)
        np.testing.assert_array_equal(got["y"], polyc.compile_model(proto)(x)["y"])
        try:
            polyc.load(f"{folder}/newer")(x)
        except devices.DeviceError as error:
            assert str(error) == "the code is for sm_90, but stand-in is sm_80: compile with --target sm_80"
        else:
            raise AssertionError("code for sm_90 on sm_80")


def bits(device: Device) -> None:
    """With `reproducible` whole models have the same bits through LLVM and through CUDA's text."""
    from reproducible.test_reproducible import network
    from test_random_graphs import grown

    import polyc

    rng = np.random.default_rng()
    x = rng.standard_normal((2, 3, 9, 9)).astype(np.float32)
    for model, feeds, dims in ((network(rng, 8, 9), {"x": x}, {"N": 2}), (*grown(501), {}), (*grown(503), {})):
        expected = polyc.compile_model(model, threads=1, reproducible=True, dims=dims)(feeds)
        compiled = polyc.compile_model(model, target="cuda", reproducible=True, dims=dims)
        assert not compiled.plan.host_steps
        for name, value in compiled(feeds).items():
            assert value.tobytes() == expected[name].tobytes(), name


def beside(device: Device) -> None:
    """A plan on the GPU and the CPU beside it: graphs of the GPU's stretches, results the same on every run."""
    from test_cpu_beside import products, sides

    import polyc

    proto = products(96)
    both, cpu = polyc.compile_model(proto, target="cuda+cpu"), polyc.compile_model(proto, threads=1)
    assert set(sides(both).values()) == {"gpu", "cpu"} and sides(both)["Softmax"] == "cpu", sides(both)
    rng = np.random.default_rng()
    for stay in (False, False, True):
        x = rng.standard_normal((96, 96)).astype(np.float32)
        got = both({"x": to_device(device, x) if stay else x})
        for name, value in cpu({"x": x}).items():
            assert isinstance(got[name], DeviceArray) == stay
            np.testing.assert_allclose(np.asarray(got[name]), value, rtol=1e-4, atol=1e-5)
    assert both.executor().recording == "replayed as 1 recorded graphs"


def benchmark(device: Device) -> None:
    """`python -m benchmarks.gpu` measures right results on this "device"."""
    import json
    import tempfile
    from pathlib import Path

    from benchmarks.gpu import __main__ as command

    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["gpu", "--quick", "--rounds", "1", "--only", "chain", "--only", "norm", "--json", f"{folder}/rows"]
        sys.stdout, kept = open(f"{folder}/page", "w"), sys.stdout
        code = command.main()
        sys.stdout = kept
        found = json.loads(Path(folder, "rows").read_text())
    assert code == 0, found
    assert found["about"]["device"] == "stand-in" and found["about"]["interface"] == device.interface
    assert [r["right"] for r in found["rows"]] == [True, True] and all("copy" in r["ms"] for r in found["rows"])


if __name__ == "__main__":
    what = {
        "operators": operators, "model": model, "bounds": bounds, "aliases": aliases, "package": package,
        "benchmark": benchmark, "bits": bits, "beside": beside,
    }  # fmt: skip
    what[sys.argv[2]](use(sys.argv[1]))
    print("ok")
