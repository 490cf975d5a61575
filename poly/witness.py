"""A counterexample that a person can check: sizes, two instances, one element."""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl

from poly.dependences import Conflict
from poly.expr import Span
from poly.scop import Scop


@dataclass(frozen=True)
class Witness:
    """`source` comes before `sink` in the program; both touch `array[element]`."""

    sizes: dict[str, int]
    source: tuple[str, tuple[int, ...]]
    sink: tuple[str, tuple[int, ...]]
    array: str
    element: tuple[int, ...]
    kind: str
    source_span: Span | None
    sink_span: Span | None

    def __str__(self) -> str:
        at = ", ".join(f"{n}={v}" for n, v in self.sizes.items())
        element = f"{self.array}[{', '.join(map(str, self.element))}]" if self.element else self.array
        verbs = {"RAW": ("writes", "reads"), "WAR": ("reads", "writes"), "WAW": ("writes", "writes")}[self.kind]
        (s, i), (t, j) = self.source, self.sink
        first = f"{s}[{', '.join(map(str, i))}] {verbs[0]} {element}{_line(self.source_span)}"
        second = f"{t}[{', '.join(map(str, j))}] {verbs[1]} it{_line(self.sink_span)}"
        return f"{'with ' + at + ': ' if at else ''}{first}, then {second} ({self.kind})"


@dataclass(frozen=True)
class Violation:
    """Why a schedule is refused."""

    witness: Witness
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.witness}"


def _line(span: Span | None) -> str:
    return f" (line {span.line})" if span else ""


def witness(scop: Scop, conflict: Conflict, bad: isl.Map) -> Witness:
    """The smallest sizes and instances among `bad`, a non-empty part of `conflict.map`."""
    sizes = _smallest_sizes(scop, bad)
    for name, value in sizes.items():
        pos = bad.find_dim_by_name(isl.dim_type.param, name)
        if pos >= 0:
            bad = bad.fix_val(isl.dim_type.param, pos, isl.Val(value))
    x = _smallest_point(bad.domain())
    source = isl.Set.from_point(x)
    y = _smallest_point(bad.intersect_domain(source).range())
    sink = isl.Set.from_point(y)
    cells = source.apply(conflict.source.map).intersect(sink.apply(conflict.sink.map))
    return Witness(
        sizes,
        (conflict.source.stmt, _coordinates(x)),
        (conflict.sink.stmt, _coordinates(y)),
        conflict.source.array,
        _coordinates(_smallest_point(cells)),
        conflict.kind,
        conflict.source.load.span,
        conflict.sink.load.span,
    )


def _smallest_sizes(scop: Scop, bad: isl.Map) -> dict[str, int]:
    params = bad.params().intersect(scop.context) if bad.dim(isl.dim_type.param) else None
    if params is None:
        return {}
    names = [params.get_dim_name(isl.dim_type.param, k) for k in range(params.dim(isl.dim_type.param))]
    natural = params
    for k in range(len(names)):
        natural = natural.lower_bound_val(isl.dim_type.param, k, isl.Val(0))
    if not natural.is_empty():
        params = natural
    as_set = params.move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, len(names)) if names else params
    point = _smallest_point(as_set)
    return dict(zip((n for n in names if n), _coordinates(point)))


def _smallest_point(points: isl.Set) -> isl.Point:
    """The lexicographically smallest point where it exists, else any."""
    bounded = all(points.dim_has_lower_bound(isl.dim_type.set, k) for k in range(points.dim(isl.dim_type.set)))
    return (points.lexmin() if bounded else points).sample_point()


def _coordinates(point: isl.Point) -> tuple[int, ...]:
    n = point.get_space().dim(isl.dim_type.set)
    return tuple(int(point.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(n))
