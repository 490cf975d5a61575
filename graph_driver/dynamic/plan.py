"""The plan of a model whose sizes are formulas, and the plan for given sizes that follows from it.

A `Template` is a plan made at the representative sizes together with the formulas of everything
in it that depends on sizes. `bind` puts numbers in: the result is an ordinary `Plan` and a
table of 64-bit integers with what the native program and the kernels need (sizes, offsets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from polyc.graph_driver import memory
from polyc.graph_driver.dynamic.arena import Arena, maximum_text, stacked
from polyc.graph_driver.dynamic.infer import at_typical, is_symbolic
from polyc.graph_driver.dynamic.size import Extent, Size, evaluate, size_of
from polyc.graph_driver.dynamic.symbols import Symbols
from polyc.graph_driver.dynamic.tasks import before
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.ir import Graph
from polyc.graph_driver.planning.plan import Abi, Place, Plan, build_plan, memory_of
from polyc.graph_driver.planning.tasks import direct
from polyc.poly.dtypes import BY_NAME
from polyc.poly.json_io import load_expr


@dataclass(frozen=True)
class Bound:
    """A template with numbers: the plan, and the table that the program reads."""

    plan: Plan
    table: np.ndarray


@dataclass(frozen=True)
class Template:
    """`typical` is the plan at the representative sizes; its steps hold for all sizes.

    `shapes` has the slots whose sizes are formulas, `arena` the order of what lies in the arena,
    `homes` for each slot there which of those it lies in, and where. The table of a run holds, in this
    order: `numbers` (formulas: kernel parameters and sizes of copies), the offsets of `arena.order`,
    then the elements of `values` (small integer tensors that follow from sizes), each from an
    8-byte boundary on. `params` has for each step the entry where its parameters begin (-1: none),
    `copies` the entry with the bytes that a copy moves.
    """

    symbols: Symbols
    typical: Plan
    shapes: Mapping[str, tuple[Extent, ...]]
    arena: Arena
    homes: Mapping[str, tuple[str, int]]
    numbers: tuple[Extent, ...]
    params: tuple[int, ...]
    copies: Mapping[int, int]
    values: Mapping[str, tuple[Extent, ...]]

    @property
    def offsets_at(self) -> int:
        """Entry of the first offset."""
        return len(self.numbers)

    def values_at(self) -> dict[str, int]:
        """Entry of the first element of each tensor in `values`."""
        found, at = {}, self.offsets_at + len(self.arena.order)
        for name in self.values:
            found[name] = at
            at += -(-self.typical.slots[name].nbytes // 8)
        return found

    @property
    def entries(self) -> int:
        """Length of the table."""
        last = sum(-(-self.typical.slots[name].nbytes // 8) for name in self.values)
        return max(1, self.offsets_at + len(self.arena.order) + last)

    def lines(self) -> list[str]:
        """Symbols, guards and the formulas of the memory, for people."""
        peak, bound = (maximum_text(f(self.symbols)) for f in (self.arena.peak, self.arena.bound))
        return [*self.symbols.lines(), f"arena bytes {peak}, and up to 63 a tensor", f"bound bytes {bound}"]

    def bind(self, values: Mapping[str, int]) -> Bound:
        """The plan for these values of the symbols (checked by the caller)."""
        table = np.zeros(self.entries, np.int64)
        table[: len(self.numbers)] = [evaluate(n, values) for n in self.numbers]
        offsets, peak = self.arena.place(values)
        start = self.offsets_at
        table[start : start + len(offsets)] = [offsets[n] for n in self.arena.order]
        for name, at in self.values_at().items():
            slot = self.typical.slots[name]
            raw = table[at:].view(np.uint8)[: slot.nbytes]
            raw.view(BY_NAME[slot.dtype or ""].np)[...] = [evaluate(n, values) for n in self.values[name]]
        slots = {}
        for name, slot in self.typical.slots.items():
            if name in self.shapes and slot.dtype is not None:
                shape = tuple(evaluate(n, values) for n in self.shapes[name])
                slot = replace(slot, shape=shape, nbytes=_bytes(shape, slot.dtype))
            if name in self.homes:
                home, at = self.homes[name]
                slot = replace(slot, place=Place("arena", 0, offsets[home] + at))
            if name in self.values:
                slot = replace(slot, place=Place("table", 0, 8 * self.values_at()[name]))
            slots[name] = slot
        lifetimes = tuple(self.arena.lifetimes(values))
        plan = replace(
            self.typical, slots=slots, peak=peak, bound=memory.lower_bound(lifetimes), lifetimes=lifetimes, peaks={}
        )
        return Bound(plan, table)

    def values_of(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """The symbols' values from the inputs' shapes (their ranks and fixed sizes are checked elsewhere)."""
        found: dict[str, int] = {}
        for name in self.typical.inputs:
            for wanted, given in zip(self.shapes.get(name, ()), shapes[name]):
                if isinstance(wanted, Size):
                    (symbol,) = wanted.symbols()
                    found.setdefault(symbol, int(given))
        return found


def _bytes(shape: Sequence[int], dtype: str) -> int:
    total = BY_NAME[dtype].bytes
    for n in shape:
        total *= n
    return total


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
