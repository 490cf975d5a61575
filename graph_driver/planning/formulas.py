"""What a plan of formulas has beside its numbers, as plain data for the manifest of a compiled directory, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from polyc.graph_driver.graph.size import Extent, Size, from_data, to_data
from polyc.graph_driver.graph.symbols import Guard, Symbols
from polyc.graph_driver.memory import PlanError
from polyc.graph_driver.planning.arena import Arena, maximum_text
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Place, Slot, Step
from polyc.graph_driver.planning.table import Table, with_table
from polyc.graph_driver.planning.tasks import before
from polyc.graph_driver.planning.verify_plan import closure
from polyc.poly.dtypes import BY_NAME

KINDS = ("<", "=", ">=")


def lines(plan: Plan) -> list[str]:
    """Symbols, guards and the formulas of the memory, for people."""
    symbols, arena = _formulas(plan)
    sizes = {n: plan.slots[n].nbytes for n in arena.order}
    peak, bound = (maximum_text(f(symbols, sizes)) for f in (arena.peak, arena.bound))
    return [*symbols.lines(), f"arena bytes {peak}, and up to 63 a tensor", f"bound bytes {bound}"]


def _formulas(plan: Plan) -> tuple[Symbols, Arena]:
    assert plan.symbols is not None and plan.arena is not None
    return plan.symbols, plan.arena


def formulas_to_data(plan: Plan) -> dict[str, Any]:
    """Everything that `plan.at` the representative sizes does not have."""
    (s, a), table = _formulas(plan), Table(plan)
    numbers = [n for k in table.sizes for n in _sizes(plan, k)]
    return {
        "ranges": {n: [r.low, r.high, r.typical, r.key] for n, r in s.ranges.items()},
        "reasons": dict(s.reasons),
        "guards": [[to_data(g.size), g.kind, g.reason] for g in s.guards],
        "shapes": {
            n: [to_data(e) for e in slot.shape]
            for n, slot in plan.slots.items()
            if slot.shape is not None and any(isinstance(e, Size) for e in slot.shape)
        },
        "arena": [[n, list(a.below[n]), to_data(plan.slots[n].nbytes), list(a.steps[n])] for n in a.order],
        "homes": {
            n: [a.order[slot.place.index], slot.place.offset]
            for n, slot in plan.slots.items()
            if slot.place.kind == "arena"
        },
        "numbers": [to_data(n) for n in numbers],
        "params": [-1 if s.kind == "copy" else table.sizes.get(k, -1) for k, s in enumerate(plan.steps)],
        "copies": [[k, at] for k, at in table.sizes.items() if plan.steps[k].kind == "copy"],
        "values": {n: [to_data(e) for e in v] for n, v in plan.values.items()},
    }


def _sizes(plan: Plan, step: int) -> Sequence[Extent]:
    """What a step has in the table."""
    found = plan.steps[step]
    return [plan.slots[found.args[0]].nbytes] if found.kind == "copy" else found.sizes


def formulas_from_data(data: Mapping[str, Any], usual: Plan[int]) -> Plan:
    """The plan of formulas back; `usual` is the one at the representative sizes.

    Raises:
        PlanError: the formulas contradict it, or two tensors could overlap; ValueError, TypeError, KeyError,
            IndexError: the data are no formulas.
    """
    symbols = Symbols()
    for name, (low, high, often, key) in data["ranges"].items():
        symbols.new(str(name), int(low), None if high is None else int(high), int(often), str(key))
    symbols.reasons.update({str(n): str(r) for n, r in data["reasons"].items()})

    def size(raw: Any) -> Extent:
        return from_data(symbols, raw)

    for raw, kind, reason in data["guards"]:
        found = size(raw)
        if kind not in KINDS or not isinstance(found, Size):
            raise ValueError("guard")
        symbols.guards.append(Guard(found, kind, str(reason)))
    rows = data["arena"]
    arena = Arena(
        tuple(str(n) for n, *_ in rows),
        {str(n): tuple(map(str, below)) for n, below, *_ in rows},
        {str(n): (int(first), int(last)) for n, _, _, (first, last) in rows},
    )
    shapes = {str(n): tuple(size(e) for e in shape) for n, shape in data["shapes"].items()}
    homes = {str(n): (str(home), int(at)) for n, (home, at) in data["homes"].items()}
    values = {str(n): tuple(size(e) for e in v) for n, v in data["values"].items()}
    for name in (*shapes, *values, *homes, *arena.order):
        if name not in usual.slots:
            raise PlanError(f"'{name}' has formulas but no place")
    plan: Plan = replace(
        usual, slots=_slots(usual, arena, shapes, homes), lifetimes=(), symbols=symbols, arena=arena,
        steps=_steps(usual, [size(n) for n in data["numbers"]], data["params"], data["copies"]),
        values={n: values[n] for n in usual.slots if n in values},
    )  # fmt: skip
    plan = replace(plan, slots=with_table(plan))
    _check_table(plan, len(data["numbers"]), data["params"], data["copies"])
    check_formulas(plan)
    bound = plan.at(symbols.typical)
    Table(plan).filled(bound, symbols.typical)
    for name in shapes:
        if (bound.slots[name].shape, bound.slots[name].nbytes) != (usual.slots[name].shape, usual.slots[name].nbytes):
            raise PlanError(f"the formulas of '{name}' contradict the plan")
    for step, known in zip(bound.steps, usual.steps, strict=True):
        if step.kind != "copy" and known.sizes and step.sizes != known.sizes:  # older directories have none
            raise PlanError(f"the formulas of the sizes of {known.label} contradict the plan")
    return plan


def _slots(
    usual: Plan[int], arena: Arena, shapes: Mapping[str, tuple[Extent, ...]], homes: Mapping[str, tuple[str, int]]
) -> dict[str, Slot]:
    """The slots with formulas in place of numbers; those of the arena know the memory that they lie in."""
    number = {n: k for k, n in enumerate(arena.order)}
    found: dict[str, Slot] = {}
    for name, slot in usual.slots.items():
        place, shape = slot.place, shapes.get(name, slot.shape)
        nbytes: Extent = slot.nbytes
        if place.kind == "arena":
            home, at = homes.get(name, ("", 0))
            if home not in number:
                raise PlanError(f"'{name}' has no home in the arena")
            place = Place("arena", number[home], at)
        if name in shapes and slot.dtype is not None:
            nbytes = prod(shapes[name], start=BY_NAME[slot.dtype].bytes)
        found[name] = Slot(name, slot.dtype, shape, place, nbytes, slot.layout)
    return found


def _steps(
    usual: Plan[int], numbers: Sequence[Extent], params: Sequence[int], copies: Sequence[Sequence[int]]
) -> tuple[Step, ...]:
    """The steps with what their kernels get of the sizes: from the entry in `params` (-1: nothing) to the next."""
    if len(params) != len(usual.steps):
        raise PlanError("the sizes of some steps are missing")
    steps: Sequence[Step] = usual.steps
    ends = sorted([p for p in params if p >= 0] + [at for _, at in copies] + [len(numbers)])
    return tuple(
        replace(step, sizes=tuple(numbers[p : ends[ends.index(p) + 1]])) if p >= 0 else step
        for step, p in zip(steps, params, strict=True)
    )


def _check_table(plan: Plan, count: int, params: Sequence[int], copies: Sequence[Sequence[int]]) -> None:
    """Machine code has where its sizes are in the table. Raises `PlanError`: the steps have them elsewhere."""
    table = Table(plan)
    if table.sizes != {k: p for k, p in enumerate(params) if p >= 0} | {k: at for k, at in copies}:
        raise PlanError("a step reads sizes that are not its own")
    if table.offsets != count:
        raise PlanError("a step reads sizes beyond the table")


def check_formulas(plan: Plan) -> None:
    """Whatever is alive together is stacked, what lies in the arena fits into its memory, and what shares memory is in
    order.

    Raises:
        PlanError: the first contradiction.
    """
    symbols, arena = _formulas(plan)
    under: dict[str, set[str]] = {}
    for name in arena.order:
        if any(s not in under for s in arena.below[name]):
            raise PlanError(f"'{name}' rests on something above it")
        under[name] = {s for b in arena.below[name] for s in (b, *under[b])}
    for k, name in enumerate(arena.order):
        first, last = arena.steps[name]
        for other in arena.order[:k]:
            begin, end = arena.steps[other]
            if first <= end and begin <= last and other not in under[name]:
                raise PlanError(f"'{other}' and '{name}' are alive together and not stacked")
    _check_after(plan)
    bound = plan.at(symbols.typical)
    for name, slot in bound.slots.items():
        if slot.place.kind == "arena" and slot.place.offset + slot.nbytes > bound.peak:
            raise PlanError(f"'{name}' lies outside of the arena")


def _check_after(plan: Plan) -> None:
    """The steps wait for all that they must wait for at any sizes. Raises `PlanError`."""
    if not plan.after:
        return
    for k, (must, has) in enumerate(zip(before(plan), closure(plan), strict=True)):
        if must & ~has:
            other = (must & ~has).bit_length() - 1
            raise PlanError(f"steps {other} and {k} may run together, but share memory at some sizes")
