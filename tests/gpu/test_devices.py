"""Devices: OpenCL on what is here, CUDA through a stand-in driver, and one clear line without a GPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from parts import in_part
from small_operators import softmax
from texts import needs_opencl, needs_shim

import polyc
from examples.matmul import matmul
from polyc import bf16, bool_, dims, empty, f16, f32, grid, i32, inout, op, where
from polyc.emit.gpu import devices
from polyc.emit.gpu.arrays import DeviceArray, to_device
from polyc.emit.gpu.devices import DeviceError, open_device
from polyc.poly.errors import ArgumentError

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
N, M = dims("N M")


@op
def mixed(X: f16[N, M], Z: bf16[N, M], P: bool_[N, M], S: i32[N, M]) -> f16[N, M]:
    Y = empty((N, M), f16)
    for i, j in grid(N, M):
        Y[i, j] = where(P[i, j], X[i, j] * X[i, j], f16(Z[i, j]) + f16(S[i, j] * S[i, j] // 7))
    return Y


@op
def shifted(A: inout(f32[N]), by: f32) -> None:
    for i in range(N):
        A[i] = A[i] + by


MATMUL, SOFTMAX = {"M": 33, "K": 45, "N": 29}, {"M": 9, "N": 70}


@needs_opencl
@pytest.mark.parametrize(
    ("product", "exponentials"),  # a product of any sizes takes PoCL 20 seconds
    in_part(
        [(MATMUL, {}), ({}, SOFTMAX)], lambda product, _: product == MATMUL, ids=lambda p, _: "fixed" if p else "any"
    ),
)
def test_operators_on_opencl(product: dict[str, int], exponentials: dict[str, int]) -> None:
    rng = np.random.default_rng()
    a, b = (rng.integers(-9, 9, s).astype(np.float32) for s in ((33, 45), (45, 29)))
    np.testing.assert_array_equal(matmul.compile(target="opencl", **product)(a, b), a @ b)
    x = rng.standard_normal((9, 70)).astype(np.float32)
    np.testing.assert_allclose(softmax.compile(target="opencl", **exponentials)(x), softmax(x), rtol=1e-6)


@needs_opencl
def test_all_kinds_of_elements() -> None:
    rng = np.random.default_rng()
    x = rng.standard_normal((5, 37))
    args = (x.astype(np.float16), x.astype(ml_dtypes.bfloat16), x > 0, (1e5 * x).astype(np.int32))
    np.testing.assert_array_equal(mixed.compile(target="opencl")(*args), mixed.python(*args))


@needs_opencl
def test_updates_in_place_and_numbers() -> None:
    x = np.arange(5, dtype=np.float32)
    kernel = shifted.compile(target="opencl")
    assert kernel(x, 2.0) is None and x.tolist() == [2, 3, 4, 5, 6]
    with pytest.raises(ArgumentError, match="'A' is updated in place: give it on the device"):
        kernel(x, to_device(kernel.device(), np.float32(1)))


@needs_opencl
def test_arrays_stay_on_the_device() -> None:
    kernel = softmax.compile(target="opencl", M=4, N=9)
    x = np.random.default_rng().standard_normal((4, 9)).astype(np.float32)
    there = to_device(open_device("opencl"), x)
    y = kernel(there)
    assert isinstance(y, DeviceArray) and y.shape == (4, 9) and y.nbytes == 144
    np.testing.assert_array_equal(np.asarray(kernel(y)), kernel(kernel(x)))
    np.testing.assert_array_equal(there.numpy(), x)
    with pytest.raises(AttributeError):
        _ = y.__cuda_array_interface__
    with pytest.raises(ArgumentError, match="'X' has dtype f64, expected f32"):
        kernel(to_device(open_device("opencl"), x.astype(np.float64)))


@needs_opencl
def test_a_whole_model_on_opencl() -> None:
    from tiny_models import network, with_host_steps

    for proto in (network(), with_host_steps()):
        gpu, cpu = polyc.compile_model(proto, target="opencl"), polyc.compile_model(proto)
        rng = np.random.default_rng()
        inputs = {n: rng.standard_normal(shape).astype(np.float32) for n, (_, shape) in cpu.inputs.items()}
        for _ in range(2):  # the second run meets the memory of the first
            got = gpu(inputs)
            for name, value in cpu(inputs).items():
                np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5)


# ---- CUDA without a GPU ----


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """No interface is installed, nothing is remembered."""
    monkeypatch.setattr(devices, "_installed", lambda package: False)
    open_device.cache_clear()
    yield
    open_device.cache_clear()


def test_no_gpu_is_one_clear_line(no_devices: None) -> None:
    with pytest.raises(DeviceError) as error:
        matmul.compile(target="cuda")(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
    assert str(error.value) == "no GPU here for cuda: pycuda is not installed; cuda-bindings is not installed"
    with pytest.raises(DeviceError, match="^no GPU here for opencl: pyopencl is not installed$"):
        open_device("opencl")


@pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed")
def test_a_missing_driver_is_named() -> None:
    if devices._installed("cuda.bindings") and not shutil.which("nvidia-smi"):
        with pytest.raises(DeviceError, match="cuda-bindings finds no driver"):
            devices.open_interface("cuda-bindings")


@cache
def stand_in(folder: Path) -> Path:
    """The folder with the stand-in `libcuda.so.1`."""
    built, more = folder / "libcuda.so.1", folder / "more.c"
    names = pycuda_needs()
    more.write_text("\n".join(f"__attribute__((weak)) int {n}(void) {{ return 801; }}" for n in names) + "\n")
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-Wl,-soname,libcuda.so.1",
        str(HERE / "stand_in.c"),
        str(more),
        "-ldl",
    ]
    subprocess.run([*command, "-o", str(built)], check=True)
    return folder


def pycuda_needs() -> list[str]:
    """The driver's functions that pycuda links to: those that the stand-in lacks must at least be there."""
    found = importlib.util.find_spec("pycuda")
    if found is None or not found.submodule_search_locations:
        return []
    libraries = [*Path(found.submodule_search_locations[0]).glob("_driver*.so")]
    said = subprocess.run(["nm", "-D", "--undefined-only", *libraries], capture_output=True, text=True, check=True)
    return sorted({w for w in said.stdout.split() if w.startswith("cu")})


