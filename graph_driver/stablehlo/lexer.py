"""MLIR's text as tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from polyc.poly.errors import ModelError

_PATTERN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<tensor>tensor<[^<>]*(?:<[^<>]*>)?[^<>]*>)
      | (?P<value>%[\w.$-]+(?:\#\d+)?)
      | (?P<symbol>@(?:[\w.$-]+|"(?:[^"\\]|\\.)*"))
      | (?P<block>\^\w+)
      | (?P<number>-?0x[0-9a-fA-F]+|-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
      | (?P<word>[A-Za-z_][\w.$]*)
      | (?P<arrow>->)
      | (?P<sign>[()\[\]{}<>=:,\#!*?+/|;-])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A kind of the pattern above, the text, the line (from 1)."""

    kind: str
    text: str
    line: int


def tokens(text: str, source: str) -> list[Token]:
    """The tokens of a text, and an empty one of kind `end`. Raises `ModelError`: a character is none of MLIR's."""
    found, at, line = [], 0, 1
    while at < len(text):
        match = _PATTERN.match(text, at)
        if match is None:
            raise ModelError(f"{source}:{line}: {text[at]!r} is no part of MLIR's text")
        kind, part = match.lastgroup or "", match.group()
        if kind != "space":
            found.append(Token(kind, part, line))
        line += part.count("\n")
        at = match.end()
    return [*found, Token("end", "", line)]
