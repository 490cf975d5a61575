"""Words of messages: numbers with their nouns, types with their articles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polyc import ArgumentError, Dim, DslError, PolycError, dims, f32, f64, i32, op, u8
from polyc.poly.dtypes import ALL, KNOWN_TYPES, missing_type
from polyc.poly.words import article, counted, first_line

N = dims("N")


def test_articles_are_as_names_are_spoken() -> None:
    assert [article(d.name) for d in ALL] == [
        "a bool_", "an i8", "a u8", "an i16", "a u16", "an i32", "a u32", "an i64", "a u64", "an f16", "a bf16",
        "an f32", "an f64",
    ]  # fmt: skip
    assert [article(w) for w in ("int", "list", "ndarray", "uint8", "object", "float", "DataFrame")] == [
        "an int", "a list", "an ndarray", "a uint8", "an object", "a float", "a DataFrame",
    ]  # fmt: skip


def test_numbers_have_their_nouns() -> None:
    assert [counted(n, "axis", "axes") for n in (0, 1, 2)] == ["0 axes", "1 axis", "2 axes"]
    assert counted(1, "size") == "1 size" and counted(3, "size") == "3 sizes"


@op
def scaled(a: f32, k: i32, x: f64[N]) -> u8[1]:
    return u8(x[0] * a + k)  # never translated


@pytest.mark.parametrize("run", [scaled, scaled.python], ids=["compiled", "python"])
@pytest.mark.parametrize(
    ("a", "k", "x", "message"),
    [
        ("one", 1, np.ones(2), "argument 'a' is an f32 scalar, which 'one'"),
        (1.0, "one", np.ones(2), "argument 'k' is an i32 scalar, which 'one'"),
        (1.0, np.ones(1, np.int32), np.ones(2), "argument 'k' is an i32 scalar, what is given has 1 axis"),
        (1.0, 1, np.ones((2, 2)), "x has 1 axis, the argument has 2"),
        (1.0, 1, 3, "the argument is an int"),
        (1.0, 1, [3.0], "the argument is a list"),
    ],
)
def test_messages(run: Callable[..., object], a: object, k: object, x: object, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        run(a, k, x)
    assert message in str(caught.value)


def test_an_operator_of_one_argument() -> None:
    @op
    def alone(x: f32[N]) -> f32[N]:
        return x

    with pytest.raises(ArgumentError, match="takes 1 argument, not 2"):
        alone(1, 2)
    with pytest.raises(DslError, match="@op on an int"):
        op(3)


def test_a_size_symbol_made_by_hand_is_refused() -> None:
    wrong: list[Any] = ["N", 3, None]
    for name in wrong:
        with pytest.raises(PolycError, match=r'size symbols are made by dims, as in N = dims\("N"\)'):
            Dim(name)


@pytest.mark.parametrize("text", [None, b"def f(x: f32[2]): pass", 3, ["def f(x: f32[2]): pass"]])
def test_what_is_no_text_has_no_source(text: Any) -> None:
    with pytest.raises(DslError, match="op.from_source takes a text, not an? "):
        op.from_source(text)


@pytest.mark.parametrize("name", ["complex64", "float32", "f80", "s8"])
def test_a_type_that_there_is_not_is_told_of_in_a_text_as_in_a_file(name: str) -> None:
    with pytest.raises(DslError) as caught:
        op.from_source(f"def f(x: {name}[3]): pass", scope={})
    assert caught.value.hint == KNOWN_TYPES
    with pytest.raises(DslError) as caught:
        op.from_source(f"from __future__ import annotations\ndef f(x: {name}[3]): pass", scope={})
    assert caught.value.hint == KNOWN_TYPES
    with pytest.raises(DslError) as caught:
        op.from_source(f"def f(x: f32[3]) -> f32[3]:\n    return {name}(x)", scope={}).scop()
    assert caught.value.hint == KNOWN_TYPES
    assert missing_type(name) == KNOWN_TYPES and missing_type("f32") == missing_type("number") == ""


def test_first_lines_of_errors() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError()) == first_line(ValueError("\n")) == "ValueError"
