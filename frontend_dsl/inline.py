"""Inlining: calls of operators and of plain Python functions become part of the caller."""

from __future__ import annotations

import ast
import copy
import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.poly.errors import ArgumentError
from polyc.poly.scalars import scalar
from polyc.poly.words import counted

from .errors import DslError
from .evaluate import evaluate
from .frame import Frame, InnerFrame, InnerFunction
from .locals import TEMPORARY, declare, keep, read, store
from .reads import of_object
from .signature import REQUIRED, Param
from .sizes import solve_sizes
from .source import Source
from .values import ArrayValue, Sym, Type, cast, describe, to_sym

if TYPE_CHECKING:
    from .operator import Operator

DEPTH_LIMIT = 64


def inline_function(
    frame: Frame, fn: FunctionType, args: list[Any], kwargs: dict[str, Any], node: ast.Call, whole: bool
) -> Any:
    """A call of a plain Python function with run-time arguments."""
    inner = _enter(frame, fn, frame.sizes, False, node)
    bound = _bound(frame, fn.__name__, inspect.signature(fn), args, kwargs, node)
    acts = inner.source.acts
    for name, value in bound.items():
        # the function may change what the argument reads
        inner.env[name] = keep(frame, value, node) if acts else value
    return _run(frame, inner, node, whole)


def inline_inner(
    frame: Frame, inner: InnerFunction, args: list[Any], kwargs: dict[str, Any], node: ast.Call, whole: bool
) -> Any:
    """A call of a function that is defined inside an operator or helper."""
    _check_depth(frame, inner.name, node)
    called = InnerFrame(inner)
    bound = _bound(frame, inner.name, inner.signature, args, kwargs, node)
    acts = called.source.acts
    for name, value in bound.items():
        called.env[name] = keep(frame, value, node) if acts else value
    return _run(frame, called, node, whole)


def _bound(
    frame: Frame, name: str, signature: inspect.Signature, args: list[Any], kwargs: dict[str, Any], node: ast.Call
) -> dict[str, Any]:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as problem:
        raise frame.error(node, f"{name}: {problem}", "fit the call to the function's parameters") from None
    bound.apply_defaults()
    return bound.arguments


def inline_operator(
    frame: Frame, operator: Operator, args: list[Any], kwargs: dict[str, Any], node: ast.Call, whole: bool
) -> Any:
    """A call of another operator on arrays of this program."""
    if not operator.has_text:
        raise frame.error(node, f"{operator.name} is derived from another operator and has no text to put here",
                          "call it outside, on the arrays that this operator takes or gives")  # fmt: skip
    signature = operator.signature
    constants = {**signature.constants, **{k: v for k, v in kwargs.items() if k in signature.constants}}
    given: dict[str, Any] = dict(zip((p.name for p in signature.params), args))
    for name, value in kwargs.items():
        if name in signature.constants:
            continue
        if name in given or all(p.name != name for p in signature.params):
            raise frame.error(
                node, f"{operator.name} has no parameter {name} left", f"its parameters: {operator.usage}"
            )
        given[name] = value
    missing = [p.name for p in signature.params if p.name not in given]
    missing += [k for k, v in constants.items() if v is REQUIRED]
    if missing or len(args) > len(signature.params):
        what = f"no value for {missing[0]}" if missing else counted(len(args), "argument")
        raise frame.error(node, f"{operator.name} is called with {what}", f"its parameters: {operator.usage}")
    for p in signature.params:
        _check_argument(frame, p, given[p.name], operator.name, node)
    shapes = {p.name: given[p.name].shape for p in signature.params if p.shape is not None}
    try:
        sizes = solve_sizes(signature, shapes, {}, frame.sizes)
    except ArgumentError as problem:
        raise frame.error(node, f"{operator.name}: {problem}", "fit the shapes to the operator's annotations") from None
    inner = _enter(frame, operator.fn, sizes, True, node)
    for p in signature.params:
        inner.env[p.name] = _argument(frame, p, given[p.name], node)
    for name, value in signature.constants.items():
        if constants[name] is value:
            frame.program.reads.add(of_object(value), value)
    inner.env.update(constants)
    inner.env.update(dict.fromkeys(signature.absent))
    return _run(frame, inner, node, whole)


