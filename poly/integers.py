"""The binary operators of index expressions, on Python's integers (which have no range)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Operator = Callable[[int, int], int]

ARITHMETIC: Mapping[str, Operator] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}

CONDITIONS: Mapping[str, Operator] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}
