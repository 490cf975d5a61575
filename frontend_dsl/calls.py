"""Calls: built-in functions, scalar functions, casts, array makers; the rest goes to `inline`."""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from polyc.poly.dtypes import KNOWN_TYPES, DType, NoType, bool_, f64, from_numpy, i64
from polyc.poly.expr import Cast, Expr, Var, const_int, loads
from polyc.poly.intrinsics import TABLE

from . import functions
from .evaluate import binary, elements, evaluate, follow, is_symbolic, native, settled
from .frame import Frame, InnerFunction, size_value, uses_only
from .inline import inline_function, inline_inner, inline_operator
from .loops import make_grid, make_range
from .operator import Operator
from .values import (
    ArrayValue,
    Grid,
    Range,
    Sym,
    Type,
    arithmetic,
    cast,
    convert,
    describe,
    index_expr,
    intrinsic,
    logical,
    to_sym,
    truth,
    unary,
    where,
)

_NUMPY = {entry.numpy: name for name, entry in TABLE.items() if isinstance(entry.numpy, np.ufunc)}


def call(frame: Frame, node: ast.Call) -> Any:
    """The value of a call."""
    function, path = follow(frame, node.func)
    if path is not None:
        frame.program.reads.found(path, function)
    whole, frame.whole = frame.whole, None  # nested calls are no whole statements
    name_hint, frame.hint_name = frame.hint_name, "t"
    args = elements(frame, node.args)
    kwargs: dict[str, Any] = {}
    for k in node.keywords:
        value = evaluate(frame, k.value)
        if k.arg is not None:
            kwargs[k.arg] = value
        elif isinstance(value, dict):
            kwargs.update(value)
        else:
            raise frame.error(k.value, f"** of {describe(value)}", "only a dict can be unpacked")
    frame.hint_name = name_hint
    if isinstance(function, functools.partial):
        args, kwargs = [*function.args, *args], {**function.keywords, **kwargs}
        function = function.func
    if isinstance(function, Operator):
        return inline_operator(frame, function, args, kwargs, node, whole is node)
    if isinstance(function, InnerFunction):
        return inline_inner(frame, function, args, kwargs, node, whole is node)
    handler = _HANDLERS.get(function) if _hashable(function) else None
    if handler is not None:
        return handler(frame, node, args, kwargs)
    symbolic = is_symbolic(args) or is_symbolic(kwargs) or any(isinstance(a, (Range, Grid)) for a in args)
    if not symbolic:
        if not callable(function):
            return _not_callable(frame, node, function)
        frame.program.reads.runs(function)
        return native(frame, node, function, *args, **kwargs)
    return _run_time_call(frame, node, function, args, kwargs, whole is node)


def _run_time_call(
    frame: Frame, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any], whole: bool
) -> Any:
    if any(isinstance(a, (Range, Grid)) for a in args):
        called = getattr(function, "__name__", str(function))
        hint = "loop over the range itself: for i in range(...)"
        raise frame.error(node, f"{called} of a range whose bounds are known at run time only", hint)
    if isinstance(function, NoType):
        raise frame.error(node, f"there is no element type {function}", KNOWN_TYPES)
    if isinstance(function, type) and issubclass(function, np.generic):
        try:
            function = from_numpy(function)
        except KeyError:
            raise frame.error(node, f"there is no element type {function.__name__}", KNOWN_TYPES) from None
    if isinstance(function, DType):
        return _convert(frame, node, function, args)
    name = functions.INTRINSICS.get(function) or _NUMPY.get(function) if _hashable(function) else None
    if name is not None:
        _no_keywords(frame, node, kwargs)
        return intrinsic(name, args)
    if isinstance(function, MethodType) and isinstance(function.__func__, FunctionType):
        args, function = [function.__self__, *args], function.__func__
    if functions.is_static(function):
        return native(frame, node, function, *args, **kwargs)
    if isinstance(function, FunctionType):
        return inline_function(frame, function, args, kwargs, node, whole)
    if not callable(function):
        return _not_callable(frame, node, function)
    if function in _CONTAINERS:
        return native(frame, node, function, *args, **kwargs)
    called = getattr(function, "__name__", str(function))
    near = called if called in TABLE else None
    hint = f"use polyc.{near}" if near else "use the functions of polyc, or a helper function written in Python"
    raise frame.error(node, f"{called} cannot be called on run-time values", hint)


def _not_callable(frame: Frame, node: ast.Call, function: Any) -> Any:
    hint = "only functions, operators and types can"
    if isinstance(node.func, ast.Name):
        hint += f"; if {node.func.id} is one elsewhere, give the variable of that name here another"
    raise frame.error(node, f"{describe(function)} cannot be called", hint)


