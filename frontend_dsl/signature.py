"""Parameters and result of an operator, read from the function's annotations."""

from __future__ import annotations

import ast
import inspect
from types import FunctionType
from typing import Any

import numpy as np

from polyc.poly.dtypes import KNOWN_TYPES, ArrayType, DType, NoType, bool_, f64, i64, missing_type
from polyc.poly.expr import Span
from polyc.poly.records import dataclass

from .annotations import Dim, InOut
from .errors import DslError
from .source import Source, source_of


@dataclass(frozen=True, slots=True)
class Param:
    """One array or run-time scalar parameter. `shape` is None for a scalar."""

    name: str
    dtype: DType
    shape: tuple[Any, ...] | None
    inout: bool

    @property
    def any_rank(self) -> bool:
        """Whether the annotation has `...`, so that the argument decides the rank."""
        return self.shape is not None and any(e is Ellipsis for e in self.shape)


@dataclass(frozen=True, slots=True)
class Signature:
    """`params` in call order, compile-time `constants` with their defaults, declared `results`.

    `absent` are parameters annotated `None`: nobody passes them, in the body they are None.
    """

    params: tuple[Param, ...]
    constants: dict[str, Any]
    results: tuple[ArrayType, ...] | None
    absent: tuple[str, ...] = ()

    def dims(self) -> tuple[str, ...]:
        """The size symbols in the annotations of parameters, in order of appearance.

        Those of results that are `from_outside` (sizes of a model, known without arguments) come after them.
        """
        shapes = [p.shape or () for p in self.params]
        shapes += [tuple(d for d in r.shape if isinstance(d, Dim) and d.from_outside) for r in self.results or ()]
        return tuple(dict.fromkeys(n for shape in shapes for d in shape if isinstance(d, Dim) for n in d.names()))


REQUIRED = inspect.Parameter.empty
_MEANT = {int: i64, float: f64, bool: bool_}
_USE = "write an array type such as f32[M, K], a scalar type such as f32, or inout(f32[N])"


def read_signature(fn: FunctionType) -> Signature:
    """Check and read the annotations. Raises `DslError` at the offending parameter."""
    params: list[Param] = []
    constants: dict[str, Any] = {}
    absent: list[str] = []
    notes = annotations_of(fn)
    for p in inspect.signature(fn).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            star = "*" if p.kind == p.VAR_POSITIONAL else "**"
            raise DslError(
                f"the parameter {star}{p.name} takes any number of arguments", _place(fn, p.name),
                "list the parameters one by one; write a bare * before compile-time constants",
            )  # fmt: skip
        if p.kind == p.KEYWORD_ONLY:
            constants[p.name] = p.default
            continue
        if p.default is not p.empty:
            raise DslError(
                f"the parameter {p.name} has a default value", _place(fn, p.name),
                f"put compile-time constants after a bare *: (..., *, {p.name}=...)",
            )  # fmt: skip
        if p.name in notes and notes[p.name] is None:
            absent.append(p.name)
            continue
        if absent:
            raise DslError(
                f"the parameter {p.name} comes after {absent[0]}, which is None", _place(fn, p.name),
                "move parameters that may be absent to the end",
            )  # fmt: skip
        params.append(_param(fn, p.name, notes.get(p.name, p.empty)))
    return Signature(tuple(params), constants, _results(fn, notes.get("return")), tuple(absent))


def annotations_of(fn: FunctionType) -> dict[str, Any]:
    """Annotations as objects; those kept as text (`from __future__ import annotations`) are evaluated.

    Raises:
        DslError: a text cannot be evaluated.
    """
    notes = dict(fn.__annotations__)
    texts = {k: v for k, v in notes.items() if isinstance(v, str)}
    if texts:
        scope = {**fn.__globals__}
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            try:
                scope[name] = cell.cell_contents
            except ValueError:  # not assigned yet: not an annotation's name either
                continue
        kinds = inspect.signature(fn).parameters
        for name, text in texts.items():
            if name in kinds and kinds[name].kind == inspect.Parameter.KEYWORD_ONLY:
                continue  # constants may be annotated with anything
            try:
                notes[name] = eval(text, scope)  # the user's own annotation, as typing.get_type_hints does
            except Exception as error:
                hint = "annotations kept as text can use global names only; drop 'from __future__ import annotations'"
                if isinstance(error, NameError):
                    hint = missing_type(str(error.name)) or hint
                raise DslError(
                    f"the annotation '{text}' cannot be evaluated: {error}", _place(fn, name), hint
                ) from None
    return notes


