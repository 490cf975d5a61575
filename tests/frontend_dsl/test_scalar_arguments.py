"""Run-time scalars are taken only when nothing is lost, alike in plain Python, compiled, and by a kernel itself."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import polyc
from polyc import ArgumentError, DslError, dims, empty, f32, op
from polyc.poly.dtypes import ALL, BY_NAME
from polyc.poly.scalars import scalar

N = dims("N")
A = np.ones(2, np.float32)


def taking(dtype):
    @op
    def store(X: f32[N], v: dtype) -> dtype[N]:
        Y = empty((N,), dtype)
        for i in range(N):
            Y[i] = v
        return Y

    return store


STORE = {d.name: taking(d) for d in ALL}
KERNELS: dict[str, object] = {}


def ways(name: str):
    operator = STORE[name]
    if name not in KERNELS:
        KERNELS[name] = operator.compile()
    return operator, operator.python, KERNELS[name], lambda x, v: operator(x, v=v), lambda x, v: KERNELS[name](x, v=v)


class Index:
    def __index__(self) -> int:
        return 7

    def __repr__(self) -> str:  # part of a test's name: pytest-xdist wants the same one in every process
        return "Index()"


FINE = [
    ("i32", 3.0, 3), ("i32", -0.0, 0), ("i32", True, 1), ("i32", np.int64(5), 5), ("i32", np.float32(5), 5),
    ("i32", 2**31 - 1, 2**31 - 1), ("i32", Index(), 7), ("u32", 2**32 - 1, 2**32 - 1), ("i64", -(2**63), -(2**63)),
    ("u64", 2**64 - 1, 2**64 - 1), ("u64", 1e15, 10**15), ("i8", np.array(3), 3), ("bool_", True, True),
    ("bool_", np.bool_(False), False), ("bool_", 1, True), ("bool_", 0.0, False), ("f32", 2.7, np.float32(2.7)),
    ("f32", 3, 3.0), ("f32", math.inf, math.inf), ("f32", 1e-60, 0.0), ("f32", np.float64(0.1), np.float32(0.1)),
    ("f16", 65504, 65504.0), ("bf16", 0.1, float(ml_dtypes.bfloat16(0.1))), ("f64", 2**53 + 1, float(2**53)),
    ("f32", True, 1.0), ("f32", ml_dtypes.bfloat16(2), 2.0), ("i32", ml_dtypes.bfloat16(2), 2),
]  # fmt: skip
REFUSED = [
    ("i32", 2.7), ("i32", math.nan), ("i32", math.inf), ("i32", 2**32 + 3), ("i32", -(2**31) - 1), ("u32", -1),
    ("u32", -0.5), ("u64", 2**64), ("u64", -1), ("i64", 2**63), ("i64", 1e30), ("i8", np.int64(200)), ("u8", 256),
    ("i32", 1 + 0j), ("f32", 1j), ("f32", np.complex64(1)), ("i32", "3"), ("f32", "3.0"), ("f32", b"3"), ("f32", None),
    ("i32", [3]), ("f32", np.ones(1)), ("f32", np.ones((1, 1), np.float32)), ("bool_", 2), ("bool_", "True"),
    ("bool_", math.nan), ("bool_", 0.5), ("f32", 1e39), ("f32", 10**400), ("f16", 65520.0), ("bf16", 3.4e38 * 1.01),
    ("f64", 10**400), ("f32", object()), ("i32", np.float16(2.5)), ("i32", 10**5000), ("i32", np.datetime64(1, "s")),
    ("f32", np.timedelta64(1, "s")), ("i32", np.str_("3")),
]  # fmt: skip


@pytest.mark.parametrize("dtype, value, meaning", FINE, ids=repr)
def test_values_that_fit(dtype: str, value: object, meaning: object) -> None:
    for way in ways(dtype):
        found = way(A, value)
        assert found.dtype == BY_NAME[dtype].np and [float(v) for v in found] == [float(meaning)] * 2, way


@pytest.mark.parametrize("dtype, value", REFUSED, ids=lambda v: repr(v)[:20] if not isinstance(v, int) else hex(v)[:9])
def test_values_that_do_not(dtype: str, value: object) -> None:
    for way in ways(dtype):
        with pytest.raises(ArgumentError) as error:
            way(A, value)
        text = str(error.value)
        assert text.startswith("store") and "v" in text and "\n" not in text and len(text) < 200, text
        assert dtype in text or "dimensions" in text


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ALL), st.one_of(st.integers(), st.floats(), st.booleans()))
@example(BY_NAME["f32"], 3.4028235677973366e38)
def test_the_rule_is_numpys(dtype, value) -> None:
    """Integers and bools: back to the same value. Floats: NumPy's rounding, unless a finite number becomes infinite."""
    try:
        found = scalar(value, dtype, "x")
    except ArgumentError:
        if dtype.is_float:
            with np.errstate(all="ignore"):
                assert not abs(value) < 2**1023 or not math.isfinite(float(np.float64(value).astype(dtype.np)))
        else:
            low, high = (0, 1) if dtype.kind == "bool" else (np.iinfo(dtype.np).min, np.iinfo(dtype.np).max)
            assert value != value or value in (math.inf, -math.inf) or not low <= value <= high or value != int(value)
        return
    assert np.asarray(found).dtype == dtype.np
    if dtype.is_float:
        with np.errstate(all="ignore"):
            same = np.asarray(float(value)).astype(dtype.np)
        assert np.asarray(found).tobytes() == same.tobytes()
    else:
        assert found == value


def test_sizes() -> None:
    @op
    def ones(X: f32[N]) -> f32[N]:
        Y = empty((N,), f32)
        for i in range(N):
            Y[i] = X[i]
        return Y

    for wrong in (2.5, math.nan, "2", None, 2j, -1, 2**64, [2]):
        for call in (lambda v: ones(A, N=v), lambda v: ones.python(A, N=v), lambda v: ones.scop(N=v),
                     lambda v: ones.compile(N=v), lambda v: ones.schedule(N=v)):  # fmt: skip
            with pytest.raises(ArgumentError, match="N"):
                call(wrong)
    for right in (2, 2.0, np.int8(2), np.float32(2), np.array(2)):
        assert np.array_equal(ones(A, N=right), A)
        assert ones.scop(N=right).params == ()


def test_a_constant_for_a_scalar_of_an_inlined_operator() -> None:
    whole = STORE["i32"]

    @op
    def outer(X: f32[N]) -> polyc.i32[N]:
        return whole(X, 3.0)

    @op
    def cut(X: f32[N]) -> polyc.i32[N]:
        return whole(X, 2.7)

    assert list(outer(A)) == list(outer.python(A)) == [3, 3]
    with pytest.raises(DslError, match="cannot hold 2.7"):
        cut(A)
    with pytest.raises(ArgumentError, match="cannot hold 2.7"):
        cut.python(A)
