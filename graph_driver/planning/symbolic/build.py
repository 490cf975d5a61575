"""The template of a graph with symbolic sizes: plans at the representative ones, and the formulas behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.graph_driver import memory
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.size import Extent, evaluate, size_of
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.inference.symbolic import at_typical, is_symbolic
from polyc.graph_driver.planning.build import build_plan, memory_of
from polyc.graph_driver.planning.plan import Abi
from polyc.graph_driver.planning.symbolic.arena import stacked
from polyc.graph_driver.planning.symbolic.tasks import before
from polyc.graph_driver.planning.symbolic.template import Template
from polyc.graph_driver.planning.tasks import direct
from polyc.poly.json_io import load_expr


def _scratch(symbols: Symbols, size: int | str) -> Extent:
    """Bytes of a kernel's scratch as a formula."""
    return size if isinstance(size, int) else size_of(symbols, load_expr(size))


QUICK_PLANNERS = ("greedy-by-size", "best-fit", "two-cursor")
"""Those that are tried when none is named: what is best at the representative sizes need not be so at others."""


def build_template(
    graph: Graph, groups: Sequence[Group], abis: Mapping[str, Abi], planner: str | None = None, window: int = 0
) -> Template:
    """The plan of a graph with symbolic sizes. `abis` as in `build_plan`.

    `planner` (one of `memory.PLANNERS`) decides at the representative sizes which of two tensors lies below; None:
    the best of `QUICK_PLANNERS` there. `window`: as in `build_plan`, for steps that may run at the same time.
    """
    symbols = graph.symbols
    assert symbols is not None
    numeric = replace(graph, tensors={n: at_typical(t, symbols) for n, t in graph.tensors.items()})
    needs = {k: {n: _scratch(symbols, size) for n, size in wanted} for k, (_, _, wanted) in abis.items()}
    numbered: dict[str, Abi] = {
        k: (symbol, order, tuple((n, evaluate(size, symbols.typical)) for n, size in needs[k].items()))
        for k, (symbol, order, _) in abis.items()
    }
    names = QUICK_PLANNERS if planner is None else (planner,)
    plans = [build_plan(numeric, groups, numbered, name, window) for name in names]
    plan = min(plans, key=lambda p: p.peak)
    inside = memory_of(graph, groups)
    valued = {
        n: tuple(t.sizes.reshape(-1)) for n, t in graph.tensors.items() if t.sizes is not None and n in plan.slots
    }
    shapes = {
        n: t.shape for n, t in graph.tensors.items() if n in plan.slots and is_symbolic(t) and t.shape is not None
    }
    homes = {
        n: inside.get(n, (n, 0))
        for n, slot in plan.slots.items()
        if slot.place.kind == "arena" and slot.dtype is not None
    }
    # In-place results and views share a home whose first tensor may be written by no step of its own.
    placed = {home: plan.slots[home].place.offset for home, _ in homes.values()}
    steps: dict[str, tuple[int, int]] = {}
    for t in plan.lifetimes:
        home = t.name if t.name in plan.slots else t.name.rpartition("+")[0]
        first, last = steps.get(home, (t.first, t.last))
        steps[home] = (min(first, t.first), max(last, t.last))
    tensors = [memory.Lifetime(h, plan.slots[h].nbytes, *steps[h]) for h in placed]
    sizes: dict[str, Extent] = {
        h: graph.tensors[h].nbytes if h in graph.tensors else plan.slots[h].nbytes for h in placed
    }
    numbers: list[Extent] = []
    params, copies = [], {}
    kernels = iter(groups)
    shapes = dict(shapes)
    for k, step in enumerate(plan.steps):
        params.append(-1)
        if step.kind == "copy":
            copies[k] = len(numbers)
            numbers.append(graph.tensors[step.args[0]].nbytes)
            shapes[step.args[1]] = graph.tensors[step.args[0]].shape or ()
            continue
        group = next(kernels)
        for name, size in needs.get(group.key, {}).items():
            if f"{name}@step{k}" in step.scratch:
                sizes[f"{name}@step{k}"] = size
                shapes[f"{name}@step{k}"] = (size,)
        if group.scop is not None and group.scop.params:
            params[-1] = len(numbers)
            numbers += [symbols.formula(p) for p in group.scop.params]
    template = Template(
        symbols, plan, shapes, stacked(placed, tensors, sizes), homes, tuple(numbers), tuple(params), copies, valued
    )
    if not window:
        return template
    return replace(template, typical=replace(plan, after=direct(before(template))))
