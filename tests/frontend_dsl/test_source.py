"""Places in the user's source: carets, missing sources, annotations kept as text."""

import linecache
import traceback
from typing import Any

import numpy as np
import pytest

from polyc import frontend_dsl
from polyc.frontend_dsl import DslError
from polyc.poly.dtypes import f32, f64


def define(text: str, name: str | None) -> dict[str, Any]:
    """Execute `text` as a file called `name` (None: without source, as at a prompt)."""
    if name is not None:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {
        **{n: getattr(frontend_dsl, n) for n in frontend_dsl.__all__},
        "f32": f32,
        "f64": f64,
        "__name__": "written",
    }
    exec(compile(text, name or "<prompt>", "exec"), space)
    return space


PROGRAM = """
N = dims("N")
@op
def double(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = X[i] * 2
    return Y
"""


def test_without_source_plain_python_still_runs():
    double = define(PROGRAM, None)["double"]
    np.testing.assert_array_equal(double.python(np.ones(3, "f4")), np.full(3, 2, "f4"))
    with pytest.raises(DslError, match="the source of double is not available"):
        double.scop()


def test_carets_count_characters():
    text = PROGRAM.replace("X[i] * 2", 'X[i] * len("größe") + größe')
    with pytest.raises(DslError) as caught:
        define(text, "<umlauts>")["double"].scop()
    lines = str(caught.value).splitlines()
    assert lines[0] == "<umlauts>:7:38: unknown name größe"
    assert lines[2].index("^") == lines[1].rindex("größe") and lines[2].endswith("^~~~~")
    assert caught.value.offset == 38


def test_carets_under_tabs():
    with pytest.raises(DslError) as caught:
        define(PROGRAM.replace("    ", "\t").replace("X[i] * 2", "Z[i] * 2"), "<tabs>")["double"].scop()
    _, source, caret = str(caught.value).splitlines()[:3]
    assert caret.index("^") == source.index("Z[i]")


def test_an_expression_over_several_lines():
    with pytest.raises(DslError) as caught:
        define(PROGRAM.replace("X[i] * 2", "(X[i] & (\n            2 + i))"), "<lines>")["double"].scop()
    lines = str(caught.value).splitlines()
    assert lines[2].strip() == "^~~~~~~~" and caught.value.end_lineno == 8


def test_the_traceback_ends_at_the_user_s_line():
    with pytest.raises(DslError) as caught:
        define(PROGRAM.replace("X[i] * 2", "X[i, i]"), "<traceback>")["double"].scop()
    shown = traceback.format_exception(caught.value)
    assert 'File "<traceback>", line 7' in "".join(shown[-5:])
    assert shown[-2].strip().endswith("X has 1 axis, but 2 subscripts") and shown[-1] == "hint: write X[i]\n"


def test_annotations_kept_as_text():
    double = define("from __future__ import annotations\n" + PROGRAM, "<texts>")["double"]
    assert double.scop().params == ("N",)
    wrong = "from __future__ import annotations\n" + PROGRAM.replace("f32[N])", "f32[Q])")
    with pytest.raises(DslError, match="the annotation 'f32\\[Q\\]' cannot be evaluated: name 'Q' is not defined"):
        define(wrong, "<wrong texts>")


def test_other_things_are_no_operators():
    with pytest.raises(DslError, match="@op on a type"):
        frontend_dsl.op(int)


def test_statements_carry_their_places():
    scop = define(PROGRAM, "<places>")["double"].scop()
    span = scop.statements["S0"].span
    assert span is not None and (str(span), span.end_col) == ("<places>:7:9", 23)
    assert scop.arrays["X"].span is not None and scop.arrays["X"].span.line == 4