def on_stand_in(folder: Path, interface: str, what: str) -> None:
    places = [ROOT, ROOT / "tests", ROOT / "tests" / "graph_driver", *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(stand_in(folder)),
        "PYTHONPATH": os.pathsep.join(map(str, places)),
    }
    command = [sys.executable, str(HERE / "on_stand_in.py"), interface, what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0 and done.stdout == "ok\n", done.stderr[-2000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("driver")


INTERFACES = [
    pytest.param(name, marks=pytest.mark.skipif(not devices._installed(package), reason=f"{name} is not installed"))
    for name, package in (("cuda-bindings", "cuda.bindings"), ("pycuda", "pycuda"))
]


@needs_shim
@pytest.mark.parametrize("interface", INTERFACES)
def test_operators_through_the_stand_in_driver(interface: str, folder: Path) -> None:
    on_stand_in(folder, interface, "operators")


@needs_shim
@pytest.mark.parametrize("interface", INTERFACES)
def test_arrays_that_overlap_through_the_stand_in_driver(interface: str, folder: Path) -> None:
    on_stand_in(folder, interface, "aliases")


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_model_through_the_stand_in_driver(interface: str, folder: Path) -> None:
    on_stand_in(folder, interface, "model")


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("interface", INTERFACES)
def test_bits_of_models_through_the_stand_in_driver(interface: str, folder: Path) -> None:
    on_stand_in(folder, interface, "bits")


@needs_shim
@pytest.mark.parametrize("interface", INTERFACES)
def test_indices_outside_through_the_stand_in_driver(interface: str, folder: Path) -> None:
    on_stand_in(folder, interface, "bounds")


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_directory_through_the_stand_in_driver(interface: str, folder: Path) -> None:
    on_stand_in(folder, interface, "package")


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("interface", INTERFACES)
def test_the_benchmark_through_the_stand_in_driver(interface: str, folder: Path) -> None:
    on_stand_in(folder, interface, "benchmark")


@needs_opencl
def test_the_benchmark_measures_right_results(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
                                              tmp_path: Path) -> None:  # fmt: skip
    from benchmarks.gpu import __main__ as command

    page = tmp_path / "page.md"
    arguments = ["--target", "opencl", "--quick", "--rounds", "1", "--only", "softmax", "--page", str(page)]
    monkeypatch.setattr(sys, "argv", ["gpu", *arguments])
    assert command.main() == 0
    assert "| softmax 37x128 |" in page.read_text() and "| yes |" in capsys.readouterr().out


def test_the_benchmark_without_a_gpu_is_one_line(
    no_devices: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.gpu import __main__ as command

    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert command.main() == 1
    said = capsys.readouterr().err
    assert said == "no GPU here for cuda: pycuda is not installed; cuda-bindings is not installed\n"
