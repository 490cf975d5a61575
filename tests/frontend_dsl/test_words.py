"""What a person sees of a refusal: in a traceback, in another process, and for types that do not exist."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import DslError, dims, empty, f32, op

N = dims("N")
TYPES = "hint: element types are bool_, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64"


def scalar_result() -> None:
    @op
    def f(X: polyc.i32[N]) -> polyc.i32:
        return X


def complex_parameter() -> None:
    @op
    def f(X: polyc.c64[N]):
        X[0] = 1


def complex_result() -> None:
    @op
    def f(X: f32[N]) -> polyc.c128[N]:
        return X


def complex_array() -> None:
    @op
    def f(X: f32[N]):
        Y = empty((N,), polyc.c64)
        return Y

    f(np.ones(3, np.float32))


def complex_number() -> None:
    @op
    def f(X: polyc.inout(f32[N])):
        X[0] = np.complex64(X[0])

    f(np.ones(3, np.float32))


def type_of_numpy() -> None:
    @op
    def f(X: np.float32):
        pass


def unknown_in_text() -> None:
    @op
    def f(X: float32[N]):
        pass


def inlined() -> None:
    def helper(x: Any) -> Any:
        return roundd(x)

    @op
    def f(X: polyc.inout(f32[N])):
        X[0] = helper(X[0])

    f(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        (scalar_result, ["hint: results are arrays: write -> i32[1] for one number, or -> i32[N]"]),
        (complex_parameter, [TYPES]),
        (complex_result, [TYPES]),
        (complex_array, [TYPES]),
        (complex_number, [TYPES]),
        (type_of_numpy, [TYPES]),
        (unknown_in_text, [TYPES]),
        (inlined, ["hint: did you mean round?", "inlined from "]),
    ],
)
def test_a_traceback_shows_the_hint(program: Callable[[], None], lines: list[str]) -> None:
    with pytest.raises(DslError) as caught:
        program()
    shown = "".join(traceback.format_exception_only(caught.value)).splitlines()
    assert all(any(s.startswith(line) for s in shown) for line in lines), shown
    assert str(caught.value).splitlines()[-len(lines) :] == shown[-len(lines) :]
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.__notes__ == caught.value.__notes__
    assert again.lineno == caught.value.lineno


def test_a_name_like_a_type_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="no attribute 'f128': element types are bool_, i8"):
        _ = polyc.f128
    with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
        _ = polyc.nothing


def test_objects_echo_one_line() -> None:
    @op
    def f(X: polyc.inout(f32[N])):
        for i in range(N):
            X[i] += 1.0

    scop = f.scop()
    assert repr(scop) == "<Scop f(X) -> () over N: 1 statement>"
    assert repr(scop.schedule().split("i", 8)) == "<Schedule of f: 1 step, loops i.out, i.in>"
    assert len(str(scop).splitlines()) > 5
