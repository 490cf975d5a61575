"""What functional programs mean, in plain Python: Python's own recursion and NumPy's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from polyc.graph_driver.functional.parser import parse
from polyc.graph_driver.functional.syntax import (
    Call,
    Expr,
    Fn,
    Full,
    If,
    Let,
    Match,
    Member,
    Name,
    Number,
    Pattern,
    TensorType,
    Tuple,
    TupleType,
    Type,
)


def _put(x: Any, at: Any, v: Any) -> Any:
    made = np.array(x)
    made[at] = v
    return made


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Equal": np.equal, "Less": np.less, "Greater": np.greater,
    "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Or": np.logical_or,
    "Not": np.logical_not, "Neg": np.negative, "Abs": np.abs, "Max": np.maximum, "Min": np.minimum,
    "MatMul": np.matmul, "Relu": lambda x: np.maximum(x, np.zeros((), x.dtype)),
    "Gather": lambda x, i, axis=0: np.take(x, i, axis), "Unsqueeze": lambda x, a: np.expand_dims(x, tuple(a)),
    "ScatterElements": _put, "Transpose": lambda x, perm: np.transpose(x, perm),
    "Split": lambda x, axis, num_outputs: tuple(np.split(x, num_outputs, axis)),
}  # fmt: skip


OF_NUMBERS: Mapping[Any, Callable[..., Any]] = {
    np.add: lambda a, b: a + b, np.subtract: lambda a, b: a - b, np.multiply: lambda a, b: a * b,
    np.negative: lambda a: -a, np.equal: lambda a, b: a == b, np.less: lambda a, b: a < b,
}  # fmt: skip
"""Numbers of the text among themselves stay numbers."""


def run(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    """The tensors that `@main` gives."""
    program = parse(text)
    around = dict(program.functions)

    def value(e: Expr, names: Mapping[str, Any]) -> Any:
        match e:
            case Number():
                return e.value
            case Full():
                return np.full(e.type.shape, e.value, e.type.dtype.np)
            case Name():
                if e.name in names:
                    return names[e.name]
                if e.name in around:
                    return function(around[e.name], {})
                if e.name in program.constructors:
                    return lambda *members: (e.name, *members)
                return lambda *operands, **attributes: applied(OPERATORS[e.name], operands, attributes)
            case Tuple():
                return [value(m, names) for m in e.members]
            case Member():
                return value(e.of, names)[e.index]
            case Call():
                return value(e.function, names)(*[value(o, names) for o in e.operands], **e.attributes)
            case If():
                return value(e.then if value(e.condition, names) else e.other, names)
            case Let(value=Fn()):
                inner = dict(names)
                inner[e.name] = function(e.value, inner)
                return value(e.body, inner)
            case Let():
                return value(e.body, {**names, e.name: typed(value(e.value, names), e.type)})
            case Fn():
                return function(e, names)
            case Match():
                of = value(e.value, names)
                for pattern, body in e.cases:
                    bound: dict[str, Any] = {}
                    if fits(pattern, of, bound):
                        return value(body, {**names, **bound})
        raise AssertionError(e)

    def function(fn: Fn, names: Mapping[str, Any]) -> Callable[..., Any]:
        def call(*operands: Any) -> Any:
            given = {n: typed(o, t) for (n, t), o in zip(fn.parameters, operands, strict=True)}
            return typed(value(fn.body, {**names, **given}), fn.result)

        return call

    made = function(around["@main"], {})(*inputs)
    return [np.asarray(x if isinstance(x, np.ndarray | np.generic) else natural(x)) for x in flat(made)]


def natural(x: Any) -> Any:
    """A number of the text, as a tensor of its own."""
    return np.bool_(x) if isinstance(x, bool) else np.float32(x) if isinstance(x, float) else np.int32(x)


def applied(operator: Callable[..., Any], operands: Any, attributes: Mapping[str, Any]) -> Any:
    if operator in OF_NUMBERS and not any(hasattr(o, "dtype") for o in operands):
        return OF_NUMBERS[operator](*operands)
    types = [o.dtype for o in operands if isinstance(o, np.ndarray | np.generic)]
    like = types[0] if types else np.result_type(*[natural(o).dtype for o in operands])
    with np.errstate(all="ignore"):
        return operator(*[np.asarray(o, None if hasattr(o, "dtype") else like) for o in operands], **attributes)


def typed(x: Any, type_: Type | None) -> Any:
    if isinstance(type_, TupleType):
        return [typed(m, t) for m, t in zip(x, type_.members, strict=True)]
    if isinstance(type_, TensorType) and not isinstance(x, np.ndarray | np.generic):
        return np.asarray(x, type_.dtype.np)
    return x


def fits(p: Pattern, value: Any, bound: dict[str, Any]) -> bool:
    if not p.constructor:
        bound[p.variable] = value
        return True
    if value[0] != p.constructor:
        return False
    return all(fits(m, v, bound) for m, v in zip(p.members, value[1:], strict=True))


def flat(x: Any) -> list[Any]:
    return [leaf for m in x for leaf in flat(m)] if isinstance(x, list) else [x]
