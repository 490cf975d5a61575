"""The execution plan: which memory every tensor lives in, and the steps in order. Plain data.

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
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from polyc.graph_driver import memory
from polyc.graph_driver.external import call_of
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.importing.limits import human
from polyc.graph_driver.ir import Graph, GraphError, Tensor
from polyc.graph_driver.passes.parts import storage
from polyc.graph_driver.planning import tasks
from polyc.graph_driver.planning.contiguous import Groups, gathered, offsets_of
from polyc.graph_driver.planning.index_limits import index_limits
from polyc.poly.rewriting.relayout import Layout
from polyc.poly.violations import RECORD

Abi = tuple[str, tuple[str, ...], tuple[tuple[str, int | str], ...]]
PlaceKind = Literal["input", "weight", "arena", "output", "host", "table"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lives. `index` counts inputs and outputs; `offset` is in bytes."""

    kind: PlaceKind
    index: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor of the plan; dtype and shape are None for values of the host. `layout`: how kernels store it, where
    that is not by rows; `nbytes` counts its padding."""

    name: str
    dtype: str | None
    shape: tuple[int, ...] | None
    place: Place
    nbytes: int = 0
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """`kernel`: machine code `symbol` over `args` (in ABI order); `copy`: args[0] to args[1];
    `host`: host node number `index` reads `args` and writes `results`; `control`: the same, but the node
    is control flow whose bodies are compiled models. `nodes` and `label`
    say where it comes from, `reason` why it is on the host; `scratch` are those of `args` that hold
    no tensor: memory that the code uses while it runs. `sizes` are what a registered function gets."""

    kind: Literal["kernel", "copy", "host", "control"]
    label: str
    args: tuple[str, ...]
    results: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    symbol: str = ""
    index: int = -1
    captures: tuple[str, ...] = ()
    reason: str = ""
    scratch: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """`peak` is the arena's size, `bound` what no plan can go below, both in bytes.

    `inside` has, for each tensor that shows another's memory (views, parts), that tensor and the
    offset in bytes. `planner` made the placement; `peaks` are the arenas of all planners that were tried.
    `index_limits`: values of these inputs are positions below that number.
    `after` has for each step those that it waits for in a run on several threads (empty: all run in order).
    `external` are the names of registered functions by symbol.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    slots: Mapping[str, Slot]
    steps: tuple[Step, ...]
    peak: int
    bound: int
    weight_bytes: int
    lifetimes: tuple[memory.Lifetime, ...] = field(default=())
    inside: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    planner: str = ""
    peaks: Mapping[str, int] = field(default_factory=dict)
    index_limits: Mapping[str, int] = field(default_factory=dict)
    after: tuple[tuple[int, ...], ...] = ()
    external: Mapping[str, str] = field(default_factory=dict)

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
    def host_steps(self) -> tuple[Step, ...]:
        """Operators that run in Python."""
        return tuple(s for s in self.steps if s.kind == "host")

    @property
    def python_steps(self) -> tuple[Step, ...]:
        """Steps that need Python: operators of the host, and control flow around compiled bodies."""
        return tuple(s for s in self.steps if s.kind in ("host", "control"))

    def to_json(self) -> str:
        """Stable text of the whole plan."""
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
        }
        return json.dumps(data, separators=(",", ":"), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Plan:
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
        )  # fmt: skip

    def __str__(self) -> str:
        return plan_text(self)


