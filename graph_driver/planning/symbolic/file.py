"""A template as plain data for the manifest of a compiled directory, and back, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyc.graph_driver.graph.size import Extent, Size, from_data, to_data
from polyc.graph_driver.graph.symbols import Guard, Symbols
from polyc.graph_driver.memory import PlanError
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.symbolic.arena import Arena
from polyc.graph_driver.planning.symbolic.tasks import check_after
from polyc.graph_driver.planning.symbolic.template import Template

KINDS = ("<", "=", ">=")


def template_to_data(t: Template) -> dict[str, Any]:
    """Everything but the plan at the representative sizes."""
    s, a = t.symbols, t.arena
    return {
        "ranges": {n: [r.low, r.high, r.typical, r.key] for n, r in s.ranges.items()},
        "reasons": dict(s.reasons),
        "guards": [[to_data(g.size), g.kind, g.reason] for g in s.guards],
        "shapes": {n: [to_data(e) for e in shape] for n, shape in t.shapes.items()},
        "arena": [[n, list(a.below[n]), to_data(a.sizes[n]), list(a.steps[n])] for n in a.order],
        "homes": {n: list(home) for n, home in t.homes.items()},
        "numbers": [to_data(n) for n in t.numbers],
        "params": list(t.params),
        "copies": [[k, at] for k, at in t.copies.items()],
        "values": {n: [to_data(e) for e in v] for n, v in t.values.items()},
    }


def template_from_data(data: Mapping[str, Any], typical: Plan) -> Template:
    """The template back, for the plan at the representative sizes.

    Raises:
        PlanError: it contradicts the plan, or two tensors could overlap; ValueError, TypeError, KeyError:
            the data are not a template.
    """
    symbols = Symbols()
    for name, (low, high, usual, key) in data["ranges"].items():
        symbols.new(str(name), int(low), None if high is None else int(high), int(usual), str(key))
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
        {str(n): size(raw) for n, _, raw, _ in rows},
        {str(n): (int(first), int(last)) for n, _, _, (first, last) in rows},
    )
    if not data["values"].keys() <= typical.slots.keys():
        raise ValueError("values of tensors that have no place")
    template = Template(
        symbols, typical,
        {str(n): tuple(size(e) for e in shape) for n, shape in data["shapes"].items()},
        arena,
        {str(n): (str(home), int(at)) for n, (home, at) in data["homes"].items()},
        tuple(size(e) for e in data["numbers"]),
        tuple(int(p) for p in data["params"]),
        {int(k): int(at) for k, at in data["copies"]},
        {n: tuple(size(e) for e in data["values"][n]) for n in typical.slots if n in data["values"]},  # as in the table
    )  # fmt: skip
    check_template(template)
    return template


def check_template(t: Template) -> None:
    """The formulas fit the plan, whatever is alive together is stacked, and what shares memory is in order.

    Raises:
        PlanError: the first contradiction.
    """
    plan, arena = t.typical, t.arena
    if len(t.params) != len(plan.steps):
        raise PlanError("the sizes of some steps are missing")
    if any(p >= len(t.numbers) for p in (*t.params, *t.copies.values())) or min((0, *t.copies.values())) < 0:
        raise PlanError("a step reads sizes beyond the table")
    if any(s.kind == "copy" and k not in t.copies for k, s in enumerate(plan.steps)):
        raise PlanError("a copy has no size")
    for name in (*t.shapes, *t.values, *t.homes, *arena.order):
        if name not in plan.slots:
            raise PlanError(f"'{name}' has formulas but no place")
    for name, slot in plan.slots.items():
        if slot.place.kind == "arena" and t.homes.get(name, ("",))[0] not in arena.sizes:
            raise PlanError(f"'{name}' has no home in the arena")
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
    check_after(t)
    bound = t.bind(t.symbols.typical).plan
    for name, slot in bound.slots.items():
        if slot.place.kind == "arena" and slot.place.offset + slot.nbytes > bound.peak:
            raise PlanError(f"'{name}' lies outside of the arena")
        if name in t.shapes and (slot.shape, slot.nbytes) != (plan.slots[name].shape, plan.slots[name].nbytes):
            raise PlanError(f"the formulas of '{name}' contradict the plan")
