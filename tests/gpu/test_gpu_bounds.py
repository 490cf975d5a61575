"""Accesses outside their arrays on a GPU: the error of plain Python, and nothing outside is touched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import back_ends
import bounds_cases as cases
import gpu_bounds_fuzz
import numpy as np
import pytest
from small_operators import chain, transpose
from texts import CUDA, needs_opencl, needs_shim

from polyc import BoundsError, dims, f32, i64, inout, op, zeros
from polyc.emit.gpu.arrays import to_device
from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.mathlib import expand_function
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.violations import violation

N, K = dims("N K")
CASES = {  # without empty arrays, which have kernels of their own
    name: case for name, case in cases.CASES.items() if all(x.size for x in case[1] if isinstance(x, np.ndarray))
}


def on_shim(kernel: Any, arguments: Sequence[Any], **how: Any) -> list[np.ndarray]:
    """What the CUDA text writes. Raises `BoundsError` as the kernel does on a device."""
    arrays, sizes = back_ends.arrays_of(kernel.scop, arguments)
    checks = kernel.function.checks
    record = np.zeros(len(checks), np.uint64)
    given = {b.name: arrays.get(b.name, record) for b in kernel.function.buffers}
    shim.run_on_shim(kernel.program, given, sizes, **how)
    if record.any():
        raise violation(checks, record.tolist(), sizes)
    return [arrays[n] for n in back_ends.updated(kernel.scop)]


def outcome(run: Any, arguments: Sequence[Any]) -> Any:
    given = cases.copies(arguments)
    try:
        return run(given)
    except BoundsError as error:
        return error


def compare(name: str, found: Any, written: Sequence[np.ndarray]) -> None:
    """`found` is the error that the case expects, or the arrays that plain Python has `written`."""
    operator, _, expected = CASES[name]
    if expected is None:
        assert not isinstance(found, BoundsError), found
        for a, b in zip(found, written, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
        return
    cases.assert_outside(found, operator, expected)


def in_python(name: str) -> list[np.ndarray]:
    """The arrays that plain Python writes, in the order of `back_ends.updated`."""
    operator, arguments, expected = CASES[name]
    if expected is not None:
        return []
    scop, given = operator.scop(), cases.copies(arguments)
    results = operator.python(*given)
    own = [x for n, x in zip(scop.args, given) if scop.arrays[n].kind == "inout"]
    return own + ([] if results is None else list(results) if isinstance(results, tuple) else [results])


@cache
def kernel(operator: Any, target: str) -> Any:
    """Compiled once for all cases."""
    return compile_operator(operator.scop(), target=target)


@needs_shim
@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", CASES)
def test_cuda_text(name: str) -> None:
    operator, arguments, _ = CASES[name]
    made = kernel(operator, "sm_80")
    compare(name, outcome(lambda given: on_shim(made, given, check="bounds"), arguments), in_python(name))


@needs_opencl
@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", CASES)
def test_opencl(name: str) -> None:
    operator, arguments, expected = CASES[name]
    made = kernel(operator, "opencl")

    def run(given: list[Any]) -> list[np.ndarray]:
        try:
            results = made(*given)
        except BoundsError:
            for before, after in zip(arguments, given):
                np.testing.assert_array_equal(before, after)  # nothing is half written
            raise
        own = [x for n, x in zip(made.scop.args, given) if made.scop.arrays[n].kind == "inout"]
        return own + ([] if results is None else [results])

    compare(name, outcome(run, arguments), in_python(name))


@op
def spmv_wide(ptr: i64[N + 1], val: f32[K]) -> f32[N]:
    y = zeros(N, f32)
    for i in range(N):
        for j in range(ptr[i], ptr[i + 1]):
            if j % 2 == 0:
                y[i] += val[j]
    return y


@needs_opencl
def test_a_loop_of_any_length_ends_at_the_first_violation() -> None:
    ptr = np.array([0, 3, 2**62, 3], np.int64)
    with pytest.raises(BoundsError, match="index 4 is out of bounds for axis 0 of 'val' with size 4"):
        spmv_wide.compile(target="opencl")(ptr, np.ones(4, np.float32))


@op
def counted(count: i64[N], val: f32[K], y: inout(f32[N, K])):
    for i in range(N):
        for j in range(count[i]):
            y[i, j] = val[j]


@needs_shim
@pytest.mark.parametrize("bound", [{"i": "block.x", "j": "thread.x"}, {"j": "thread.x"}, {"i": "thread.x"}])
@pytest.mark.parametrize("k", [5, 997, 4096])
def test_a_loop_of_threads_ends_at_the_first_violation(bound: dict[str, str], k: int) -> None:
    schedule = counted.scop().schedule()
    for loop, axis in bound.items():
        schedule = schedule.bind(loop, axis)
    made = compile_operator(counted.scop(), CUDA, schedule)
    val = np.ones(k, np.float32)
    for last in (k, -3, k + 1, 1 << 62):
        count, y = np.array([k, 0, last], np.int64), np.zeros((3, k), np.float32)
        if last <= k:
            assert on_shim(made, [count, val, y], check="bounds")[0].sum() == k + max(last, 0)
        else:
            with pytest.raises(BoundsError):
                on_shim(made, [count, val, y], check="bounds")


@needs_opencl
def test_arrays_of_the_device() -> None:
    made = kernel(cases.gather, "opencl")
    given = cases.X, cases.i_(1, 9), cases.i_(1, 10)
    x, inside, outside = (to_device(made.device(), a) for a in given)
    np.testing.assert_array_equal(made(x, inside).numpy(), [1, 9])
    with pytest.raises(BoundsError, match="index 10 is out of bounds for axis 0 of 'X' with size 10"):
        made(x, outside)
    np.testing.assert_array_equal(made(x, inside).numpy(), [1, 9])  # the record of one call is not that of the next


def test_copies_touch_what_exists() -> None:
    """Panels in shared memory have elements of instances, too, that do not run."""
    scop = cases.under_data.scop()
    schedule = scop.schedule().split("i", 4).bind("i.out", "block.x").bind("i.in", "thread.x")
    schedule = schedule.promote("B", "i.out", space="shared")
    fn = expand_function(lower_gpu(scop, schedule.tree, "panels", CUDA, checks=True))
    given = {n: np.where(np.arange(10) < 6, 1, -1).astype("f4") if n == "A" else cases.X[:6] for n in "AB"}
    error, y = gpu_bounds_fuzz.interpreted(scop, fn, given, {"races": True})
    assert error is None
    np.testing.assert_array_equal(y, cases.under_data.python(*given.values()))


def test_texts_without_checks() -> None:
    """Where all is proven there is nothing to check, and nobody need check the rest."""
    for operator in (transpose, chain, cases.bytes_of_table):
        with_checks, without = (operator.compile(target="sm_80", checks=c) for c in (True, False))
        assert with_checks.source("cuda") == without.source("cuda")
    made = cases.gather.compile(target="sm_80", checks=False)
    assert not made.function.checks and "bounds_record" not in made.source("cuda")


def test_wide_index_values_stay_wide() -> None:
    """Sizes that fit make index arithmetic 32 bits wide; a position from memory is compared in 64."""
    text = cases.gather_unsigned.compile(target="sm_80", N=64, M=64).source("cuda")
    assert "int32_t const tx" in text and "int64_t const at" in text


@pytest.mark.parametrize("seed", (1, 3, 4, 6, 7, 8, 11, 12))
def test_random_programs(seed: int) -> None:
    found = gpu_bounds_fuzz.check(seed)
    assert not found["lost"] and found["inside"] + found["outside"], found
