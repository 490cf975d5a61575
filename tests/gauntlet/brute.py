"""The truth about a case, from running its plain loops on arrays that write down every access.

Knows nothing of polyc: two executions are traced, and a conflict that the second one reverses (or
that joins two iterations that should be independent) is an illegality.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Instance = tuple[str, tuple[int, ...]]
Cell = tuple[str, tuple[int, ...]]


@dataclass
class Event:
    """One executed instance: `iteration` as the loops gave it, the cells that it read and wrote."""

    instance: Instance
    iteration: tuple[int, ...] | None
    reads: list[Cell] = field(default_factory=list)
    writes: list[Cell] = field(default_factory=list)


@dataclass(frozen=True)
class Broken:
    """`source` before `sink` in the program conflict on `cell` and do not keep what the rule asks."""

    source: Instance
    sink: Instance
    cell: Cell
    kind: str


class Recorder:
    """Collects events; `at(name, *indices, iteration=...)` begins one."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, name: str, *indices: int, iteration: tuple[int, ...] | None = None) -> None:
        self.events.append(Event((name, indices), iteration))


class Array:
    """An array of numbers that reports what is read and written. Subscripts must be in range."""

    def __init__(self, name: str, shape: tuple[int, ...], to: Recorder, values: Any) -> None:
        self.name, self.shape, self.to = name, shape, to
        self.values = values  # function of a cell: its initial value
        self.stored: dict[tuple[int, ...], Any] = {}

    def _cell(self, index: Any) -> tuple[int, ...]:
        at = index if isinstance(index, tuple) else (index,)
        if len(at) != len(self.shape) or any(not 0 <= i < n for i, n in zip(at, self.shape, strict=True)):
            raise IndexError(f"{self.name}{list(at)} of shape {self.shape}")
        return at

    def __getitem__(self, index: Any) -> Any:
        at = self._cell(index)
        self.to.events[-1].reads.append((self.name, at))
        return self.stored.get(at, self.values(at))

    def __setitem__(self, index: Any, value: Any) -> None:
        at = self._cell(index)
        self.to.events[-1].writes.append((self.name, at))
        self.stored[at] = value


def trace(case: Mapping[str, Any], which: str, sizes: Mapping[str, int], seed: int) -> list[Event]:
    """The events of `plain` or `after` at these sizes, with the data of a seed (0: indices all 0)."""
    scope: dict[str, Any] = {}
    exec(compile(case[which], which, "exec"), scope)
    recorder = Recorder()
    arrays = []
    for name, spec in case["arrays"].items():
        shape = tuple(eval(e, {}, dict(sizes)) for e in spec["shape"])
        draw = random.Random(f"{seed} {name}")
        if "below" in spec:
            top = eval(spec["below"], {}, dict(sizes))
            drawn = [0 if seed == 0 else draw.randrange(top) for _ in range(max(1, shape[0]))]
            arrays.append(Array(name, shape, recorder, lambda at, drawn=drawn: drawn[at[0]]))
        else:
            arrays.append(Array(name, shape, recorder, lambda at, draw=draw: draw.uniform(1, 2)))
    scope[which](recorder, *arrays, **sizes)
    return recorder.events


def broken(case: Mapping[str, Any], sizes: Mapping[str, int]) -> list[Broken]:
    """All that the transformation breaks at these sizes, for some data."""
    indirect = any("below" in spec for spec in case["arrays"].values())
    found: list[Broken] = []
    for seed in range(6 if indirect else 1):
        found += _broken(case, trace(case, "plain", sizes, seed), trace(case, "after", sizes, seed))
    return found


def _broken(case: Mapping[str, Any], plain: list[Event], after: list[Event]) -> Iterator[Broken]:
    place = {e.instance: k for k, e in enumerate(after)}
    iteration = {e.instance: e.iteration for e in after}
    assert len(place) == len(after) and sorted(place) == sorted(e.instance for e in plain), "not the same instances"
    rule, _, array = case["rule"].partition(" ")
    if rule == "private":
        yield from _outliving(array, plain, iteration)
        return
    reductions = frozenset(case.get("reductions", ()))
    history: dict[Cell, list[tuple[Event, bool]]] = {}
    for e in plain:
        for cell in e.reads:
            history.setdefault(cell, []).append((e, False))
        for cell in e.writes:
            history.setdefault(cell, []).append((e, True))
    for cell, uses in history.items():
        for j, (sink, sink_writes) in enumerate(uses):
            for source, source_writes in uses[:j]:
                if source is sink or not (source_writes or sink_writes):
                    continue
                a, b = source.instance, sink.instance
                own = a[0] == b[0] and a[0] in reductions and cell in source.writes and cell in sink.writes
                x, y = iteration[a], iteration[b]
                apart = x is not None and y is not None and x[:-1] == y[:-1] and x != y
                if rule == "order":
                    bad = place[b] < place[a] and not own
                else:
                    bad = apart and not (own and rule == "vector")
                if bad:
                    kind = {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}
                    yield Broken(a, b, cell, kind[source_writes, sink_writes])


def _outliving(array: str, plain: list[Event], iteration: Mapping[Instance, Any]) -> Iterator[Broken]:
    """Reads of a value that another iteration has written."""
    last: dict[Cell, Instance] = {}
    for e in plain:
        for cell in e.reads:
            if cell[0] == array and iteration[last[cell]] != iteration[e.instance]:
                yield Broken(last[cell], e.instance, cell, "RAW")
        for cell in e.writes:
            last[cell] = e.instance
