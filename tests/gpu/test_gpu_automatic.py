"""The automatic GPU schedule in the interpreter: blocks and threads in three orders, no race, right results."""

from __future__ import annotations

import differential
import numpy as np
import pytest
import simt
from programs import ALL, arguments

from examples import polybench
from polyc import dims, f32, i32, inout, op
from polyc.emit.loop_ir.loops import Alloc
from polyc.poly.expr import const_int
from polyc.scheduler.strategies.auto import automatic
from tests.parts import in_part

N, T = dims("N T")


@op
def sweeps(A: inout(f32[N]), B: inout(f32[N]), D: i32[T]):  # type: ignore[valid-type]
    """As many steps in time as data say: every loop around those along the array carries something."""
    for t in range(T):
        for _ in range(D[t]):  # type: ignore[index]
            for j in range(1, N - 1):
                B[j] = A[j - 1] + A[j + 1]  # type: ignore[index]
            for j in range(1, N - 1):
                A[j] = B[j] * 0.5  # type: ignore[index]


SIZES = [(37, 41, 19), (5, 67, 3), (1, 300, 9), (10, 72, 20)]  # they divide nothing; rows of whole 16 bytes
EACH = [(name, size) for name in ALL for size in range(len(SIZES))]
CASES = in_part(EACH, lambda name, size: size == 1 or (size == 3 and "matmul" not in name))
QUICK = ("gemver", "mvt", "durbin", "jacobi-1d", "trisolv", "atax")
POLYBENCH = [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in polybench.MODULES]


@pytest.mark.parametrize(("name", "size"), CASES)
def test_operators_at_sizes_that_divide_nothing(name: str, size: int) -> None:
    operator = ALL[name][0]
    args = arguments(name, SIZES[size])
    schedule = automatic(operator.scop(), simt.TARGET)
    assert simt.bound(schedule) >= 2
    assert simt.agree(schedule, args, differential.oracle(operator, args), 1e-6) == ""


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in polybench.MODULES]
)
def test_polybench(name: str) -> None:
    kernel = polybench.load(name)
    args, constants = kernel.arguments("MINI")
    expected = polybench.run(kernel.exact.python, kernel.exact, args, **constants)
    schedule = automatic(kernel.operator.scop(**constants), simt.TARGET)
    assert simt.agree(schedule, args, expected, 1e-12) == ""


def test_a_contraction_has_block_tiles_panels_and_register_tiles() -> None:
    schedule = automatic(ALL["matmul_bias_relu"][0].scop(), simt.TARGET)
    text = str(schedule.tree)
    assert "to shared A_panel" in text and "to shared B_panel" in text and "C_tile" in text
    assert len(simt.launches(simt.finished(schedule.scop, schedule.tree))) == 1, "the epilogue is in the same kernel"


def test_a_row_reduction_is_one_kernel_with_a_block_for_each_row() -> None:
    schedule = automatic(ALL["softmax"][0].scop(), simt.TARGET)
    kept, general = simt.launches(simt.finished(schedule.scop, schedule.tree))
    assert [n for _, n in (*kept.threads, *general.threads)] == [256, 256]
    assert "reduction over 256 threads, then their warps, then one" in "\n".join(schedule.notes)


def test_serial_loops_stay_on_the_host() -> None:
    schedule = automatic(ALL["jacobi"][0].scop(), simt.TARGET)
    assert len(simt.launches(simt.finished(schedule.scop, schedule.tree))) == 2


@pytest.mark.parametrize("count", [1, 3])
def test_loops_that_depend_on_data_are_not_left_to_the_host(count: int) -> None:
    rng = np.random.default_rng(count)
    args = [rng.random(40, np.float32), np.zeros(40, np.float32), rng.integers(0, 4, count).astype(np.int32)]
    schedule = automatic(sweeps.scop(), simt.TARGET)
    assert "the bounds of loop it depend on data" in "\n".join(schedule.notes)
    assert simt.agree(schedule, args, differential.oracle(sweeps, args), 1e-6) == ""


def test_a_transpose_goes_through_shared_memory() -> None:
    schedule = automatic(ALL["transpose"][0].scop(), simt.TARGET)
    (launch,) = simt.launches(simt.finished(schedule.scop, schedule.tree))
    assert isinstance(launch.body, Alloc) and launch.body.buffer.space == "shared"
    assert launch.body.buffer.shape == (const_int(16), const_int(38)), "rows along x, longer against bank conflicts"


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "cuda", "opencl"])
def test_an_operator_is_scheduled_for_the_target_that_it_is_compiled_for(target: str) -> None:
    operator = ALL["matmul"][0]
    schedule = operator.schedule(target=target)
    assert "block.x" in str(schedule.tree)
    assert operator.compile(target=target, schedule=schedule).source("loops") == operator.compile(target=target).source(
        "loops"
    )
