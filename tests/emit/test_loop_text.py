"""Loop IR as text and back: `parse(exact_text(f))` is `f` with its blocks flat, on every kind of function."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import hand_ir
import pytest
import random_ir

from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.emit.gpu import targets as gpu_targets
from polyc.emit.gpu.kernel import compile_gpu
from polyc.emit.loop_ir.loops import Block, Buffer, For, Function, Stmt, Store, walk
from polyc.emit.loop_ir.parser import flat, parse
from polyc.emit.loop_ir.printer import exact_text
from polyc.poly.dtypes import bool_, f32, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Const, Unary
from polyc.scheduler.strategies.auto import automatic

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
from library_cases import CASES

OPERATORS = ("matmul", "softmax", "conv", "lstm", "top_k", "depthwise", "scatter_nd", "quantize", "layer_norm")


def assert_round_trip(fn: Function) -> None:
    text = exact_text(fn)
    back = parse(text)
    assert back == replace(fn, body=flat(fn.body), notes=())
    assert exact_text(back) == text


@pytest.mark.parametrize("name", hand_ir.ALL)
def test_hand_written_functions(name: str) -> None:
    assert_round_trip(hand_ir.ALL[name]())


def test_random_functions() -> None:
    for seed in range(100):
        for lanes in (1, 4):
            assert_round_trip(random_ir.expression_function(seed, lanes, count=4))


@pytest.mark.parametrize("name", [n for n in OPERATORS if n in CASES])
def test_operators_on_a_cpu(name: str) -> None:
    scop, target = CASES[name](9, 7, 6).scop(), targets.get("x86-64-v3")
    schedule = automatic(scop, target, 2)
    assert_round_trip(compile_kernel(schedule.scop, schedule.tree, target, "interp", 2).function)


@pytest.mark.parametrize("name", [n for n in ("matmul", "softmax", "conv", "layer_norm") if n in CASES])
def test_operators_on_a_gpu(name: str) -> None:
    scop, target = CASES[name](64, 48, 32).scop(), gpu_targets.get("sm_80")
    schedule = automatic(scop, target)
    assert_round_trip(compile_gpu(schedule.scop, schedule.tree, target).function)


def test_what_the_readable_text_leaves_out() -> None:
    """A negated number, the number of a conversion, and marks of loops and stores."""
    fn = hand_ir.matmul()
    one = Const(1, i64)
    changed = replace(fn, fma=False, fast_math=True)
    assert_round_trip(changed)

    def marked(s: Stmt) -> Stmt:
        if isinstance(s, For):
            return replace(s, body=marked(s.body), loop="i.out.in")
        return Block(tuple(map(marked, s.stmts))) if isinstance(s, Block) else s

    text = exact_text(replace(fn, body=marked(fn.body)))
    assert "loop=i.out.in" in text
    assert {s.loop for s in walk(parse(text).body) if isinstance(s, For)} >= {"i.out.in"}
    for value in (Unary("neg", one, i64), Binary("-", one, Const(-1, i64), i64), Const(-0.0, f32), Const(True, bool_)):
        buffer = Buffer("x", value.dtype, (), "param")
        assert_round_trip(Function("f", (buffer,), (), Store("x", (), value, reduction="+")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the text is empty"),
        ("for i in range(0, 4):", "line 1: this line has not the form"),
        ("def f(x: f32[4]):\n    x[0] = 1.0", "line 2: the number 1.0 needs a type, as in f32(1.0)"),
        ("def f(x: f32[4]):\n    y[0] = f32(1.0)", "line 2: no buffer 'y' is declared"),
        ("def f(x: f32[4]):\n    x[i] = f32(1.0)", "line 2: the name 'i' is not declared"),
        ("def f(x: f32[4]):\n    x[0] = __import__(i64(1))", "line 2: there is no function '__import__'"),
        ("def f(x: f32[4]):\n    x[0] = (lambda: 1)", "line 2: 'lambda: 1' is no expression"),
        ("def f(x: f33[4]):\n    pass", "line 1: there is no type 'f33'"),
        ("def f(x: f32[4]):\n    for i in range(0, 4):\n    x[0] = f32(1.0)", "nothing is inside: write 'pass'"),
        ("def f(x: f32[4]):\n    x[0] = i32(1)", "is wrong after reading it"),
        ("def f(x: f32[4]):\n    sleep", "line 2: this is no statement"),
    ],
)
def test_wrong_texts_end_in_one_line(text: str, said: str) -> None:
    with pytest.raises(BuildError) as caught:
        parse(text)
    assert said in str(caught.value) and "\n" not in str(caught.value)
