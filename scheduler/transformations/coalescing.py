"""`coalesce`: the elements of a local array live in those of the array that they are copied from or to.

    w[i, j] = A[i, j]; k: w[i, j] -= A[i, k] * A[k, j]; A[i, j] = w[i, j]   ->   k: A[i, j] -= A[i, k] * A[k, j]

A register allocator's coalescing of copies (Chaitin, "Register allocation and spilling via graph coloring", 1982), of
array elements: two that never hold different values that somebody still reads share one place. Decided by value-based
flow, exactly: with one array in the place of two every read still sees the same instance, and so does the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import islpy as isl

from polyc.poly.access import Access, accesses
from polyc.poly.dependences import memory_flow_among, value_flow_among
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, Load, rewrite
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.records import replace
from polyc.poly.reduction import reads_updated
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import promotions_below
from polyc.scheduler.transformations.inlining import without


def copied_with(scop: Scop, array: str) -> list[str]:
    """Arrays that elements of a local array are copied from, or that get what is computed of one of them, in the order
    of the text: what it could share its places with."""
    found = []
    for s in scop.statements.values():
        if s.array == array and isinstance(s.value, Load):
            found.append(s.value.array)
        elif s.array != array and any(load.array == array for load in _plain_loads(s)):
            found.append(s.array)
    return [a for a in dict.fromkeys(found) if a != array and scop.arrays[a].kind != "in"]


def coalesce(scop: Scop, array: str, into: str) -> tuple[Scop, frozenset[str]]:
    """`scop` with the elements of local `array` in those of `into`, and the copies between them, which are gone.

    Raises:
        ScheduleError: no such arrays, no copy that says which element is which, or a read that would see another value.
    """
    for name in (array, into):
        if name not in scop.arrays:
            raise ScheduleError(f"no array '{name}': the arrays are {', '.join(scop.arrays)}")
    if scop.arrays[array].kind != "local" or array == into:
        raise ScheduleError(f"'{array}' is no local array beside '{into}'")
    if scop.arrays[into].kind == "in" or scop.arrays[into].dtype != scop.arrays[array].dtype:
        raise ScheduleError(f"'{into}' cannot hold the elements of '{array}': it is read only or of another type")
    if any(n.array in (array, into) for n in promotions_below(scop.tree)):
        raise ScheduleError(f"'{array}' or '{into}' is promoted already: coalesce first")
    places = _places(scop, array, into)
    merged = _merged(scop, array, into, places)
    _check(scop, merged, array, into)
    copies = frozenset(n for n, s in merged.statements.items() if s.value == s.target and s.array == into)
    kept = {n: s for n, s in merged.statements.items() if n not in copies}
    arrays = {n: a for n, a in scop.arrays.items() if n != array}
    tree = without(scop.tree, frozenset(kept), array)
    return replace(merged, statements=kept, arrays=arrays, tree=tree), copies


def _plain_loads(s: Statement) -> list[Load]:
    """Elements that a statement copies, or is one operation away from."""
    kids = s.value.children() if isinstance(s.value, Binary) else (s.value,)
    return [e for e in kids if isinstance(e, Load)]


def _places(scop: Scop, array: str, into: str) -> isl.PwMultiAff:
    """`{ array[x] -> into[y] }`, as the first statement that copies or computes one of the other says.

    Raises:
        ScheduleError: there is none, or elements would have several places.
    """
    for s in scop.statements.values():
        found = [a for a in accesses(scop) if a.stmt == s.name and a.map.is_single_valued()]
        loads = _plain_loads(s) if s.reduction is None else []
        local = [a for a in found if a.array == array and (a.write or a.load in loads)]
        other = [a for a in found if a.array == into and (a.write or isinstance(s.value, Load))]
        for a in local:
            for b in other:
                places = a.map.reverse().apply_range(b.map)
                if a.write != b.write and places.is_single_valued() and places.is_injective():
                    return isl.PwMultiAff.from_map(places.coalesce())
    raise ScheduleError(f"no statement copies elements of '{array}' and '{into}' one by one")


def _merged(scop: Scop, array: str, into: str, places: isl.PwMultiAff) -> Scop:
    """The program with every element in its new place, copies to itself included.

    Raises:
        ScheduleError: an element without a place, or whose subscript depends on data.
    """
    known = places.domain()
    subscripts: dict[tuple[str, Load], tuple[Expr, ...]] = {}
    for a in accesses(scop):
        if a.array != array:
            continue
        if not a.map.is_single_valued() or not a.map.range().is_subset(known):
            raise ScheduleError(f"{a.stmt} uses elements of '{array}' that have no place in '{into}'")
        there = isl.PwMultiAff.from_map(a.map.apply_range(isl.Map.from_pw_multi_aff(places)))
        iters = scop.statements[a.stmt].iters
        count = len(scop.arrays[into].shape)
        own = tuple(function_expr(there.get_at(k), iters, a.map.domain()) for k in range(count))
        subscripts[a.stmt, a.load] = own
    statements = {n: _moved(s, array, into, subscripts) for n, s in scop.statements.items()}
    return replace(scop, statements=statements)


def _moved(s: Statement, array: str, into: str, subscripts: Mapping[tuple[str, Load], tuple[Expr, ...]]) -> Statement:
    def moved(e: Expr) -> Expr:
        return Load(into, subscripts[s.name, e], e.dtype, e.span) if isinstance(e, Load) and e.array == array else e

    new = replace(
        s, array=into if s.array == array else s.array,
        index=subscripts[s.name, s.target] if s.array == array else tuple(rewrite(e, moved) for e in s.index),
        value=rewrite(s.value, moved),
        predicate=None if s.predicate is None else rewrite(s.predicate, moved),
        dynamic=tuple(replace(d, lo=rewrite(d.lo, moved), hi=rewrite(d.hi, moved)) for d in s.dynamic),
    )  # fmt: skip
    if new.reduction is not None and into in (new.array, s.array):
        others = list(new.value.children()[1:]) + ([] if new.predicate is None else [new.predicate])
        if reads_updated(new.target, others, new.domain) is not None:
            return replace(new, reduction=None)
    return new


# ---- the proof ----------------------------------------------------------------------------------


def _check(before: Scop, after: Scop, array: str, into: str) -> None:
    """Every read sees the same instance as before, the caller the same values, or it is a `ScheduleError`."""
    old = [a for a in accesses(before) if a.array in (array, into)]
    new = [a for a in accesses(after) if a.array == into]
    reads = zip((a for a in old if not a.write), (a for a in new if not a.write), strict=True)
    for was, now in reads:  # each by itself: one element may have come to be two reads of a statement
        a, b = _seen(before, old, was), _seen(after, new, now)
        if not a.is_equal(b):
            culprits = sorted(_writers(a.subtract(b).union(b.subtract(a))))
            raise ScheduleError(
                f"cannot coalesce '{array}' with '{into}': {was.stmt} would see another value of {', '.join(culprits)}"
            )
    unwritten = [a for a in old if a.array == array and not a.write and not _all_written(before, old, a)]
    if unwritten:
        raise ScheduleError(f"{unwritten[0].stmt} reads elements of '{array}' that nobody has written")
    if before.arrays[into].kind == "local":
        return
    writers = {a.stmt for a in old if a.array == array and a.write}
    copies = {n for n, s in after.statements.items() if s.array == into and s.value == s.target}
    for a in (a for a in new if a.write and a.stmt in writers - copies):
        left = a.map.domain().subtract(_overwritten(after, a, new))
        if not left.is_empty():
            raise ScheduleError(
                f"cannot coalesce '{array}' with '{into}': the caller would see what {a.stmt} leaves there"
            )


def _seen(scop: Scop, found: Sequence[Access], read: Access) -> isl.UnionMap:
    """Who writes, by these accesses, what a read sees."""
    return value_flow_among(scop, [*(a for a in found if a.write), read], "RAW")


def _writers(pairs: isl.UnionMap) -> set[str]:
    names: set[str] = set()
    pairs.foreach_map(lambda m: names.add(m.get_tuple_name(isl.dim_type.in_)))
    return names


def _all_written(scop: Scop, found: Sequence[Access], read: Access) -> bool:
    seen: list[isl.Set] = []
    _seen(scop, found, read).range().foreach_set(seen.append)
    return bool(seen) and bool(read.map.domain().is_subset(reduce(lambda a, b: a.union(b), seen)))


def _overwritten(scop: Scop, write: Access, found: Sequence[Access]) -> isl.Set:
    """The instances of a write whose element some other certain write changes later."""
    later = [a for a in found if a.write and a.must]
    gone: list[isl.Map] = []
    memory_flow_among(scop, [write, *later], "WAW").foreach_map(gone.append)
    own = [m.domain() for m in gone if m.get_tuple_name(isl.dim_type.in_) == write.stmt]
    return reduce(lambda a, b: a.union(b), own, isl.Set.empty(write.map.domain().get_space()))