def _param(fn: FunctionType, name: str, note: Any) -> Param:
    if note is inspect.Parameter.empty:
        raise DslError(f"the parameter {name} has no type", _place(fn, name), _USE)
    inner = note.type if isinstance(note, InOut) else note
    if isinstance(inner, ArrayType):
        _check_shape(fn, name, inner)
        return Param(name, inner.dtype, inner.shape, isinstance(note, InOut))
    if isinstance(inner, DType):
        if isinstance(note, InOut):
            raise DslError(
                f"the scalar {name} cannot be inout", _place(fn, name), f"use a rank-0 array: inout({inner}[()])"
            )
        return Param(name, inner, None, False)
    hint = KNOWN_TYPES if isinstance(inner, NoType) or _of_numpy(inner) else _USE
    if inner.__hash__ and inner in _MEANT:
        hint = f"write {_MEANT[inner]}, or put a compile-time constant after a bare *"
    raise DslError(f"{_text(inner)} is not a type of the language", _place(fn, name), hint)


def _of_numpy(note: Any) -> bool:
    return isinstance(note, np.dtype) or (isinstance(note, type) and issubclass(note, np.generic))


def _text(note: Any) -> str:
    return note.__name__ if isinstance(note, type) else repr(note)


def _check_shape(fn: FunctionType, name: str, note: ArrayType) -> None:
    if sum(e is Ellipsis for e in note.shape) > 1:
        raise DslError("a shape has more than one '...'", _place(fn, name), "keep one, as in f32[..., N]")
    for extent in note.shape:
        fine = extent is Ellipsis or isinstance(extent, Dim) or (isinstance(extent, int) and extent >= 0)
        if not fine or isinstance(extent, bool):
            raise DslError(
                f"the extent {extent!r} in {note.dtype}[...] is no size", _place(fn, name),
                'use symbols from dims("M N"), integers from 0, or expressions of them',
            )  # fmt: skip


def _results(fn: FunctionType, note: Any) -> tuple[ArrayType, ...] | None:
    if note is None:
        return None
    inner = note if isinstance(note, tuple) else getattr(note, "__args__", (note,))
    for part in inner:
        if not isinstance(part, ArrayType):
            raise DslError(f"the result type {_text(part)} is no array type", _place(fn, "return"), _result_hint(part))
        _check_shape(fn, "return", part)
    return tuple(inner)


def _result_hint(note: Any) -> str:
    """What to write instead of a result type that is no array type."""
    scalar = note if isinstance(note, DType) else _MEANT.get(note) if note.__hash__ else None
    if isinstance(scalar, DType):
        return f"results are arrays: write -> {scalar}[1] for one number, or -> {scalar}[N]"
    if isinstance(note, NoType):
        return KNOWN_TYPES
    return "write -> f32[M, N], or -> (f32[M], f32[N]) for several, or leave it out"


def _place(fn: FunctionType, name: str) -> Span | None:
    """Where a parameter (or the result) is declared, if the source is at hand."""
    try:
        return declared_at(source_of(fn), name)
    except DslError:
        return None


def declared_at(source: Source, name: str) -> Span:
    """The place of a parameter's declaration, or of the result's annotation (`return`)."""
    node = source.node
    if name == "return" and isinstance(node, ast.FunctionDef) and node.returns is not None:
        return source.span(node.returns)
    a = node.args
    every = [*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs, *([a.kwarg] if a.kwarg else [])]
    for arg in every:
        if arg.arg == name:
            return source.span(arg)
    return source.keyword_span(node, "def") if isinstance(node, ast.FunctionDef) else source.span(node)
