"""Functional programs: the examples of Relay's reference in our grammar, and random programs, equal to plain Python."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import plain
import pytest

import polyc
from polyc.poly.errors import ModelError

rng = np.random.default_rng(3)


def check(text: str, *inputs: np.ndarray, host: bool = True) -> list[np.ndarray]:
    """Compile, run, compare with plain Python; the results. `host`: whether steps may run on the host."""
    model = polyc.from_functional(text, threads=1)
    names = list(model.inputs)
    made = list(model(dict(zip(names, inputs, strict=True))).values())
    expected = plain.run(text, *inputs)
    assert len(made) == len(expected)
    for got, wanted in zip(made, expected, strict=True):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, wanted)
    assert host or not model.report().host
    return made


def i(*numbers: int) -> list[np.ndarray]:
    return [np.array(n, np.int32) for n in numbers]


def f(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


# ---- the examples of Relay's reference (TVM, docs/langref/relay_expr: Expressions in Relay) ----


def test_local_variables_hide_others() -> None:
    text = "def @main() -> i32[] { let %a = 1; let %b = 2 * %a; let %a = %a + %a; %a + %b }"
    assert check(text)[0] == 4


def test_functions_with_and_without_types() -> None:
    text = """
    def @main(%x: f32[10, 10], %y: f32[10, 10]) {
      let %add = fn(%x, %y) { Add(%x, %y) };
      let %typed = fn(%x: f32[10, 10], %y: f32[10, 10]) -> f32[10, 10] { Add(%x, %y) };
      (%add(%x, %y), %typed(%y, %y))
    }"""
    check(text, f(10, 10), f(10, 10), host=False)


def test_a_recursive_function() -> None:
    """Relay's `%fact`, on a scalar: it uses its result, so there are two loops."""
    text = """
    def @main(%n: i32[]) {
      let %fact = fn(%x: i32[]) -> i32[] { if (%x == 0) { 1 } else { %x * %fact(%x - 1) } };
      %fact(%n)
    }"""
    for n, wanted in ((0, 1), (1, 1), (10, 3628800)):
        assert check(text, *i(n))[0] == wanted


def test_a_closure_keeps_its_surroundings() -> None:
    text = """
    def @main() -> f32[10, 10] {
      let %g = fn() { let %x = full(0, f32[10, 10]); fn(%y) { %y * %x } };
      let %f = %g();
      let %x = full(1, f32[10, 10]);
      %f(%x)
    }"""
    assert not check(text)[0].any()


def test_one_function_for_many_types() -> None:
    text = """
    def @main(%a: f32[2, 3], %b: i32[]) {
      let %same = fn(%x) { %x };
      let %sum = fn(%x, %y) { %x + %y };
      (%same(%a), %same((%b, %a)).0, %sum(%a, 1), %sum(%b, %b))
    }"""
    check(text, f(2, 3), *i(7))


def test_a_call() -> None:
    text = """
    def @main() {
      let %c = 1;
      let %f = fn(%x: f32[], %y: f32[]) { %x + %y + %c };
      %f(10, 11)
    }"""
    assert check(text)[0] == 22


ACKERMANN = """
def @put(%stack, %at, %value) {
  ScatterElements(%stack, Unsqueeze(%at, full(0, i64[1])), Unsqueeze(%value, full(0, i64[1])))
}
def @run(%stack: i32[64], %top: i32[], %n: i32[]) -> i32[] {  // the operands m that still wait, the topmost last
  if (%top == 0) { %n } else {
    let %m = Gather(%stack, %top - 1, axis=0);
    let %below = @put(%stack, %top - 1, %m - 1);
    if (%m == 0) { @run(%stack, %top - 1, %n + 1) }
    else if (%n == 0) { @run(%below, %top, 1) }
    else { @run(@put(%below, %top, %m), %top + 1, %n - 1) }
  }
}
def @main(%m: i32[], %n: i32[]) -> i32[] { @run(@put(full(0, i32[64]), full(0, i32[]), %m), 1, %n) }
"""


def ackermann(m: int, n: int) -> int:
    return n + 1 if m == 0 else ackermann(m - 1, 1) if n == 0 else ackermann(m - 1, ackermann(m, n - 1))


def test_ackermann_by_a_loop_with_a_stack() -> None:
    """Relay's `@ackermann` calls itself within its operand, which no loop does; with a stack its own last act does."""
    model = polyc.from_functional(ACKERMANN, threads=1)
    for m, n in ((0, 3), (1, 2), (2, 3), (3, 2)):
        given = dict(zip("mn", i(m, n), strict=True))
        assert model(given)["result0"] == ackermann(m, n)


def test_tuples() -> None:
    text = """
    def @main(%a: f32[10, 10], %b: f32[], %c: f32[100, 100]) {
      let %tup = (%a, %b);
      ((%tup.0 + %tup.1), %c, (%a, %b, %c).1, ((%a, (%b,)), %c).0.1.0)
    }"""
    check(text, f(10, 10), f(), f(100, 100))


