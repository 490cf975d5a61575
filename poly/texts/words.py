"""Names and types in exact text: quoted where the plain word would be read as something else."""

from __future__ import annotations

import json
import re
from keyword import iskeyword
from unicodedata import normalize

from polyc.poly.dtypes import DType, bool_
from polyc.poly.expr import COMPARISONS, LOGICAL
from polyc.poly.intrinsics import TABLE

WORD = r"""(?:"(?:[^"\\]|\\.)*"|[^\s"'\[\](){},:=#]+)"""
"""A name in a line, as `word` writes it."""


def word(name: str) -> str:
    """A name in a line: as it is, or as a JSON string."""
    return name if re.fullmatch(r"[\w.@]+", name) else json.dumps(name)


class WrongTextError(Exception):
    """What is wrong with a line; who reads the lines says which."""


def unquoted(text: str) -> str:
    """The name that `word` has written. Raises `WrongTextError` where it is none."""
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        raise WrongTextError(f"{text} is no name in quotes") from None


def identifier(name: str) -> str:
    """A name inside an expression: as it is, or in quotes where Python reads it as something else."""
    plain = name.isidentifier() and not iskeyword(name) and normalize("NFKC", name) == name
    return name if plain else json.dumps(name)


def binary_type(op: str, operand: DType) -> DType:
    """The type of `a OP b` over operands of one type, unless the text says another."""
    return bool_ if op in COMPARISONS or op in LOGICAL else operand


def call_type(fn: str, operand: DType | None) -> DType | None:
    """The type of an intrinsic's result, unless the text says another; None: it has to."""
    return None if fn not in TABLE or operand is None else bool_ if TABLE[fn].result == "bool" else operand
