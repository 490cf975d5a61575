"""Nested tuples, lists and dictionaries of arrays, taken apart and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Leaf = Callable[[Any, str], Any]


def mapped(value: Any, path: str, leaf: Leaf) -> Any:
    """The same structure with `leaf(value, path)` in the place of each leaf."""
    if type(value) in (list, tuple):
        return type(value)(mapped(v, f"{path}[{k}]", leaf) for k, v in enumerate(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(v, f"{path}.{n}", leaf) for n, v in zip(value._fields, value)))
    if type(value) is dict:
        return {k: mapped(v, f"{path}[{k!r}]", leaf) for k, v in value.items()}
    return leaf(value, path)


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Paths and leaves in order; of a structure itself its form, as a leaf of no array."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        yield path, Form(type(value).__qualname__, len(value))
        for name, v in zip(value._fields, value):
            yield from leaves(v, f"{path}.{name}")
    elif type(value) in (list, tuple):
        yield path, Form(type(value).__name__, len(value))
        for k, v in enumerate(value):
            yield from leaves(v, f"{path}[{k}]")
    elif type(value) is dict:
        yield path, Form("dict", tuple(map(repr, value)))
        for k, v in value.items():
            yield from leaves(v, f"{path}[{k!r}]")
    else:
        yield path, value


class Form(tuple[Any, ...]):
    """Type and length, or keys, of a structure."""

    def __new__(cls, kind: str, what: Any) -> Form:
        return super().__new__(cls, (kind, what))
