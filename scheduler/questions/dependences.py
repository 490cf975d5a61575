"""Dependences as objects that people can read.

Questions about what is not there (an array, a kind of dependence) are a `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

import islpy as isl

from polyc.poly.dependences import Kind, flow
from polyc.poly.errors import ArgumentError, ScheduleError
from polyc.poly.expr import Span
from polyc.poly.forms.canonical import map_text
from polyc.poly.quota import quota
from polyc.poly.records import dataclass
from polyc.poly.rewriting.specialise import fix_params
from polyc.poly.scop import Scop

KINDS: tuple[Kind, ...] = get_args(Kind)
OPERATIONS = 20_000_000


@dataclass(frozen=True, eq=False)
class Dependence:
    """Instances of `sink` that depend on instances of `source` through `array`, in the program's own order.

    `relation` is the isl map `{ source[x] -> sink[y] }`. RAW: the sink reads what the source wrote;
    WAR: it overwrites what the source read; WAW: what the source wrote. `distance` is the constant
    difference of the iterators that both have at the front, None where it varies.
    """

    kind: Kind
    source: str
    sink: str
    array: str
    relation: isl.Map
    value_based: bool
    source_span: Span | None
    sink_span: Span | None
    params: tuple[str, ...]
    distance: tuple[int | None, ...]

    def instances(self, **sizes: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """All pairs (iterators of the source, iterators of the sink) for these sizes, sorted.

        Raises:
            ArgumentError: a size is missing or unknown.
        """
        for name in sizes:
            if name not in self.params:
                raise ArgumentError(f"no size '{name}' (there are {', '.join(self.params) or 'none'})")
        missing = [p for p in self.params if p not in sizes]
        if missing:
            raise ArgumentError(f"instances need a value for {', '.join(missing)}")
        depth = self.relation.dim(isl.dim_type.in_)
        found: list[tuple[int, ...]] = []

        def take(p: isl.Point) -> None:
            count = p.get_space().dim(isl.dim_type.set)
            found.append(tuple(int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(count)))

        fix_params(self.relation.wrap(), sizes).foreach_point(take)
        return sorted((x[:depth], x[depth:]) for x in found)

    def __str__(self) -> str:
        places = [str(s.line) for s in (self.source_span, self.sink_span) if s is not None]
        lines = f" (line {' -> '.join(dict.fromkeys(places))})" if places else ""
        verb = {"RAW": "reads what", "WAR": "overwrites what", "WAW": "overwrites what"}[self.kind]
        done = "read" if self.kind == "WAR" else "wrote"
        body = map_text(self.relation.coalesce())
        text = body.split(" -> ", 1)[1] if body.startswith("[") else body
        return f"{self.kind} on {self.array}: {self.sink} {verb} {self.source} {done}{lines}: {text}"

    def data(self) -> dict[str, object]:
        """For JSON."""
        return {
            "kind": self.kind, "source": self.source, "sink": self.sink, "array": self.array,
            "relation": map_text(self.relation.coalesce()), "value_based": self.value_based,
            "distance": list(self.distance),
            "source_line": None if self.source_span is None else self.source_span.line,
            "sink_line": None if self.sink_span is None else self.sink_span.line,
        }  # fmt: skip


def dependences(scop: Scop, kind: str | None, value_based: bool, arrays: list[str] | None) -> tuple[Dependence, ...]:
    """See `Questions.dependences`."""
    if kind is not None and kind not in KINDS:
        raise ScheduleError(f"no dependences of kind '{kind}': the kinds are {', '.join(KINDS)}")
    for a in arrays or ():
        if a not in scop.arrays:
            raise ScheduleError(f"no array '{a}': the arrays are {', '.join(scop.arrays)}")
    with quota(OPERATIONS):
        return tuple(
            d for k in KINDS if kind in (None, k)
            for a in (arrays or scop.arrays) for d in _of(scop, k, value_based, a)
        )  # fmt: skip


def _of(scop: Scop, kind: Kind, value_based: bool, array: str) -> Iterator[Dependence]:
    maps: list[isl.Map] = []
    flow(scop, kind, value_based, frozenset((array,))).foreach_map(maps.append)
    by_name: Mapping[tuple[str, str], isl.Map] = {
        (m.get_tuple_name(isl.dim_type.in_), m.get_tuple_name(isl.dim_type.out)): m for m in maps
    }
    for a in scop.statements.values():
        for b in scop.statements.values():
            m = by_name.get((a.name, b.name))
            if m is not None:
                m = m.intersect_params(scop.context)
                yield Dependence(kind, a.name, b.name, array, m, value_based, a.span, b.span, scop.params, _distance(m))


def _distance(m: isl.Map) -> tuple[int | None, ...]:
    """The constant differences of the leading iterators that both ends have."""
    out: list[int | None] = []
    for k in range(min(m.dim(isl.dim_type.in_), m.dim(isl.dim_type.out))):
        both = m.project_out(isl.dim_type.in_, k + 1, m.dim(isl.dim_type.in_) - k - 1)
        both = both.project_out(isl.dim_type.in_, 0, k)
        both = both.project_out(isl.dim_type.out, k + 1, both.dim(isl.dim_type.out) - k - 1)
        both = both.project_out(isl.dim_type.out, 0, k)
        both = both.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out)
        low, high = both.deltas().dim_min_val(0), both.deltas().dim_max_val(0)
        out.append(int(low.to_python()) if low.is_int() and high.is_int() and low.eq(high) else None)
    return tuple(out)
