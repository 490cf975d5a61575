"""The execution plan: which memory every tensor lives in, and the steps in order. Plain data.

Its sizes are numbers, or formulas of symbolic sizes; `Plan.at` puts numbers in. Offsets in the arena follow from the
sizes then: such a plan has the order of what lies there (`polyc.graph_driver.planning.arena`), and the program reads
sizes and offsets from a table that each run has (`polyc.graph_driver.planning.table`).

Memory classes (`Place.kind`):

    input    a caller's array, used where it lies
    weight   an offset into the read-only weights segment
    arena    an offset into the one arena, shared by tensors that are never alive together
    output   an array made for each run and handed to the caller
    table    an offset into a run's table of sizes (models with symbolic sizes only)
    host     a Python value (strings, sequences, shapes known only at run time)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from polyc.graph_driver import memory
from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.planning.slots import Later, Place, Slot, Step
from polyc.poly.records import dataclass
from polyc.poly.violations import RECORD
from polyc.poly.words import counted

if TYPE_CHECKING:  # compiled models of numbers start without formulas
    from polyc.graph_driver.graph.size import Extent
    from polyc.graph_driver.graph.symbols import Symbols
    from polyc.graph_driver.planning.arena import Arena
    from polyc.graph_driver.planning.at_sizes import Formulas

Abi = tuple[str, tuple[str, ...], tuple[tuple[str, int | str], ...]]
Gap = tuple[int, int, int, int]
"""Numbers of two arguments of a kernel, and bytes (low, high): the second's begin minus the first's must not lie
strictly between (`polyc.emit.loop_ir.overlap`)."""
N = TypeVar("N", bound="Extent")


@dataclass(frozen=True)
class Plan(Generic[N]):
    """`peak` is the arena's size, `bound` what no plan can go below, both in bytes.

    `inside` has, for each tensor that shows another's memory (views, parts), that tensor and the
    offset in bytes. `planner` made the placement; `peaks` are the arenas of all planners that were tried.
    `index_limits`: values of these inputs are positions below that number.
    `after` has for each step those that it waits for in a run on several threads (empty: all run in order).
    `external` are the names of registered functions by symbol.
    `alignment`: bytes of which the begin of every memory of the arena, and of every weight, is a multiple.
    `gaps` has, by symbol of a kernel, which of its arguments may overlap and how far apart they must begin;
    `overlaps` has the same of `lifetimes` where it follows from that.

    Of formulas: `symbols` are the sizes that they are made of, `arena` is the order of what lies in the arena, and
    `values` has the elements of the tensors in the table. `peak`, `bound` and `peaks` are those at the representative
    sizes; there are no `lifetimes`. A plan for other sizes has no `bound`.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    slots: Mapping[str, Slot[N]]
    steps: Sequence[Step[N]]
    peak: int
    bound: int
    weight_bytes: int
    lifetimes: Sequence[memory.Lifetime] = field(default=())
    inside: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    planner: str = ""
    peaks: Mapping[str, int] = field(default_factory=dict)
    index_limits: Mapping[str, int] = field(default_factory=dict)
    after: tuple[tuple[int, ...], ...] = ()
    external: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, tuple[Gap, ...]] = field(default_factory=dict)
    overlaps: memory.Overlaps = field(default_factory=dict)
    alignment: int = memory.ALIGNMENT
    symbols: Symbols | None = None
    arena: Arena | None = None
    values: Mapping[str, tuple[Extent, ...]] = field(default_factory=dict)

    def at(self, values: Mapping[str, int]) -> Plan[int]:
        """The plan for these values of the symbols (checked by the caller); one of numbers as it is."""
        if self.symbols is None or self.arena is None:
            return cast("Plan[int]", self)
        slots, usual = self._formulas.at(values), values == self.symbols.typical
        return Plan(
            self.inputs, self.outputs, slots, Later(slots.steps), slots.peak,
            memory.lower_bound(slots.lifetimes()) if usual else 0, self.weight_bytes, Later(slots.lifetimes),
            self.inside, self.planner, self.peaks if usual else {}, self.index_limits, self.after, self.external,
        )  # fmt: skip

    @cached_property
    def _formulas(self) -> Formulas:
        from polyc.graph_driver.planning.at_sizes import Formulas  # models of numbers have none

        assert self.symbols is not None and self.arena is not None
        return Formulas(self.slots, self.steps, self.arena, list(self.symbols.ranges))

    def offset_of(self, lifetime: str) -> int:
        """Where one of `lifetimes` lies in the arena: a tensor, or a run of its bytes (`NAME+BYTES`)."""
        if lifetime in self.slots:
            return self.slots[lifetime].place.offset
        name, _, at = lifetime.rpartition("+")
        return self.slots[name].place.offset + int(at)

    @property
    def fragmentation(self) -> float:
        """How much larger the arena is than what is alive at once: 0 is ideal."""
        return self.peak / self.bound - 1.0 if self.bound else 0.0

    @property
    def host_steps(self) -> tuple[Step[N], ...]:
        """Operators that run in Python."""
        return tuple(s for s in self.steps if s.kind == "host")

    @property
    def python_steps(self) -> tuple[Step[N], ...]:
        """Steps that need Python: operators of the host, and control flow around compiled bodies."""
        return tuple(s for s in self.steps if s.kind in ("host", "control"))

    def to_json(self) -> str:
        """Stable text of the whole plan, of numbers."""
        data = {
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "slots": [asdict(s) for s in self.slots.values()],
            "steps": [asdict(s) for s in self.steps],
            "lifetimes": [[t.name, t.size, t.first, t.last] for t in self.lifetimes],
            "peak": self.peak,
            "bound": self.bound,
            "weight_bytes": self.weight_bytes,
            "inside": {name: list(where) for name, where in self.inside.items()},
            "planner": self.planner,
            "peaks": dict(self.peaks),
            "index_limits": dict(self.index_limits),
            "after": [list(earlier) for earlier in self.after],
            "external": dict(self.external),
            "gaps": {s: [list(g) for g in found] for s, found in self.gaps.items()},
            "alignment": self.alignment,
            "overlaps": [[*pair, *ends] for pair, ends in self.overlaps.items()],
        }
        return json.dumps(data, separators=(",", ":"), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Plan[int]:
        """The plan back. Raises `ValueError`, `KeyError` or `TypeError` when the text is not one."""
        data = json.loads(text)
        slots = {}
        for s in data["slots"]:
            shape = None if s["shape"] is None else tuple(int(n) for n in s["shape"])
            place = Place(s["place"]["kind"], int(s["place"]["index"]), int(s["place"]["offset"]))
            layout = None if s["layout"] is None else tuple((int(d), int(v), int(m)) for d, v, m in s["layout"])
            slots[s["name"]] = Slot(s["name"], s["dtype"], shape, place, int(s["nbytes"]), layout)
        steps = tuple(
            Step(
                s["kind"], str(s["label"]), tuple(s["args"]), tuple(s["results"]), tuple(s["nodes"]),
                str(s["symbol"]), int(s["index"]), tuple(s["captures"]), str(s["reason"]),
                tuple(s["scratch"]), tuple(int(n) for n in s["sizes"]),
            )
            for s in data["steps"]
        )  # fmt: skip
        lifetimes = tuple(memory.Lifetime(*t) for t in data["lifetimes"])
        return Plan(
            tuple(data["inputs"]), tuple(data["outputs"]), slots, steps,
            int(data["peak"]), int(data["bound"]), int(data["weight_bytes"]), lifetimes,
            {str(k): (str(r), int(o)) for k, (r, o) in data["inside"].items()},
            str(data["planner"]), {str(k): int(v) for k, v in data["peaks"].items()},
            {str(k): int(v) for k, v in data.get("index_limits", {}).items()},
            tuple(tuple(int(e) for e in earlier) for earlier in data["after"]),
            {str(s): str(n) for s, n in data["external"].items()},
            {str(s): tuple((int(a), int(b), int(low), int(high)) for a, b, low, high in found)
             for s, found in data.get("gaps", {}).items()},
            {(str(a), str(b)): (int(low), int(high)) for a, b, low, high in data.get("overlaps", ())},
            int(data.get("alignment", memory.ALIGNMENT)),
        )  # fmt: skip

    def __str__(self) -> str:
        return plan_text(self)


def numbered(order: Sequence[str], gaps: Sequence[tuple[str, str, int, int]]) -> tuple[Gap, ...]:
    """Gaps of arrays (`polyc.graph_driver.backends.compiled.Compiled`) with their numbers in the order of arguments."""
    at = {name: k for k, name in enumerate(order)}
    return tuple((at[a], at[b], low, high) for a, b, low, high in gaps)


def is_record(scratch: str) -> bool:
    """Whether memory of a step is its record of violated accesses (`polyc.poly.violations`)."""
    return scratch.startswith(RECORD)


def overlapping(plan: Plan) -> list[tuple[str, str]]:
    """Pairs of lifetimes that are alive together and have bytes in common."""
    known = {t.name: (plan.offset_of(t.name), t) for t in plan.lifetimes}
    found = []
    for a, b in plan.overlaps:
        (start, x), (other, y) = known[a], known[b]
        if x.meets(y) and start < other + y.size and other < start + x.size:
            found.append((a, b))
    return found


def plan_text(plan: Plan) -> str:
    """The plan for people: totals, then one line a step."""
    lines = [memory_text(plan, detail=False)]
    for k, s in enumerate(plan.steps):
        where = ", ".join(f"{n}@{_where(plan, n)}" for n in s.args)
        tail = f"  # {s.reason}" if s.reason else ""
        if plan.after:
            tail = f"  after {', '.join(map(str, plan.after[k])) or 'nothing'}{tail}"
        lines.append(f"{k:4d} {s.kind:6s} {s.label}  ({where}) -> {', '.join(s.results)}{tail}")
    return "\n".join(lines)


def _where(plan: Plan, name: str) -> str:
    slot = plan.slots.get(name)
    if slot is None:
        return "output"
    place = slot.place
    if place.kind in ("input", "output"):
        return f"{place.kind}{place.index}"
    return place.kind if place.kind == "host" else f"{place.kind}+{place.offset}"


def memory_text(plan: Plan, detail: bool = True) -> str:
    """Bytes by class, the peak and the bound; with `detail` every tensor of the arena."""
    by_class = {kind: 0 for kind in ("input", "output")}
    for s in {s.place: s for s in plan.slots.values() if s.place.kind in by_class}.values():
        by_class[s.place.kind] += s.nbytes
    lines = [
        f"inputs {human(by_class['input'])}, weights {human(plan.weight_bytes)}, outputs {human(by_class['output'])}",
        f"arena  {human(plan.peak)} (peak of the plan), lower bound {human(plan.bound)}, "
        f"fragmentation {plan.fragmentation:.1%}, planner {plan.planner}",
    ]
    if shared := overlapping(plan):
        lines.append(
            f"{counted(len(shared), 'pair')} of tensors overlap: one dies element by element as the other is made"
        )
    if detail:
        lines += [f"planner {name:15s} {human(peak)}" for name, peak in plan.peaks.items()]
        for t in sorted(plan.lifetimes, key=lambda t: (t.first, t.name)):
            offset = plan.offset_of(t.name)
            lines.append(f"  {offset:>12d} +{t.size:<10d} steps {t.first}..{t.last}  {t.name}")
    return "\n".join(lines)
