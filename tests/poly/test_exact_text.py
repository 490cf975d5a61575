"""Scops as exact text and back: `parse_scop(exact_scop(s)) == s`, and damage is refused in one line."""

import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import random_scops
import small_scops as scops
from random_programs import generate

from examples import polybench
from polyc import dims, f64, inout, op
from polyc.emit import targets
from polyc.emit.gpu import targets as gpu_targets
from polyc.poly.dtypes import bool_, f32, i32, i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Select, StraightLine, Temp, Unary, Var
from polyc.poly.scop import LoopMark, Scop
from polyc.poly.texts.parser import parse_scop, parse_tree
from polyc.poly.texts.printer import exact_scop, exact_tree
from polyc.scheduler.strategies.auto import automatic

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
from library_cases import CASES


def assert_round_trip(scop: Scop) -> None:
    text = exact_scop(scop)
    back = parse_scop(text)
    assert back == scop
    assert exact_scop(back) == text


@pytest.mark.parametrize("name", CASES)
def test_library(name: str) -> None:
    assert_round_trip(CASES[name](5, 7, 6).scop())


@pytest.mark.parametrize("name", polybench.MODULES)
def test_polybench(name: str) -> None:
    kernel = polybench.load(name)
    assert_round_trip(kernel.operator.scop(**kernel.arguments("MINI")[1]))


def test_200_random_scops() -> None:
    for seed in range(200):
        r = random.Random(seed)
        scop = random_scops.random_scop(r)
        assert_round_trip(scop)
        tree = random_scops.random_tree(r, scop)
        assert parse_tree(exact_tree(tree)) == tree


@pytest.mark.parametrize("machine", ["x86-64-v3", "sm_80"])
@pytest.mark.parametrize("name", ["matmul", "softmax", "conv", "layer_norm", "depthwise", "lstm"])
def test_automatic_schedules(name: str, machine: str) -> None:
    """Trees with buffers, layouts, vectors, blocks and threads; Scops that steps have rewritten."""
    chosen = gpu_targets.get(machine) if machine == "sm_80" else targets.get(machine)
    schedule = automatic(CASES[name](37, 33, 41).scop(), chosen)
    assert parse_tree(exact_tree(schedule.tree)) == schedule.tree
    assert_round_trip(schedule.scop.with_tree(schedule.tree))


N = dims("N")


@op
def straight(A: f64[N], B: inout(f64[N])):
    for i in range(N):
        a = A[i] * 2.0
        b = a + A[i]
        a = b * b
        B[i] = a + b


def test_straight_lines() -> None:
    assert_round_trip(straight.scop())


def stored(value: Expr) -> Scop:
    """One statement that stores this value, over iterators i and j."""
    scop = scops.matmul()
    s = next(iter(scop.statements.values()))
    array = replace(scop.arrays[s.array], dtype=value.dtype)
    return replace(
        scop,
        arrays={**scop.arrays, s.array: array},
        statements={**scop.statements, s.name: replace(s, value=value, reduction=None)},
    )


