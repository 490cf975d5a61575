"""The C back end's text and its building: wide vectors, portability of the fallbacks, errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import hand_ir
import numpy as np
import pytest
import random_ir

from polyc import dims, inout, op
from polyc.emit import targets
from polyc.emit.c import cc
from polyc.emit.c.source import to_c
from polyc.emit.compile import compile_kernel
from polyc.emit.loop_ir.loops import Block, Function, Store, VLoad
from polyc.poly.dtypes import DType, f32, f64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Call

needs_compiler = pytest.mark.skipif(cc.find_compiler() is None, reason="no C compiler on this machine")


def calls(dtype: DType, lanes: int) -> Function:
    """Every builtin on whole vectors of `dtype`."""
    at = (hand_ir.ramp(hand_ir.I, lanes),)
    x = VLoad("X", at, None, lanes, dtype)
    fns = ["sqrt", "floor", "ceil", "trunc", "round", "abs"]
    stores = [Store(f"o{k}", at, Call(fn, (x,), dtype)) for k, fn in enumerate(fns)]
    stores.append(Store("o6", at, Call("fma", (x, x, x), dtype)))
    buffers = [hand_ir.param("X", dtype, 64)] + [hand_ir.param(f"o{k}", dtype, 64, writable=True) for k in range(7)]
    return Function("calls", tuple(buffers), (), hand_ir.loop("i", 0, 64, Block(tuple(stores)), lanes))


@needs_compiler
@pytest.mark.parametrize("march", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_builtins_exist_on_every_x86_level(march: str, tmp_path: Path) -> None:
    if not targets.host().isa.startswith("x86"):
        pytest.skip("an x86 compiler is needed")
    flags = [f for f in cc.FLAGS if f != "-march=native"]
    for dtype, lanes in ((f32, 4), (f32, 8), (f32, 16), (f64, 2), (f64, 4), (f64, 8)):
        text = tmp_path / f"{dtype.name}{lanes}.c"
        text.write_text(to_c(calls(dtype, lanes), targets.host()))
        done = subprocess.run(
            [str(cc.find_compiler()), *flags, f"-march={march}", "-S", "-o", str(tmp_path / "x.s"), str(text)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


@needs_compiler
@pytest.mark.parametrize(("dtype", "lanes"), [(f32, 4), (f32, 8), (f32, 32), (f64, 4), (f64, 16)])
def test_whole_vector_calls_equal_the_interpreter(dtype: DType, lanes: int) -> None:
    fn = calls(dtype, lanes)
    arrays = random_ir.random_arrays(fn, 9)
    expected = random_ir.copy(arrays)
    random_ir.run_interp(fn, expected)
    random_ir.run_c(fn, arrays)
    random_ir.assert_same(fn, expected, arrays)


def test_the_text_is_deterministic_and_readable() -> None:
    text = to_c(hand_ir.matmul(), targets.host())
    assert text == to_c(hand_ir.matmul(), targets.host())
    assert "for (int64_t k" in text and "void matmul(void **buffers, int64_t *params, void *runtime)" in text


def test_parallel_loops_carry_the_pragma() -> None:
    assert "#pragma omp parallel for" in to_c(hand_ir.parallel(), targets.host())


def test_no_compiler_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BuildError, match="no C compiler found") as caught:
        cc.build_shared("int x;")
    assert "\n" not in str(caught.value)


@needs_compiler
def test_a_refused_text_is_one_clear_line() -> None:
    with pytest.raises(BuildError, match="refused the generated C: .*error") as caught:
        cc.build_shared("this is no C;")
    assert "\n" not in str(caught.value)


def test_a_damaged_image_is_refused() -> None:
    with pytest.raises(BuildError, match="cannot load the compiled kernel"):
        cc.load_shared(b"not an object" * 100)


@needs_compiler
def test_openmp_threads_compute_the_same() -> None:
    fn = hand_ir.parallel()
    arrays = random_ir.random_arrays(fn, 3, {"N": 50})
    serial, threaded = random_ir.copy(arrays), random_ir.copy(arrays)
    random_ir.run_c(fn, serial, {"N": 50})
    random_ir.run_c(fn, threaded, {"N": 50}, threads=2)
    random_ir.assert_same(fn, serial, threaded)
    assert not np.isnan(serial["Y"][1, :7]).all()


@needs_compiler
@pytest.mark.parametrize("n", [5, 8, 9, 12, 37])
def test_sums_in_order_down_an_array(n: int) -> None:
    """gcc 12's own vectors take wrong elements for it."""
    N = dims("N")

    @op
    def sums(X: inout(f64[N]), Y: f32[N + 2]):
        for i in range(1, N - 1):
            if i + i >= N:
                s = f32(X[N - i])
                for j in range(i + 1):
                    s += f32(0.5 - Y[N - j + 1])
                X[i] += s

    rng = np.random.default_rng()
    x, y = rng.standard_normal(n), rng.standard_normal(n + 2).astype("f")
    expected = x.copy()
    sums.python(expected, y)
    compile_kernel(sums.scop(), sums.scop().schedule().unroll("j", 4).tree, backend="c")(x, y)
    np.testing.assert_array_equal(x, expected)
