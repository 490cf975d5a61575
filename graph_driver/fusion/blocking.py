"""What stands against running two neighbouring kernels as one nest: the dependence that joined loops would break."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.wording import one_line
from polyc.poly.errors import IllegalSchedule, PolycError
from polyc.poly.expr import Const
from polyc.poly.quota import quota
from polyc.poly.rewriting.compose import compose
from polyc.poly.rewriting.reshape import reshaped
from polyc.poly.scop import Scop
from polyc.poly.tree import Sequence as Parts
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Plan, first_loops

OPERATIONS = 2_000_000
"""isl operations for one pair (a second or so)."""


def blocked_pairs(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Each pair of kernels of which one reads what the other makes: their labels, the tensor (`t` in the reason), and
    the dependence that joining their loops, as they stand and outermost first, would break, or that there is none."""
    found, known = [], dict[tuple[str, str, str], tuple[bool, str]]()
    makers = {o: g for g in groups for o in g.outputs if g.scop is not None}
    for second in groups:
        for tensor in second.inputs if second.scop is not None else ():
            first = makers.get(tensor)
            if first is None or first is second:
                continue
            key = (first.key, second.key, str(second.inputs.index(tensor)))
            if key not in known:
                known[key] = _blocking(first, second, tensor)
            legal, reason = known[key]
            ends = {"from": first.label, "to": second.label}
            found.append({**ends, "tensor": tensor, "legal": legal, "reason": reason})
    return found


def _blocking(first: Group, second: Group, tensor: str) -> tuple[bool, str]:
    """Whether all loops of the shallower nest could be joined, and what would break else."""
    try:
        with quota(OPERATIONS):
            scop, (a, b) = _pair(first, second, tensor)
            start = replace(Schedule.start(scop), terse=True)
            plan = Plan(start, 0)
            loops = [[m.name for m in plan.nest(name)[0]] for name in (a, b)]
            depth = min(map(len, loops))
            for k in range(1, depth + 1):
                start.fuse(loops[0][:k], loops[1][:k])
    except IllegalSchedule as error:
        return False, one_line(error).split(" is illegal: ", 1)[-1]
    except PolycError as error:
        return False, one_line(error)
    return True, f"{depth} loops could be joined (from {a} and {b}), no strategy gains by that"


def _pair(first: Group, second: Group, tensor: str) -> tuple[Scop, tuple[str, str]]:
    """Both Scops one after the other, and the loops that meet: the last nest of one and the first that follows."""
    assert first.scop is not None and second.scop is not None
    names = {t: f"t_{k}" for k, t in enumerate(dict.fromkeys((*first.inputs, *first.outputs, *second.inputs,
                                                              *second.outputs)))} | {tensor: "t"}  # fmt: skip
    over = {i: o for o, i in first.inplace}
    one = {a: names[over.get(i, i)] for a, i in zip(first.scop.args, first.inputs)} | _results(first, names)
    two = {a: names[i] for a, i in zip(second.scop.args, second.inputs)} | _results(second, names)
    array = next(a for a, name in two.items() if name == "t")
    made = first.scop.arrays[next(a for a, name in one.items() if name == "t")]
    shape = [int(e.value) for e in made.shape if isinstance(e, Const)]
    reader = second.scop
    if len(shape) == len(made.shape) and all(isinstance(e, Const) for e in reader.arrays[array].shape):
        reader = reshaped(reader, array, shape)
    results = [*_results(first, names).values(), *_results(second, names).values()]
    inputs = [n for n in dict.fromkeys((*one.values(), *two.values())) if n not in results]
    scop = compose("pair", [(first.scop, one), (reader, two)], inputs, results)
    assert isinstance(scop.tree, Parts)
    heads = [(set(f.domain), first_loops(f.child)[:1]) for f in scop.tree.filters]
    theirs = len(first.scop.statements)
    count = 0
    for (domain, head), (_, following) in zip(heads, heads[1:]):
        count += len(domain)
        if count >= theirs:
            if not head or not following:
                raise IllegalSchedule("one of them has no loop")
            return scop, (head[0], following[0])
    raise IllegalSchedule("one of them has no loop")


def _results(group: Group, names: Mapping[str, str]) -> dict[str, str]:
    assert group.scop is not None
    return {a: names[t] for a, t in zip(group.scop.results, group.kept)}