ONE, TWO = Const(1, i64), Const(2, i64)
I = Var("i")
VALUES = [
    ONE, Const(-1, i64), Const(True, i64), Const(1, i32), Const(True, bool_), Const(0.1, f32), Const(-0.0, f32),
    Const(1, f32), Const(float("inf"), f32), Const(float("-inf"), f32), Const(2**63 - 1, i64),
    Unary("neg", ONE, i64), Unary("neg", Unary("neg", I, i64), i64), Unary("~", Const(-1, i64), i64),
    Unary("not", Binary("and", Const(True, bool_), Const(False, bool_), bool_), bool_),
    Cast(TWO, f32), Cast(I, f32), Cast(Cast(I, f32), i64), Cast(Unary("neg", TWO, i64), f32),
    Binary("-", I, Binary("-", ONE, TWO, i64), i64), Binary("**", Binary("**", I, ONE, i64), TWO, i64),
    Binary("**", I, Binary("**", I, ONE, i64), i64), Binary("**", Unary("neg", I, i64), TWO, i64),
    Unary("neg", Binary("**", I, TWO, i64), i64), Binary("*", Binary("+", I, ONE, i64), TWO, i64),
    Binary("<", Binary("<", I, ONE, bool_), Const(True, bool_), bool_),
    Binary("and", Const(True, bool_), Binary("and", Const(True, bool_), Const(False, bool_), bool_), bool_),
    Binary("<<", Binary("|", I, ONE, i64), Binary("&", I, ONE, i64), i64), Binary("max", I, ONE, i64),
    Select(Binary("<", I, ONE, bool_), I, TWO, i64), Call("exp", (Const(0.5, f32),), f32),
    Call("exp", (Const(0.5, f32),), f64), Unary("neg", I, i32), Binary("+", I, I, i32),
    StraightLine(("a", "b"), (I, Binary("+", Temp("a", i64), ONE, i64)), Temp("b", i64), i64),
    Binary("+", ONE, StraightLine(("i",), (TWO,), Binary("*", I, Temp("i", i64), i64), i64), i64),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_expressions(value: Expr) -> None:
    """Types of numbers, signs, associativity, types that do not follow."""
    scop = stored(value)
    text = exact_scop(scop)
    try:
        back = parse_scop(text)
    except ScopError as error:  # the statement's other lines may not fit this value: only the reading counts here
        assert "breaks a rule" in str(error)
        return
    assert back == scop and exact_scop(back) == text
    made = next(iter(back.statements.values())).value
    assert repr(made) == repr(value)


def test_names_that_python_reads_otherwise() -> None:
    """A size called lambda, an array called in, notes of several lines."""
    lines = re.sub(r"\bK\b", "lambda", TEXT).splitlines()  # isl needs no quotes, expressions do
    quoted = (x if "{" in x else re.sub(r"\blambda\b", '"lambda"', re.sub(r"\bA\b", '"in"', x)) for x in lines)
    scop = parse_scop("\n".join(quoted))
    assert "in" in scop.arrays and "lambda" in scop.params
    marks = LoopMark("i.out", "vectorize", 8), LoopMark("j", "parallel")
    notes = "two\nlines", 'a "quote"', "# no remark"
    assert_round_trip(replace(scop, notes=notes, marks=marks, reassociate=False, fast_math=True))


TEXT = exact_scop(scops.matmul())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (TEXT, "", "line 1: the text is empty"),
        ("scop ", "scope ", "line 1: here the text has the form 'scop NAME(ARGUMENTS) -> (RESULTS)'"),
        ("  sizes", "sizes", "line 2: here the text has the form 'sizes (NAMES): SET', indented by 2"),
        (": f32[", ": f33[", "line 3: there is no type 'f33'"),
        ("f32(0.0)", "0.0", "the number 0.0 needs a type, as in f32(0.0)"),
        ("f32(0.0)", "sinus(f32(0.0))", "there is no function 'sinus' of 1"),
        ("f32(0.0)", "X[i]", "no array 'X' is declared"),
        ("f32(0.0)", "f32(0.0", "'f32(0.0' is no expression"),
        ("f32(0.0)", "f32(0.0) + i", "operands of '+' are f32 and i64"),
        ("f32(0.0)", "[f32(0.0)]", "is no expression of a Scop"),
        ("f32(0.0)", "_.a", "the value 'a' is used before it is computed"),
        ("f32(0.0)", "unknown", "line 6: what stands here breaks a rule"),
        ("  in A", "  local A", "line 3: what stands here breaks a rule: matmul: argument 'A' is declared 'local'"),
        (
            "only\n          S0: [M, N, K] -> { S0[i, j] : 0 <",
            "only\n          S0: [M, N, K] -> { S0[i, j] : 1 <",
            "line 11: what stands here breaks a rule",
        ),
        ("    domain ", "    domain of ", "isl cannot read this set or function"),
        ("  schedule\n", "", "here the text has the form 'NAME(ITERATORS): ELEMENT = VALUE'"),
        ("leaf", "leaves", "here the text has the form 'leaf, band, sequence, only or promote ARRAY to SPACE BUFFER'"),
    ],
)
def test_wrong_texts_end_in_one_line(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(ScopError) as caught:
        parse_scop(TEXT.replace(old, new, 1))
    message = str(caught.value)
    assert said in message and "\n" not in message and re.match(r"Scop, line \d+: ", message)


def test_random_programs() -> None:
    for seed in range(20):
        assert_round_trip(generate(seed).operator().scop())


def test_300_damaged_texts() -> None:
    """A line lost, doubled or moved, a character changed: another Scop, or one line."""
    texts = [TEXT, exact_scop(straight.scop())]
    for seed in range(300):
        r = random.Random(seed)
        lines = r.choice(texts).splitlines()
        k, m = r.randrange(len(lines)), r.randrange(len(lines))
        kind = seed % 4
        if kind == 0:
            del lines[k]
        elif kind == 1:
            lines.insert(m, lines[k])
        elif kind == 2:
            lines[k], lines[m] = lines[m], lines[k]
        else:
            at = r.randrange(len(lines[k]) + 1)
            lines[k] = lines[k][:at] + r.choice("()[]{}:,='\"#0x \té") + lines[k][at + 1 :]
        try:
            parse_scop("\n".join(lines))
        except ScopError as error:
            assert "\n" not in str(error) and re.match(r"Scop, line \d+: ", str(error))


def test_trees_by_themselves() -> None:
    tree = scops.matmul().tree
    assert parse_tree(exact_tree(tree)) == tree
    with pytest.raises(ScopError, match="line 1: here the text has the form 'leaf"):
        parse_tree("nothing")