def _check_argument(frame: Frame, p: Param, value: Any, operator: str, node: ast.Call) -> None:
    if p.shape is None:
        return
    if not isinstance(value, ArrayValue):
        raise frame.error(node, f"{operator}: {p.name} takes an array, not {describe(value)}", "pass an array")
    if value.dtype != p.dtype:
        raise frame.error(
            node, f"{operator}: {p.name} takes {p.dtype}, but {value.name} is {value.dtype}",
            f"convert {value.name} first, element by element",
        )  # fmt: skip
    if p.inout and value.kind == "in":
        raise frame.error(
            node, f"{operator} updates {p.name}, but {value.name} is an input", f"annotate {value.name} as inout(...)"
        )


def _argument(frame: Frame, p: Param, value: Any, node: ast.Call) -> Any:
    if p.shape is not None:
        view = copy.copy(value)
        view.kind = value.kind if p.inout else "in"
        return view
    if not isinstance(value, Sym):
        if isinstance(value, (int, float, np.generic)):
            try:
                return scalar(value, p.dtype, p.name)
            except ArgumentError as problem:
                raise frame.error(node, str(problem), f"convert it first, as in {p.dtype}(x)") from None
        return to_sym(value)
    version = declare(frame, TEMPORARY)
    del frame.env[TEMPORARY]
    version.name = p.name
    store(frame, version, Sym(cast(value.expr, p.dtype), False), node)
    version.type = Type(p.dtype, False)
    return read(frame, version, node)


def _enter(frame: Frame, fn: FunctionType, sizes: Any, is_operator: bool, node: ast.Call) -> Frame:
    _check_depth(frame, fn.__name__, node)
    return Frame(fn, frame.program, sizes, is_operator)


def _check_depth(frame: Frame, name: str, node: ast.Call) -> None:
    if frame.program.depth >= DEPTH_LIMIT:
        hint = "the recursion must end by a condition known at specialisation"
        raise frame.error(node, f"calls of {name} are nested more than {DEPTH_LIMIT} deep", hint)


def define(frame: Frame, node: ast.FunctionDef | ast.Lambda) -> InnerFunction:
    """The value of a `def` or `lambda` inside a function; defaults are evaluated here, as in Python."""
    name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
    kinds = inspect.Parameter
    a = node.args
    plain = [*((p, kinds.POSITIONAL_ONLY) for p in a.posonlyargs), *((p, kinds.POSITIONAL_OR_KEYWORD) for p in a.args)]
    defaults: list[Any] = [kinds.empty] * (len(plain) - len(a.defaults))
    defaults += [keep(frame, evaluate(frame, d), node) for d in a.defaults]
    parameters = [kinds(p.arg, kind, default=d) for (p, kind), d in zip(plain, defaults)]
    if a.vararg is not None:
        parameters.append(kinds(a.vararg.arg, kinds.VAR_POSITIONAL))
    for p, d in zip(a.kwonlyargs, a.kw_defaults):
        default = kinds.empty if d is None else keep(frame, evaluate(frame, d), node)
        parameters.append(kinds(p.arg, kinds.KEYWORD_ONLY, default=default))
    if a.kwarg is not None:
        parameters.append(kinds(a.kwarg.arg, kinds.VAR_KEYWORD))
    source = Source(node, frame.source.file, frame.source.lines)
    return InnerFunction(name, node, frame, inspect.Signature(parameters), source)


def _run(frame: Frame, inner: Frame, node: ast.Call, whole: bool) -> Any:
    from .statements import execute

    builder = frame.builder
    known, mark = set(builder.arrays), builder.mark()
    frame.program.depth += 1
    try:
        returned = execute(inner, inner.source.body)
    except DslError as error:
        error.inlined_from(frame.span(node))
        raise
    finally:
        frame.program.depth -= 1
    if not whole:
        changed = [r.array.name for r in builder.records_since(mark) if r.array.name in known]
        if changed:
            raise frame.error(
                node, f"this call changes {changed[0]} in the middle of an expression",
                "make the call a statement of its own: x = f(...)",
            )  # fmt: skip
    return None if returned is None else returned.value
