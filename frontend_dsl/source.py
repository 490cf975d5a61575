"""A Python function's syntax tree with exact places in its file."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import linecache
from functools import cached_property, lru_cache
from types import FunctionType
from typing import Any

from polyc.poly.expr import Span

from .errors import DslError
from .jumps import structured
from .liveness import Liveness
from .typed import definitions, same_code, typed_lines


class Source:
    """The definition of one function: its `ast` node and the spans of everything in it."""

    def __init__(self, node: ast.FunctionDef | ast.Lambda, file: str, lines: tuple[str, ...]) -> None:
        self.node = node
        self.file = file
        self.lines = lines

    @cached_property
    def body(self) -> list[ast.stmt]:
        """The statements, jumps as structure (a lambda's expression counts as a return)."""
        if isinstance(self.node, ast.Lambda):
            return [ast.copy_location(ast.Return(self.node.body), self.node.body)]
        return structured(self.node)

    @cached_property
    def liveness(self) -> Liveness:
        """Which names are needed after its loops and conditions."""
        return Liveness(self.body)

    @cached_property
    def acts(self) -> bool:
        """Whether the function may store to arrays that it did not create."""
        nodes = [n for s in self.body for n in ast.walk(s)]
        stores = any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) for n in nodes)
        return stores or any(isinstance(n, ast.Expr) and isinstance(n.value, ast.Call) for n in nodes)

    def span(self, node: Any) -> Span:
        """The place of an `ast` node, columns in characters."""
        line, end = node.lineno, node.end_lineno or node.lineno
        text = self.lines[line - 1].rstrip("\n")
        return Span(
            self.file, line, _chars(text, node.col_offset), end,
            _chars(self.lines[end - 1], node.end_col_offset or 0), text,
        )  # fmt: skip

    def keyword_span(self, node: ast.stmt, word: str) -> Span:
        """The place of a statement's first word only (`while`), so that the caret is short."""
        whole = self.span(node)
        return Span(whole.file, whole.line, whole.col, whole.line, whole.col + len(word), whole.text)


def _chars(line: str, column: int) -> int:
    """`ast` counts UTF-8 bytes; people count characters."""
    return column if line.isascii() else len(line.encode()[:column].decode(errors="ignore"))


@lru_cache(maxsize=64)
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


_sources: dict[Any, Source] = {}
_typed: dict[Any, Source] = {}  # where the text is gone later
_registered: dict[str, str] = {}  # file names of texts that are no files: what messages call them


def source_of(fn: FunctionType) -> Source:
    """The source of a Python function, as its code is now.

    Raises:
        DslError: there is none (made by `exec` without a file).
    """
    key = fn.__code__, fn.__code__.co_filename, fn.__name__
    found = _sources.get(key) or _typed.get(key)
    if found is None:
        if len(_sources) >= 4096:
            _sources.clear()
        found = _sources[key] = _read(fn)
    return found


def remember(fn: FunctionType) -> None:
    """Keep the source of a function that was typed at a prompt, if it can still be found."""
    if fn.__code__.co_filename.startswith("<"):
        with contextlib.suppress(DslError):
            _typed[fn.__code__, fn.__code__.co_filename, fn.__name__] = source_of(fn)


def register(text: str, name: str) -> str:
    """Make a text the source of code that is compiled from it; the file name to compile it under.

    Messages call the text `name`.
    """
    file = f"<{name.strip('<>')} {hashlib.sha256(text.encode()).hexdigest()[:10]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    _registered[file] = name
    return file


def _read(fn: FunctionType) -> Source:
    file = inspect.getsourcefile(fn) or fn.__code__.co_filename
    linecache.checkcache(file)
    lines = tuple(linecache.getlines(file, fn.__globals__))
    typed = () if lines else typed_lines(fn)
    lines = lines or typed
    hint = "put the function into a file or a notebook cell, or give its text to op.from_source"
    if not lines:
        raise DslError(f"the source of {fn.__name__} is not available", hint=hint)
    first = fn.__code__.co_firstlineno
    for node in definitions(_parse("".join(lines)), fn.__name__):
        if isinstance(node, ast.FunctionDef):
            start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        elif _same_lambda(node, fn) or (typed and same_code(node, fn)):
            start = node.lineno
        else:
            continue
        if start == first:
            return Source(node, _registered.get(file, file), lines)
    raise DslError(f"the source of {fn.__name__} is not where Python says it is ({file}:{first})", hint=hint)


def _same_lambda(node: ast.Lambda, fn: FunctionType) -> bool:
    places = [(p[0], p[2]) for p in fn.__code__.co_positions() if p[0] is not None and p[2] is not None]
    body = node.body
    inside = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
    real = [place for place in places if place != (fn.__code__.co_firstlineno, 0)]
    return bool(real) and all(inside[0] <= place <= inside[1] for place in real)