def build_plan(
    graph: Graph, groups: Sequence[Group], symbols: Mapping[str, Abi],
    planner: str | None = None, window: int = 0, contiguous: Groups = (),
) -> Plan:  # fmt: skip
    """Places and steps for `groups` (in execution order).

    `symbols` maps a group's key to its kernel's symbol, the names of its arguments in ABI order (the Scop's
    arrays and its scratch), and name and bytes of its scratch.
    `planner` names one of `memory.PLANNERS` (None: the cheapest that reaches the lower bound,
    the exact search last). The placement is proved free of overlaps before it is returned.
    `window`: independent steps may run at the same time, and those up to so many steps apart get memory apart for
    that (`polyc.graph_driver.planning.tasks`); 0: all run in order.
    `contiguous`: groups of tensors that lie one behind the other.
    """
    inside = memory_of(graph, groups)
    root = {name: where for name, (where, _) in inside.items()}
    steps: list[Step] = []
    scratch: dict[str, int] = {}
    external: dict[str, str] = {}
    hosts = 0
    for g in groups:
        names = tuple(n.name for n in g.nodes)
        if not g.key and not g.in_python:
            (node,) = g.nodes
            call = call_of(node)
            assert call is not None
            external[call.external.symbol] = call.external.name
            args = (*node.inputs, *node.outputs)
            steps.append(Step("kernel", g.label, args, g.outputs, names, call.external.symbol, sizes=call.sizes))
        elif not g.key:
            (node,) = g.nodes
            args = tuple(i for i in node.inputs if i)
            if node.bodies:
                steps.append(Step("control", g.label, args, g.outputs, names, "", hosts, node.captures))
            else:
                steps.append(Step("host", g.label, args, g.outputs, names, "", hosts, node.captures, g.reason))
            hosts += 1
        else:
            symbol, order, needs = symbols[g.key]
            own = {name: f"{name}@step{len(steps)}" for name, _ in needs}
            scratch |= {own[name]: int(size) for name, size in needs}
            by_array = dict(zip(g.arrays, (*g.inputs, *g.kept), strict=True)) | own
            args = tuple(by_array[a] for a in order)
            steps.append(Step("kernel", g.label, args, g.outputs, names, symbol, scratch=tuple(own.values())))
    places, copies = _fixed_places(graph, root)
    steps += (step for _, step in copies)
    used = {root[n] for s in steps for n in (*s.args, *s.captures) if n in root} | {root[o] for o in graph.outputs}
    weight_bytes = _place_weights(graph, used, places)
    times = [(k, k) for k in range(len(steps))]
    if window:
        sizes = scratch | {n: t.nbytes for n, t in graph.tensors.items() if isinstance(t.nbytes, int)}
        times = tasks.times(steps, inside, sizes, window)
    shapes = _lifetimes(graph, inside, steps, places, times) + _scratch(steps, scratch, times)
    shapes, members = gathered(shapes, contiguous)
    planned = memory.plan_shapes(shapes, planner)
    placement, lifetimes = planned.placement, [t for s in shapes for _, t in s.runs]
    alone = {n: o for n, o in placement.offsets.items() if n not in {group for group, _ in members.values()}}
    for name, offset in (alone | offsets_of(members, placement.offsets)).items():
        places[name] = Place("arena", 0, offset)
    slots = {n: _slot(graph.tensors[n], _at(places[r], at)) for n, (r, at) in inside.items() if r in places}
    slots |= {n: Slot(n, "u8", (size,), places[n], size) for n, size in scratch.items()}
    for k, step in copies:
        slots[step.args[1]] = replace(slots[step.args[0]], name=step.args[1], place=Place("output", k))
    plan = Plan(
        tuple(graph.inputs), tuple(graph.outputs), slots, tuple(steps),
        placement.peak, memory.lower_bound(lifetimes), weight_bytes, tuple(lifetimes),
        {n: where for n, where in storage(graph).items() if n in slots and where != (n, 0)},
        planned.planner, planned.peaks, index_limits(graph), external=external,
    )  # fmt: skip
    return replace(plan, after=tasks.dependences(plan)) if window else plan


def memory_of(graph: Graph, groups: Sequence[Group]) -> dict[str, tuple[str, int]]:
    """The tensor whose memory each tensor uses, and where in it (views, parts, results in place)."""
    inside = storage(graph)
    over: dict[str, str] = {}
    for g in groups:
        over |= {inside[y][0]: inside[x][0] for y, x in g.inplace}

    def first(root: str) -> str:
        while root in over:
            root = over[root]
        return root

    return {name: (first(root), at) for name, (root, at) in inside.items()}


def _at(place: Place, offset: int) -> Place:
    return place if offset == 0 or place.kind == "host" else replace(place, offset=place.offset + offset)


def _slot(tensor: Tensor, place: Place) -> Slot:
    if not tensor.static or place.kind == "host" or tensor.dtype is None:
        return Slot(tensor.name, None, None, Place("host"), 0)
    return Slot(tensor.name, tensor.dtype.name, tensor.shape, place, tensor.nbytes, tensor.layout)


