"""A plan for groups in order: steps, lifetimes, and a place in memory for everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from polyc.graph_driver import memory
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.aliases import storage
from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.external import call_of
from polyc.graph_driver.graph.ir import Graph, Tensor
from polyc.graph_driver.graph.size import Extent, evaluate, size_of
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.planning import tasks
from polyc.graph_driver.planning.arena import Arena, stacked
from polyc.graph_driver.planning.contiguous import Groups, gathered, offsets_of, why_elsewhere
from polyc.graph_driver.planning.dying import allowed
from polyc.graph_driver.planning.index_limits import index_limits
from polyc.graph_driver.planning.plan import Abi, Plan, is_record, numbered
from polyc.graph_driver.planning.slots import Place, Slot, Step
from polyc.graph_driver.planning.table import with_table
from polyc.poly.expr import const_int, substitute
from polyc.poly.json_io import load_expr

QUICK_PLANNERS = ("greedy-by-size", "best-fit", "two-cursor")
"""Those that are tried for formulas when none is named: what is best at the representative sizes need not be so at
others."""

Gaps = Mapping[str, Sequence[tuple[str, str, int, int]]]
"""By a group's key, `polyc.graph_driver.backends.compiled.Compiled.gaps` of its code."""
NO_GAPS: Gaps = {}


def build_plan(
    graph: Graph, groups: Sequence[Group], abis: Mapping[str, Abi],
    planner: str | None = None, window: int = 0, contiguous: Groups = (),
    gaps: Gaps = NO_GAPS, alignment: int = memory.ALIGNMENT,
) -> Plan:  # fmt: skip
    """Places and steps for `groups` (in execution order).

    `abis` maps a group's key to its kernel's symbol, the names of its arguments in ABI order (the Scop's
    arrays and its scratch), and name and bytes of its scratch.
    `planner` names one of `memory.PLANNERS` (None: the cheapest that reaches the lower bound, the exact search last;
    of formulas one of `QUICK_PLANNERS`). The placement is proved free of overlaps before it is returned.
    `window`: independent steps may run at the same time, and those up to so many steps apart get memory apart for
    that (`polyc.graph_driver.planning.tasks`); 0: all run in order.
    `gaps`: by a group's key, which arrays of its kernel may overlap and how far apart they must begin
    (`polyc.emit.loop_ir.overlap`); then tensors may lie over others that die while they are made. Not in a `window`.
    `alignment`: bytes of which the begin of every memory of the arena, and of every weight, is a multiple.
    `contiguous`: groups of tensors that lie one behind the other; not where sizes are formulas.

    Of a graph with symbolic sizes the placement is made at the representative ones, and says which of two tensors lies
    below at all sizes (`polyc.graph_driver.planning.arena`).
    """
    symbols = graph.symbols
    usual: Mapping[str, int] = {} if symbols is None else symbols.typical
    inside = memory_of(graph, groups)
    root = {name: where for name, (where, _) in inside.items()}
    steps, scratch, external = _steps(graph, groups, abis)
    places, copies = _fixed_places(graph, root)
    steps += (step for _, step in copies)
    used = {root[n] for s in steps for n in (*s.args, *s.captures) if n in root} | {root[o] for o in graph.outputs}
    weight_bytes = _place_constants(graph, used, places, alignment)
    times = [(k, k) for k in range(len(steps))]
    sizes = {n: evaluate(t.nbytes, usual) for n, t in graph.tensors.items() if t.static}
    own = {n: evaluate(size, usual) for n, size in scratch.items()}
    if window:
        times = tasks.times(steps, inside, own | sizes, window)
    shapes = _lifetimes(sizes, inside, steps, places, times) + _scratch(steps, own, times)
    shapes, members = gathered(shapes, contiguous, partial(why_elsewhere, graph, inside))
    by_symbol = {abis[key][0]: numbered(abis[key][1], found) for key, found in gaps.items() if found}
    overlaps: memory.Overlaps = {}
    if by_symbol and not window and not contiguous and symbols is None:
        overlaps = allowed(steps, inside, sizes | own, shapes, by_symbol)
    planned = memory.plan_overlapping(shapes, overlaps) if overlaps else _planned(shapes, planner, symbols, alignment)
    placement, lifetimes = planned.placement, tuple([t for s in shapes for _, t in s.runs])
    alone = {n: o for n, o in placement.offsets.items() if n not in {group for group, _ in members.values()}}
    offsets = alone | offsets_of(members, placement.offsets)
    arena = None if symbols is None else stacked(offsets, [s.hull for s in shapes])
    for k, name in enumerate(offsets if arena is None else arena.order):
        places[name] = Place("arena", 0, offsets[name]) if arena is None else Place("arena", k)
    slots = {n: _slot(graph.tensors[n], _at(places[r], at)) for n, (r, at) in inside.items() if r in places}
    slots |= {n: Slot(n, "u8", (size,), places[n], size) for n, size in scratch.items()}
    for k, step in copies:
        slots[step.args[1]] = replace(slots[step.args[0]], name=step.args[1], place=Place("output", k))
    bound = memory.lower_bound(lifetimes, alignment)
    if overlaps:
        from polyc.graph_driver.memory.overlapping import reduced_bound  # of `--memory minimal` alone

        bound = reduced_bound(shapes, overlaps)
    plan: Plan = Plan(
        tuple(graph.inputs), tuple(graph.outputs), slots, tuple(steps),
        placement.peak, bound, weight_bytes, lifetimes,
        {n: where for n, where in storage(graph).items() if n in slots and where != (n, 0)},
        planned.planner, planned.peaks, index_limits(graph, usual), external=external,
        gaps=by_symbol if overlaps else {}, overlaps=overlaps, alignment=alignment,
    )  # fmt: skip
    if symbols is not None:
        plan = _of_formulas(plan, graph, symbols, arena)
    return replace(plan, after=tasks.dependences(plan)) if window else plan


