"""Products with weights of a few bits against ONNX Runtime, whose operators they are, and against exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_case import in_part
from test_contrib import check, f32, model_of

import polyc
from polyc.emit import targets

rng = np.random.default_rng(5)


def weights(columns: int, inner: int, size: int, bits: int, zero: str = "") -> dict[str, np.ndarray | None]:
    """Operands of `MatMulNBits` but the first; the codes beyond a column's end are random, too."""
    blocks, per = -(-inner // size), 8 // bits
    codes = rng.integers(0, 256, (columns, blocks, size // per)).astype(np.uint8)
    scales = (rng.random((columns, blocks)) + 0.1).astype(np.float32)
    points: np.ndarray | None = None
    if zero == "packed":
        points = rng.integers(0, 256, (columns, -(-blocks // per))).astype(np.uint8)
    elif zero == "real":
        points = (rng.random((columns, blocks)) * 8).astype(np.float32)
    return {"b": codes, "s": scales, "z": points}


def dequantised(w: dict[str, Any], inner: int, size: int, bits: int) -> np.ndarray:
    """The weights in f64, a row for each column."""

    def codes(bytes_: np.ndarray) -> np.ndarray:
        parts = np.stack([(bytes_ >> (bits * j)) & ((1 << bits) - 1) for j in range(8 // bits)], -1)
        return parts.reshape(*bytes_.shape[:-1], -1).astype(np.float64)

    columns, blocks = w["s"].shape
    zero = np.full((columns, blocks), 2.0 ** (bits - 1))
    if w["z"] is not None:
        zero = codes(w["z"])[:, :blocks] if w["z"].dtype == np.uint8 else w["z"].astype(np.float64)
    whole = (codes(w["b"]) - zero[..., None]) * w["s"].astype(np.float64)[..., None]
    return whole.reshape(columns, blocks * size)[:, :inner]


FORMS = [
    *((bits, size, zero) for bits in (4, 8) for size in (16, 32, 128) for zero in ("", "packed")),
    (4, 16, "real"), (4, 128, "real"),
]  # fmt: skip


CASES = [(*form, rows) for form in FORMS for rows in ((1,), (2, 3))]


@pytest.mark.parametrize(
    ("bits", "size", "zero", "rows"),
    in_part(CASES, (4, 32, "", (2, 3)), (8, 16, "packed", (1,)), (4, 128, "real", (1,))),
)
def test_matmul_of_a_few_bits(bits: int, size: int, zero: str, rows: tuple[int, ...]) -> None:
    inner, columns = 144, 21
    w = weights(columns, inner, size, bits, zero)
    attrs = {"N": columns, "K": inner, "bits": bits, "block_size": size}
    atol = 2e-4 * 2 ** (bits - 4)  # as large as the codes are: sums of 144 products that cancel
    check("MatMulNBits", {"a": f32(*rows, inner), **w}, weights=("b", "s", "z"), atol=atol, **attrs)
    check("MatMulNBits", {"a": f32(*rows, inner), **w}, atol=atol, **attrs)


EXACT = [(bits, zero) for bits in (2, 4, 8) for zero in ("", "packed", "real")]


@pytest.mark.parametrize(("bits", "zero"), in_part(EXACT, (8, "packed")))
def test_against_exact_arithmetic(bits: int, zero: str) -> None:
    """Small integers and scales that are powers of two: every sum is exact in f32, in any order."""
    inner, columns, size = 61, 5, 16
    w = weights(columns, inner, size, bits, zero)
    w["s"] = 2.0 ** rng.integers(-2, 3, (columns, -(-inner // size))).astype(np.float32)
    if zero == "real":
        w["z"] = rng.integers(0, 9, w["s"].shape).astype(np.float32)
    a = rng.integers(-8, 9, (3, inner)).astype(np.float32)
    model = model_of("MatMulNBits", {"a": a, **w}, 1, 21, ("b", "s", "z"),
                     {"N": columns, "K": inner, "bits": bits, "block_size": size})  # fmt: skip
    got = polyc.compile_model(model, threads=1)({"a": a})["o0"]
    np.testing.assert_array_equal(got, a @ dequantised(w, inner, size, bits).T)


def test_bias() -> None:
    w = weights(8, 64, 32, 4)
    given = {"a": f32(2, 64), **w, "g": None, "c": f32(8)}
    check("MatMulNBits", given, weights=("b", "s"), atol=2e-4, N=8, K=64, bits=4, block_size=32)


@pytest.mark.parametrize(("bits", "zero"), [(4, False), (4, True), (8, True), (8, False)])
def test_gather(bits: int, zero: bool) -> None:
    entries, inner, size, per = 9, 64, 16, 8 // bits
    table = rng.integers(0, 256, (entries, inner // per)).astype(np.uint8)
    points = rng.integers(0, 256, (entries, inner // size // per)).astype(np.uint8) if zero else None
    scales = (rng.random((entries, inner // size)) + 0.1).astype(np.float32)
    given = {"t": table, "j": np.array([[3, 0, -1], [8, 8, 2]]), "s": scales, "z": points}
    check("GatherBlockQuantized", given, weights=("t", "s", "z"), bits=bits, block_size=size, quantize_axis=1)


EIGHT = [
    (*form, rows) for form in [(4, 32, ""), (4, 16, "packed"), (8, 32, "packed"), (4, 64, "real")] for rows in (1, 5)
]


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
@pytest.mark.parametrize(("bits", "size", "zero", "rows"), in_part(EIGHT, (4, 32, "", 5), (8, 32, "packed", 1)))
def test_rows_in_eight_bits(bits: int, size: int, zero: str, rows: int, target: str) -> None:
    """`accuracy_level` 4: the codes of a row are those of ONNX Runtime, relative to the largest element of a block."""
    inner, columns = 192, 70
    w = weights(columns, inner, size, bits, zero)
    a = f32(rows, inner)
    attrs = {"N": columns, "K": inner, "bits": bits, "block_size": size, "accuracy_level": 4}
    model = model_of("MatMulNBits", {"a": a, **w}, 1, 21, ("b", "s", "z"), attrs)
    got = polyc.compile_model(model, threads=1, target=target)({"a": a})["o0"]
    blocks = a.reshape(rows, -1, size).astype(np.float64)
    step = abs(blocks).max(-1, keepdims=True) / 127
    coarse = (np.rint(blocks / step) * step).reshape(rows, inner)
    exact = polyc.compile_model(model, threads=1, exact=True)({"a": a})["o0"]
    whole = dequantised(w, inner, size, bits).T
    machine = targets.get(target)
    in_codes = "dot_bytes" in targets.own_instructions(machine) or (bits < 8 and targets.multiplies_codes(machine))
    want = coarse @ whole if in_codes else a @ whole
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * abs(want).max())
    np.testing.assert_allclose(exact, a @ whole, rtol=1e-4, atol=1e-4 * abs(want).max())


FLOATS = [(4, 32, ""), (8, 16, "packed"), (4, 128, "real"), (2, 64, "")]


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
@pytest.mark.parametrize(("bits", "size", "zero"), in_part(FLOATS, (4, 32, ""), (8, 16, "packed")))
def test_rows_of_any_number(bits: int, size: int, zero: str, target: str) -> None:
    """One compilation for all batches and numbers of rows: whole groups and a rest, columns unpacked in several steps,
    the last one not full; in f32 also where the machine could take bytes."""
    inner, columns = 600, 40
    w = weights(columns, inner, size, bits, zero)
    model = model_of("MatMulNBits", {"a": f32(1, 3, inner), **w}, 1, 21, ("b", "s", "z"),
                     {"N": columns, "K": inner, "bits": bits, "block_size": size})  # fmt: skip
    for axis, free in enumerate(("batch", "rows")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = free
    compiled = polyc.compile_model(model, threads=1, target=target, symbolic=True)
    assert not compiled.report().host
    for rows in ((1, 1), (1, 2), (3, 1), (2, 2), (1, 11)):
        a = f32(*rows, inner)
        want = a @ dequantised(w, inner, size, bits).T
        np.testing.assert_allclose(compiled({"a": a})["o0"], want, rtol=1e-4, atol=1e-4 * abs(want).max())


def test_values_without_end_stay_visible() -> None:
    inner, columns = 64, 16
    w = weights(columns, inner, 32, 4)
    model = model_of("MatMulNBits", {"a": f32(2, inner), **w}, 1, 21, ("b", "s", "z"),
                     {"N": columns, "K": inner, "bits": 4, "block_size": 32})  # fmt: skip
    a = f32(2, inner)
    a[0, 3], a[1] = np.nan, 0.0
    got = polyc.compile_model(model, threads=1)({"a": a})["o0"]
    assert np.isnan(got[0]).all() and (got[1] == 0).all()
