"""The table of NumPy's functions that are no ufuncs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]
FUNCTIONS: dict[Function, Function] = {}
"""By NumPy's function: `f(recording, ...)` with its arguments, tensors as `Value`s."""


def function(*names: Function) -> Callable[[Function], Function]:
    """Register the decorated function for functions of NumPy."""

    def register(made: Function) -> Function:
        FUNCTIONS.update({name: made for name in names})
        return made

    return register