def _hashable(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is not None


def _no_keywords(frame: Frame, node: ast.Call, kwargs: dict[str, Any]) -> None:
    if kwargs:
        word = next(iter(kwargs))
        raise frame.error(node, f"this function has no keyword {word}", "pass the values by position")


def _convert(frame: Frame, node: ast.Call, dtype: DType, args: list[Any]) -> Sym:
    if len(args) != 1:
        raise frame.error(node, f"{dtype} converts one value, not {len(args)}", f"write {dtype}(x)")
    expr = to_sym(args[0]).expr
    if expr.dtype.is_float and dtype.kind == "bool":
        return Sym(truth(Sym(expr, False)).expr, False)
    return Sym(expr if expr.dtype == dtype else Cast(expr, dtype), False)


# ---- built-in functions --------------------------------------------------------------------


def _range(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    _no_keywords(frame, node, kwargs)
    if any(isinstance(a, Sym) for a in args) or any(isinstance(a, float) for a in args) or 0 in args[2:]:
        frame.want_number(args[2] if len(args) == 3 else None)
        return make_range(args)
    return native(frame, node, range, *args)


def _annotated_range(kind: str, factor: str = "") -> Callable[..., Any]:
    """`parallel(...)` and the like: a range that stays a loop, of this kind; `factor` is its keyword."""

    def handler(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
        number = kwargs.pop(factor, None) if factor else None
        _no_keywords(frame, node, kwargs)
        if number is not None and (type(number) is not int or number < 1):
            raise frame.error(node, f"{factor} must be a positive number known at specialisation", f"write {factor}=8")
        if not is_symbolic(args):
            native(frame, node, range, *args)  # Python's own errors
        return replace(make_range(args), kind=kind, factor=number)

    return handler


def _bind(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    axes = functions.AXES
    if not args or args[0] not in axes:
        raise frame.error(node, "bind takes the axis first", f"write bind(axis, n) with one of {', '.join(axes)}")
    return _annotated_range(args[0])(frame, node, args[1:], kwargs)


def _grid(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    _no_keywords(frame, node, kwargs)
    return make_grid(frame, args, node)


def _extreme(op: str) -> Callable[..., Any]:
    def handler(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not is_symbolic(args):
            return native(frame, node, getattr(builtins, op), *args, **kwargs)
        _no_keywords(frame, node, kwargs)
        values = args
        if len(args) == 1:
            if isinstance(args[0], (Sym, ArrayValue)):
                raise frame.error(node, f"{op} of one value", f"give {op} two values, or write a loop over the array")
            values = [settled(frame, v, node) for v in args[0]]
        out = values[0]
        for value in values[1:]:
            out = arithmetic(op, out, value) if is_symbolic((out, value)) else getattr(builtins, op)(out, value)
        return out

    return handler


def _sum(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not is_symbolic(args):
        return native(frame, node, sum, *args, **kwargs)
    if isinstance(args[0], (Sym, ArrayValue)):
        raise frame.error(node, f"sum of {describe(args[0])}", "write a loop that adds the elements")
    out = args[1] if len(args) > 1 else kwargs.get("start", 0)
    for value in args[0]:
        out = binary(frame, "+", out, settled(frame, value, node), node)
    return out


def _len(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and isinstance(args[0], ArrayValue) and args[0].rank:
        return size_value(args[0].shape[0])
    return native(frame, node, len, *args, **kwargs)


def _cast_to(dtype: DType, python: Callable[..., Any]) -> Callable[..., Any]:
    def handler(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not is_symbolic(args):
            return native(frame, node, python, *args, **kwargs)
        if len(args) != 1:
            raise frame.error(node, f"{python.__name__} converts one value", f"write {python.__name__}(x)")
        value = truth(args[0]) if dtype == bool_ else to_sym(args[0])
        return Sym(value.expr if value.expr.dtype == dtype else Cast(value.expr, dtype), True)

    return handler


def _abs(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not is_symbolic(args) or len(args) != 1:
        return native(frame, node, abs, *args, **kwargs)
    value = args[0]
    if isinstance(value, Sym) and value.weak and value.pure and value.expr.dtype.is_int:
        return arithmetic("max", value, unary("-", value))  # stays affine in loop variables
    return intrinsic("abs", args)


def _round(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not is_symbolic(args):
        return native(frame, node, builtins.round, *args, **kwargs)
    if len(args) != 1 or kwargs:
        raise frame.error(node, "round to a number of digits", "write round(x * 100.0) / 100.0 with polyc.round")
    return convert(intrinsic("round", args), Type(i64, True))


def _pow(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not is_symbolic(args):
        return native(frame, node, functions.pow, *args, **kwargs)
    if len(args) != 2:
        raise frame.error(node, f"pow takes 2 arguments, not {len(args)}", "write pow(base, exponent)")
    return arithmetic("**", *args)


def _where(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not is_symbolic(args):
        return native(frame, node, functions.where, *args, **kwargs)
    if len(args) != 3:
        raise frame.error(node, f"where takes 3 arguments, not {len(args)}", "write where(condition, a, b)")
    return where(*args)


def _every(op: str) -> Callable[..., Any]:
    """`all` (and) or `any` (or) of known many conditions."""

    def handler(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
        python = all if op == "and" else any
        if not is_symbolic(args) or not isinstance(args[0], (tuple, list)):
            if is_symbolic(args):
                raise frame.error(node, f"{python.__name__} of {describe(args[0])}", "give it a tuple of conditions")
            return native(frame, node, python, *args, **kwargs)
        if any(not is_symbolic(v) and bool(v) == (op == "or") for v in args[0]):
            return op == "or"
        parts = [v for v in args[0] if is_symbolic(v)]
        return logical(op, parts) if len(parts) > 1 else truth(parts[0])

    return handler


def _divmod(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not is_symbolic(args) or len(args) != 2:
        return native(frame, node, divmod, *args, **kwargs)
    return arithmetic("//", *args), arithmetic("%", *args)


def _reversed(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and isinstance(args[0], Range):
        if abs(args[0].step) != 1:
            raise frame.error(node, "reversed of a range with steps", "write the range backwards with a negative step")
        return args[0].reverse()
    if len(args) == 1 and isinstance(args[0], range):
        return args[0][::-1]
    return native(frame, node, lambda: list(reversed(*args)))


# ---- arrays --------------------------------------------------------------------------------


def _make(frame: Frame, node: ast.Call, shape: Any, dtype: Any) -> ArrayValue:
    """A new local array, one for each iteration of the loops around it."""
    if not isinstance(dtype, DType):
        try:
            dtype = from_numpy(dtype)
        except (KeyError, TypeError):
            hint = KNOWN_TYPES if isinstance(dtype, NoType) else "write a type such as f32 as the last argument"
            raise frame.error(node, f"{describe(dtype)} is no dtype", hint) from None
    extents = []
    for part in shape if isinstance(shape, (tuple, list)) else (shape,):
        value = settled(frame, part, node)
        if isinstance(value, int) and value < 0:
            raise frame.error(node, f"the extent {value} is negative", "extents count elements")
        expr = index_expr(value)
        if next(loads(expr), None) is not None or not uses_only(expr, frame.builder.params):
            frame.want_number(Sym(expr, True))
            hint = "the extents of an array may depend on sizes only; allocate the largest one"
            raise frame.error(node, "an extent depends on a loop variable or on data", hint)
        extents.append(expr)
    prefix, prefix_shape = frame.builder.expansion()
    name = frame.hint_name
    array = ArrayValue(name, dtype, tuple(extents), "local", frame.span(node), prefix, prefix_shape)
    return frame.builder.add_array(array)


def _arguments(
    frame: Frame, node: ast.Call, names: tuple[str, ...], args: list[Any], kwargs: dict[str, Any]
) -> list[Any]:
    found = dict(zip(names, args)) | kwargs
    if len(args) > len(names) or set(found) != set(names):
        usage = f"{getattr(node.func, 'id', getattr(node.func, 'attr', '?'))}({', '.join(names)})"
        raise frame.error(node, f"the arguments do not fit {usage}", f"write {usage}, as in {_USAGE[len(names)]}")
    return [found[n] for n in names]


_USAGE = {2: "empty((M, N), f32)", 3: "full((M, N), 1.0, f32)"}


def _empty(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> ArrayValue:
    return _make(frame, node, *_arguments(frame, node, ("shape", "dtype"), args, kwargs))


def _zeros(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> ArrayValue:
    return _filled(frame, node, _make(frame, node, *_arguments(frame, node, ("shape", "dtype"), args, kwargs)), 0)


def _full(frame: Frame, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> ArrayValue:
    shape, value, dtype = _arguments(frame, node, ("shape", "value", "dtype"), args, kwargs)
    return _filled(frame, node, _make(frame, node, shape, dtype), value)


def _filled(frame: Frame, node: ast.Call, array: ArrayValue, value: Any) -> ArrayValue:
    builder = frame.builder
    fill = to_sym(value)
    with ExitStack() as stack:
        index: list[Expr] = []
        for axis, extent in enumerate(array.shape):
            name = builder.unique(f"{array.name}_init_{axis}")
            stack.enter_context(builder.loop(name, const_int(0), extent, 1, frame.span(node)))
            index.append(Var(name))
        builder.store(array, tuple(index), cast(fill.expr, array.dtype), frame.span(node))
    return array


_HANDLERS: dict[Any, Callable[[Frame, ast.Call, list[Any], dict[str, Any]], Any]] = {
    range: _range, functions.grid: _grid, min: _extreme("min"), max: _extreme("max"), sum: _sum, len: _len,
    int: _cast_to(i64, int), float: _cast_to(f64, float), bool: _cast_to(bool_, bool), abs: _abs,
    all: _every("and"), any: _every("or"), divmod: _divmod, builtins.round: _round, pow: _pow,
    functions.pow: _pow, functions.where: _where, reversed: _reversed,
    functions.serial: _annotated_range("serial"), functions.parallel: _annotated_range("parallel"),
    functions.vectorize: _annotated_range("vectorize", "lanes"), functions.unroll: _annotated_range("unroll", "factor"),
    functions.bind: _bind, functions.empty: _empty, functions.zeros: _zeros, functions.full: _full,
}  # fmt: skip

_CONTAINERS = (tuple, list, enumerate, zip, dict)
