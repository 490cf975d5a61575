"""Results computed once per Scop: the caches follow the objects' lives, not their values."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Generic, TypeVar

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


class Made(Generic[T]):
    """What was made of several Scops and of values, so that it is made once; at most `limit` answers are kept.

    An answer keeps its Scops alive: as long as it is there, no other Scop can have the identity of one of them.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._known: dict[tuple[tuple[int, ...], Hashable], tuple[tuple[Scop, ...], T]] = {}

    def of(self, scops: Sequence[Scop], values: Hashable, make: Callable[[], T]) -> T:
        """What `make()` gives for these very Scops and equal `values`."""
        key = tuple(map(id, scops)), values
        entry = self._known.get(key)
        if entry is None:
            if len(self._known) >= self.limit:
                self._known.clear()
            entry = self._known[key] = (tuple(scops), make())
        return entry[1]