def test_let_and_graph_bindings() -> None:
    text = """
    def @main(%a: f32[4], %b: f32[4], %c: f32[4], %d: f32[4]) {
      let %x : f32[10, 10] = full(1, f32[10, 10]);
      let %left = %a + %b;
      let %right = %c + %d;
      let %one = %a + %b; let %two = %one + %one;
      (%x + %x, %left * %right, %two * %two)
    }"""
    assert (check(text, f(4), f(4), f(4), f(4), host=False)[0] == 2).all()


def test_if_then_else() -> None:
    text = "def @main(%t: f32[], %u: f32[]) { if (%t == %u) { %t } else { %u } }"
    check(text, np.float32(1), np.float32(2))
    check(text, np.float32(2), np.float32(2))


NAT = """
data Nat { Z() S(Nat) }
def @less_one(%v) { match(%v) { case Z() { Z() } case S(%n) { %n } } }
def @less_two(%v) { match(%v) { case S(S(%n)) { %n } case _ { %v } } }
def @never(%v) { match(%v) { case _ { %v } case S(S(%n)) { S(%n) } case S(%n) { %n } case Z() { S(Z()) } } }
def @number(%v) { match(%v) { case Z() { 0 } case S(%n) { 1 + @number(%n) } } }
def @main(%x: f32[3]) {
  let %three = S(S(S(Z())));
  (%x * @number(%three), %x * @number(@less_one(%three)), %x * @number(@less_two(%three)),
   %x * @number(@less_two(S(Z()))), %x * @number(@never(%three)))
}"""


def test_data_types_and_match() -> None:
    x = f(3)
    made = check(NAT, x)
    for got, factor in zip(made, (3, 2, 1, 1, 3), strict=True):
        np.testing.assert_array_equal(got, x * np.float32(factor))


# ---- beyond the reference ----


def test_a_network_by_functions_and_a_loop() -> None:
    text = """
    def @layer(%x, %w) { Relu(MatMul(%x, %w)) }
    def @again(%x: f32[4, 8], %w: f32[8, 8], %n: i32[]) -> f32[4, 8] {
      if (%n <= 0) { %x } else { @again(@layer(%x, %w), %w, %n - 1) }
    }
    def @main(%x: f32[4, 8], %w: f32[8, 8], %n: i32[]) {
      let %parts = Split(@again(%x, %w, %n), axis=1, num_outputs=2);
      (%parts.0, Transpose(%parts.1, perm=[1, 0]))
    }"""
    for n in (0, 1, 3):
        check(text, f(4, 8), f(8, 8), *i(n))


def test_results_of_several_tensors() -> None:
    text = """
    def @fibonacci(%n: i32[], %pair: (i32[], i32[])) -> (i32[], i32[]) {
      if (%n == 0) { %pair } else { @fibonacci(%n - 1, (%pair.1, %pair.0 + %pair.1)) }
    }
    def @count(%n: i32[], %x: f32[3]) -> (i32[], f32[3]) {
      if (%n < 1) { (0, %x) } else { let %rest = @count(%n - 2, %x * 2); (%rest.0 + 1, %rest.1 + %x) }
    }
    def @main(%n: i32[], %x: f32[3]) { (@fibonacci(%n, (0, 1)), @count(%n, %x)) }"""
    for n in (0, 1, 9):
        check(text, *i(n), f(3))


REFUSED = {
    "def @main(%x: f32[2]) { %y }": "<text>:1: there is no variable %y",
    "def @main(%x: f32[2]) { Nope(%x) }": "there is no operator of ONNX Nope",
    "def @main(%x: f32[2], %y: f32[3]) { %x + %y }": "Add does not take these operands",
    "def @main(%x) { %x }": "the input %x needs the type of a tensor",
    "def @main(%x: f32[2]) { if (%x == 0) { %x } else { %x } }": r"a condition is a bool_\[\], not bool_\[2\]",
    "def @main(%x: f32[2], %c: bool_[]) { if (%c) { %x } else { %c } }": r"the branches give f32\[2\] and bool_\[\]",
    "def @main(%x: f32[2]) -> f32[3] { %x }": r"this is f32\[2\], and f32\[3\] is declared",
    "def @main(%n: i32[]) { let %f = fn(%n) { %f(%n - 1) }; %f(%n) }": "calls itself: its parameters and its result",
    "def @f(%n: i32[]) -> i32[] { if (%n < 2) { %n } else { @f(%n - 1) + @f(%n - 2) } }\n"
    "def @main(%n: i32[]) { @f(%n) }": "<text>:1: @f needs more than one result of its own",
    "def @f(%n: i32[]) -> i32[] { @g(%n) } def @g(%n: i32[]) -> i32[] { @f(%n) }\n"
    "def @main(%n: i32[]) { @f(%n) }": "calls itself by way of others",
    "def @main(%x: f32[2]) { fn(%y) { %y } }": "here stands a function, where a tensor has to be",
    "def @main(%x: f32[2]) { %x.0 }": r"\.0 is a member of tuples",
    "def @main(%x: f32[2]) { (%x,).1 }": r"the tuple has 1 members",
    "def @main(%x: f32[2]) { NonZero(%x) }": "decided by data: only a run knows them",
    "def @main(%x: f32[2]) { %x + }": "<text>:1: expected an expression, not }",
    "def @main(%x: g32[2]) { %x }": "expected a type",
    "def @main(%x: f32[2]) { %x $ 1 }": r"'\$' is no part of a functional program",
    "data N { Z() } def @main() { match(Z()) { case _ { Z() } } }": "here stands a value of a data type",
    "def @main(%x: f32[2]) { " + "(" * 300 + "%x" + ")" * 300 + " }": "nested too deeply",
    "def @other() { 1 }": "there is no definition @main",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match=REFUSED[text]) as said:
        polyc.read_functional(text)
    assert "\n" not in str(said.value)


