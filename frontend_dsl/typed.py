"""The source of functions that were typed or piped into Python, which keeps no text of them.

Python before 3.13 forgets what it reads from a prompt, from `python -` and from `python -c`. The text is still in the
arguments of the process, in a file that is standard input, in the history of readline, or, token by token, in a list
that Python's parser keeps while the script or the statement runs. What is found is taken only if it compiles to the
code that the function has.
"""

from __future__ import annotations

import ast
import gc
import itertools
import keyword
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

HISTORY = 2000  # lines of a prompt that are looked through
LAMBDA = "<lambda>"
REPEATS = 3  # lines equal to the one before, which readline leaves out
TRIALS = 3000


def typed_lines(fn: FunctionType) -> tuple[str, ...]:
    """The text of `fn` at its line numbers, empty lines before it; nothing where it cannot be found."""
    if not fn.__code__.co_filename.startswith("<"):
        return ()
    for text, complete in _texts():
        lines = re.split(r"\r?\n", text)
        tries = _blocks(lines, fn) if complete else itertools.chain(_blocks(lines, fn), _repeated(lines, fn))
        for block in itertools.islice(tries, TRIALS):
            if any(_same(code, fn.__code__) for code in _codes(block, fn)):
                return tuple(line + "\n" for line in block)
    return _from_tokens(fn)


# ---- where text may be -----------------------------------------------------------------------


def _texts() -> Iterator[tuple[str, bool]]:
    """Texts, and whether they have all lines."""
    words = sys.orig_argv
    if "-c" in words[:-1]:
        yield words[words.index("-c") + 1], True
    yield _standard_input(), True
    readline: Any = sys.modules.get("readline")
    if readline is not None:
        last = readline.get_current_history_length()
        lines = [readline.get_history_item(n) or "" for n in range(max(1, last - HISTORY), last + 1)]
        yield "\n".join(lines), False


def _standard_input() -> str:
    """The file that is standard input (a pipe cannot be read again)."""
    try:
        about = os.fstat(0)
        return os.pread(0, about.st_size, 0).decode(errors="replace") if stat.S_ISREG(about.st_mode) else ""
    except (OSError, AttributeError):
        return ""


# ---- blocks of lines that may be the function --------------------------------------------------


def _around_lambdas(lines: Sequence[str], fn: FunctionType, count: int) -> Iterator[list[str]]:
    """Statements with a lambda of so many lines at the function's line number, the latest first."""
    first = fn.__code__.co_firstlineno
    for at in range(len(lines) - 1, -1, -1):
        if re.search(r"\blambda\b", lines[at]):
            for above in range(min(at, first - 1, 8) + 1):
                block = laid_out(lines[at - above : at + count], first - above)
                if _parses(block):
                    yield block


def _starts(lines: Sequence[str], name: str) -> Iterator[int]:
    """Where the definition may begin, the latest first: at its `def`, or at a decorator above."""
    pattern = re.compile(rf"\s*def\s+{re.escape(name)}\b")
    for at in range(len(lines) - 1, -1, -1):
        if pattern.match(lines[at]):
            start = at
            yield start
            while start > 0 and at - start < 8 and (start < at or lines[start - 1].lstrip()[:1] in ("@", ")")):
                start -= 1
                yield start


def _blocks(lines: Sequence[str], fn: FunctionType) -> Iterator[list[str]]:
    """Blocks of lines at the function's line number; longer ones where a block is no whole statement."""
    count = last_line(fn.__code__) - fn.__code__.co_firstlineno + 1
    if fn.__name__ == LAMBDA:
        for more in range(4):  # lines that end the statement
            yield from _around_lambdas(lines, fn, count + more)
        return
    for start in _starts(lines, fn.__name__):
        for end in range(start + count, min(start + count + 30, len(lines)) + 1):
            block = laid_out(lines[start:end], fn.__code__.co_firstlineno)
            if _parses(block):
                yield block
                break


