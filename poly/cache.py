"""Results computed once per Scop: the caches follow the objects' lives, not their values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import wraps
from typing import Generic, TypeVar, cast

import islpy as isl

from polyc.poly.scop import Scop

T = TypeVar("T")
_ANSWERS = "_answers"  # an attribute of a Scop, no field: copies with other fields, pickles and == do not see it


def per_scop(fn: Callable[[Scop], T]) -> Callable[[Scop], T]:
    """Remember `fn(scop)` for as long as that very Scop object lives.

    A Scop holds dicts and isl objects and so cannot be hashed: it carries the answers itself. Many of them refer to
    their Scop; a table beside it, even one with weak keys, would keep both for ever.
    """

    @wraps(fn)
    def cached(scop: Scop) -> T:
        answers = scop.__dict__.setdefault(_ANSWERS, {})
        if fn not in answers:
            answers[fn] = fn(scop)
        return cast(T, answers[fn])

    return cached


@per_scop
def instances(scop: Scop) -> Mapping[str, isl.Set]:
    """The instances of each statement, for the sizes that the Scop is for."""
    return {n: s.domain.intersect_params(scop.context) for n, s in scop.statements.items()}


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