def _fixed_places(graph: Graph, root: Mapping[str, str]) -> tuple[dict[str, Place], list[tuple[int, Step]]]:
    """Inputs, outputs and host values; and copies (by output number) for outputs that cannot
    have their memory alone: constants, inputs, and tensors returned twice."""
    places = {name: Place("input", k) for k, name in enumerate(graph.inputs) if graph.tensors[name].static}
    for name, tensor in graph.tensors.items():
        if not tensor.static and root[name] == name:
            places[name] = Place("host")
    copies = []
    for k, name in enumerate(graph.outputs):
        r = root[name]
        if r in places and places[r].kind == "host":
            continue
        if r not in places and graph.tensors[r].const is None:
            places[r] = Place("output", k)
            continue
        copies.append((k, Step("copy", "Copy", (name, f"{name}@output{k}"), (f"{name}@output{k}",))))
    return places, copies


def _place_weights(graph: Graph, used: set[str], places: dict[str, Place]) -> int:
    end = 0
    for name, tensor in graph.tensors.items():
        if tensor.const is None or name not in used or name in places:
            continue
        places[name] = Place("weight", 0, end)
        end += memory.aligned(tensor.nbytes)
    return end


def _lifetimes(
    graph: Graph,
    inside: Mapping[str, tuple[str, int]],
    steps: Sequence[Step],
    places: Mapping[str, Place],
    times: Sequence[tuple[int, int]],
) -> list[memory.Shape]:
    """What belongs in the arena: for each memory its runs of bytes, from first write to last use.

    A whole whose parts are made one after another is alive part by part. `times` are the first and last step
    beside which each step may run.
    """
    uses: dict[str, list[tuple[int, int, int]]] = {}  # memory -> (begin, end, step)
    for k, step in enumerate(steps):
        for name in dict.fromkeys((*step.args, *step.results, *step.captures)):
            root, at = inside.get(name, ("", 0))
            if not root or root in places:
                continue
            begin, end = at, at + graph.tensors[name].nbytes
            made = sum(min(e, end) - max(b, begin) for b, e in _union(uses.get(root, [])) if b < end and begin < e)
            if name not in step.results and made < end - begin:
                raise GraphError(f"step {k} ({step.label}) reads '{name}' before it is made")
            uses.setdefault(root, []).append((begin, end, k))
    return [_shape(root, found, times) for root, found in uses.items()]


def _scratch(steps: Sequence[Step], sizes: Mapping[str, int], times: Sequence[tuple[int, int]]) -> list[memory.Shape]:
    """Memory that one step alone needs; records of violated accesses are looked at when all is done."""
    last = max((until for _, until in times), default=0)
    return [
        memory.Shape(name, ((0, memory.Lifetime(name, sizes[name], first, last if is_record(name) else until)),))
        for (first, until), step in zip(times, steps, strict=True)
        for name in step.scratch
    ]


def is_record(scratch: str) -> bool:
    """Whether memory of a step is its record of violated accesses (`polyc.poly.violations`)."""
    return scratch.startswith(RECORD)


def _union(uses: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """The bytes touched so far as disjoint runs."""
    out: list[tuple[int, int]] = []
    for begin, end, _ in sorted(uses):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def _shape(root: str, uses: Sequence[tuple[int, int, int]], times: Sequence[tuple[int, int]]) -> memory.Shape:
    last = max(end for _, end, _ in uses)
    # Parts begin at multiples of the alignment; one that ends elsewhere takes the rest of its cache line.
    uses = [(begin, min(memory.aligned(end), last), k) for begin, end, k in uses]
    cuts = sorted({c for begin, end, _ in uses for c in (begin, end)})
    runs = []
    for begin, end in zip(cuts, cuts[1:]):
        touching = [k for b, e, k in uses if b <= begin and end <= e]
        if touching:
            name = root if (begin, end) == (cuts[0], cuts[-1]) else f"{root}+{begin}"
            first, last = min(times[k][0] for k in touching), max(times[k][1] for k in touching)
            runs.append((begin, memory.Lifetime(name, end - begin, first, last)))
    return memory.Shape(root, tuple(runs))


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
    if detail:
        lines += [f"planner {name:15s} {human(peak)}" for name, peak in plan.peaks.items()]
        for t in sorted(plan.lifetimes, key=lambda t: (t.first, t.name)):
            offset = plan.offset_of(t.name)
            lines.append(f"  {offset:>12d} +{t.size:<10d} steps {t.first}..{t.last}  {t.name}")
    return "\n".join(lines)
