"""Quantisation by constant scales without division: the codes of the division, on every f32 that could tell."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import polyc
from polyc.emit import targets
from polyc.frontend_dsl.library.quantization import make_quantize_by_reciprocal
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.reciprocals import _fma, reciprocal_parts, use_reciprocals
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.dtypes import u8

RNG = np.random.default_rng(17)
KINDS: dict[str, Any] = {"u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16}


def scales(count: int) -> np.ndarray:
    """Over many binades, some of them powers of two."""
    plain = RNG.random(count) * 2.0 ** RNG.integers(-30, 30, count)
    return np.concatenate([plain, [1.0, 0.125, 1 / 3, np.nextafter(np.float32(1), np.float32(2))]]).astype(np.float32)


def model_of(x: np.ndarray, scale: Any, zero: np.ndarray | None, axis: int = 1) -> bytes:
    stored = {"s": scale} | ({} if zero is None else {"z": zero})
    node = helper.make_node("QuantizeLinear", ["x", *stored], ["y"], axis=axis)
    out = np.dtype(np.uint8) if zero is None else zero.dtype
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(out), x.shape)],
        [numpy_helper.from_array(v, n) for n, v in stored.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())


def codes(x: np.ndarray, scale: Any, zero: np.ndarray) -> np.ndarray:
    """ONNX's definition in f32."""
    info = np.iinfo(np.dtype(zero.dtype))
    with np.errstate(over="ignore"):
        return np.clip(np.rint(x / scale) + zero.astype(np.float32), info.min, info.max).astype(zero.dtype)


def near_steps(scale: np.float32, steps: int) -> np.ndarray:
    """Numbers on both sides of where codes change, and far from it."""
    at = ((np.arange(-steps, steps) + 0.5) * np.float64(scale)).astype(np.float32)
    around = (at.view(np.int32)[:, None] + np.arange(-6, 7, dtype=np.int32)).view(np.float32).ravel()
    far = np.array([0, -0.0, np.inf, -np.inf, 3e38, -3e38, 1e-45, -1e-40], np.float32)
    return np.concatenate([around, far, RNG.standard_normal(50).astype(np.float32) * scale * 100])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zeros", [False, True])
def test_codes_of_the_division(kind: str, zeros: bool) -> None:
    info = np.iinfo(KINDS[kind])
    for scale in scales(2):
        zero = np.array(RNG.integers(info.min, info.max + 1) if zeros else 0, KINDS[kind])
        x = near_steps(scale, 300)
        got = polyc.compile_model(model_of(x, scale, zero), threads=1, exact=True)({"x": x})["y"]
        np.testing.assert_array_equal(got, codes(x, scale, zero))


def test_a_scale_for_each_channel() -> None:
    several = scales(4)
    x = np.stack([near_steps(s, 200)[:5000] for s in several], 1)
    zero = RNG.integers(-128, 128, several.size).astype(np.int8)
    got = polyc.compile_model(model_of(x, several, zero), threads=1)({"x": x})["y"]
    np.testing.assert_array_equal(got, codes(x, several, zero))


def applied(scale: np.ndarray, target: str) -> int:
    graph = import_model(onnx.load_from_string(model_of(np.zeros((2, 3), np.float32), scale, np.array(3, np.uint8))))
    return use_reciprocals(graph, targets.get(target)).get("divisions", 0)


def test_where_the_division_stays() -> None:
    usual = np.array(0.02, np.float32)
    assert applied(usual, "x86-64-v3") == 1 and applied(usual, "aarch64") == 1
    assert applied(usual, "x86-64") == 0  # a fused multiply-add would be a function
    for odd in (0, -0.5, 1e-40, np.inf, np.nan):
        assert applied(np.array(odd, np.float32), "x86-64-v3") == 0
    assert reciprocal_parts(usual, 8) is not None


def test_there_is_no_division_in_the_assembly() -> None:
    target = targets.get("x86-64-v3")
    text = compile_operator(make_quantize_by_reciprocal(u8, (4, 64), (), True).scop(), target).source("asm")
    assert "vfmadd" in text and "vdiv" not in text


def test_parts_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rest of the reciprocal codes differ, and the trial sees it."""
    import polyc.graph_driver.passes.reciprocals as module

    seen = [reciprocal_parts(s.reshape(()), 8) is not None for s in scales(20)]
    assert all(seen)
    whole = module._fma
    monkeypatch.setattr(module, "_fma", lambda a, b, c: whole(a, b, np.zeros_like(c)))
    assert not any(reciprocal_parts(s.reshape(()), 8) for s in scales(20))


def test_fused_multiply_add() -> None:
    fmaf = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6").fmaf
    fmaf.restype, fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    a = RNG.standard_normal(4000).astype(np.float32)
    b = np.float32(1.7182819)
    rest: np.ndarray = RNG.choice([1.0, 2.0**-24, 2.0**-25, 2.0**-48], a.size)
    c = (a.astype(np.float64) * b * rest * RNG.choice([1, -1, 0.5], a.size)).astype(np.float32)
    wanted = np.array([fmaf(x, b, z) for x, z in zip(a, c, strict=True)], np.float32)
    np.testing.assert_array_equal(_fma(a, b, c), wanted)


@pytest.mark.long
def test_every_number_that_is_not_saturated() -> None:
    """All f32 from a quarter of a step to 300 steps, for one scale."""
    scale = np.float32(0.0235)
    parts = reciprocal_parts(np.array(scale), 8)
    assert parts is not None
    first, last = np.array([scale / 4, scale * 300], np.float32).view(np.int32)
    for start in range(int(first), int(last), 1 << 20):
        x = np.arange(start, start + (1 << 20), dtype=np.int32).view(np.float32)
        np.testing.assert_array_equal(np.rint(_fma(x, parts[0][()], x * parts[1])), np.rint(x / scale))