class Programs:
    """Random programs over `%x: f32[3]` and `%n: i32[]`."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def vector(self, depth: int, vectors: list[str], numbers: list[str]) -> str:
        r = self.r
        if depth == 0:
            return r.choice([*vectors, *vectors, "full(2, f32[3])"])
        sub = lambda: self.vector(depth - 1, vectors, numbers)  # noqa: E731
        pick = r.randrange(7)
        if pick < 2:
            return f"({sub()} {r.choice('+-')} {sub()})"
        if pick == 2:
            return f"if ({self.truth(depth - 1, vectors, numbers)}) {{ {sub()} }} else {{ {sub()} }}"
        if pick == 3:
            name = self.fresh()
            value = sub()
            body = self.vector(depth - 1, [*vectors, name], numbers)
            return f"(fn({name}) {{ {body} }})({value})"
        if pick == 4:
            return f"({sub()}, ({self.number(depth - 1, vectors, numbers)}, {sub()})).1.1"
        if pick == 5:
            f_, x, n = self.fresh(), self.fresh(), self.fresh()
            body = self.vector(depth - 1, [x], [n])
            again = f"{f_}({body}, {n} - 1)" if r.random() < 0.5 else f"({f_}({x} * 0.5, {n} - 1) + {x})"
            fn = f"fn({x}: f32[3], {n}: i32[]) -> f32[3] {{ if ({n} < 1) {{ {x} }} else {{ {again} }} }}"
            g = self.fresh()
            return f"(fn({g}) {{ let {f_} = {fn}; {f_}({g}, {r.randrange(4)} + 0 * {r.choice(numbers)}) }})({sub()})"
        return f"{r.choice(['Relu', 'Abs', 'Neg'])}({sub()} * {r.choice(['0.5', '1', '-0.25'])})"

    def number(self, depth: int, vectors: list[str], numbers: list[str]) -> str:
        r = self.r
        if depth == 0:
            return r.choice([*numbers, str(r.randrange(5))])
        sub = lambda: self.number(depth - 1, vectors, numbers)  # noqa: E731
        return r.choice(
            [
                lambda: f"({sub()} {r.choice('+-*')} {r.choice(numbers)})",
                lambda: f"Max({r.choice(numbers)}, {sub()})",
                sub,
            ]
        )()

    def truth(self, depth: int, vectors: list[str], numbers: list[str]) -> str:
        r = self.r
        one = (
            f"{r.choice(numbers)} {r.choice(['==', '!=', '<', '<=', '>', '>='])} {self.number(depth, vectors, numbers)}"
        )
        return f"({one}) && !({self.number(0, vectors, numbers)} == {r.choice(numbers)})" if r.random() < 0.3 else one

    def text(self) -> str:
        return (
            "def @main(%x: f32[3], %n: i32[]) {\n"
            f"  let %a = {self.vector(3, ['%x'], ['%n'])};\n  let %m = {self.number(2, ['%x'], ['%n'])} + %n;\n"
            f"  ({self.vector(3, ['%x', '%a'], ['%n', '%m'])}, %m)\n}}"
        )


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(s, marks=pytest.mark.long) for s in range(6, 60))])
def test_random_programs(seed: int) -> None:
    text = Programs(seed).text()
    for n in (0, 3):
        check(text, f(3), *i(n))


def test_a_file(tmp_path: Any) -> None:
    (tmp_path / "p.fn").write_text("def @twice(%x: f32[2]) { %x * 2 }")
    proto = polyc.read_functional(tmp_path / "p.fn", "twice")
    assert [x.name for x in proto.graph.input] == ["x"] and [x.name for x in proto.graph.output] == ["result0"]
    with pytest.raises(ModelError, match="cannot read"):
        polyc.read_functional(tmp_path / "none.fn")
