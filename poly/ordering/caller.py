"""What reaches the caller's side of an array: values that it left, and values that it gets back."""

from __future__ import annotations

import islpy as isl

from polyc.poly.access import Access, accesses
from polyc.poly.ordering.order import in_order
from polyc.poly.scop import Scop


def is_single(access: Access) -> bool:
    """Whether each instance touches one element (no subscript stands for a whole dimension)."""
    return bool(access.map.is_single_valued())


def never_replaced(scop: Scop, write: Access, instances: isl.Set) -> isl.Set:
    """Those of the `instances` of `write` `{ S[x] }` whose value may be the last one of its element."""
    if is_single(write):
        later = {(write.stmt, w.stmt): write.map.apply_range(w.map.reverse()) for w in _certain_writes(scop, write)}
        for replaced in in_order(scop, later).values():
            instances = instances.subtract(replaced.domain())
    return instances


def never_written(scop: Scop, read: Access, instances: isl.Set) -> isl.Set:
    """Those of the `instances` of `read` `{ S[x] }` that may come before every certain write of their element."""
    if is_single(read):
        before = {(w.stmt, read.stmt): w.map.apply_range(read.map.reverse()) for w in _certain_writes(scop, read)}
        for written in in_order(scop, before).values():
            instances = instances.subtract(written.range())
    return instances


def _certain_writes(scop: Scop, access: Access) -> list[Access]:
    return [a for a in accesses(scop) if a.array == access.array and a.write and a.must]
