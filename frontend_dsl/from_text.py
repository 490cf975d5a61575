"""`op.from_source`: a text as functions whose other names mean what they do where it is called."""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Mapping
from importlib import import_module
from types import FunctionType
from typing import Any

from polyc.poly.dtypes import missing_type
from polyc.poly.expr import Span
from polyc.poly.words import article

from .errors import DslError
from .source import register

NAME = "<source>"


def function_in(text: str, name: str | None, scope: dict[str, Any], local: Mapping[str, Any]) -> Any:
    """The function (or operator) that `text` defines.

    Its globals are `scope` itself, so that changes there are seen; what the text defines at its top, and names from
    `local`, are variables of a function around it.

    Raises:
        DslError: it is no text or no Python, raises an error, or which function is meant is not clear.
    """
    if not isinstance(text, str):
        raise DslError(f"op.from_source takes a text, not {article(type(text).__name__)}")
    text = textwrap.dedent(text)
    file = register(text, NAME)
    module = _parsed(text)
    future = [s for s in module.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    outer = {**_starred(module), **_meant(module, scope, local)}
    body = [s for s in module.body if s not in future and not _is_starred(s)]
    names = [ast.arg(n) for n in outer]
    arguments = ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[])
    last = ast.Return(ast.Call(ast.Name("locals", ast.Load()), [], []))
    around = ast.FunctionDef(name="_", args=arguments, body=[*body, last], decorator_list=[], lineno=1, col_offset=0)
    made: dict[str, Any] = {}
    code = compile(ast.fix_missing_locations(ast.Module([*future, around], [])), file, "exec", dont_inherit=True)
    exec(code, scope, made)  # the caller's own text, as `exec` would run it
    try:
        found = made["_"](**outer)
    except DslError:
        raise
    except Exception as error:
        raise _at(error, file, text) from None
    return _chosen(module, found, name)


def _parsed(text: str) -> ast.Module:
    try:
        module = ast.parse(text, NAME)
        compile(module, NAME, "exec", dont_inherit=True)  # what only the compiler refuses
    except SyntaxError as error:
        line, column = error.lineno or 1, max(0, (error.offset or 1) - 1)
        shown = (error.text or "").rstrip("\n")
        end = max(column, (error.end_offset or 0) - 1)
        raise DslError(f"the text is no Python: {error.msg}", Span(NAME, line, column, line, end, shown)) from None
    except ValueError as error:
        raise DslError(f"the text is no Python: {error}") from None
    return module


def _is_starred(s: ast.stmt) -> bool:
    return isinstance(s, ast.ImportFrom) and any(a.name == "*" for a in s.names)


def _starred(module: ast.Module) -> dict[str, Any]:
    """What `from module import *` brings, as far as the text names it."""
    out: dict[str, Any] = {}
    for s in module.body:
        if isinstance(s, ast.ImportFrom) and _is_starred(s):
            found = import_module(s.module or "")
            public = getattr(found, "__all__", [n for n in vars(found) if not n.startswith("_")])
            out |= {n: getattr(found, n) for n in public if n in _names(module)}
    return out


def _names(module: ast.Module) -> set[str]:
    return {n.id for n in ast.walk(module) if isinstance(n, ast.Name)}


def _meant(module: ast.Module, scope: Mapping[str, Any], local: Mapping[str, Any]) -> dict[str, Any]:
    """Names that the text does not define and the globals lack: the caller's local variables, then those of polyc."""
    defined: set[str] = set()
    for s in module.body:
        if isinstance(s, (ast.FunctionDef, ast.ClassDef)):
            defined.add(s.name)
        elif isinstance(s, (ast.Import, ast.ImportFrom)):
            defined |= {(a.asname or a.name).partition(".")[0] for a in s.names}
        else:
            defined |= {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    wanted = sorted(_names(module) - defined)
    out = {n: local[n] for n in wanted if n in local}
    rest = [n for n in wanted if n not in out and n not in scope and not hasattr(builtins, n)]
    if rest:
        polyc = import_module("polyc")
        out |= {n: getattr(polyc, n) for n in rest if n in polyc.__all__}
        if "polyc" in rest:
            out["polyc"] = polyc
    return out


def _chosen(module: ast.Module, found: Mapping[str, Any], name: str | None) -> Any:
    defs = [s.name for s in module.body if isinstance(s, ast.FunctionDef)]
    known = [n for n in dict.fromkeys(defs) if n in found]
    if name is not None:
        if name not in known:
            raise DslError(f"the text defines no function {name} (it has: {', '.join(known) or 'none'})")
        return _named(found[name])
    operators = [n for n in known if not isinstance(found[n], FunctionType)]
    several = operators or known
    if len(several) != 1:
        what = f"several functions ({', '.join(several)})" if several else "no function"
        raise DslError(f"the text defines {what}", hint="say which is the operator: name=..., or put @op above it")
    return _named(found[several[0]])


def _named(function: Any) -> Any:
    if isinstance(function, FunctionType):
        function.__qualname__ = function.__name__
    return function


def _at(error: Exception, file: str, text: str) -> DslError:
    """An error of the text's own statements, at the line where it came up."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    lines = text.splitlines()
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    start = len(shown) - len(shown.lstrip())
    span = Span(NAME, line, start, line, len(shown), shown) if shown else None
    hint = ""
    if isinstance(error, NameError) and error.name:
        hint = missing_type(error.name) or f"define {error.name} in the text, or pass scope={{{error.name!r}: ...}}"
    return DslError(f"the text cannot be run: {type(error).__name__}: {error}", span, hint)
