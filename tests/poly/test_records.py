"""`polyc.poly.records.dataclass` makes what the standard library's decorator makes, and compiles nothing at import."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import operator
import pickle
import sys
from dataclasses import field
from types import FunctionType
from typing import Any

import pytest

from polyc.poly import records

BODIES = {
    "plain": "a: int\n b: str = 'x'",
    "kinds": "a: int\n b: list = field(default_factory=list)\n c: int = field(default=3, compare=False, repr=False)",
    "hidden": "a: int\n b: int = field(default=5, init=False)\n"
    " c: dict = field(default_factory=dict, init=False, hash=False)",
    "empty": "pass",
    "self": "self: int\n other: int = 0",
    "after": "a: int\n b: int = 1\n def __post_init__(self): object.__setattr__(self, 'b', self.b + self.a)",
    "own": "'''Words.'''\n a: int\n b: int = 2\n def __repr__(self): return 'mine'\n def __hash__(self): return 7\n"
    " def __eq__(self, other): return True\n def __getstate__(self): return [self.a, 9]\n"
    " def __setstate__(self, state):\n  for n, v in zip('ab', state): object.__setattr__(self, n, v)",
    "late": "a: int\n b: int = field(init=False)",
}
ARGUMENTS = [
    dict(frozen=frozen, eq=eq, order=order, slots=slots)
    for frozen, eq, order, slots in itertools.product((False, True), repeat=4)
    if eq or not order
]


def both(body: str, arguments: dict[str, bool], bases: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
    """The class made by the standard decorator and by ours."""
    made = []
    for decorator, base in zip((dataclasses.dataclass, records.dataclass), bases or (None, None)):
        space: dict[str, Any] = {"field": field, "__name__": __name__, "Base": base}
        head = "class Record(Base):" if base else "class Record:"
        exec(f"from __future__ import annotations\n{head}\n {body}\n def plain(self): return 1", space)
        made.append(decorator(**arguments)(space["Record"]))
    return made[0], made[1]


UNLIKE = ("__annotations__", "__weakref__")
"""Not compared: Python 3.11.2's classes with slots keep a descriptor `__weakref__` of the class before, of no use."""


def outcome(run: Any, *given: Any, **named: Any) -> Any:
    """What a call answers, or the exception that it raises."""
    try:
        return run(*given, **named)
    except Exception as error:
        return type(error), str(error).replace("self_", "__dataclass_self__")


def behaviour(cls: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that can be asked of a class, with classes and addresses left out."""
    monkeypatch.setattr(sys.modules[__name__], "Record", cls, raising=False)
    seen: list[Any] = [[(f.name, f.type, f.init, f.repr, f.compare, f.hash) for f in dataclasses.fields(cls)]]
    params = cls.__dataclass_params__
    seen += [params.init, params.repr, params.eq, params.order, params.frozen, cls.__match_args__]
    seen += [str(inspect.signature(cls)), sorted(n for n in dir(cls) if n not in UNLIKE), cls.__hash__ is None]
    seen += [cls.__dict__.get("__slots__"), *(str(getattr(cls, n, None)) for n in "abc")]
    given: list[tuple[Any, ...]] = [(), (1,), (1, 2), (2, 1), (1, [2]), (1, 2, 3), (1, 2, 3, 4)]
    answers = [outcome(cls, *a) for a in given]
    made = [a for a in answers if not isinstance(a, tuple)]
    seen += [a for a in answers if isinstance(a, tuple)]
    seen += [outcome(cls, wrong=1), outcome(lambda: repr(cls(a=1)))]
    for x in made:
        seen += [outcome(ask, x) for ask in QUESTIONS]
        seen += [outcome(ask, x, y) for ask in COMPARISONS for y in (*made, object())]
    for x, name in itertools.product(made, ("a", "b", "new")):
        seen += [refused(setattr, x, name, 4), refused(delattr, x, name), outcome(repr, x)]
    return seen


QUESTIONS: list[Any] = [
    repr,
    vars,
    dataclasses.asdict,
    lambda x: hash(x) == hash(copy.copy(x)),
    lambda x: x == copy.copy(x),
    lambda x: repr(pickle.loads(pickle.dumps(x))),
    lambda x: repr(copy.deepcopy(x)),
    lambda x: repr(dataclasses.replace(x, a=8)),
    lambda x: x.plain(),
]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def refused(run: Any, *given: Any) -> bool:
    """Whether a change raises. (With slots the standard library means FrozenInstanceError and raises TypeError.)"""
    return isinstance(outcome(run, *given), tuple)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda a: "-".join(n for n, on in a.items() if on) or "none")
def test_a_record_is_a_dataclass(body: str, arguments: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    standard, ours = both(BODIES[body], arguments)
    assert behaviour(standard, monkeypatch) == behaviour(ours, monkeypatch)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda a: "-".join(n for n, on in a.items() if on) or "none")
def test_fields_of_base_classes_come_first(arguments: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    bases = both("a: int\n b: int = 2", arguments)
    standard, ours = both("b: int = 3\n c: int = 4", arguments, bases)
    assert behaviour(standard, monkeypatch) == behaviour(ours, monkeypatch)


def test_a_standard_dataclass_may_derive_from_a_record() -> None:
    _, ours = both("a: int", dict(frozen=True))
    derived = dataclasses.dataclass(frozen=True)(type("Derived", (ours,), {"__annotations__": {"b": "int"}}))
    assert derived(1, 2).b == 2
    assert derived(1, 2) == derived(1, 2)


def test_a_plain_subclass_has_attributes_of_its_own() -> None:
    _, ours = both("a: int", dict(frozen=True))

    class Derived(ours):  # type: ignore[misc, valid-type]
        pass

    made = Derived(1)
    made.extra = 3
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        made.a = 2


def test_nothing_is_compiled_before_its_first_use() -> None:
    _, ours = both("a: int\n b: int = 2", dict(frozen=True, order=True))
    waiting = {n for n, v in ours.__dict__.items() if isinstance(v, records._Late)}
    assert waiting == {"__init__", "__repr__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__"}
    ours(1)
    assert isinstance(ours.__dict__["__init__"], FunctionType)
    assert isinstance(ours.__dict__["__repr__"], records._Late)
