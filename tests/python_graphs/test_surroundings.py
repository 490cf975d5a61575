"""What a traced function reads from around may change between calls, in any of the ways that Python has."""

import functools
import types
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.graph_driver.python_graphs.elements import digest_of, frozen

X = np.arange(4, dtype="f")


class Slots:
    """No dictionary."""

    __slots__ = ("k",)

    def __init__(self) -> None:
        self.k = 1.0


class OfClass:
    """A number of the class; methods that Python calls by its syntax; attributes by text."""

    k = 1.0

    def __init__(self) -> None:
        self._values = {"q": 1.0}

    def __getitem__(self, key: str) -> float:
        return self._values[key]

    def by_text(self) -> float:
        found: dict[str, float] = getattr(self, "_val" + "ues")
        return found["q"]

    @property
    def q(self) -> float:
        return self._values["q"]


class Computed:
    """Any attribute."""

    def __init__(self) -> None:
        self.__dict__["store"] = {"q": 1.0}

    def __getattr__(self, name: str) -> float:
        value: float = self.__dict__["store"][name]
        return value


class Named(list[float]):
    """A list with an attribute."""

    k = 1.0


def _times(x: np.ndarray, k: float) -> np.ndarray:
    return x * k


Case = tuple[Callable[[np.ndarray], Any], Callable[[], Any]]


def _elements() -> Case:
    w = np.ones(3, "f")
    return lambda x: x * float(w[0]), lambda: w.put(0, 5)


def _total() -> Case:
    w = np.ones(3, "f")
    return lambda x: x * w.sum().item(), lambda: w.put(1, 5)


def _decides() -> Case:
    w = np.ones(3, "f")
    return lambda x: x * 2 if w[0] > 2 else x * 3, lambda: w.put(0, 5)


def _objects() -> Case:
    w = np.array([1.0, [2.0]], dtype=object)
    return lambda x: x * w[1][0], lambda: w[1].append(w[1].pop() + 1)


def _returned() -> Case:
    w = np.ones(3, "f")
    return lambda x: (x + 1, w, w * 2), lambda: w.put(0, 5)


def _slots() -> Case:
    s = Slots()
    return lambda x: x * s.k, lambda: setattr(s, "k", 3.0)


def _of_class() -> Case:
    s = OfClass()
    OfClass.k = 1.0
    return lambda x: x * s.k, lambda: setattr(OfClass, "k", 3.0)


def _class() -> Case:
    OfClass.k = 1.0
    return lambda x: x * OfClass.k, lambda: setattr(OfClass, "k", 3.0)


def _item() -> Case:
    s = OfClass()
    return lambda x: x * s["q"], lambda: s._values.update(q=3.0)


def _text() -> Case:
    s = OfClass()
    return lambda x: x * s.by_text(), lambda: s._values.update(q=3.0)


def _property() -> Case:
    s = OfClass()
    return lambda x: x * s.q, lambda: s._values.update(q=3.0)


def _computed() -> Case:
    s = Computed()
    return lambda x: x * s.q, lambda: s.__dict__["store"].update(q=3.0)


def _set() -> Case:
    s = {1.0}
    return lambda x: x * max(s), lambda: s.add(7.0)


def _deque() -> Case:
    s = deque([1.0])
    return lambda x: x * s[0], lambda: s.appendleft(7.0)


def _array() -> Case:
    s = array("d", [1.0])
    return lambda x: x * s[0], lambda: s.insert(0, 7.0)


def _bytes() -> Case:
    s = bytearray(b"abc")
    return lambda x: x * s[0], lambda: s.insert(0, 7)


def _view() -> Case:
    s = bytearray(b"abc")
    v = memoryview(s)
    return lambda x: x * v[0], lambda: s.__setitem__(0, 7)


def _named() -> Case:
    s = Named([1.0])
    return lambda x: x * s.k, lambda: setattr(s, "k", 3.0)


def _namespace() -> Case:
    s = types.SimpleNamespace(k=1.0)
    return lambda x: x * s.k, lambda: setattr(s, "k", 3.0)


def _partial() -> Case:
    s = {"k": [1.0]}
    f = functools.partial(lambda x, k: x * k[0], k=s["k"])
    return lambda x: f(x), lambda: s["k"].insert(0, 3.0)


def _polynomial() -> Case:
    p = np.poly1d([1.0, 2.0])
    return lambda x: x * p(2.0), lambda: p.coeffs.put(0, 5.0)


def _helper() -> Case:
    table = {"k": {"deep": 1.0}}
    helpers = [lambda x: _times(x, table["k"]["deep"])]
    return lambda x: helpers[0](x), lambda: table["k"].update(deep=3.0)


CASES = [
    _elements, _total, _decides, _objects, _returned, _slots, _of_class, _class, _item, _text, _property, _computed,
    _set, _deque, _array, _bytes, _view, _named, _namespace, _partial, _polynomial, _helper,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_noticed(case: Callable[[], Case]) -> None:
    function, change = case()
    traced = polyc.trace(function)
    before = traced(X)
    change()
    wanted, found = traced.eager(X), traced(X)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (wanted, found)), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)
    if not isinstance(before, tuple):
        assert not np.allclose(before, found)


def test_arrays_of_its_own_are_used_as_they_were() -> None:
    def f(x: np.ndarray) -> list[np.ndarray]:
        buffer, found = np.zeros(4, "f"), []
        for k in range(3):
            buffer[:] = k
            found.append(x + buffer)
        return found

    traced = polyc.trace(f)
    np.testing.assert_array_equal(traced(X), traced.eager(X))


def test_arrays_given_to_a_builder_are_used_as_they_were() -> None:
    g, a = polyc.GraphBuilder(), np.ones(4, "f")
    x = g.input("x", polyc.f32, (4,))
    before = x + a
    a[:] = 5
    g.output("before", before), g.output("after", x + a)
    a[:] = 7
    made = g.compile(threads=1)({"x": X})
    np.testing.assert_array_equal(made["before"], X + 1)
    np.testing.assert_array_equal(made["after"], X + 5)


def test_changes_of_arrays_around_are_refused() -> None:
    w = np.ones(4, "f")

    def f(x: np.ndarray) -> np.ndarray:
        w[0] += 1
        return x + w

    with pytest.raises(polyc.ModelError, match="changes elements of an array from around"):
        polyc.trace(f)(X)


def test_more_than_a_walk_looks_at_is_refused() -> None:
    table = [0.0] * 30_000
    with pytest.raises(polyc.ModelError, match=r"more than 20000 values from around, the last one table\["):
        polyc.trace(lambda x: x * table[-1])(X)


def test_digests() -> None:
    rng = np.random.default_rng(3)
    for size in (0, 1, 7, 4096, 4097, 3 * 4096 + 5, 4096 * 4096 // 8 + 3):
        a = rng.integers(0, 255, size, dtype=np.uint8)
        assert digest_of(a) == digest_of(a.copy())
        for at in {0, size // 2, size - 1} if size else ():
            b = a.copy()
            b[at] += 1
            assert digest_of(a) != digest_of(b), (size, at)
    rows = rng.standard_normal((9000, 3))
    assert digest_of(rows) != digest_of(np.roll(rows, 1, axis=0)) != digest_of(rows[:, ::-1])
    assert digest_of(rows[:, ::-1]) == digest_of(rows[:, ::-1].copy())


def test_frozen_arrays() -> None:
    a = np.ones(3)
    view = a[:2]
    view.flags.writeable = False
    assert not frozen(a) and not frozen(view)
    a.flags.writeable = False
    assert frozen(a) and frozen(view) and frozen(np.frombuffer(b"12345678"))
