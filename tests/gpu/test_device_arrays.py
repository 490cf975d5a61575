"""Arrays of a device and other packages: DLPack both ways, and models whose inputs and outputs stay there."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
from texts import needs_opencl
from tiny_models import network, with_host_steps

import polyc
from polyc import empty, f32, grid, op
from polyc.emit.gpu.arrays import DeviceArray, on_a_device, to_device
from polyc.emit.gpu.devices import DeviceError, open_device
from polyc.graph_driver.checking.poison import differs, poisoned_run
from polyc.poly import dlpack
from polyc.poly.dtypes import ALL, BY_NAME
from polyc.poly.errors import ArgumentError


@op
def outer(A: f32[9], B: f32[5]) -> f32[9, 5]:
    C = empty((9, 5), f32)
    for i, j in grid(9, 5):
        C[i, j] = A[i] * B[j]
    return C


class Foreign:
    """An array of another package that speaks DLPack only."""

    def __init__(self, array: DeviceArray, device: tuple[int, int] | None = None) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **how: object) -> object:
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device or self._array.__dlpack_device__()


def test_capsules_of_numpy_are_understood() -> None:
    for dtype in ("f4", "f8", "f2", "i1", "u2", "i8", "?"):
        x = np.zeros((3, 4), dtype)
        before = sys.getrefcount(x)
        taken = dlpack.take(x.__dlpack__())
        assert (taken.shape, taken.dtype.np, taken.device_type) == ((3, 4), x.dtype, dlpack.CPU)
        assert taken.data + taken.offset == x.ctypes.data and sys.getrefcount(x) > before
        del taken
        assert sys.getrefcount(x) == before, "given back"


def test_what_numpy_reads_of_our_capsules() -> None:
    for dtype in ALL:
        if dtype.name == "bf16":
            continue  # NumPy has none
        x = np.arange(12).reshape(3, 4).astype(dtype.np)

        class Lent:
            """Host memory under our capsule."""

            array, kind = x, dtype

            def __dlpack__(self, **how: object) -> object:
                return dlpack.lend(self.array.ctypes.data, 0, dlpack.CPU, (3, 4), self.kind, self.array)

            def __dlpack_device__(self) -> tuple[int, int]:
                return dlpack.CPU, 0

        seen = np.from_dlpack(Lent())
        np.testing.assert_array_equal(seen, x)
        assert seen.dtype == x.dtype and np.shares_memory(seen, x)


def test_bad_capsules_are_refused() -> None:
    capsule = np.zeros(3).__dlpack__()
    dlpack.take(capsule)
    with pytest.raises(ArgumentError, match="used before"):
        dlpack.take(capsule)
    assert not dlpack.take(np.zeros((3, 4)).T.__dlpack__()).row_major
    with pytest.raises(ArgumentError, match="no counterpart"):
        dlpack.take(np.zeros(3, complex).__dlpack__())
    assert dlpack.take(np.zeros((3, 1, 4))[:, :1].__dlpack__()).row_major


def test_a_capsule_that_nobody_takes_ends_its_loan() -> None:
    count = len(dlpack._lent)
    capsule = dlpack.lend(64, 0, dlpack.CPU, (2,), BY_NAME["f32"], object())
    assert len(dlpack._lent) == count + 1
    del capsule
    gc.collect()
    assert len(dlpack._lent) == count


@needs_opencl
@pytest.mark.parametrize("name", ["f32", "bf16", "bool_"])
def test_there_and_back_without_a_copy(name: str) -> None:
    device = open_device("opencl")
    x = np.random.default_rng().integers(0, 2, (5, 7)).astype(BY_NAME[name].np)
    ours = to_device(device, x)
    back = to_device(device, Foreign(ours))
    assert back is not ours and back.dtype is ours.dtype
    device.upload(ours.pointer, (1 - x.astype(np.int8)).astype(x.dtype))
    np.testing.assert_array_equal(back.numpy().astype(int), 1 - x.astype(int))
    kept = back.numpy()
    del ours
    gc.collect()
    np.testing.assert_array_equal(back.numpy(), kept)  # the taker keeps the memory


@needs_opencl
def test_kernels_take_arrays_of_other_packages() -> None:
    kernel, device = outer.compile(target="opencl"), open_device("opencl")
    a, b = (np.random.default_rng().integers(-9, 9, n).astype(np.float32) for n in (9, 5))
    result = kernel(Foreign(to_device(device, a)), b)
    assert isinstance(result, DeviceArray)
    np.testing.assert_array_equal(result.numpy(), np.outer(a, b))
    np.testing.assert_array_equal(np.from_dlpack(result, device="cpu", copy=True), np.outer(a, b))
    with pytest.raises(BufferError):
        np.from_dlpack(result, device="cpu", copy=False)
    with pytest.raises(DeviceError, match=r"an array on DLPack device \(2, 0\) cannot be used on"):
        kernel(Foreign(result, (dlpack.CUDA, 0)), b)
    assert on_a_device(result) and not on_a_device(a) and not on_a_device(3.0)


@needs_opencl
def test_a_model_with_inputs_on_the_device() -> None:
    device = open_device("opencl")
    for proto, host in ((network(), set()), (with_host_steps(), {"pairs"})):
        dims = {} if host else {"N": 1}
        gpu, cpu = polyc.compile_model(proto, target="opencl", dims=dims), polyc.compile_model(proto, dims=dims)
        stream = device.stream()
        for _ in range(2):
            x = np.random.default_rng().standard_normal(cpu.inputs["x"][1]).astype(np.float32)
            got = gpu({"x": Foreign(to_device(device, x))}, stream=stream)
            device.synchronize(stream)
            for name, value in cpu({"x": x}).items():
                assert isinstance(got[name], DeviceArray) == (name not in host)
                np.testing.assert_allclose(np.asarray(got[name]), value, rtol=1e-4, atol=1e-5)
        assert gpu.executor().recording == "not recorded: OpenCL has no graphs"
        with pytest.raises(ArgumentError, match="with inputs on the device, results are new arrays there"):
            gpu({"x": to_device(device, x)}, out={"y": np.zeros(got["y"].shape, np.float32)})
        with pytest.raises(ArgumentError, match="input 'x' has shape"):
            gpu({"x": to_device(device, x[:1, :1])})


@needs_opencl
def test_memory_that_nothing_lives_in_has_no_influence() -> None:
    model = polyc.compile_model(network(), target="opencl", dims={"N": 1})
    x = {"x": np.random.default_rng().standard_normal(model.inputs["x"][1]).astype(np.float32)}
    assert differs(poisoned_run(model, x), model(x)) == []
