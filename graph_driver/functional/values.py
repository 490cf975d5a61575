"""What expressions are while a program is written down: tensors of the model, and what only the text knows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

from polyc.graph_driver.functional.syntax import Call, Expr, Fn, If, Let, Match, Member, Name, Pattern, Tuple
from polyc.graph_driver.stablehlo.sink import Val
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Weak:
    """A number of the text, which takes the type of what it meets."""

    value: bool | int | float


@dataclass(frozen=True, eq=False)
class Closure:
    """A function with the values around it; `name` is the one by which its body calls it ("" for none)."""

    fn: Fn
    around: Mapping[str, Value]
    name: str


@dataclass(frozen=True, eq=False)
class Answer:
    """Stands for a function whose result is there already."""

    result: Value


@dataclass(frozen=True)
class Operator:
    """An operator of ONNX."""

    kind: str


@dataclass(frozen=True)
class Data:
    """A constructor with its members; as a function it has none yet."""

    constructor: str
    members: tuple[Value, ...] | None


Value = Val | Weak | Closure | Answer | Operator | Data | tuple["Value", ...]
Values = Mapping[str, Value]


_OF_NUMBERS: Mapping[str, Callable[..., bool | int | float]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Neg": operator.neg, "Not": operator.not_,
    "Equal": operator.eq, "Less": operator.lt, "LessOrEqual": operator.le, "Greater": operator.gt,
    "GreaterOrEqual": operator.ge, "And": lambda a, b: a and b, "Or": lambda a, b: a or b,
}  # fmt: skip
LARGEST = 1 << 31
"""Whole numbers are i32 where nothing else says their type."""


def of_numbers(kind: str, operands: Sequence[Value]) -> Weak | None:
    """What an operator gives of numbers of the text alone; None: it is for the run."""
    numbers = [o.value for o in operands if isinstance(o, Weak)]
    if kind not in _OF_NUMBERS or len(numbers) < len(operands):
        return None
    made = _OF_NUMBERS[kind](*numbers)
    return None if isinstance(made, int) and not -LARGEST <= made < LARGEST else Weak(made)


def children(e: Expr) -> Sequence[Expr]:
    """The expressions directly inside."""
    if isinstance(e, Call):
        return (e.function, *e.operands)
    if isinstance(e, Tuple):
        return e.members
    if isinstance(e, Member):
        return (e.of,)
    if isinstance(e, Let):
        return (e.value, e.body)
    if isinstance(e, If):
        return (e.condition, e.then, e.other)
    if isinstance(e, Fn):
        return (e.body,)
    if isinstance(e, Match):
        return (e.value, *(body for _, body in e.cases))
    return ()


def mentions(e: Expr, name: str) -> bool:
    """Whether an expression uses a name that it does not bind itself."""
    if isinstance(e, Name):
        return e.name == name
    if isinstance(e, Fn) and any(p == name for p, _ in e.parameters):
        return False
    if isinstance(e, Let) and e.name == name:
        return not isinstance(e.value, Fn) and mentions(e.value, name)
    if isinstance(e, Match):
        return mentions(e.value, name) or any(mentions(b, name) for p, b in e.cases if name not in variables(p))
    return any(mentions(c, name) for c in children(e))


def variables(p: Pattern) -> set[str]:
    """The names that a pattern binds."""
    return {p.variable} - {""} | {v for m in p.members for v in variables(m)}


def fits(p: Pattern, value: Value, bound: dict[str, Value]) -> bool:
    """Whether a value has the form of a pattern; its variables go to `bound`."""
    if not p.constructor:
        if p.variable:
            bound[p.variable] = value
        return True
    if not isinstance(value, Data) or value.constructor != p.constructor or value.members is None:
        return False
    return len(p.members) == len(value.members) and all(fits(m, v, bound) for m, v in zip(p.members, value.members))


def leaves(v: Value) -> list[Value]:
    """The members of nested tuples, in order."""
    return [x for m in v for x in leaves(m)] if isinstance(v, tuple) else [v]


def rebuilt(form: Value, tensors: Iterator[Value]) -> Value:
    """A value of this form from the next tensors."""
    return tuple(rebuilt(m, tensors) for m in form) if isinstance(form, tuple) else next(tensors)
