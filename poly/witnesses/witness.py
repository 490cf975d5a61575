"""A concrete counterexample to a schedule, in words that a user can check by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

import islpy as isl

from polyc.poly.access import Access, accesses
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Span
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Node, Promote

if TYPE_CHECKING:
    from polyc.poly.witnesses.witness_script import Shown, Values


CALLER = "the caller"


@dataclass(frozen=True, eq=False)
class Case:
    """What was refused: the tree, the rule that it breaks (`polyc.poly.witnesses.violation.Rule`), the loop or
    promotion concerned."""

    scop: Scop
    tree: Node
    rule: str
    loop: str | None
    promote: Promote | None


@dataclass(frozen=True)
class Witness:
    """Two instances that a schedule orders wrongly, for the smallest sizes where that happens.

    `kind` is RAW (the sink reads what the source writes), WAR or WAW; `source` runs before
    `sink` in the program. One of them may be the caller, which passes or gets the element.
    """

    params: Mapping[str, int]
    source: tuple[str, tuple[int, ...]]
    sink: tuple[str, tuple[int, ...]]
    array: str
    element: tuple[int, ...]
    kind: str
    source_iters: tuple[str, ...]
    sink_iters: tuple[str, ...]
    source_span: Span | None = None
    sink_span: Span | None = None
    case: Case | None = field(default=None, compare=False, repr=False)

    def instance(self, which: str) -> str:
        """`S0[i=1, j=2]` for `which` "source" or "sink"."""
        name, values = self.source if which == "source" else self.sink
        if name == CALLER:
            return "the caller"
        iters = self.source_iters if which == "source" else self.sink_iters
        return f"{name}[{', '.join(f'{i}={v}' for i, v in zip(iters, values, strict=True))}]"

    @property
    def located(self) -> str:
        """Where the two statements are in the source, "" when that is unknown."""
        spans = dict.fromkeys(s for s in (self.source_span, self.sink_span) if s is not None)
        return " and ".join(f"{s}: {s.text.strip()}" if s.text else str(s) for s in spans)

    @property
    def touched(self) -> str:
        """`A[1, 2]`."""
        return f"{self.array}[{', '.join(map(str, self.element))}]" if self.element else self.array

    @property
    def why(self) -> str:
        """What the pair does to the element: `sink reads A[1] that source writes (RAW)`."""
        source, sink = self.instance("source"), self.instance("sink")
        if self.source[0] == CALLER:
            return f"{sink} reads {self.touched}, which the caller passes (RAW)"
        if self.sink[0] == CALLER:
            return f"the caller gets {self.touched}, which {source} writes (RAW)"
        if self.kind == "RAW":
            return f"{sink} reads {self.touched}, which {source} writes before it (RAW)"
        if self.kind == "WAR":
            return f"{sink} overwrites {self.touched}, which {source} reads before it (WAR)"
        return f"{sink} overwrites {self.touched}, which {source} writes before it (WAW)"

    @property
    def sizes(self) -> str:
        """`T=2, N=4`."""
        return ", ".join(f"{n}={v}" for n, v in self.params.items())

    @cached_property
    def _shown(self) -> Shown | None:
        from polyc.poly.witnesses.witness_script import shown

        return None if self.case is None else shown(self, self.case)

    @property
    def values(self) -> Values | None:
        """The right and the wrong value of an element, as the script prints them; None if no data shows it."""
        return None if self._shown is None else self._shown.values

    def script(self) -> str:
        """A stand-alone NumPy script: the program at these sizes on random data, in its own order
        and in the refused one, and the two different values of one element.

        Its exit status is 0 only if they differ; its one optional argument is another seed.

        Raises:
            ScheduleError: no data were found that show the difference. Subscripts that depend on data
                are over-approximated, and such a refusal may have no real counterexample.
        """
        if self._shown is None:
            raise ScheduleError(f"no data were found that show the conflict: {self}")
        return self._shown.script

    def __str__(self) -> str:
        where = f"; source: {self.located}" if self.located else ""
        return (f"with {self.sizes}, " if self.params else "") + self.why + where


def make_witness(scop: Scop, pairs: isl.Map, case: Case | None = None, array: str | None = None) -> Witness:
    """The lexicographically smallest sizes, then source, then sink, of the non-empty `pairs`
    `{ S[x] -> T[y] }` (which conflict; over `array`, if given)."""
    pairs = pairs.intersect_params(scop.context)
    params = smallest_params(scop, pairs)
    pairs = _fix(pairs, params)
    names = (pairs.get_tuple_name(isl.dim_type.in_), pairs.get_tuple_name(isl.dim_type.out))
    depth = pairs.dim(isl.dim_type.in_)
    flat = _point(pairs.wrap())
    source, sink = (names[0], flat[:depth]), (names[1], flat[depth:])
    shared = _shared_elements(scop, source, sink, params)
    kind, (name, element) = next(x for x in shared if array in (None, x[1][0]))
    return _witness(scop, params, source, sink, name, element, kind, case)


def caller_witness(scop: Scop, access: Access, instances: isl.Set, case: Case) -> Witness:
    """The smallest of the `instances`, whose `access` reads what the caller passes or writes what it gets."""
    pairs = isl.Map.from_domain(instances.intersect_params(scop.context))
    params = smallest_params(scop, pairs)
    there = (access.stmt, _point(_fix(pairs, params).domain()))
    element = _point(_elements(access, there[1], params))
    caller: Instance = (CALLER, ())
    source, sink = (there, caller) if access.write else (caller, there)
    return _witness(scop, params, source, sink, access.array, element, "RAW", case)


def witnesses_at(scop: Scop, pairs: isl.Map, params: Mapping[str, int], case: Case | None, limit: int) -> list[Witness]:
    """The pairs for these sizes, one witness for each element and kind of conflict (some of them
    where there are more than `limit`)."""
    pairs = _fix(pairs.intersect_params(scop.context), params)
    names = (pairs.get_tuple_name(isl.dim_type.in_), pairs.get_tuple_name(isl.dim_type.out))
    depth, count = pairs.dim(isl.dim_type.in_), pairs.dim(isl.dim_type.in_) + pairs.dim(isl.dim_type.out)
    flat = _few(pairs.wrap().flatten(), 4 * limit)
    points: list[isl.Point] = []
    flat.foreach_point(points.append)
    points = points[:limit]
    found: list[Witness] = []
    for p in points:
        at = tuple(int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(count))
        source, sink = (names[0], at[:depth]), (names[1], at[depth:])
        for kind, (array, element) in _shared_elements(scop, source, sink, params):
            found.append(_witness(scop, params, source, sink, array, element, kind, case))
    return found[:limit]


def _few(points: isl.Set, limit: int) -> isl.Set:
    """A subset of a set without parameters that is quick to list: leading dimensions fixed at
    their least values until a box of `limit` points holds the rest."""
    count = points.dim(isl.dim_type.set)
    for k in range(0 if points.is_empty() else count):
        size: float = 1
        for j in range(k, count):
            low, high = points.dim_min_val(j), points.dim_max_val(j)
            bounded = low.is_int() and high.is_int()
            size *= int(high.to_python()) - int(low.to_python()) + 1 if bounded else float("inf")
        if size <= limit:
            break
        parts = [p for p in map(isl.Set.from_basic_set, points.get_basic_sets()) if not p.is_empty()]
        points = points.fix_val(isl.dim_type.set, k, _least(parts, k))
    return points


Instance = tuple[str, tuple[int, ...]]


def _witness(
    scop: Scop, params: Mapping[str, int], source: Instance, sink: Instance, array: str, element: tuple[int, ...],
    kind: str, case: Case | None,
) -> Witness:  # fmt: skip
    ends = [scop.statements.get(source[0]), scop.statements.get(sink[0])]
    iters: list[tuple[str, ...]] = [() if s is None else s.iters for s in ends]
    spans = [None if s is None else s.span for s in ends]
    return Witness(params, source, sink, array, element, kind, iters[0], iters[1], spans[0], spans[1], case)


def smallest_params(scop: Scop, pairs: isl.Map) -> dict[str, int]:
    """Sizes for which `pairs` is not empty: the least in the order of the Scop's parameters, the first one first.

    Parameters that `pairs` does not mention are left out; `pairs` must not be empty.
    """
    space = pairs.params()
    count = space.dim(isl.dim_type.param)
    names = [space.get_dim_name(isl.dim_type.param, k) for k in range(count)]
    if not names:
        return {}
    order = [names.index(p) for p in scop.params if p in names]
    flat = isl.Set.from_params(space).insert_dims(isl.dim_type.set, 0, len(order))
    for k, position in enumerate(order):
        flat = flat.equate(isl.dim_type.set, k, isl.dim_type.param, position)
    flat = flat.project_out(isl.dim_type.param, 0, count)
    values = _point(flat)
    return {names[position]: values[k] for k, position in enumerate(order)}


def _fix(pairs: isl.Map, params: Mapping[str, int]) -> isl.Map:
    for name, value in params.items():
        position = pairs.find_dim_by_name(isl.dim_type.param, name)
        if position >= 0:
            pairs = pairs.fix_val(isl.dim_type.param, position, isl.Val(value))
            pairs = pairs.project_out(isl.dim_type.param, position, 1)
    return pairs


def _point(s: isl.Set) -> tuple[int, ...]:
    """The smallest point of a non-empty set without parameters: coordinate by coordinate, the
    smallest natural number, or where there is none the smallest value.

    Minimised one dimension at a time, and over the non-empty disjuncts only: isl's lexmin and
    dim_min give no value when a disjunct is empty and isl has not noticed it yet.
    """
    if s.is_wrapping():
        s = s.flatten()
    values = []
    for k in range(s.dim(isl.dim_type.set)):
        parts = [p for p in map(isl.Set.from_basic_set, s.get_basic_sets()) if not p.is_empty()]
        value = _least(parts, k)
        values.append(int(value.to_python()))
        s = s.fix_val(isl.dim_type.set, k, value)
    return tuple(values)


def _least(parts: list[isl.Set], k: int) -> isl.Val:
    """The smallest natural value of dimension `k` in the non-empty `parts`, else the smallest,
    else (unbounded below) the largest, else any."""
    natural = [p.lower_bound_val(isl.dim_type.set, k, isl.Val(0)) for p in parts]
    for candidates in ([n.dim_min_val(k) for n in natural if not n.is_empty()], [p.dim_min_val(k) for p in parts]):
        if candidates and all(v.is_int() for v in candidates):
            return min(candidates, key=lambda v: int(v.to_python()))
    largest = [v for v in (p.dim_max_val(k) for p in parts) if v.is_int()]
    return largest[0] if largest else parts[0].sample_point().get_coordinate_val(isl.dim_type.set, k)


def _shared_elements(
    scop: Scop, source: Instance, sink: Instance, params: Mapping[str, int]
) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    """Kind, array and element of the conflicts of two instances; RAW comes before WAW and WAR."""
    found: dict[str, list[tuple[str, tuple[int, ...]]]] = {"RAW": [], "WAW": [], "WAR": []}
    for a in (x for x in accesses(scop) if x.stmt == source[0]):
        for b in (x for x in accesses(scop) if x.stmt == sink[0] and x.array == a.array):
            kind = {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}.get((a.write, b.write))
            if kind is not None:
                both = _elements(a, source[1], params).intersect(_elements(b, sink[1], params))
                if not both.is_empty():
                    found[kind].append((a.array, _point(both)))
    for kind, elements in found.items():
        for element in dict.fromkeys(elements):
            yield kind, element


def _elements(access: Access, at: tuple[int, ...], params: Mapping[str, int]) -> isl.Set:
    """The elements that an instance touches."""
    relation = _fix(access.map, params)
    for k, value in enumerate(at):
        relation = relation.fix_val(isl.dim_type.in_, k, isl.Val(value))
    return relation.range()
