"""Operators as bytes for another process: their text, and the values that they read, not references to modules.

What an operator needs travels with it: user's functions by text, default values and the globals and closures that
their code names, in one pickle, so that what two functions share they share there, too. Functions of libraries and
modules travel by name. Unpickling compiles texts and runs none of them; like every pickle it is for one's own data.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import io
import pickle
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from polyc.poly.errors import PolycError
from polyc.poly.words import first_line

from .annotations import content
from .errors import DslError
from .frozen import is_library
from .source import Source, register, source_of
from .typed import code_of, definitions, laid_out

if TYPE_CHECKING:
    from .operator import Operator

KEPT = 32  # operators that a process remembers by their bytes
_UNSET = object()
_FIELDS = ("__defaults__", "__kwdefaults__", "__qualname__", "__module__", "__doc__")


class Packed:
    """A value whose pickle has user's functions and operators in it by their text."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked, (packed(self.value),)


def packed(value: Any) -> bytes:
    """The bytes of a value.

    Raises:
        PolycError: something in it cannot be pickled; the message names the global or variable that holds it.
    """
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    try:
        pickler.dump(value)
    except PolycError:
        raise
    except Exception as error:
        raise PolycError(_why(error, pickler.read)) from None
    return stream.getvalue()


def unpacked(data: bytes) -> Any:
    """The value of `packed`."""
    return pickle.loads(data)


@functools.lru_cache(maxsize=KEPT)
def unpacked_operator(data: bytes) -> Operator:
    """The same of an operator: a worker that gets it with every task compiles it once."""
    found: Operator = unpacked(data)
    return found


def _why(error: Exception, read: Sequence[tuple[str, Any]]) -> str:
    """What cannot be pickled: the first value that a function reads which by itself cannot."""
    for what, value in read:
        try:
            _Pickler(io.BytesIO()).dump(value)
        except Exception as own:
            return f"{what} ({type(value).__name__}) cannot be pickled: {first_line(own)}"
    return f"this cannot be pickled: {first_line(error)}"


# ---- writing -----------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.read: list[tuple[str, Any]] = []  # what functions read, for messages
        self._spaces: dict[int, tuple[Any, _Space]] = {}
        self._cells: dict[int, tuple[CellType, _Cell]] = {}

    def reducer_override(self, value: Any) -> Any:
        from .operator import Operator

        if isinstance(value, Operator) and value.has_text:
            state = value.fn, value.reassociate, value.fast_math
            return by_name(value) or (_new_operator, (), state, None, None, _fill_operator)
        if isinstance(value, FunctionType) and not _importable(value, value):
            try:
                source = source_of(value)
            except DslError:
                return NotImplemented  # without a text: by name, as functions usually are
            return self._function(value, source)
        if isinstance(value, ModuleType):
            return import_module, (value.__name__,)
        return NotImplemented

    def _function(self, fn: FunctionType, source: Source) -> Any:
        scope, name = fn.__globals__, fn.__name__
        _, space = self._spaces.setdefault(id(scope), (scope, _Space()))
        tokens = [self._cells.setdefault(id(c), (c, _Cell()))[1] for c in fn.__closure__ or ()]
        free = fn.__code__.co_freevars
        found = {n: scope[n] for n in sorted(_globals_of(fn.__code__)) if n in scope}
        held = {n: v for n, c in zip(free, fn.__closure__ or ()) if (v := content(c, _UNSET)) is not _UNSET}
        self.read += [(f"{name}: the global '{n}'", v) for n, v in found.items()]
        self.read += [(f"{name}: the variable '{n}' of the function around it", v) for n, v in held.items()]
        state = found, held, _notes(fn), {k: getattr(fn, k) for k in _FIELDS}
        made = excerpt(source, fn.__code__.co_firstlineno), source.file, name, free, space, tuple(tokens)
        return _new_function, made, state, None, None, _fill_function


def by_name(operator: Operator) -> tuple[Any, ...] | None:
    """How to import an operator of a library; None when its text must travel."""
    if not _importable(operator.fn, operator):
        return None
    return _imported, (operator.fn.__module__, operator.fn.__qualname__)


def _importable(fn: FunctionType, value: Any) -> bool:
    """Whether `value` is what the name of `fn` means in a library."""
    return is_library(fn) and getattr(sys.modules.get(fn.__module__), fn.__qualname__, None) is value


def excerpt(source: Source, first: int) -> str:
    """A definition as a text in which it is at the same lines and columns."""
    node = source.node
    last = node.end_lineno or node.lineno
    lines = [line.rstrip("\r\n") for line in source.lines[first - 1 : last]]
    if isinstance(node, ast.FunctionDef):
        return "\n".join(laid_out(lines, first)) + "\n"
    start, end = node.col_offset, node.end_col_offset or 0  # of a statement only the lambda, in parentheses
    raw = [line.encode() for line in lines]
    raw[-1] = raw[-1][:end]
    raw[0] = b" " * start + raw[0][start:]
    text = [*[""] * (first - 1), *(line.decode() for line in raw)]
    if first == 1 and start == 0:
        return "\n".join(text) + "\n"
    text[0] = "(" + text[0][1:]
    return "\n".join(text) + "\n)\n"


def _globals_of(code: CodeType) -> Iterator[str]:
    """The names of globals that code reads."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


def _notes(fn: FunctionType) -> dict[str, Any]:
    """The annotations, texts evaluated: the names in them stay here."""
    from .signature import annotations_of

    try:
        return annotations_of(fn)
    except DslError:  # of a helper, whose annotations mean nothing
        return {}


# ---- reading -----------------------------------------------------------------------------------


class _Space:
    """The globals of functions that had the same ones."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__builtins__": builtins}

    def __reduce__(self) -> tuple[Any, ...]:
        return _Space, ()


class _Cell:
    """A variable that functions share."""

    def __init__(self) -> None:
        self.cell = CellType()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Cell, ()


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _new_function(
    text: str, file: str, name: str, free: tuple[str, ...], space: _Space, cells: tuple[_Cell, ...]
) -> FunctionType:
    place = register(text, file)
    node = next(definitions(ast.parse(text), name))
    code = code_of(node, free, place)
    if code is None:
        raise PolycError(f"the text of {name} does not define it")
    return FunctionType(code, space.names, name, None, tuple(c.cell for c in cells))


def _fill_function(fn: FunctionType, state: Any) -> None:
    found, held, notes, fields = state
    fn.__globals__.update(found)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        if name in held:
            cell.cell_contents = held[name]
    fn.__annotations__ = notes
    for name, value in fields.items():
        setattr(fn, name, value)


def _new_operator() -> Operator:
    from .operator import Operator

    return Operator.__new__(Operator)


def _fill_operator(operator: Operator, state: tuple[Any, ...]) -> None:
    type(operator).__init__(operator, *state)
