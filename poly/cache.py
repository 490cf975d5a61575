"""Results computed once per Scop: the cache follows the object's life, not its value."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from polyc.poly.scop import Scop

T = TypeVar("T")


def per_scop(fn: Callable[[Scop], T]) -> Callable[[Scop], T]:
    """Remember `fn(scop)` for as long as that very Scop object lives.

    A Scop holds dicts and isl objects and so cannot be hashed; its identity is the key, and a
    weak reference takes the entry away before the identity can be reused.
    """
    known: dict[int, tuple[weakref.ref[Scop], T]] = {}

    @wraps(fn)
    def cached(scop: Scop) -> T:
        key = id(scop)
        entry = known.get(key)
        if entry is not None and entry[0]() is scop:
            return entry[1]
        value = fn(scop)
        known[key] = (weakref.ref(scop, lambda _: known.pop(key, None)), value)
        return value

    return cached