def _of_formulas(plan: Plan, graph: Graph, symbols: Symbols, arena: Arena | None) -> Plan:
    """The plan of a graph with symbolic sizes with all that one of numbers has not."""
    known = {n: t.sizes for n, t in graph.tensors.items() if t.sizes is not None}
    values = {n: tuple(known[n].reshape(-1)) for n in plan.slots if n in known}
    plan = replace(plan, lifetimes=(), symbols=symbols, arena=arena, values=values)
    plan = replace(plan, slots=with_table(plan))
    usual = plan.at(symbols.typical)
    return replace(plan, peak=usual.peak, bound=usual.bound)


def _steps(
    graph: Graph, groups: Sequence[Group], abis: Mapping[str, Abi]
) -> tuple[list[Step], dict[str, Extent], dict[str, str]]:
    """A step for each group; the bytes of their scratch; the names of registered functions by symbol."""
    steps: list[Step] = []
    scratch: dict[str, Extent] = {}
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
            symbol, order, needs = abis[g.key]
            given = updated(graph, g)
            steps += [Step("copy", "Copy", (name, over), (over,)) for name, over in given.items()]
            own = {name: f"{name}@step{len(steps)}" for name, _ in needs}
            scratch |= {own[name]: _extent(graph.symbols, g, size) for name, size in needs}
            by_array = dict(zip(g.arrays, (*(given.get(i, i) for i in g.inputs), *g.kept), strict=True)) | own
            args = tuple(by_array[a] for a in order)
            sizes = _parameters(graph.symbols, g)
            steps.append(
                Step("kernel", g.label, args, g.outputs, names, symbol, scratch=tuple(own.values()), sizes=sizes)
            )
    return steps, scratch, external


def updated(graph: Graph, group: Group) -> dict[str, str]:
    """The inputs of the model, or views of them, of which the group changes a copy, and the output that is the copy."""
    where = storage(graph) if group.inplace else {}
    return {x: y for y, x in group.inplace if where[x][0] in graph.inputs}


def _extent(symbols: Symbols | None, group: Group, size: int | str) -> Extent:
    """Bytes of a kernel's scratch, a number or a formula."""
    if symbols is None or isinstance(size, int):
        return int(size)
    rows = {p: const_int(first) for p, first in group.first_rows}
    return size_of(symbols, substitute(load_expr(size), rows))


def _parameters(symbols: Symbols | None, group: Group) -> tuple[Extent, ...]:
    """What a kernel gets of the model's sizes, and its first rows."""
    if symbols is None or group.scop is None:
        return ()
    rows = dict(group.first_rows)
    return tuple(rows[p] if p in rows else symbols.formula(p) for p in group.scop.params)


def _planned(
    shapes: Sequence[memory.Shape], planner: str | None, symbols: Symbols | None, alignment: int
) -> memory.Planned:
    """The placement by the planner that is named, else by the best."""
    if symbols is None or planner is not None:
        return memory.plan_shapes(shapes, planner, alignment)
    found = [memory.plan_shapes(shapes, name) for name in QUICK_PLANNERS]
    best = min(found, key=lambda p: p.placement.peak)
    return replace(best, peaks={p.planner: p.placement.peak for p in found})


def memory_of(graph: Graph, groups: Sequence[Group]) -> dict[str, tuple[str, int]]:
    """The tensor whose memory each tensor uses, and where in it (views, parts, results in place)."""
    inside = storage(graph)
    over: dict[str, str] = {}
    for g in groups:
        over |= {inside[y][0]: inside[x][0] for y, x in g.inplace if inside[x][0] not in graph.inputs}

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
    copies: list[tuple[int, Step]] = []
    for k, name in enumerate(graph.outputs):
        r = root[name]
        if r in places and places[r].kind == "host":
            continue
        if r not in places and graph.tensors[r].const is None and graph.tensors[r].sizes is None:
            places[r] = Place("output", k)
            continue
        copies.append((k, Step("copy", "Copy", (name, f"{name}@output{k}"), (f"{name}@output{k}",))))
    return places, copies


def _place_constants(graph: Graph, used: set[str], places: dict[str, Place], alignment: int) -> int:
    """Weights, and tensors that follow from sizes (where in the table, is known when the steps are); the weights'
    bytes."""
    end = 0
    for name, tensor in graph.tensors.items():
        if name not in used or name in places:
            continue
        if tensor.sizes is not None:
            places[name] = Place("table")
        elif tensor.const is not None:
            places[name] = Place("weight", 0, end)
            end += memory.aligned(tensor.nbytes, alignment)
    return end


def _lifetimes(
    sizes: Mapping[str, int],
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
            begin, end = at, at + sizes[name]
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
    if not runs:  # nothing but tensors without elements, which a step in Python may well make
        first, until = min(times[k][0] for _, _, k in uses), max(times[k][1] for _, _, k in uses)
        runs.append((0, memory.Lifetime(root, 0, first, until)))
    return memory.Shape(root, tuple(runs))
