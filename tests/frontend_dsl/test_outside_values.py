"""What an operator reads from outside is part of its key: a changed value compiles anew, at every entry."""

from __future__ import annotations

import functools
import importlib
import math
import types
from dataclasses import dataclass, field

import numpy as np
import pytest

from polyc import dims, empty, f32, op
from polyc.frontend_dsl.frozen import freeze

N = dims("N")
X = np.arange(1, 4, dtype=np.float32)
alpha: object = 2.0
taps = [1.0, 2.0]
table = np.array([1.0, 2.0], np.float32)
lookup = {"a": [2.0]}
numbers = types.ModuleType("numbers_of_the_test")
numbers.scale = 2.0


@dataclass
class Config:
    alpha: float = 2.0
    inner: list[float] = field(default_factory=lambda: [2.0])
    shared = 2.0

    def scale(self) -> float:
        return self.alpha * self.shared

    @property
    def doubled(self) -> float:
        return twice(self.alpha)


cfg = Config()


def twice(v: float) -> float:
    return v * two


two = 2.0


def helper(v: float, factor: float = 2.0) -> float:
    return deeper(v) * factor


def deeper(v: float) -> float:
    return v * alpha


def python_only() -> float:
    """Run by Python at specialisation: nothing of it is translated."""
    return math.fsum(part for part in [alpha, 0.0])


@op
def inner(A: f32[N], *, by: float = 1.0) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * alpha * by
    return B


def check(operator, change, restore) -> None:
    """Before, after and after the change again, by every entry: compiled equals plain Python."""
    before = operator(X)
    assert np.array_equal(before, operator.python(X))
    text = str(operator.scop())
    change()
    try:
        after = operator(X)
        assert not np.array_equal(after, before)
        assert np.array_equal(after, operator.python(X))
        assert np.array_equal(after, operator.compile()(X))
        assert np.array_equal(operator(A=X), after)
        longer = np.arange(5, dtype=np.float32)
        assert np.array_equal(operator(longer), operator.python(longer))
        assert str(operator.scop()) != text
    finally:
        restore()
    assert np.array_equal(operator(X), before)


def set_global(**values):
    def act():
        globals().update(values)

    return act


