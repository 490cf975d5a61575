"""Formulas of sizes: arithmetic against numbers, canonical forms, decisions, arenas."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyc.graph_driver.graph.size import Size, SizeError, evaluate, from_data, size_of, to_data
from polyc.graph_driver.graph.symbols import GuardError, Symbols
from polyc.graph_driver.memory import Lifetime, Placement, check_placement, greedy_by_size
from polyc.graph_driver.planning.arena import stacked
from polyc.graph_driver.planning.maxima import Sums
from polyc.poly.errors import ArgumentError

NAMES = ("a", "b", "c")


def three() -> tuple[Symbols, list[Size]]:
    symbols = Symbols()
    return symbols, [symbols.new(n, 1, None, 7 + k) for k, n in enumerate(NAMES)]


def built(rng: np.random.Generator, leaves: list, depth: int) -> tuple[object, object]:
    """A random formula, and the same as a function of the symbols' values."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.4:
            n = int(rng.integers(1, 6))
            return n, lambda v: n
        k = int(rng.integers(len(leaves)))
        return leaves[k], lambda v: v[NAMES[k]]
    (x, f), (y, g) = built(rng, leaves, depth - 1), built(rng, leaves, depth - 1)
    op = rng.choice(["+", "*", "//", "%", "-"])
    if op in ("//", "%"):
        n = int(rng.integers(1, 7))
        return (x // n, lambda v: f(v) // n) if op == "//" else (x % n, lambda v: f(v) % n)
    if op == "+":
        return x + y, lambda v: f(v) + g(v)
    if op == "-":
        return x - y, lambda v: f(v) - g(v)
    return x * y, lambda v: f(v) * g(v)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_arithmetic_agrees_with_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols, leaves = three()
    formula, meaning = built(rng, leaves, 4)
    back = from_data(symbols, to_data(formula))
    assert back == formula
    for _ in range(5):
        values = {n: int(rng.integers(1, 40)) for n in NAMES}
        assert evaluate(formula, values) == meaning(values)
    low, high = symbols.bounds(formula)
    got = [evaluate(formula, {n: int(rng.integers(1, 40)) for n in NAMES}) for _ in range(10)]
    assert low is None or low <= min(got)
    assert high is None or high >= max(got)


def test_equal_structure_is_found() -> None:
    _, (a, b, c) = three()
    assert (a * b * 12) // (a * b) == 12
    assert (a * b * c * 4) // (c * 2) == 2 * a * b
    assert ((a + 1) // 2 + 1) // 2 == (a + 3) // 4
    assert (a - 1) // 2 + 1 == (a + 1) // 2
    assert (a * 6 + 3) // 3 == 2 * a + 1
    assert (4 * a * b) % 4 == 0
    assert (a + b) * (a - b) == a * a - b * b
    assert a != b and a != 3 and str(2 * a * b - 1) == "2*a*b - 1"


def test_a_formula_survives_the_operator_language() -> None:
    symbols, (a, b, _) = three()
    for size in (a, 3 * a + 2, (a + 1) // 2, a * b, 12 * a * b, (a + 31) // 32 * b, (a * b + 2) // 3, a - 1):
        assert size_of(symbols, size.expr) == size


def test_a_part_of_a_product_is_a_quotient_of_its_parameter() -> None:
    """So that a kernel knows that whole groups of rows of a batch are no more than the rows."""
    _, (a, b, _) = three()
    assert (a * b // 3).names() == (a * b).names()


def test_numbers_are_asked_for_in_vain() -> None:
    _, (a, _, _) = three()
    for ask in (int, float, range, lambda n: [0] * n):
        with pytest.raises(SizeError, match="known at run time only"):
            ask(a)


def test_what_holds_for_all_sizes_is_no_guard() -> None:
    symbols, (a, b, _) = three()
    with symbols.at("here"):
        assert a >= 1 and a * b + 3 > 3 and not a < 1
        assert 2 * ((a + 3) // 4) >= (a + 1) // 2  # exact: not from intervals
    assert symbols.guards == [] and symbols.ranges["a"].high is None


def test_the_largest_value_is_exact() -> None:
    symbols, (a, b, _) = three()
    assert (2 * ((a + 1) // 2) - a).most() == 1
    assert (a // 2 * 2 - a - 3).most() == -3
    assert (a + b).most() is None
    symbols.ranges["a"].high = 9
    assert (3 * a - b).most() == 26


def test_what_depends_on_sizes_becomes_a_guard_and_narrows_ranges() -> None:
    symbols, (a, b, _) = three()
    with symbols.at("Slice 's'"):
        assert a <= 512
        assert not a * b > 10000
        assert a + b <= 20 and a + b <= 20
    assert symbols.ranges["a"].high == 512 and len(symbols.guards) == 2
    symbols.check({"a": 4, "b": 5, "c": 6})
    with pytest.raises(ArgumentError, match=r"size a is 513, the model was compiled for 1 <= a <= 512 \(Slice 's'\)"):
        symbols.check({"a": 513, "b": 1, "c": 1})
    with pytest.raises(ArgumentError, match=r"compiled for 20 >= a \+ b \(Slice 's'\); given a = 4, b = 50"):
        symbols.check({"a": 4, "b": 50, "c": 6})


def test_guards_are_brought_down_to_the_symbols() -> None:
    symbols, (a, b, c) = three()
    with symbols.at("here"):
        symbols.require_equal(120 * b * ((a + 15) // 8), 240 * b, "a Reshape")  # (a + 15)//8 = 2
        assert (b - 1) // 2 + 1 >= 2
        symbols.require_equal(c // 4, 2 * (c // 8), "halves")
        assert symbols.guards == [] or [str(g) for g in symbols.guards] == ["c//4 = 2*(c//8)"]
        symbols.require_equal(4 * (c // 4) * a, 8 * (c // 8) * a, "the same")  # follows from the guard before
    assert (symbols.ranges["a"].low, symbols.ranges["a"].high) == (1, 8)
    assert symbols.ranges["b"].low == 3
    assert [str(g) for g in symbols.guards] == ["c//4 = 2*(c//8)"]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_guards_hold_exactly_where_what_was_asked_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols, sizes = three()
    asked: list[tuple[str, Any]] = []
    with symbols.at("here"):
        for _ in range(3):
            x, y = (sizes[int(k)] for k in rng.integers(0, 3, 2))
            left = int(rng.integers(-3, 4)) * ((x + int(rng.integers(-9, 40))) // int(rng.integers(1, 9)))
            left = left * y if rng.random() < 0.4 else left + y * int(rng.integers(0, 3)) - int(rng.integers(0, 30))
            if isinstance(left, int):
                continue
            if rng.random() < 0.3 and evaluate(left, symbols.typical) == 0:
                symbols.require_equal(left, 0, "test")
                asked.append(("=", left))
            else:
                asked.append(("<" if left < 0 else ">=", left))
    for values in product((1, 2, 3, 5, 7, 8, 9, 12, 17, 40), repeat=3):
        at = dict(zip(NAMES, values, strict=True))
        numbers = [(kind, evaluate(left, at)) for kind, left in asked]
        expected = all({"=": n == 0, "<": n < 0, ">=": n >= 0}[kind] for kind, n in numbers)
        try:
            symbols.check(at)
            assert expected, (at, asked)
        except ArgumentError:
            assert not expected, (at, asked)


def test_outside_of_a_node_nothing_becomes_a_guard() -> None:
    symbols, (a, _, _) = three()
    with pytest.raises(SizeError, match="depends on the sizes"):
        bool(a < 100)
    assert symbols.ranges["a"].high is None


def test_a_guard_that_the_representative_sizes_break_is_an_error() -> None:
    symbols, (a, b, _) = three()
    with symbols.at("here"), pytest.raises(GuardError, match="a and b differ"):
        symbols.require_equal(a, b, "sizes")
    with symbols.at("here"):
        symbols.require_equal(a + 1, b, "sizes")  # 7 + 1 == 8
    assert str(symbols.guards[0]) == "a + 1 = b"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_stacked_arenas_never_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols, leaves = three()
    sizes = {}
    tensors = []
    for k in range(int(rng.integers(2, 14))):
        size = 4 * leaves[int(rng.integers(3))] * (leaves[int(rng.integers(3))] if rng.random() < 0.5 else 1)
        sizes[f"t{k}"] = size * int(rng.integers(1, 5)) if rng.random() < 0.8 else int(rng.integers(1, 400))
        first = int(rng.integers(0, 12))
        number = evaluate(sizes[f"t{k}"], symbols.typical)
        tensors.append(Lifetime(f"t{k}", number, first, first + int(rng.integers(0, 5))))
    arena = stacked(greedy_by_size(tensors).offsets, tensors)
    for _ in range(6):
        values = {n: int(rng.integers(1, 90)) for n in NAMES}
        numbers = {n: evaluate(size, values) for n, size in sizes.items()}
        offsets, peak = arena.place(numbers)
        check_placement(arena.lifetimes(numbers), Placement(offsets, peak))
        formula = max(evaluate(e, values) for e in arena.peak(symbols, sizes))
        assert formula <= peak <= formula + 64 * len(tensors)


def test_the_largest_formulas_are_kept() -> None:
    symbols, (a, b, _) = three()

    def largest(*sizes: Size | int) -> list[Size | int]:
        sums = Sums(symbols, {str(k): size for k, size in enumerate(sizes)})
        return sums.formulas(sums.largest(list(sums.of.values())))

    assert largest(a, 2 * a, a + 1, 2 * a * b, 3, 2 * a) == [2 * a * b, 3]
    assert largest(a, 2 * a, 2 * a * b) == [2 * a * b]
    assert largest(a * b, a + b) == [a * b, a + b]


def test_the_peak_of_many_tensors_asks_of_each_product_once(monkeypatch: pytest.MonkeyPatch) -> None:
    symbols, (a, b, c) = three()
    shapes = [a * b, b * c, a * b * c, a * ((b + 1) // 2), a + c, a * a * b]
    rng = np.random.default_rng(0)
    sizes = {f"t{k}": shapes[k % len(shapes)] * int(rng.integers(1, 9)) for k in range(60)}
    first = {n: int(rng.integers(0, 40)) for n in sizes}
    tensors = [Lifetime(n, s.at(symbols.typical), first[n], first[n] + 4) for n, s in sizes.items()]
    arena = stacked({p.name: greedy_by_size(tensors).offsets[p.name] for p in tensors}, tensors)
    asked: list[object] = []
    bounds = Symbols.bounds
    monkeypatch.setattr(Symbols, "bounds", lambda self, size: asked.append(size) or bounds(self, size))
    assert len(arena.peak(symbols, sizes)) > 1
    products = {m for s in sizes.values() for m, _ in s.terms}
    assert len(asked) <= 3 * (len(products) + 1) ** 2  # pairs of products, and the parts of quotients
