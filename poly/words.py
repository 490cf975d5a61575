"""Words that messages are made of."""

from __future__ import annotations

import re

_SPOKEN_AS_VOWEL = re.compile(r"[aeio]|[fhlmnrsx]\d|nd", re.IGNORECASE)


def counted(number: int, one: str, several: str = "") -> str:
    """A number and its noun: `1 axis`, `2 axes`; without `several` an `s` is added."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type where it has none."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def article(word: str) -> str:
    """A name of a type with its article, as it is spoken: `an i32`, `an f64`, `a u8`, `an ndarray`."""
    return f"{'an' if _SPOKEN_AS_VOWEL.match(word) else 'a'} {word}"


def between(low: int, high: int) -> str:
    """`low to high`, or the one number that they are."""
    return str(low) if low == high else f"{low} to {high}"


def kilobytes(number: int) -> str:
    """A number of bytes in KB of 1024, rounded down: `12 KB`."""
    return f"{number >> 10} KB"


def thousands(number: float) -> str:
    """A number in thousands, rounded: `12 thousand`."""
    return f"{number / 1000:.0f} thousand"