def _repeated(lines: Sequence[str], fn: FunctionType) -> Iterator[list[str]]:
    """The same with up to `REPEATS` lines more, which a history leaves out: empty ones, and those equal to the one
    before."""
    count = last_line(fn.__code__) - fn.__code__.co_firstlineno + 1
    for start, missing in itertools.product(_starts(lines, fn.__name__), range(1, REPEATS + 1)):
        known = lines[start : start + count - missing]
        for places in itertools.combinations_with_replacement(range(len(known)), missing):
            for empty in itertools.product((False, True), repeat=missing):
                whole: list[str] = []
                for n, line in enumerate(known):
                    more = ["" if e else line for p, e in zip(places, empty) if p == n]
                    whole += [line, *more]
                block = laid_out(whole, fn.__code__.co_firstlineno)
                if _parses(block):
                    yield block


def laid_out(lines: Sequence[str], first: int) -> list[str]:
    """Lines as a module of their own whose line `first` is the first of them."""
    before = [""] * (first - 1)
    if lines and lines[0][:1].isspace() and before:
        before[0] = "if True:"
    return [*before, *lines]


def last_line(code: CodeType) -> int:
    """The last line that a function's code comes from."""
    own = [end for _, end, _, _ in code.co_positions() if end is not None]
    inner = [last_line(c) for c in code.co_consts if isinstance(c, CodeType)]
    return max([code.co_firstlineno, *own, *inner])


def _parses(block: Sequence[str]) -> bool:
    try:
        ast.parse("\n".join(block))
    except (SyntaxError, ValueError):
        return False
    return True


# ---- the parser's tokens -----------------------------------------------------------------------


def _from_tokens(fn: FunctionType) -> tuple[str, ...]:
    """The text of `fn` written anew from tokens, its lines where they were."""
    for tokens in _token_lists(fn.__name__.encode()):
        lines = _written(tokens)
        for block in _around_lambdas(lines, fn, 1) if fn.__name__ == LAMBDA else ():
            if any(_same(code, fn.__code__, places=False) for code in _codes(block, fn)):
                return tuple(line + "\n" for line in block)
        for start in _starts(lines, fn.__name__):
            header = next(n for n in range(start, len(lines)) if re.match(r"\s*def\b", lines[n]))
            outside = (n for n in range(header + 1, len(lines)) if _depth(lines[n]) <= _depth(lines[header]))
            placed = _placed(lines[start : next(outside, len(lines))], fn)
            if placed:
                return placed
    return ()


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _token_lists(name: bytes) -> list[list[bytes]]:
    """Lists of the parser that have `def name`, without its other objects.

    No generator: it would be among the objects that it goes through, and so keep itself and all of them alive until
    the next collection.
    """
    lists = []
    for found in gc.get_objects():
        if type(found) is list and len(found) > 8 and type(found[0]) is bytes:
            tokens = [t for t in found if type(t) is bytes]
            defined = any(a == b"def" and b == name for a, b in itertools.pairwise(tokens))
            if defined or (name == LAMBDA.encode() and b"lambda" in tokens):
                lists.append(tokens)
    return lists


def _written(tokens: Sequence[bytes]) -> list[str]:
    """Statements as lines. Ends of lines, indentation and its ends are all empty tokens: after a colon there come
    two, the second opens a block; elsewhere the first ends the line, each further one a block."""
    lines: list[str] = []
    line: list[str] = []
    depth = 0
    ends = [t == b"" or t.startswith(b"#") for t in tokens]
    for n, token in enumerate(tokens):
        if not ends[n]:
            line.append(token.decode(errors="replace"))
        elif line:
            lines.append("    " * depth + _spaced(line))
            depth += line[-1] == ":"
            opened = line[-1] == ":"
            line = []
        elif opened:
            opened = False
        else:
            depth = max(0, depth - 1)
    return lines


def _spaced(tokens: Sequence[str]) -> str:
    text = tokens[0]
    for before, token in itertools.pairwise(tokens):
        tight = token in (",", ")", "]", ":", ".", "}") or before in ("(", "[", ".", "{", "@")
        called = (
            token in ("(", "[") and (before[-1:].isalnum() or before[-1:] in "_)]") and not keyword.iskeyword(before)
        )
        text += token if tight or called else f" {token}"
    return text


