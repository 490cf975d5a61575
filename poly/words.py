"""Words that messages are made of."""

from __future__ import annotations

import re

_SPOKEN_AS_VOWEL = re.compile(r"[aeio]|[fhlmnrsx]\d|nd", re.IGNORECASE)


def counted(number: int, one: str, several: str = "") -> str:
    """A number and its noun: `1 axis`, `2 axes`; without `several` an `s` is added."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def article(word: str) -> str:
    """A name of a type with its article, as it is spoken: `an i32`, `an f64`, `a u8`, `an ndarray`."""
    return f"{'an' if _SPOKEN_AS_VOWEL.match(word) else 'a'} {word}"