@op
def by_global(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * alpha
    return B


@op
def by_helper(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = helper(A[i])
    return B


@op
def by_list(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * taps[1]
    return B


@op
def by_loop(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        s = A[i]
        for t in taps:
            s += t * A[i]
        B[i] = s
    return B


@op
def by_array(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * table[1]
    return B


@op
def by_dict(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * lookup["a"][0]
    return B


@op
def by_get(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * lookup.get("a")[0]
    return B


@op
def by_attribute(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * cfg.alpha
    return B


@op
def by_deep_attribute(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * cfg.inner[0]
    return B


@op
def by_method(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * cfg.scale()
    return B


@op
def by_property(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * cfg.doubled
    return B


@op
def by_python(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * python_only()
    return B


@op
def by_operator(A: f32[N]) -> f32[N]:
    return inner(A, by=2.0)


@op
def by_module(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * numbers.scale
    return B


@op
def by_builtin(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = max(A[i], 2.0)
    return B


def set_code(function, other):
    code, other_code = function.__code__, other.__code__
    return lambda: setattr(function, "__code__", other_code), lambda: setattr(function, "__code__", code)


def set_default(function, value):
    old = function.__defaults__
    return lambda: setattr(function, "__defaults__", value), lambda: setattr(function, "__defaults__", old)


def put(container, key, new):
    old = container[key]
    return lambda: container.__setitem__(key, new), lambda: container.__setitem__(key, old)


def attribute(owner, name, new):
    old = getattr(owner, name)
    return lambda: setattr(owner, name, new), lambda: setattr(owner, name, old)


def other_deeper(v):
    return v * 7.0


def swap(name, new):
    old = globals()[name]
    return set_global(**{name: new}), set_global(**{name: old})


def shadow():
    return set_global(max=lambda a, b: a * b), lambda: globals().pop("max")


CHANGES = {
    "global": lambda: (by_global, *swap("alpha", 3.0)),
    "global of another type": lambda: (by_global, *swap("alpha", np.float32(3.0))),
    "helper of a helper reads a global": lambda: (by_helper, *swap("alpha", 3.0)),
    "redefined helper of a helper": lambda: (by_helper, *swap("deeper", other_deeper)),
    "default value of a helper": lambda: (by_helper, *set_default(helper, (5.0,))),
    "element of a list": lambda: (by_list, *put(taps, 1, 5.0)),
    "list in a loop": lambda: (by_loop, lambda: taps.append(3.0), lambda: taps.pop()),
    "element of an array": lambda: (by_array, *put(table, 1, 5.0)),
    "list in a dict": lambda: (by_dict, *put(lookup["a"], 0, 5.0)),
    "dict by its method": lambda: (by_get, *put(lookup, "a", [5.0])),
    "attribute": lambda: (by_attribute, *attribute(cfg, "alpha", 5.0)),
    "another object": lambda: (by_attribute, *swap("cfg", Config(5.0))),
    "list of an attribute": lambda: (by_deep_attribute, *put(cfg.inner, 0, 5.0)),
    "state that a method reads": lambda: (by_method, *attribute(cfg, "alpha", 5.0)),
    "class attribute that a method reads": lambda: (by_method, *attribute(Config, "shared", 5.0)),
    "another method": lambda: (by_method, *attribute(Config, "scale", lambda self: 9.0)),
    "global that a property reads": lambda: (by_property, *swap("two", 3.0)),
    "global read by Python alone": lambda: (by_python, *swap("alpha", 3.0)),
    "redefined function run by Python": lambda: (by_python, *swap("python_only", lambda: 4.0)),
    "global of an inlined operator": lambda: (by_operator, *swap("alpha", 3.0)),
    "redefined inlined operator": lambda: (by_operator, *swap("inner", by_two)),
    "attribute of a module": lambda: (by_module, *attribute(numbers, "scale", 5.0)),
    "a name that hides a built-in one": lambda: (by_builtin, *shadow()),
}


@op
def by_two(A: f32[N], *, by: float = 1.0) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] + by
    return B


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_value_compiles_anew(what: str) -> None:
    operator, change, restore = CHANGES[what]()
    if operator is by_builtin:
        check_hidden(operator, change, restore)
    else:
        check(operator, change, restore)


def check_hidden(operator, change, restore) -> None:
    before = operator(X)
    change()
    try:
        assert np.array_equal(operator(X), operator.python(X))
        assert not np.array_equal(operator(X), before)
    finally:
        restore()
    assert np.array_equal(operator(X), before)


def test_code_replaced_in_place(tmp_path, monkeypatch) -> None:
    """As notebooks' autoreload does: the file is edited, and the function stays the same object."""
    file = tmp_path / "reloaded_helper.py"
    file.write_text("def factor(v):\n    return v * 2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("reloaded_helper")
    factor = module.factor

    @op
    def scaled(A: f32[N]) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = factor(A[i])
        return B

    assert np.array_equal(scaled(X), X * 2)
    file.write_text("# longer\n\ndef factor(v):\n    return v * 3.0 + 1.0\n")
    factor.__code__ = importlib.reload(module).factor.__code__
    assert np.array_equal(scaled(X), X * 3 + 1)
    assert np.array_equal(scaled.compile()(X), X * 3 + 1)
    assert np.array_equal(scaled.python(X), X * 3 + 1)


def test_closure() -> None:
    factor = 2.0

    @op
    def scaled(A: f32[N]) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = A[i] * factor
        return B

    assert np.array_equal(scaled(X), X * 2)
    factor = 3.0
    assert np.array_equal(scaled(X), X * 3)
    assert np.array_equal(scaled.compile()(X), X * 3)


def test_partial_and_default_constants() -> None:
    base = [2.0]

    def times(v: float, by: float) -> float:
        return v * by

    call = functools.partial(times, by=2.0)

    @op
    def scaled(A: f32[N], *, weights: list[float] = base) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = call(A[i]) + weights[0]
        return B

    assert np.array_equal(scaled(X), X * 2 + 2)
    base[0] = 3.0
    assert np.array_equal(scaled(X), X * 2 + 3)
    assert np.array_equal(scaled(X, weights=[4.0]), X * 2 + 4)
    call.keywords["by"] = 5.0
    assert np.array_equal(scaled(X), X * 5 + 3)
    assert np.array_equal(scaled(X, weights=[4.0]), X * 5 + 4)


def test_constants_are_told_apart_exactly() -> None:
    """Equal in Python is not the same program: 1, 1.0 and True; 0.0 and -0.0; long arrays alike in print."""

    @op
    def scaled(A: f32[N], *, by: object) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = A[i] * by[-1]
        return B

    zero = np.zeros(1, np.float32) + 1
    assert not np.signbit(scaled(zero, by=(0.0,))[0])
    assert np.signbit(scaled(zero, by=(-0.0,))[0])
    one, two_ = np.ones(5000), np.ones(5000)
    two_[-1], two_[2500] = 1.0, 2.0
    one[-1] = 1.0
    assert np.array_equal(scaled(X, by=one), X)
    two_[-1] = 2.0
    changed = two_.copy()
    changed[:3] = changed[-3:] = 1.0
    assert repr(changed) == repr(one)
    middle = changed.copy()
    middle[-1] = 1.0
    assert np.array_equal(scaled(X, by=np.append(middle, 3.0)), X * 3)


@pytest.mark.parametrize(
    "a, b",
    [(1, 1.0), (1, True), (0.0, -0.0), ((1, 2), (1.0, 2)), ([1], (1,)), ({"a": 1}, {"a": 1.0}), ("1", 1),
     (np.float32(1), np.float64(1)), (np.zeros(2), np.zeros((2, 1))), (np.zeros(2), np.zeros(2, np.int64)),
     (Config(1.0), Config(2.0)), ({1, 2}, {1, 3}), (range(3), range(4)), (b"a", "a"), (None, 0)],
)  # fmt: skip
def test_pictures_differ(a: object, b: object) -> None:
    assert freeze(a) != freeze(b)
    assert freeze(a) == freeze(a)


def test_pictures_of_equal_values() -> None:
    again: list[object] = [1]
    again.append(again)
    assert freeze(again) == freeze(again)
    assert freeze(float("nan")) == freeze(float("nan"))
    assert freeze(Config()) == freeze(Config())
    assert freeze(np.arange(3)) == freeze(np.arange(3))


def test_a_value_set_back_is_not_compiled_again(monkeypatch) -> None:
    """Kernels of earlier values are kept; an equal new object (a notebook's cell run again) is the same value."""
    from polyc.emit import compile as compiling

    made = []
    real = compiling.compile_kernel
    monkeypatch.setattr(compiling, "compile_kernel", lambda *a, **k: made.append(a) or real(*a, **k))
    box = {"by": 2.0}

    @op
    def scaled(A: f32[N]) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = A[i] * box["by"]
        return B

    for value in (2.0, 3.0, 2.0, 3.0, float("2.0"), 2.0):
        box["by"] = value
        assert np.array_equal(scaled(X), X * np.float32(value))
        assert np.array_equal(scaled(X), X * np.float32(value))
    assert len(made) == 2


def test_the_quick_path_stays_quick(monkeypatch) -> None:
    """Nothing is translated, bound or frozen while nothing has changed."""
    from polyc.frontend_dsl import operator as module
    from polyc.frontend_dsl import reads

    by_helper(X)
    by_list(X)
    by_attribute(X)
    for where, name in (
        (module, "freeze"),
        (reads, "freeze"),
        (module.Operator, "_bind"),
        (module.Operator, "_kernel"),
    ):
        monkeypatch.setattr(where, name, None)
    for operator in (by_helper, by_list, by_attribute):
        assert operator(X).shape == X.shape


def test_something_too_large_to_watch_is_translated_each_time() -> None:
    big = [[float(n)] for n in range(60_000)]

    def pick() -> float:
        return big[1][0] + sum(len(b) for b in big[:0])

    @op
    def scaled(A: f32[N]) -> f32[N]:
        B = empty((N,), f32)
        for i in range(N):
            B[i] = A[i] * pick()
        return B

    assert np.array_equal(scaled(X), X)
    big[1][0] = 4.0
    assert np.array_equal(scaled(X), X * 4)


def test_reads_do_not_keep_old_results_alive() -> None:
    """Variants are bounded."""
    from polyc.frontend_dsl.operator import VARIANTS

    for n in range(VARIANTS + 3):
        globals()["alpha"] = float(n + 10)
        by_global(X)
    globals()["alpha"] = 2.0
    assert all(len(v) <= VARIANTS for v in by_global._kernels.values())