def _placed(block: Sequence[str], fn: FunctionType) -> tuple[str, ...]:
    """The statements of a block at the lines that the function's code names; nothing where it is other code."""
    text = laid_out(block, 2)
    for code in _codes(text, fn):
        if not _same(code, fn.__code__, places=False):
            continue
        lines = _lines(code, fn.__code__)
        lines[2] = fn.__code__.co_firstlineno
        out = [""] * (fn.__code__.co_firstlineno - 1)
        if block[0][:1].isspace() and out:
            out[0] = "if True:"
        number = 2
        for statement in block:
            physical = statement.split("\n")
            wanted = min((lines[n] for n in range(number, number + len(physical)) if n in lines), default=len(out) + 1)
            out += [""] * (wanted - 1 - len(out)) + physical
            number += len(physical)
        return tuple(line + "\n" for line in out)
    return ()


def _lines(mine: CodeType, theirs: CodeType) -> dict[int, int]:
    """For each line of one code the first line of the other that does the same."""
    out: dict[int, int] = {}
    for (a, *_), (b, *_) in zip(mine.co_positions(), theirs.co_positions()):
        if a is not None and b is not None:
            out[a] = min(b, out.get(a, b))
    for x, y in zip(mine.co_consts, theirs.co_consts):
        if isinstance(x, CodeType):
            for a, b in _lines(x, y).items():
                out[a] = min(b, out.get(a, b))
    return out


# ---- whether a text is the function --------------------------------------------------------------


def _codes(block: Sequence[str], fn: FunctionType) -> Iterator[CodeType]:
    """The codes of functions of that name in a text."""
    try:
        tree = ast.parse("\n".join(block))
    except (SyntaxError, ValueError):
        return
    for node in definitions(tree, fn.__name__):
        code = code_of(node, fn.__code__.co_freevars, "<typed>")
        if code is not None:
            yield code


def definitions(tree: ast.AST, name: str) -> Iterator[ast.FunctionDef | ast.Lambda]:
    """The definitions of functions of a name (`LAMBDA`: all lambdas) in a tree."""
    for node in ast.walk(tree):
        own = node.name if isinstance(node, ast.FunctionDef) else LAMBDA
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and own == name:
            yield node


def same_code(node: ast.Lambda, fn: FunctionType) -> bool:
    """Whether a lambda has the code of `fn`, wherever it is."""
    code = code_of(node, fn.__code__.co_freevars, "<typed>")
    return code is not None and _same(code, fn.__code__, places=False)


def code_of(node: ast.FunctionDef | ast.Lambda, free: Sequence[str], file: str) -> CodeType | None:
    """The code of a definition whose names `free` are variables of a function around it. Nothing of it runs."""
    names = [ast.arg(name) for name in free]
    arguments = ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[])
    body: list[ast.stmt] = [node if isinstance(node, ast.FunctionDef) else ast.Expr(node)]
    around = ast.FunctionDef(name="_", args=arguments, body=body, decorator_list=[], lineno=1, col_offset=0)
    module = ast.fix_missing_locations(ast.Module([around], []))
    code = compile(module, file, "exec", dont_inherit=True)
    outer = next(c for c in code.co_consts if isinstance(c, CodeType))
    name = node.name if isinstance(node, ast.FunctionDef) else LAMBDA
    first = min(n.lineno for n in (node, *getattr(node, "decorator_list", ())))
    inner = (c for c in outer.co_consts if isinstance(c, CodeType) and c.co_name == name)
    return next((c for c in inner if c.co_firstlineno == first), None)


_FIELDS = ("co_name", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_code", "co_names", "co_varnames",
           "co_freevars", "co_cellvars")  # fmt: skip


def _same(a: CodeType, b: CodeType, places: bool = True) -> bool:
    """Whether two codes do the same, at the same places."""
    if any(getattr(a, field) != getattr(b, field) for field in _FIELDS) or len(a.co_consts) != len(b.co_consts):
        return False
    if places and (a.co_firstlineno != b.co_firstlineno or list(a.co_positions()) != list(b.co_positions())):
        return False
    return all(
        _same(x, y, places)
        if isinstance(x, CodeType) and isinstance(y, CodeType)
        else (type(x), repr(x)) == (type(y), repr(y))
        for x, y in zip(a.co_consts, b.co_consts)
    )
