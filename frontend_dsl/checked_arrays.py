"""Arrays of the plain-Python run: a subscript outside is an error, a negative one, too (NumPy counts from the end;
here only one that is written so does, `X[-1]`)."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

import numpy as np

from polyc.poly.errors import BoundsError

_operator: ContextVar[str] = ContextVar("polyc_operator", default="")


@contextmanager
def running(operator: str) -> Iterator[None]:
    """Inside, violations are those of this operator (of the outermost one, as in compiled code)."""
    token = _operator.set(_operator.get() or operator)
    try:
        yield
    finally:
        _operator.reset(token)


class CheckedArray(np.ndarray):
    """A view whose subscripts are checked. `given` is the argument's name ("" for a local array), `skipped` the number
    of its axes that subscripts have already taken (`X[i][j]`)."""

    given: str
    skipped: int

    def __array_finalize__(self, other: Any) -> None:
        self.given = getattr(other, "given", "")
        self.skipped = getattr(other, "skipped", 0)

    def __getitem__(self, at: Any) -> Any:
        _check(self, at)
        found = super().__getitem__(at)
        if isinstance(found, CheckedArray):
            found.skipped = self.skipped + (len(at) if type(at) is tuple else 1)
        return found

    def __setitem__(self, at: Any, value: Any) -> None:
        _check(self, at)
        super().__setitem__(at, value)

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))  # the program knows it as an array


def checked(array: np.ndarray[Any, Any], name: str = "") -> CheckedArray:
    """`array` with checked subscripts, over the same memory."""
    if isinstance(array, CheckedArray):
        return array
    view = array.view(CheckedArray)
    view.given = name
    return view


def _check(array: CheckedArray, at: Any) -> None:
    try:
        for axis, (index, size) in enumerate(zip(at if type(at) is tuple else (at,), array.shape)):
            if not 0 <= index < size:
                frame = sys._getframe(2)
                if -size <= index < 0 and (_of_numpy(frame) or _written_negative(frame, axis)):
                    continue
                name = array.given or _name_in(frame, array)
                line, file = frame.f_lineno, frame.f_code.co_filename
                raise BoundsError(_operator.get(), line, name, axis + array.skipped, int(index), size, f"{file}:{line}")
    except (TypeError, ValueError):
        return  # a slice or an array: NumPy knows


def _of_numpy(frame: FrameType) -> bool:
    """Whether NumPy's own Python code runs: it prints arrays by subscripts from the end."""
    return str(frame.f_globals.get("__name__", "")).startswith("numpy.")


def _written_negative(frame: FrameType, axis: int) -> bool:
    """Whether the subscript that a frame is at is a negative literal: `X[-1]` counts from the end, in the language."""
    places = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    file, scope = frame.f_code.co_filename, frame.f_globals
    if None in places:
        return False
    first, last, start, end = (int(p or 0) for p in places)
    lines = [linecache.getline(file, n, scope).encode() for n in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        node = ast.parse(b"".join(lines).decode(), mode="eval").body
    except (SyntaxError, UnicodeDecodeError):
        return False
    if not isinstance(node, ast.Subscript):
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return axis < len(parts) and is_negative_literal(parts[axis])


def is_negative_literal(subscript: ast.expr) -> bool:
    """Whether a subscript is written `-1`, which counts from the end: other negative ones are outside."""
    if not isinstance(subscript, ast.UnaryOp):
        return False
    return isinstance(subscript.op, ast.USub) and isinstance(subscript.operand, ast.Constant)


def _name_in(frame: FrameType, array: CheckedArray) -> str:
    """What the function that runs calls the array."""
    return next((name for name, value in frame.f_locals.items() if value is array), "array")


def plain(value: Any, arguments: dict[int, Any]) -> Any:
    """What a run returns, as ordinary arrays; `arguments` are those that were given, by the id of their view."""
    if isinstance(value, tuple):
        return tuple(plain(v, arguments) for v in value)
    if isinstance(value, CheckedArray):
        return arguments.get(id(value), value.view(np.ndarray))
    return value
